"""Workloads that can be recorded by name, and the look-up of a user's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from cb_trace.errors import CbTraceError
from cb_trace.providers.preprocess import Preprocessing
from cb_trace.providers.settings import configured
from cb_trace.providers.user import built, imported
from cb_trace.providers.workload import Provider, Setting, Workload

__all__ = ["Provider", "Setting", "Workload", "load", "names", "provider"]

ENTRY_POINTS = "cb_trace.providers"
PRESET = "preset"  # kept among a workload's settings, so that a manifest can rebuild it
_BUILT_IN = {
    "deepfm": "cb_trace.providers.deepfm:PROVIDER",
    "dlrm": "cb_trace.providers.dlrm:PROVIDER",
    "nanogpt": "cb_trace.providers.nanogpt:PROVIDER",
}


def names() -> list[str]:
    """Every provider that can be named without ``module:function``, sorted."""
    return sorted({*_BUILT_IN, *_registered()})


def provider(name: str) -> Any:
    """The provider behind a name: a :class:`Provider`, or a function of a user.

    :raises CbTraceError: nobody knows it, or its import fails.
    """
    target = name if ":" in name else _BUILT_IN.get(name) or _registered().get(name)
    if target is None:
        raise CbTraceError(
            f"unknown provider {name!r}",
            hint=f"one of {', '.join(names())}, or your own as pkg.module:function",
        )
    return imported(target)


def load(
    name: str,
    *,
    preset: str | None = None,
    settings: Mapping[str, Setting] | None = None,
    device: str = "cpu",
    seed: int = 0,
) -> Workload:
    """Build a workload on a device; model and data follow from the seed.

    ``settings`` may come as text (``--set``) or typed (a manifest's, ``preset`` among them). Any
    provider takes ``shrink_tables`` and ``full_batch`` (:mod:`cb_trace.providers.preprocess`).

    :raises CbTraceError: unknown provider, preset or setting; a bad value; a provider that raises.
    """
    found = provider(name)
    preprocessing, given = Preprocessing.of(settings or {})
    return preprocessing.built(
        lambda: _built(found, name, preset, given, device, seed),
        device,
        found.loss if isinstance(found, Provider) else None,
    )


def _built(  # noqa: PLR0917 - load's own parameters
    found: Any,
    name: str,
    preset: str | None,
    given: dict[str, Setting],
    device: str,
    seed: int,
) -> Workload:
    import torch

    torch.manual_seed(seed)
    if not isinstance(found, Provider):
        if preset is not None:
            raise CbTraceError(f"{name} has no presets", hint="pass settings by --set key=value")
        return built(found, name, given, device, seed)
    chosen = preset or str(given.pop(PRESET, found.default_preset))
    given.pop(PRESET, None)
    if chosen not in found.presets:
        known = ", ".join(found.presets)
        raise CbTraceError(f"{name} has no preset {chosen!r}", hint=f"one of {known}")
    config = configured(found.presets[chosen], given, name)
    try:
        model, args, kwargs = found.build(config, device)
    except (RuntimeError, ValueError, AssertionError) as error:  # no memory, no such device
        reason = str(error).partition("\n")[0]
        raise CbTraceError(
            f"{name} cannot be built on {device}: {reason}", hint="choose a smaller preset or --set"
        ) from error
    return Workload(
        name,
        model,
        args,
        kwargs,
        settings={PRESET: chosen, **asdict(config)},
        loss=found.loss(args) if found.loss else None,
        optimizer=found.optimizer,
    )


def _registered() -> dict[str, str]:
    from importlib.metadata import entry_points

    return {entry.name: entry.value for entry in entry_points(group=ENTRY_POINTS)}
