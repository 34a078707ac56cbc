"""The injections that are recorded on a GPU: complete, runnable here, and judged by their rules."""

from __future__ import annotations

import pytest
import torch

from benchmarks.injection import NAMES, VERSIONS
from benchmarks.injection_check import RULES, Moves, Pair, Side, _judged, _rest
from benchmarks.injection_models import INJECTIONS, Place, unaligned_replays
from cb_trace.replay.inputs import freeze, plan_inputs

HERE = Place(torch.device("cpu"))


def test_every_injection_has_its_rules_and_its_models() -> None:
    assert list(NAMES) == list(INJECTIONS)
    assert set(NAMES) == set(RULES)


@pytest.mark.parametrize("name", NAMES)
def test_both_versions_have_the_modules_that_the_rules_name(name: str) -> None:
    named = {path for moves in RULES[name].moves for path in moves.paths}
    for version in VERSIONS:
        made = INJECTIONS[name](HERE, version)
        with torch.no_grad():
            made.model(*made.args)
        assert named <= {path for path, _ in made.model.named_modules()}


def test_only_replays_get_inputs_that_are_not_aligned() -> None:
    x = torch.arange(32.0)
    frozen = freeze(plan_inputs((x,), {}, set()))
    with unaligned_replays():
        (moved,) = frozen.thaw(own=True).args
    (still,) = frozen.thaw(own=True).args
    assert moved.data_ptr() % 8 == 4
    assert still.data_ptr() % 8 == 0
    assert torch.equal(moved, x)


def side(step: float, **terms: tuple[float, float, float]) -> Side:
    """One module ``m`` that costs 10 µs in a step of a length, with these terms."""
    return Side({("m", kind): bounds for kind, bounds in terms.items()},
                {"m": {"cost_us": 10.0}}, step, 0)  # fmt: skip


BASE = side(100, idle=(-5, -5, -5), cache=(0, -1, 1))


@pytest.mark.parametrize(
    ("idle", "verdict"),
    [
        ((-105.0, -106.0, -104.0), "ok"),
        ((-95.0, -97.0, -93.0), "wrong"),
        ((-105.0, -300.0, 100.0), "not resolved"),
    ],
)
def test_a_term_has_to_move_by_what_was_injected(
    idle: tuple[float, float, float], verdict: str
) -> None:
    pair = Pair(BASE, side(200, idle=idle, cache=(0, -1, 1)))
    moves = Moves(("m",), ("idle",), lambda both: -both.slower)
    assert _judged(pair, moves)[-1] == verdict
    assert _judged(pair, Moves(("m",), ("overlap",), lambda _: 1.0))[-1] == "not measured"


def test_the_others_have_to_stay() -> None:
    rule = RULES["spin"]
    still = Pair(BASE, side(200, idle=(-5, -5, -5), cache=(0.4, -1, 1)))
    moved = Pair(BASE, side(200, idle=(-5, -5, -5), cache=(4, 3, 5)))
    assert _rest(still, rule)[-1] == "ok"
    assert _rest(moved, rule)[-1] == "wrong: m cache"
