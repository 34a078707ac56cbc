"""The one exception for what a user can mend; everything else is a bug and keeps its traceback.

CbTraceError            exit 2: usage, unreadable or unsuitable input
└── ThresholdCrossedError    exit 1: the comparison ran and found what it was asked to fail on
"""

from __future__ import annotations


class CbTraceError(Exception):
    """A problem stated in one line, with the next step as ``hint`` where there is one."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message = " ".join(message.split())
        self.hint = " ".join(hint.split())
        super().__init__(f"{self.message} ({self.hint})" if self.hint else self.message)


class ThresholdCrossedError(CbTraceError):
    """A threshold the user set was crossed: a finding, not a fault."""

    exit_code = 1
