"""Names that travel inside a trace: the profiler ranges that the recording half leaves there."""

from __future__ import annotations

from urllib.parse import quote, unquote

RANGE_PREFIX = "cb:"
ROOT_RANGE = "cb:<root>"
STEP_PREFIX = "ProfilerStep#"
REPLAY_PREFIX = "cb_replay:"
GRADIENT_PREFIX = "cb_grad:"

_PLAIN = " !#$&()*+,-./:;=?@[]^_{|}~"


def range_name(path: str) -> str:
    """The profiler range of a module call.

    Kineto replaces a name that holds a non-printable byte by ``unknown`` and turns backslashes
    into slashes (shared facts, traces.md section 7), so such characters are percent-encoded.
    """
    return RANGE_PREFIX + quote(path, safe=_PLAIN) if path else ROOT_RANGE


def path_of_range(name: str) -> str | None:
    """Inverse of :func:`range_name`; None for a name that is no module range."""
    if name == ROOT_RANGE:
        return ""
    return unquote(name[len(RANGE_PREFIX) :]) if name.startswith(RANGE_PREFIX) else None


def replay_range(replay_id: int, iteration: int) -> str:
    """The profiler range of one profiled call of a replay."""
    return f"{REPLAY_PREFIX}{replay_id}:{iteration}"


def gradient_range(parameter: str) -> str:
    """The profiler range that a parameter's hook leaves once its gradient is accumulated."""
    return GRADIENT_PREFIX + quote(parameter, safe=_PLAIN)


def parameter_of_range(name: str) -> str | None:
    """Inverse of :func:`gradient_range`; None for a name that is no such range."""
    given = name.startswith(GRADIENT_PREFIX)
    return unquote(name[len(GRADIENT_PREFIX) :]) if given else None
