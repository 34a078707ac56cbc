"""Why a module alone differs from its cost in the step, term by term, each with its interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cb_trace.reporters.result import NOISE
from cb_trace.reporters.sql_files import fetch

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

HEADS = ("from the step to alone", "µs", "from", "to")
KINDS = (
    "launch", "cache", "kernel_choice", "fusion", "overlap", "contention", "idle", "residual",
)  # fmt: skip
# Without a sequence run the three cannot be told apart, and cache has them all.
MERGED = ("cache", "contention", "residual")


@dataclass(frozen=True, slots=True)
class Term:
    """One term of isolated − cost, µs; None where it was not measured."""

    kind: str
    us: float | None
    low_us: float | None
    high_us: float | None

    @property
    def within_noise(self) -> bool:
        """Whether its interval holds 0."""
        return (
            self.low_us is not None
            and self.high_us is not None
            and (self.low_us <= 0 <= self.high_us)
        )


def read_terms(
    connection: DuckDBPyConnection, *, run_id: str, deployment: str, phase: str, path: str
) -> list[Term]:
    """The terms of one module, in the order of :data:`KINDS`; empty where it has none."""
    given = {"run_id": run_id, "deployment": deployment, "phase": phase, "path": path}
    found = {
        row["kind"]: Term(row["kind"], row["us"], row["low_us"], row["high_us"])
        for row in fetch(connection, "error_terms", **given)
    }
    return [found[kind] for kind in KINDS if kind in found]


def term_cells(record: Mapping[str, Any], terms: Sequence[Term]) -> list[tuple[str, ...]]:
    """From the cost to the figure alone: name, amount, and the two ends of its interval.

    :param record: the module's row of view ``compare``.
    """
    if not terms or record["error_us"] is None:
        return []
    cost = (record["cost_us"], record["cost_low_us"], record["cost_high_us"])
    alone = (record["isolated_us"], record["isolated_low_us"], record["isolated_high_us"])
    return [
        ("cost in the step", *map(_amount, cost)),
        *_measured(terms),
        ("alone", *map(_amount, alone)),
    ]


def _measured(terms: Sequence[Term]) -> Iterator[tuple[str, ...]]:
    merged = any(term.kind == "residual" and term.us is None for term in terms)
    for term in terms:
        if merged and term.kind in MERGED[1:]:
            continue
        label = ", ".join(MERGED) if merged and term.kind == "cache" else term.kind
        told = NOISE if term.within_noise else _amount(term.us, signed=True)
        ends = (_amount(end, signed=True) for end in (term.low_us, term.high_us))
        yield (label.replace("_", " "), told, *ends)


def bracket_line(record: Mapping[str, Any], terms: Sequence[Term]) -> str | None:
    """The module's device time alone, hot and cold, where no sequence run tells cache apart."""
    hot, cold = record["isolated_gpu_us"], record["isolated_cold_us"]
    known = {term.kind: term.us for term in terms}
    if hot is None or cold is None or known.get("residual", 0.0) is not None:
        return None
    return (
        "without a sequence run nothing tells cache from contention and residual: "
        f"alone it is busy for {_amount(hot)} µs hot, {_amount(cold)} µs cold"
    )


def _amount(value: float | None, *, signed: bool = False) -> str:
    if value is None:
        return "–"
    digits = 2 if 0.005 <= abs(value) < 1 else 1
    value = round(value, digits) or 0.0
    return f"{value:+,.{digits}f}" if signed and value else f"{value:,.{digits}f}"
