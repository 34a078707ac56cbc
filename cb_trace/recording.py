"""Record a live model from Python: one call, or a context manager around a loop of your own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cb_trace.errors import CbTraceError
from cb_trace.files import check_output

if TYPE_CHECKING:
    from torch import nn

    from cb_trace.capture.options import RecordOptions
    from cb_trace.capture.session import Session
    from cb_trace.reading import Profile

Progress = Callable[[str], None]


def profile(
    model: nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    path: str | PathLike[str],
    name: str | None = None,
    step: Callable[[], object] | None = None,
    options: RecordOptions | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Profile:
    """Record ``model(*args, **kwargs)``, replay every module alone, and store the profile.

    The bundle of the recording is kept beside the profile, as a zip. The model is as before.

    :param path: the profile to write, ``run.duckdb`` say.
    :param name: what the run is called; the model's class by default.
    :param step: one whole step, where it is more than the call of the model.
    :param options: how to record; the device is that of the model where not given.
    :raises CbTraceError: ``path`` exists and ``force`` is off, or the model raises.
    """
    from cb_trace.capture.options import RecordOptions
    from cb_trace.capture.output import bundle_at
    from cb_trace.capture.record import record as record_into
    from cb_trace.providers.workload import Workload
    from cb_trace.reading import ingest

    target, bundle = _targets(Path(path), force=force)
    if target is None:
        raise CbTraceError(f"{path} names a bundle, not a profile", hint="end the name in .duckdb")
    workload = Workload(name or type(model).__name__, model, tuple(args), dict(kwargs or {}), step)
    options = options or RecordOptions(device=_device(model))
    with bundle_at(bundle, force=force) as folder:
        record_into(workload, folder, options, progress=progress)
    return ingest(bundle, target, force=force)


class Recording:
    """A loop under recording: call :meth:`step` at the end of every step."""

    def __init__(self, session: Session, path: Path | None) -> None:
        self._session, self._path, self._done = session, path, False

    @property
    def bundle_path(self) -> Path:
        """Where the bundle is, once the block has ended."""
        return self._session.path

    @property
    def steps_needed(self) -> int:
        """How many steps the loop must have."""
        return self._session.steps_needed

    def step(self) -> None:
        """Mark the end of a step."""
        self._session.step()

    @property
    def profile(self) -> Profile:
        """The profile, once the block has ended.

        :raises CbTraceError: it has not, or ``path`` asked for the bundle alone.
        """
        from cb_trace.reading import Profile

        if not self._done or self._path is None:
            raise CbTraceError("there is no profile yet", hint="read it after the 'with' block")
        return Profile(self._path)

    def _finish(self, *, force: bool) -> None:
        if self._path is not None:
            from cb_trace.conduct import ingest

            ingest(self._session.path, self._path, force=force)
        self._done = True


@contextmanager
def record(
    model: nn.Module,
    name: str,
    path: str | PathLike[str] | None = None,
    *,
    options: RecordOptions | None = None,
    bare_steps: int = 10,
    force: bool = False,
    progress: Progress | None = None,
) -> Iterator[Recording]:
    """Record a loop of your own; modules are replayed from the inputs it saw.

    >>> with cb_trace.record(model, "run") as recording:
    ...     for batch in batches:
    ...         model(batch)
    ...         recording.step()
    >>> recording.profile.compare()

    :param path: the profile to write, ``NAME.duckdb`` by default; a name that ends in ``.zip``
        stops at the bundle, which needs no more than torch.
    :param bare_steps: how many steps are timed with no profiler attached.
    :raises CbTraceError: ``path`` exists and ``force`` is off; or the loop ended too early.
    """
    from cb_trace.capture.session import record as session_of

    target, bundle = _targets(Path(path or f"{name}.duckdb"), force=force)
    session = session_of(
        model,
        name,
        bundle,
        options=options,
        bare_steps=bare_steps,
        force=force,
        progress=progress,
    )
    with session:
        recording = Recording(session, target)
        yield recording
    recording._finish(force=force)


def _targets(path: Path, *, force: bool) -> tuple[Path | None, Path]:
    """The profile, if one is wanted, and the bundle; refused before an hour of recording."""
    from cb_trace.capture.output import check_target as check_bundle

    path = path.absolute()  # a step may leave this working folder
    target, bundle = (None, path) if path.suffix == ".zip" else (path, path.with_suffix(".zip"))
    if target is not None:
        check_output(target, force=force)
    check_bundle(bundle, force=force)
    return target, bundle


def _device(model: nn.Module) -> str:
    held = [*model.parameters(), *model.buffers()]
    return str(held[0].device) if held else "cpu"
