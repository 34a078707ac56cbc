"""Run the command line in this process, or in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from cb_trace.cli import run


@dataclass(frozen=True, slots=True)
class Outcome:
    status: int
    out: str
    err: str


class Cli:
    """``cli("compare", path)`` gives status, stdout and stderr."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *arguments: str | Path) -> Outcome:
        self._capture.readouterr()
        status = run([str(argument) for argument in arguments])
        out, err = self._capture.readouterr()
        return Outcome(status, out, err)


def python(*arguments: str, **environment: str) -> Outcome:
    """A process of its own, off a terminal."""
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
        timeout=300,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)
