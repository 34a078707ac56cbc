"""Ctrl-C and SIGTERM: both unwind, so that nothing half-written stays, DuckDB's queries included.

Ctrl-C while modules are replayed keeps what was measured, which takes a while; whoever sends
SIGTERM (a scheduler, ``timeout``) will not wait, so nothing of the program catches that.

Python runs a signal's handler in the main thread, between two of its own instructions; there is
none while that thread waits inside DuckDB, which looks for signals only between tasks, and one
join or sort may be one task. The signal's number goes through a pipe instead, to a thread that
interrupts every query.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from types import FrameType
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakSet

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    Connection = TypeVar("Connection", bound=DuckDBPyConnection)
    Handler = Callable[[int, FrameType | None], object]

_AGAIN_S = 0.1  # a query may be just about to start when the first interruption comes
_TIMES = 5
_SEEN_BY_DUCKDB = "Query interrupted"  # a RuntimeError, where DuckDB itself looked for signals
_open: WeakSet[DuckDBPyConnection] = WeakSet()


class Terminated(BaseException):
    """SIGTERM came. No :class:`KeyboardInterrupt`: parts of a recording catch that."""


def interruptible(connection: Connection) -> Connection:
    """Let Ctrl-C end what this connection does, while :func:`stopping_queries` is on."""
    _open.add(connection)
    return connection


def stopping_queries() -> AbstractContextManager[None]:
    """Let Ctrl-C and SIGTERM interrupt every query in the block, and SIGTERM unwind it.

    Only in the main thread, where signals come; elsewhere nothing changes. Where SIGTERM is
    ignored, or somebody else's, it stays so.

    :raises Terminated: SIGTERM came.
    """
    if threading.current_thread() is not threading.main_thread():
        return nullcontext()
    return _Stopping()


class _Stopping:
    """A thread that hears of signals through a pipe, as long as the block runs.

    A signal while the block is left waits until all is as before: half of that would leave Python a
    descriptor that is gone. The handler that was there is asked for every other Ctrl-C.
    """

    def __enter__(self) -> None:
        source, self._sink = os.pipe()
        os.set_blocking(self._sink, False)
        self._leaving = self._terminated = False
        self._came: list[int] = []
        self._handle_signals()
        self._before = signal.set_wakeup_fd(self._sink, warn_on_full_buffer=False)
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=_listen, args=(source, self._over, set(self._answers)), daemon=True
        )
        self._thread.start()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._leaving = True
        signal.set_wakeup_fd(self._before)
        self._over.set()
        with suppress(OSError):  # full: there is something to read; broken: it has ended
            os.write(
                self._sink, b"\0"
            )  # wakes the thread, also where a forked process holds the pipe
        os.close(self._sink)
        self._thread.join()  # what others ask of DuckDB from now on is none of its business
        for number, before in self._replaced.items():
            signal.signal(number, before)
        for number in self._came:
            self._answers[number](number, None)
        made_of_it = error is None or _ends(error)  # by DuckDB, or by who went on
        if self._terminated and made_of_it and not isinstance(error, Terminated):
            raise Terminated from error

    def _handle_signals(self) -> None:
        """Answer as before, SIGTERM by unwinding; what to put back is kept."""
        self._answers: dict[int, Handler] = {}
        self._replaced: dict[int, Handler | int] = {}
        interrupt = signal.getsignal(signal.SIGINT)
        if callable(interrupt):
            self._answers[signal.SIGINT] = self._replaced[signal.SIGINT] = interrupt
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            self._answers[signal.SIGTERM] = _terminate
            self._replaced[signal.SIGTERM] = signal.SIG_DFL
        for number in self._answers:
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._terminated |= number == signal.SIGTERM
        # Python asks before it begins with a function, too: with the one that leaves.
        begins = frame is not None and frame.f_code is _Stopping.__exit__.__code__
        if self._leaving or begins:
            self._came.append(number)
        else:
            self._answers[number](number, frame)


def _terminate(_: int, __: FrameType | None) -> None:
    """Unwind; but once, as ``timeout`` sends the signal twice and clearing away must come to its
    end. What swallowed the first meets the next.
    """
    if not _ends(sys.exception()):
        raise Terminated


def _ends(error: BaseException | None) -> bool:
    """Whether an exception is, or comes of, one that ends the program."""
    if of_interrupt(error):
        return True
    while error is not None and not isinstance(error, Terminated):
        error = error.__cause__ or error.__context__
    return error is not None


def _as_any_other() -> None:
    """A process that was forked off ends as it would by itself, and says nothing to this one."""
    handler = signal.getsignal(signal.SIGTERM)
    if isinstance(getattr(handler, "__self__", None), _Stopping):
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_as_any_other)


def of_interrupt(error: BaseException | None) -> bool:
    """Whether an error is what DuckDB, or who called it, made of an interruption."""
    while error is not None:
        if type(error).__name__ == "InterruptException" or str(error) == _SEEN_BY_DUCKDB:
            return True
        error = error.__cause__ or error.__context__
    return False


def _listen(source: int, over: threading.Event, ending: set[int]) -> None:
    with os.fdopen(source, "rb", 0) as signals:
        while number := signals.read(1):
            if over.is_set():
                return
            if number[0] in ending:
                for _ in range(_TIMES):
                    if over.is_set():
                        return
                    _interrupt_all()
                    over.wait(_AGAIN_S)


def _interrupt_all() -> None:
    for connection in list(_open):
        with suppress(Exception):  # closed meanwhile
            connection.interrupt()
