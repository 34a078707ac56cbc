"""Write a file whole or not at all."""

from __future__ import annotations

from pathlib import Path

from cb_trace.errors import CbTraceError
from cb_trace.parts import whole


def write_whole(target: Path, content: bytes) -> None:
    """Write beside the target and rename; an error leaves what was there.

    :raises CbTraceError: the folder cannot be written.
    """
    try:
        with whole(target) as part:
            part.write_bytes(content)
    except OSError as error:
        raise CbTraceError(
            f"cannot write {target}: {error.strerror}", hint="choose another with -o"
        ) from error
