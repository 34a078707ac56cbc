"""On a GPU: host time of modules called one after another, beside that of each in a loop."""

from __future__ import annotations

from statistics import median

import pytest
import torch
from torch import nn

from cb_trace.capture.tree import module_tree
from cb_trace.replay.walk import Replayer, ReplayOptions

pytestmark = pytest.mark.gpu

LEAST_RATIO = 0.7  # of the wall in a loop: both vary


class Toy(nn.Module):
    """Three kinds of small modules, which the host bounds; one keeps statistics of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(1_000, 32), nn.BatchNorm1d(32)
        self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.table(ids))
        return self.second(self.first(x))  # type: ignore[no-any-return]


def test_every_module_takes_in_company_about_what_it_takes_in_a_loop_or_more(
    device: torch.device,
) -> None:
    torch.manual_seed(0)
    model, ids = Toy().to(device), torch.arange(64, device=device)

    def step() -> object:
        with torch.no_grad():
            return model(ids)

    step()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    options = ReplayOptions(conditions=("hot",), budget_seconds=4.0)
    work = Replayer(model, step, module_tree(model).records, device, options, lambda _: None)
    work.capture()
    work.time()
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert [note for note in work.notes if "tour" in note.reason] == []
    tours = {record.path: record for record in work.tour.records()}
    assert set(tours) == {"table", "norm", "first", "second"}
    hot = {record.replay_id: record for record in work.records}
    for record in work.records[1:]:  # the root is first
        alone = median(hot[record.measured_id].samples_ns)
        toured = tours[record.path]
        assert (toured.calls, len(toured.ns) >= 3) == (1, True)
        print(f"{record.path}: {alone} ns in a loop, {median(toured.ns)} ns in company")
        assert median(toured.ns) >= LEAST_RATIO * alone
