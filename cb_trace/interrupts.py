"""Ctrl-C while DuckDB works: the query ends at once, not when it is done.

Python runs a signal's handler in the main thread, between two of its own instructions; there is
none while that thread waits inside DuckDB, which looks for signals only between tasks, and one
join or sort may be one task. The signal's number goes through a pipe instead, to a thread that
interrupts every query.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakSet

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    Connection = TypeVar("Connection", bound=DuckDBPyConnection)

_AGAIN_S = 0.1  # a query may be just about to start when the first interruption comes
_TIMES = 5
_SEEN_BY_DUCKDB = "Query interrupted"  # a RuntimeError, where DuckDB itself looked for signals
_open: WeakSet[DuckDBPyConnection] = WeakSet()


def interruptible(connection: Connection) -> Connection:
    """Let Ctrl-C end what this connection does, while :func:`stopping_queries` is on."""
    _open.add(connection)
    return connection


@contextmanager
def stopping_queries() -> Iterator[None]:
    """Let Ctrl-C interrupt every query.

    Only in the main thread, where signals come; elsewhere nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    source, sink = os.pipe()
    os.set_blocking(sink, False)
    before = signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
    over = threading.Event()
    thread = threading.Thread(target=_watch, args=(source, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        over.set()
        with suppress(OSError):  # full: there is something to read; broken: it has ended
            os.write(sink, b"\0")  # wakes the thread, also where a forked process holds the pipe
        os.close(sink)
        thread.join()  # what others ask of DuckDB from now on is none of its business


def of_interrupt(error: BaseException | None) -> bool:
    """Whether an error is what DuckDB, or who called it, made of an interruption."""
    while error is not None:
        if type(error).__name__ == "InterruptException" or str(error) == _SEEN_BY_DUCKDB:
            return True
        error = error.__cause__ or error.__context__
    return False


def _watch(source: int, over: threading.Event) -> None:
    with os.fdopen(source, "rb", 0) as signals:
        while number := signals.read(1):
            if over.is_set():
                return
            if number[0] == signal.SIGINT:
                for _ in range(_TIMES):
                    if over.is_set():
                        return
                    _interrupt_all()
                    over.wait(_AGAIN_S)


def _interrupt_all() -> None:
    for connection in list(_open):
        with suppress(Exception):  # closed meanwhile
            connection.interrupt()
