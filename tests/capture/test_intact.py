"""What a recording may disturb is put back, and what cannot be is named."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from cb_trace.capture.intact import intact

CPU = torch.device("cpu")
X = torch.ones(2, 4)


@pytest.mark.parametrize("begun", [False, True])
def test_optimizers_that_step_go_back(begun: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    adam = torch.optim.Adam(model[0].parameters(), lr=0.1)
    sgd = torch.optim.SGD(model[1].parameters(), lr=0.1, momentum=0.9)

    def step() -> None:
        model(X).sum().backward()
        for optimizer in (adam, sgd):
            optimizer.step()
            optimizer.zero_grad()

    if begun:
        step()
    before = copy.deepcopy((adam.state_dict(), sgd.state_dict()))
    weights = [p.detach().clone() for p in model.parameters()]
    moments = [id(s["exp_avg"]) for s in adam.state.values()]
    with intact(model, CPU, values=True):
        step()
        step()
        adam.param_groups[0]["lr"] = 0.5
    assert str((adam.state_dict(), sgd.state_dict())) == str(before)
    assert [id(s["exp_avg"]) for s in adam.state.values()] == moments  # in place
    assert all(map(torch.equal, weights, model.parameters()))
    step()  # and no hook is left


class Writing(nn.Linear):
    """Writes to its weight where no version tells."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.weight.data.mul_(0.5)
        return super().forward(x)


def test_a_write_behind_the_back_of_versions_is_noted() -> None:
    model = Writing(4, 4)
    with intact(model, CPU) as watch:
        assert watch.notes() == []
        model(X)
        assert [note.reason for note in watch.notes()] == ["parameters changed"]


def test_data_that_was_exchanged_is_put_back_and_no_change() -> None:
    model: Any = nn.Linear(4, 4)
    before = model.weight.detach().clone()
    with intact(model, CPU) as watch:
        model.weight.data = model.weight.data.clone()
        assert watch.notes() == []
        model.weight.data += 1
    assert torch.equal(model.weight, before)
