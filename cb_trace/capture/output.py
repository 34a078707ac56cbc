"""Where a bundle goes: a folder or a zip, complete or not there at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cb_trace.bundle import is_bundle, pack_bundle
from cb_trace.errors import CbTraceError
from cb_trace.parts import folder_beside


@contextmanager
def bundle_at(target: Path, *, force: bool = False) -> Iterator[Path]:
    """A folder to record into that becomes ``target`` when the block ends well.

    ``target`` is a zip where its name ends so, else a folder. What stood there stays until then.

    :raises CbTraceError: it exists (and not ``force``), is something else, or cannot be written.
    """
    check_target(target, force=force)
    target = target.absolute()  # a step may leave this working folder
    with ExitStack() as stack:
        try:
            part = stack.enter_context(folder_beside(target))
        except OSError as error:
            raise CbTraceError(
                f"cannot write in {target.parent}: {error.strerror}", hint="choose another with -o"
            ) from error
        folder = part / "bundle"
        folder.mkdir()
        yield folder
        _place(folder, target)


def check_target(target: Path, *, force: bool = False) -> None:
    """Refuse a target before an hour of recording, not after.

    :raises CbTraceError: as :func:`bundle_at`.
    """
    if target.suffix not in ("", ".zip"):
        raise CbTraceError(
            f"a bundle is a folder or a .zip, not {target.name}", hint="end the name in .zip"
        )
    if not target.parent.is_dir():
        raise CbTraceError(f"no such folder: {target.parent}", hint="create it first")
    if not target.exists():
        return
    if not force:
        raise CbTraceError(f"{target} exists", hint="add --force, or in Python force=True")
    if not is_bundle(target):
        raise CbTraceError(f"{target} exists and is no bundle", hint="choose another name")


def _place(folder: Path, target: Path) -> None:
    if target.suffix == ".zip":
        pack_bundle(folder, target)
        return
    if target.exists():
        target.rename(folder.with_name("before"))  # where it is removed with the rest
    folder.rename(target)
