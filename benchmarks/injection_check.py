"""What the injections did to the terms: each against a truth that the terms have no part in.

A term has to move by what was injected, as seen by bare wall clocks or by kernel records alone, and
every other term of every other module not at all: within its interval, widened by what clocks and
heat may change from one recording to the next.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from cb_trace.conduct import ingest
from cb_trace.store import open_profile

SPIN_US = 1000.0
DRIFT_RATIO, DRIFT_US = 0.02, 0.5  # from one recording to the next, of a module's cost
OFF_RATIO = 0.05  # how far a truth and a term may be apart, beside the interval
HEADINGS = ("injection", "modules", "term", "injected µs", "found µs", "interval µs", "")

Bounds = tuple[float, float, float]  # figure, low, high; µs
Row = tuple[str, ...]

_TERMS = """
    SELECT deployment, path, kind, term.ns / 1e3, term.low_ns / 1e3, term.high_ns / 1e3
    FROM term JOIN module USING (module_id)
    WHERE term.ns IS NOT NULL AND module.parent_id IS NOT NULL
"""
_FIGURES = """
    SELECT deployment, path, cost_us, context_us, isolated_us, isolated_gpu_us, isolated_cold_us
    FROM compare
"""
_GRAPHS = """
    SELECT path, sum(median_ns * calls) / 1e3 AS graph_us FROM replay JOIN module USING (module_id)
    WHERE condition = 'graph' GROUP BY path HAVING count(*) = count(median_ns)
"""
_BARE = """
    SELECT deployment, median(ns) / 1e3 FROM step_sample WHERE kind = 'bare' GROUP BY deployment
"""
_OPEN = """
    SELECT count(*) FROM (
        SELECT sum(term.ns) - any_value(alone.wall_ns - cost.ns) AS gap
        FROM term
        JOIN _cost AS cost USING (module_id, phase, deployment)
        JOIN _isolated AS alone ON alone.module_id = term.module_id
            AND alone.phase = term.phase AND alone.condition = 'hot'
        GROUP BY term.module_id, term.phase, term.deployment
    ) WHERE gap <> 0
"""


@dataclass(frozen=True, slots=True)
class Side:
    """One recording: terms and figures of one deployment."""

    terms: dict[tuple[str, str], Bounds]  # path, kind
    figures: dict[str, dict[str, float]]  # path
    bare_us: float
    unclosed: int  # modules whose terms do not add up to their error


@dataclass(frozen=True, slots=True)
class Pair:
    """Both recordings of an injection."""

    base: Side
    injected: Side

    def change(self, path: str, figure: str) -> float:
        """Of a figure, µs."""
        return (self.injected.figures[path][figure] or 0) - (self.base.figures[path][figure] or 0)

    @property
    def slower(self) -> float:
        """The bare step, injected less baseline, µs."""
        return self.injected.bare_us - self.base.bare_us

    def term(self, path: str, kind: str) -> Bounds | None:
        """By how much a term moved; None where it was not measured on both sides."""
        one, other = self.base.terms.get((path, kind)), self.injected.terms.get((path, kind))
        if one is None or other is None:
            return None
        return other[0] - one[0], other[1] - one[2], other[2] - one[1]


@dataclass(frozen=True, slots=True)
class Moves:
    """Terms that an injection moves, together by ``truth`` µs; None: by an amount not known."""

    paths: tuple[str, ...]
    kinds: tuple[str, ...]
    truth: Callable[[Pair], float] | None = None


@dataclass(frozen=True, slots=True)
class Injection:
    """What an injection has to do."""

    moves: tuple[Moves, ...]
    deployment: str = "graph"


def _launching(*paths: str) -> Moves:
    """The launch of modules alone: what capturing the same calls saves of their bare wall.

    One window has as many calls as fill 1 ms, and the launch of the first is not hidden by the
    device: where an injection makes kernels longer or shorter, or the host slower (compiled calls),
    another part of it is in each call.
    """
    return Moves(
        paths,
        ("launch",),
        lambda pair: sum(
            pair.change(path, "isolated_us") - pair.change(path, "graph_us") for path in paths
        ),
    )


def _unmatched(path: str) -> Moves:
    """What the cache does to a module alone, gone where its kernels are no longer those alone.

    Only kernels that run alone as in the step have a part in ``cache``.
    """
    return Moves(
        (path,),
        ("cache",),
        lambda pair: (
            (pair.base.figures[path]["isolated_cold_us"] or 0)
            - (pair.base.figures[path]["isolated_gpu_us"] or 0)
        ),
    )


_CHAIN, _HEAD = ("gelu", "silu", "tanh"), ("act", "head")

RULES: dict[str, Injection] = {
    "nothing": Injection(()),
    "copy": Injection(
        (
            Moves(("work",), ("contention",), lambda pair: -pair.change("work", "context_us")),
            Moves(("copy",), ("contention",), lambda pair: -pair.change("copy", "context_us")),
            Moves(("copy", "work"), ("contention", "overlap"), lambda pair: -pair.slower),
        )
    ),
    "spin": Injection(
        (
            Moves(("second",), ("idle",), lambda _: -SPIN_US),
            Moves(("second",), ("idle",), lambda pair: -pair.slower),
            Moves(("spin",), ("launch",), lambda _: SPIN_US),  # all it is when it runs alone
        ),
        deployment="eager",
    ),
    "cache": Injection(
        (
            Moves(
                ("table",),
                ("cache",),
                lambda pair: (
                    pair.change("table", "isolated_gpu_us")
                    - pair.change("table", "isolated_cold_us")
                ),
            ),
            _launching("table"),
        )
    ),
    "fusion": Injection(
        (Moves(_CHAIN, ("fusion",), lambda pair: -pair.slower), _launching(*_CHAIN))
    ),
    "kernel_choice": Injection(
        (Moves(("gemm",), ("kernel_choice",), lambda pair: pair.change("gemm", "isolated_us")),)
    ),
    "gemv": Injection(
        (
            Moves(
                _HEAD,
                ("fusion",),
                lambda pair: (
                    sum(pair.change(path, "isolated_gpu_us") for path in _HEAD) - pair.slower
                ),
            ),
            _launching("head"),
            _unmatched("head"),
        )
    ),
}


def check(folder: Path, names: Sequence[str]) -> int:
    """Print a row a moved term, and one for all others of an injection; 1 where one is wrong."""
    rows: list[Row] = []
    for name in names:
        if missing := [
            v for v in ("baseline", "injected") if not _bundle(folder, name, v).exists()
        ]:
            rows.append((name, "", "", "", "", "", f"not recorded: {' and '.join(missing)}"))
            continue
        rows += judge(name, RULES[name], folder)
    for row in (HEADINGS, tuple("---" for _ in HEADINGS), *rows):
        print(f"| {' | '.join(row)} |")
    return int(any(row[-1] != "ok" for row in rows))


def _bundle(folder: Path, name: str, version: str) -> Path:
    return folder / f"{name}_{version}.zip"


def judge(name: str, rule: Injection, folder: Path) -> Iterator[Row]:
    """A row a moved term, one for all others, one for the sum, of the recordings in ``folder``."""
    base, injected = (
        _side(_bundle(folder, name, version), rule.deployment)
        for version in ("baseline", "injected")
    )
    pair = Pair(base, injected)
    for moves in rule.moves:
        yield (name, ", ".join(moves.paths), " + ".join(moves.kinds), *_judged(pair, moves))
    yield (name, "all others", "all others", "0.0", *_rest(pair, rule))
    closed = base.unclosed + injected.unclosed == 0
    yield (name, "all", "sum", "", "", "", "ok" if closed else "does not add up")
    if name == "gemv":
        yield (name, "head alone, step", "sign", *_flip(pair))


def _side(bundle: Path, wanted: str) -> Side:
    with tempfile.TemporaryDirectory() as folder:
        profile = ingest(bundle, Path(folder) / "x.duckdb").profile
        with open_profile(profile) as connection:
            bare = dict(connection.execute(_BARE).fetchall())
            deployment = wanted if wanted in bare else "eager"  # no graphs on a CPU
            return Side(
                {(p, k): (ns, low, high) for d, p, k, ns, low, high
                 in connection.execute(_TERMS).fetchall() if d == deployment},
                _figures(connection, deployment),
                bare[deployment],
                connection.execute(_OPEN).fetchall()[0][0],
            )  # fmt: skip


def _figures(connection: duckdb.DuckDBPyConnection, deployment: str) -> dict[str, dict[str, float]]:
    found = connection.execute(_FIGURES)
    names = [column[0] for column in found.description or []]
    rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    graphs = dict(connection.execute(_GRAPHS).fetchall())
    return {
        row["path"]: row | {"graph_us": graphs.get(row["path"])}
        for row in rows
        if row["deployment"] == deployment
    }


def _judged(pair: Pair, moves: Moves) -> tuple[str, ...]:
    """Injected, found, interval, verdict of terms that move together."""
    parts = [pair.term(path, kind) for path in moves.paths for kind in moves.kinds]
    known = [part for part in parts if part is not None]
    truth = moves.truth(pair) if moves.truth else None
    if len(known) < len(parts) or truth is None:
        return "", "", "", "not measured"
    found, low, high = (sum(part[side] for part in known) for side in range(3))
    slack = OFF_RATIO * abs(truth) + sum(_drift(pair, path) for path in moves.paths)
    right = "ok" if low - slack <= truth <= high + slack else "wrong"
    if right == "ok" and low <= 0 <= high:
        right = "not resolved"
    return f"{truth:.1f}", f"{found:.1f}", _shown(low, high), right


def _rest(pair: Pair, rule: Injection) -> tuple[str, str, str]:
    """The worst of the terms that have to stay: found, interval, verdict."""
    moved = {(path, kind) for m in rule.moves for path in m.paths for kind in m.kinds}
    worst = (0.0, "", "0.0", "")
    for path, kind in sorted(pair.base.terms.keys() - moved):
        found = pair.term(path, kind)
        if found is None:
            continue
        beyond = max(found[1], -found[2], 0.0) - _drift(pair, path)
        worst = max(worst, (beyond, f"{path} {kind}", f"{found[0]:.1f}", _shown(*found[1:])))
    excess, what, found_us, interval = worst
    return found_us, interval, f"wrong: {what}" if excess > 0 else "ok"


def _drift(pair: Pair, path: str) -> float:
    """What a module's figures may change by from one recording to the next, µs."""
    cost = max(side.figures[path]["cost_us"] for side in (pair.base, pair.injected))
    return max(DRIFT_US, DRIFT_RATIO * cost)


def _flip(pair: Pair) -> tuple[str, ...]:
    """Alone the injected head is slower, and the step with it is faster."""
    alone, whole = pair.change("head", "isolated_us"), pair.slower
    right = alone > 0 > whole
    return "+, −", f"{alone:+.1f}, {whole:+.1f}", "", "ok" if right else "wrong"


def _shown(low: float, high: float) -> str:
    return f"{low:.1f} … {high:.1f}"
