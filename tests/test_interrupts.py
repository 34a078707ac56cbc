"""Ctrl-C reaches what DuckDB does, and nothing that comes after."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace

import duckdb
import pytest

from cb_trace import interrupts
from cb_trace.interrupts import Terminated, interruptible, of_interrupt, stopping_queries

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
    assert signal.set_wakeup_fd(-1) == -1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


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


@pytest.mark.parametrize("at", ["the descriptor", "the event", "the join"])
def test_an_interrupt_while_it_ends_leaves_nothing_half_done(
    monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    place = {"the descriptor": signal, "the event": threading.Event, "the join": threading.Thread}
    name = {"the descriptor": "set_wakeup_fd", "the event": "set", "the join": "join"}[at]
    real, before = getattr(place[at], name), threading.active_count()

    def interrupted(*given: object, **more: object) -> object:
        monkeypatch.setattr(place[at], name, real)
        signal.raise_signal(signal.SIGINT)
        return real(*given, **more)

    with pytest.raises(KeyboardInterrupt), stopping_queries():
        monkeypatch.setattr(place[at], name, interrupted)
    assert signal.set_wakeup_fd(-1) == -1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert threading.active_count() == before
    with stopping_queries():
        pass


def test_an_interrupt_as_leaving_begins_waits_for_its_end() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    stopping = stopping_queries()
    stopping.__enter__()
    asked = signal.getsignal(signal.SIGINT)
    assert callable(asked)
    begins = SimpleNamespace(f_code=type(stopping).__exit__.__code__)
    asked(signal.SIGINT, begins)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        stopping.__exit__(None, None, None)
    assert signal.set_wakeup_fd(-1) == -1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_handlers_are_asked_as_before() -> None:
    seen: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    with stopping_queries():
        signal.raise_signal(signal.SIGINT)
    assert seen == [signal.SIGINT]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with stopping_queries():
        signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    signal.signal(signal.SIGINT, signal.default_int_handler)


def terminated(work: Callable[[], object]) -> None:
    """Work that ends of SIGTERM."""
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    with pytest.raises(Terminated), stopping_queries():
        work()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_query_that_runs_ends_with_sigterm() -> None:
    """Whatever DuckDB makes of it."""
    with interruptible(duckdb.connect()) as connection:

        def work() -> None:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
            connection.execute(LONG)

        terminated(work)


def test_a_second_sigterm_leaves_the_clearing_away_alone() -> None:
    cleared: list[str] = []

    def work() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            cleared.append("all")

    terminated(work)
    assert cleared == ["all"]


@pytest.mark.parametrize("again", [False, True])
def test_a_sigterm_that_was_swallowed_ends_it_later(again: bool) -> None:
    met: list[str] = []

    def work() -> None:
        with suppress(BaseException):
            signal.raise_signal(signal.SIGTERM)
        met.append("went on")
        if again:
            signal.raise_signal(signal.SIGTERM)
            met.append("went on")

    terminated(work)
    assert met == ["went on"]


def test_a_forked_process_ends_of_sigterm_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[None] = []
    monkeypatch.setattr(interrupts, "_interrupt_all", lambda: asked.append(None))
    with warnings.catch_warnings(), stopping_queries():
        warnings.simplefilter("ignore")  # of threads in a process that forks
        child = os.fork()
        if not child:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
    assert asked == []


def test_a_sigterm_of_somebody_else_stays_so() -> None:
    seen: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    try:
        with stopping_queries():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert seen == [signal.SIGTERM]
