"""Figures of one recorded point: what was predicted beside what was measured."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SHARED = "shared"
LARGE = 0.01  # of the step: what a module must take out of it to be held to the strict target
STEADY = 0.2  # between blocks of bare steps: more, and the machine was not one machine
LEAST_ERROR = 1e-4  # in a geometric mean, lest one lucky zero makes all of it zero

_MODULES = """
SELECT deployment, path, cost_us, marginal_us, residual_us, knockout_us, knockout_low_us,
    knockout_high_us, base_ns / 1e3
FROM compare
LEFT JOIN (SELECT module.path, knockout.* FROM knockout JOIN module USING (module_id)) AS pair
    USING (path, deployment, phase)
WHERE path <> '' AND phase = 'forward'
ORDER BY ALL
"""
_WHOLE = "SELECT deployment, kind, ns / 1e3 FROM marginal WHERE module_id IS NULL"
_BARE = "SELECT deployment, ns / 1e3 FROM step_sample WHERE kind = 'bare'"
_SWING = """
SELECT deployment, max(micro) / min(micro) - 1
FROM (
    SELECT deployment, turn, median(ns) / 1e3 AS micro
    FROM step_sample WHERE kind = 'bare' GROUP BY ALL
)
GROUP BY deployment
"""
_SKIPPED = """
SELECT module.path, knockout.deployment, knockout.skipped
FROM knockout JOIN module USING (module_id) WHERE knockout.skipped IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class ModuleFigures:
    """One module in one deployment, µs a step."""

    path: str
    cost: float
    marginal: float | None
    residual: float | None
    knockout: float | None
    low: float | None
    high: float | None
    base: float | None  # the step as it was while the module was knocked out

    @property
    def error_us(self) -> float | None:
        """Predicted less measured."""
        if self.marginal is None or self.knockout is None:
            return None
        return self.marginal - self.knockout

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        assert self.error_us is not None
        assert self.knockout
        return self.error_us / self.knockout

    @property
    def resolved(self) -> bool:
        """Whether the knock-out tells the module from nothing at all."""
        return self.low is not None and self.low > 0

    @property
    def inside(self) -> bool:
        """Whether the prediction lies in the interval that was measured."""
        if self.marginal is None or self.low is None or self.high is None:
            return False
        return self.low <= self.marginal <= self.high


@dataclass(frozen=True, slots=True)
class Deployed:
    """One deployment of one point, µs."""

    name: str
    bare: float
    whole: dict[str, float]  # predicted, kernel_sum, isolation_sum, and what shared overheads say
    modules: list[ModuleFigures]
    swing: float = 0.0  # slowest block of bare steps over the fastest, less 1

    @property
    def steady(self) -> bool:
        """Whether the machine kept its speed while the point was recorded."""
        return self.swing <= STEADY

    @property
    def measured(self) -> list[ModuleFigures]:
        """Modules with a knock-out and a prediction."""
        return [m for m in self.modules if m.error_us is not None]

    @property
    def large(self) -> list[ModuleFigures]:
        """Those that knock-out finds above 1 % of the step."""
        return [m for m in self.measured if (m.knockout or 0) > LARGE * self.bare]

    @property
    def small(self) -> list[ModuleFigures]:
        """The others."""
        return [m for m in self.measured if (m.knockout or 0) <= LARGE * self.bare]

    def near(self, module: ModuleFigures) -> bool:
        """Whether a small module's prediction is within 1 % of the step of the measurement."""
        return abs(module.error_us or 0.0) <= LARGE * self.bare

    @property
    def costly(self) -> list[ModuleFigures]:
        """Modules that cost more than 1 % of the step, with a residual."""
        return [m for m in self.modules if m.cost > LARGE * self.bare and m.residual is not None]

    def error(self, kind: str) -> float | None:
        """A figure of the whole step over the bare step, less 1."""
        return self.whole[kind] / self.bare - 1 if kind in self.whole and self.bare else None


@dataclass(frozen=True, slots=True)
class Figures:
    """One point."""

    name: str
    device: str
    deployments: dict[str, Deployed]
    skipped: list[tuple[str, str, str]]  # path, deployment, why there is no knock-out
    notes: list[str]


def figures(bundles: Sequence[Path], workloads: Mapping[str, str]) -> list[Figures]:
    """Ingest bundles and read their figures.

    :param workloads: what a bundle is of, by its name: the host overheads of a point come from
        bundles of other workloads.
    """
    from cb_trace.conduct import ingest
    from cb_trace.store import open_profile

    found = []
    with tempfile.TemporaryDirectory() as folder:
        named = {bundle.stem: bundle for bundle in bundles}  # of one point twice: the last
        profiles = {name: Path(folder) / f"{name}.duckdb" for name in named}
        for name, bundle in named.items():
            ingest(bundle, profiles[name])
        for name, profile in profiles.items():
            with open_profile(profile) as connection:
                point = _read(connection, name)
            own = workloads.get(name, name)
            others = [p for key, p in profiles.items() if workloads.get(key, key) != own]
            _add_shared(point, profile, others)
            found.append(point)
    return found


def _add_shared(point: Figures, profile: Path, others: Sequence[Path]) -> None:
    """The eager step with the host overheads of other workloads."""
    from cb_trace.errors import CbTraceError
    from cb_trace.whatif import with_overheads_of

    with suppress(CbTraceError):  # on a CPU, or nothing to share
        predicted = with_overheads_of(profile, others).then_ns
        point.deployments["eager"].whole[SHARED] = predicted / 1e3


def _read(connection: DuckDBPyConnection, name: str) -> Figures:
    device = connection.execute("SELECT device_name FROM run").fetchall()[0][0]
    samples: dict[str, list[float]] = {}
    for deployment, micro in connection.execute(_BARE).fetchall():
        samples.setdefault(deployment, []).append(micro)
    swing = dict(connection.execute(_SWING).fetchall())
    found = {
        deployment: Deployed(deployment, statistics.median(micro), {}, [], swing[deployment])
        for deployment, micro in sorted(samples.items())
    }
    for deployment, kind, micro in connection.execute(_WHOLE).fetchall():
        found[deployment].whole[kind] = micro
    for deployment, *rest in connection.execute(_MODULES).fetchall():
        found[deployment].modules.append(ModuleFigures(*rest))
    notes = "SELECT detail FROM note WHERE reason = 'unsteady step'"
    return Figures(
        name,
        device,
        found,
        connection.execute(_SKIPPED).fetchall(),
        [row[0] for row in connection.execute(notes).fetchall()],
    )


@dataclass(frozen=True, slots=True)
class Errors:
    """How a list of relative errors is summed up."""

    count: int
    geomean: float
    mean: float
    worst: float


def summed(errors: Iterable[float | None]) -> Errors | None:
    """Sum up relative errors by their size; None of none."""
    sizes = [abs(error) for error in errors if error is not None]
    if not sizes:
        return None
    floored = [max(size, LEAST_ERROR) for size in sizes]
    return Errors(
        len(sizes), statistics.geometric_mean(floored), statistics.mean(sizes), max(sizes)
    )


def share(items: Sequence[bool]) -> float | None:
    """The share of true ones; None of none."""
    return sum(items) / len(items) if items else None
