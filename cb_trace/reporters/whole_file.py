"""Write a file whole or not at all."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path

from cb_trace.errors import CbTraceError


def write_whole(target: Path, content: bytes) -> None:
    """Write beside the target and rename; an error leaves what was there.

    :raises CbTraceError: the folder cannot be written.
    """
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        part.write_bytes(content)
        part.replace(target)
    except OSError as error:
        raise CbTraceError(
            f"cannot write {target}: {error.strerror}", hint="choose another with -o"
        ) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
