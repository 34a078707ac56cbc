"""A module run on a part of its batch: where it fits, what it does, what is measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from cb_trace.bundle import SpeedupRecord
from cb_trace.errors import CbTraceError
from cb_trace.replay.knockout import Job, KnockoutOptions, parse_speedup, speed_up
from cb_trace.replay.on_part import OnPart

CPU = torch.device("cpu")


class Rows(nn.Module):
    """Tells how many rows it worked on; ``seen`` is no state of its own."""

    def __init__(self, seen: list[int], work: Callable[..., Any] = lambda x: x * 2) -> None:
        super().__init__()
        self.work: Callable[..., Any] = work
        self.tell: Callable[[int], None] = lambda rows: seen.extend([rows])

    def forward(self, x: torch.Tensor, *more: Any, **named: Any) -> Any:
        self.tell(x.shape[0])
        return self.work(x, *more, **named)


class Net(nn.Module):
    def __init__(self, body: nn.Module, *more: Any) -> None:
        super().__init__()
        self.body, self.more = body, more

    def forward(self, x: torch.Tensor) -> Any:
        return self.body(x + 1, *self.more)


def sped_up(net: nn.Module, factor: int = 2, *, grad: bool = False) -> SpeedupRecord:
    x = torch.arange(24.0).reshape(8, 3)

    def step() -> object:
        with torch.set_grad_enabled(grad):
            return net(x)

    options = KnockoutOptions(budget_seconds=0.2, min_pairs=3)
    (record,) = speed_up(
        dict(net.named_modules()), step, CPU, [Job("body", factor)], options,
        graph=False, progress=lambda _: None,
    )  # fmt: skip
    return record


def test_it_works_on_a_part_and_gives_out_the_whole() -> None:
    seen: list[int] = []
    module, x = Rows(seen), torch.arange(12.0).reshape(4, 3)
    stand_in = OnPart(module, 2)
    stand_in.record(lambda: module(x))
    seen.clear()
    with stand_in.installed():
        given = module(torch.zeros(4, 3))
    assert seen == [2]
    assert torch.equal(given, x * 2)
    assert "forward" not in vars(module)
    assert module(x).shape == (4, 3)
    assert seen == [2, 4]


def test_the_step_is_timed_with_and_without() -> None:
    seen: list[int] = []
    record = sped_up(Net(Rows(seen)), 4)
    assert record.skipped is None
    assert (record.path, record.factor, record.deployment) == ("body", 4, "eager")
    assert len(record.base_ns) == len(record.faster_ns) >= 3
    assert set(seen) == {8, 2}


def test_inputs_of_another_length_stay_whole() -> None:
    record = sped_up(Net(Rows([], lambda x, w: x @ w), torch.ones(3, 5)))
    assert record.skipped is None


@pytest.mark.parametrize(
    ("work", "more", "factor", "reason"),
    [
        (lambda x: x * x.mean(0), (), 2, "its rows depend on one another"),
        (lambda x: x.cumsum(0).flip(0), (), 2, "its rows depend on one another"),
        (lambda x: x.sum() + 0, (), 2, "its outputs have no first dimension in common"),
        (lambda x: (x * 2, x[:3] * 2), (), 2, "its outputs have no first dimension in common"),
        (lambda x: x * 2, (), 3, "its batch of 8 cannot be cut into 3"),
        (lambda x: x.t() * 2, (), 3, "none of its inputs has the first dimension"),
        (lambda x, w: x + w, (torch.ones(1, 3),), 2, None),
        (lambda x, w: x * w.view(8, 3), (torch.ones(24),), 2, "it does not run on a part"),
        (lambda x: torch.ones(8, 3) * x.sum(), (), 2, "its output does not follow its batch"),
    ],
)
def test_where_it_fits(
    work: Callable[..., Any], more: tuple[Any, ...], factor: int, reason: str | None
) -> None:
    record = sped_up(Net(Rows([], work), *more), factor)
    assert (record.skipped or "").startswith(reason or "")
    assert bool(record.skipped) == bool(reason)


def test_batch_statistics_do_not_fit() -> None:
    net = Net(nn.BatchNorm1d(3))
    assert str(sped_up(net).skipped).startswith("its rows depend on one another")
    assert sped_up(net.eval()).skipped is None


def test_autograd_does_not_fit() -> None:
    record = sped_up(Net(nn.Linear(3, 3)), grad=True)
    assert str(record.skipped).startswith("autograd records it")


def test_dropout_fits_and_its_values_are_not_compared() -> None:
    assert sped_up(Net(nn.Dropout(0.5))).skipped is None


def test_the_words_of_the_option() -> None:
    assert parse_speedup("h.0.mlp=2x") == Job("h.0.mlp", 2)
    assert parse_speedup("=12x") == Job("", 12)
    for wrong in ("h.0.mlp", "h.0=1x", "h.0=0.5x", "h.0=2"):
        with pytest.raises(CbTraceError, match="--speedup wants PATH=2x"):
            parse_speedup(wrong)
