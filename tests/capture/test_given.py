"""Models that come compiled: recorded as they run, and given back as they came."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from cb_trace.capture.given import SLOT, as_written
from cb_trace.capture.options import RecordOptions
from cb_trace.capture.record import record
from cb_trace.errors import CbTraceError
from cb_trace.providers.workload import Workload
from tests.capture.test_record import QUICK

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")


class Marked(nn.Module):
    """Tells whether the compiler runs it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x) + (1 if torch.compiler.is_compiling() else 0)
        return out


def wrapped(model: nn.Module, **settings: Any) -> nn.Module:
    return cast("nn.Module", torch.compile(model, **settings))


def in_place(model: nn.Module, **settings: Any) -> nn.Module:
    model.compile(**settings)
    return model


WAYS = pytest.mark.parametrize("way", [wrapped, in_place])
Way = Callable[..., nn.Module]


@WAYS
def test_the_compiled_form_is_taken_off_and_put_back(way: Way) -> None:
    plain, x = Marked(), torch.ones(2, 4)
    expected = plain(x)
    model = way(plain, backend="eager")
    with as_written(model) as given:
        assert given.model is plain
        assert torch.equal(model(x), expected)
        assert given.form is not None
        with torch.no_grad():
            assert torch.allclose(given.form(x), expected + 1)
    assert torch.allclose(model(x), expected + 1)
    assert (SLOT in vars(plain)) == (way is in_place)
    torch._dynamo.reset()


def test_a_model_as_written_stays_so() -> None:
    model = Marked()
    with as_written(model) as given:
        assert given.model is model
        assert given.form is None
        options = RecordOptions(mode="cudagraph")
        assert given.options(options) is options
    assert given.notes() == []


@WAYS
def test_its_mode_and_backend_are_those_it_came_with(way: Way) -> None:
    def backend(graph: Any, _inputs: Any) -> Any:
        return graph

    with as_written(way(Marked(), backend=backend)) as given:
        assert given.options(RecordOptions()).mode == "compile"
        assert given.options(RecordOptions(mode="cudagraph")).mode == "compile+cudagraph"
        assert given.options(RecordOptions(mode="compile")).compile == given.compile
    found = given.compile["backend"]  # in a wrapper of torch's
    assert getattr(found, "compiler_fn", found) is backend


@WAYS
def test_a_part_that_is_compiled_is_refused(way: Way) -> None:
    model = nn.Sequential(nn.ReLU(), way(nn.ReLU(), backend="eager"))
    with pytest.raises(CbTraceError, match="only a part of the model is compiled: 1"):
        as_written(model).__enter__()
    outer = wrapped(nn.Sequential(way(nn.ReLU(), backend="eager")), backend="eager")
    with pytest.raises(CbTraceError, match="only a part of the model is compiled: 0"):
        as_written(outer).__enter__()


@WAYS
def test_a_compiled_model_is_recorded_compiled(way: Way, tmp_path: Path) -> None:
    plain = Marked()
    model = way(plain, dynamic=False)
    options = replace(QUICK, replay=False)
    manifest = record(Workload("given", model, (torch.randn(3, 4),)), tmp_path, options)
    assert manifest.run.mode == "compile"
    assert [m.path for m in manifest.modules] == ["", "inner"]
    nodes = {(n.target, n.path) for g in manifest.graphs for k in g.kernels for n in k.nodes}
    assert {("aten.addmm.default", "inner"), ("aten.add.Tensor", "")} <= nodes
    reasons = {n.reason for n in manifest.notes}
    assert "compiled model" in reasons
    assert "instrumentation changed the kernels" not in reasons
    assert (SLOT in vars(plain)) == (way is in_place)
    assert SLOT not in vars(model) or way is in_place
    torch._dynamo.reset()
