"""Ctrl-C reaches what DuckDB does, and nothing that comes after."""

from __future__ import annotations

import os
import signal
import threading

import duckdb
import pytest

from cb_trace import interrupts
from cb_trace.interrupts import interruptible, of_interrupt, stopping_queries

LONG = "SELECT count(*) FROM range(100000) a, range(100000) b WHERE (a.range * b.range) % 7 = 3"


def test_a_query_that_runs_is_interrupted() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    connection = interruptible(duckdb.connect())
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    ended: BaseException | None = None
    try:
        with stopping_queries():
            timer.start()
            connection.execute(LONG)
    except (duckdb.Error, KeyboardInterrupt, RuntimeError) as error:
        ended = error
    assert isinstance(ended, KeyboardInterrupt) or of_interrupt(ended)
    connection.close()


def test_nothing_that_comes_after_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    asked: list[bool] = []
    over = threading.Event()
    monkeypatch.setattr(interrupts, "_interrupt_all", lambda: asked.append(over.is_set()))
    before = threading.active_count()
    try:
        with stopping_queries():
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(5)
    except KeyboardInterrupt:
        over.set()
    assert over.is_set()
    assert threading.active_count() == before  # whoever would ask is gone
    assert True not in asked
