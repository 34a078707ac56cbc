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
from contextlib import AbstractContextManager, nullcontext, suppress
from types import FrameType
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


def stopping_queries() -> AbstractContextManager[None]:
    """Let Ctrl-C interrupt every query in the block.

    Only in the main thread, where signals come; elsewhere nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        return nullcontext()
    return _Stopping()


class _Stopping:
    """A thread that hears of signals through a pipe, as long as the block runs.

    Ctrl-C while the block is left waits until all is as before: half of that would leave Python a
    descriptor that is gone. The handler that was there is asked for every other one.
    """

    def __enter__(self) -> None:
        source, self._sink = os.pipe()
        os.set_blocking(self._sink, False)
        self._leaving = self._came = False
        self._handler = signal.getsignal(signal.SIGINT)
        if callable(self._handler):
            signal.signal(signal.SIGINT, self._handle)
        self._before = signal.set_wakeup_fd(self._sink, warn_on_full_buffer=False)
        self._over = threading.Event()
        self._thread = threading.Thread(target=_listen, args=(source, self._over), daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._leaving = True
        signal.set_wakeup_fd(self._before)
        self._over.set()
        with suppress(OSError):  # full: there is something to read; broken: it has ended
            os.write(
                self._sink, b"\0"
            )  # wakes the thread, also where a forked process holds the pipe
        os.close(self._sink)
        self._thread.join()  # what others ask of DuckDB from now on is none of its business
        if callable(self._handler):
            signal.signal(signal.SIGINT, self._handler)
            if self._came:
                self._handler(signal.SIGINT, None)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # Python asks before it begins with a function, too: with the one that leaves.
        begins = frame is not None and frame.f_code is _Stopping.__exit__.__code__
        if self._leaving or begins:
            self._came = True
        elif callable(self._handler):
            self._handler(number, frame)


def of_interrupt(error: BaseException | None) -> bool:
    """Whether an error is what DuckDB, or who called it, made of an interruption."""
    while error is not None:
        if type(error).__name__ == "InterruptException" or str(error) == _SEEN_BY_DUCKDB:
            return True
        error = error.__cause__ or error.__context__
    return False


def _listen(source: int, over: threading.Event) -> None:
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
