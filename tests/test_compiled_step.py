"""Compiled steps from the model to the profile: every product's owner by its sizes.

On the CPU, with Inductor's kernel profiling on: otherwise its fused kernels do not show.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cb_trace.capture.record import record
from cb_trace.conduct import ingest
from cb_trace.providers.workload import Workload
from tests.capture.models import towers
from tests.capture.test_record import QUICK
from tests.distinct import PRODUCTS, SIZES, Net, net, product_owner
from tests.test_conduct import rows

# PyTorch's own import of its compiler (2.13).
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

COMPILE = replace(QUICK, mode="compile", replay=False, compare_plain=False)
FUSED = """
    SELECT DISTINCT module.path, kernel.name FROM kernel_module AS part
    JOIN kernel USING (kernel_id) JOIN module USING (module_id)
    WHERE part.phase = 'forward' AND contains(kernel.name, 'cpp_fused') AND step = 0
"""
LOST = "SELECT reason, ns FROM coverage WHERE status = 'unattributed' AND ns > 0"


@pytest.fixture(scope="module", params=["train", "forward"])
def recorded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """What was recorded, and the profile of it."""
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "bundle").mkdir()
    record(net(), folder / "bundle", replace(COMPILE, phase=request.param))
    return request.param, ingest(folder / "bundle", folder / "net.duckdb").profile


@pytest.fixture
def profile(recorded: tuple[str, Path]) -> Path:
    return recorded[1]


def test_every_product_has_the_owner_that_its_sizes_tell(profile: Path) -> None:
    text = gzip.decompress((profile.parent / "bundle/context.json.gz").read_bytes())
    slices = [e for e in json.loads(text)["traceEvents"] if e.get("cat") == "cpu_op"]
    products = sorted((e for e in slices if e["name"] in PRODUCTS), key=_start)
    wanted = [  # here addmm is never taken apart, and no backward has one
        (product_owner(e["args"]["Input Dims"], backward=e["name"] == "aten::mm"), e["name"])
        for e in products
    ]
    found = rows(
        profile,
        "SELECT any_value(module.path), any_value(part.phase), count(DISTINCT part.module_id) "
        "FROM op JOIN kernel USING (op_id) JOIN kernel_module AS part USING (kernel_id) "
        "LEFT JOIN module USING (module_id) WHERE op.name IN ('aten::addmm', 'aten::mm') "
        "GROUP BY op_id, op.start_ns ORDER BY op.start_ns",
    )
    phases = {"aten::addmm": "forward", "aten::mm": "backward"}
    assert found == [(path, phases[name], 1) for path, name in wanted]
    assert {path for path, _ in wanted} == set(SIZES.values())


def _start(event: dict[str, float]) -> float:
    return event["ts"]


def test_fused_kernels_are_of_their_modules(profile: Path) -> None:
    """Forward: a norm, a GELU or a residual sum each; the sums are the blocks' own."""
    found = rows(profile, FUSED)
    kinds = {path: name.split("fused_")[1].rsplit("_", 1)[0] for path, name in found}
    assert kinds == {
        "a.norm": "native_layer_norm", "a.act": "gelu", "a": "add",
        "b.norm": "native_layer_norm", "b.act": "gelu", "b": "add",
    }  # fmt: skip


def test_all_of_the_step_is_attributed(recorded: tuple[str, Path]) -> None:
    phase, profile = recorded
    methods = rows(profile, "SELECT DISTINCT phase, method FROM coverage WHERE method IS NOT NULL")
    assert rows(profile, LOST) == []
    train = {("backward", "inductor"), ("backward", "parameter"), ("optimizer", "parameter")}
    assert {("forward", "inductor")} | (train if phase == "train" else set()) <= set(methods)


def test_the_optimizer_is_split_by_the_parameters_bytes(recorded: tuple[str, Path]) -> None:
    found = rows(
        recorded[1],
        "SELECT module.path, sum(share) / count(*), any_value(bytes) FROM kernel_module "
        "JOIN module USING (module_id) WHERE phase = 'optimizer' GROUP BY ALL",
    )
    sizes = {m: sum(p.numel() * 4 for p in owner.parameters(recurse=False))
             for m, owner in Net().named_modules()}  # fmt: skip
    sizes = {path: size for path, size in sizes.items() if size and recorded[0] == "train"}
    assert {path: size for path, _, size in found} == sizes
    total = sum(sizes.values())
    assert {p: s for p, s, _ in found} == {p: pytest.approx(n / total) for p, n in sizes.items()}


class Attends(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x)


class Library(nn.Module):
    """A module for each kind of library call."""

    def __init__(self) -> None:
        super().__init__()
        self.bag, self.up = nn.EmbeddingBag(50, 24, mode="sum"), nn.Linear(24, 32)
        self.conv, self.act = nn.Conv1d(4, 4, 3, padding=1), nn.GELU()
        self.attend, self.out = Attends(), nn.Linear(8, 3)

    def forward(self, rows: Tensor, offsets: Tensor) -> Tensor:
        x = self.up(self.bag(rows, offsets)).view(-1, 4, 8)
        x = self.attend(self.act(self.conv(x)).view(-1, 1, 4, 8))
        y: Tensor = self.out(x)
        return y


def test_library_calls_are_of_their_own_modules(tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    given = (torch.randint(0, 50, (64,)), torch.arange(0, 64, 4))
    work = Workload(name="library", model=Library(), args=given)
    record(work, tmp_path / "bundle", replace(COMPILE, phase="train", steps=1))
    profile = ingest(tmp_path / "bundle", tmp_path / "p.duckdb").profile
    found = rows(
        profile,
        "SELECT DISTINCT module.path, part.phase, op.name FROM kernel_module AS part "
        "JOIN kernel USING (kernel_id) JOIN op USING (op_id) JOIN module USING (module_id) "
        "WHERE regexp_matches(op.name, 'embedding_bag(_backward)?$|::convolution|flash') "
        "OR op.name IN ('aten::addmm', 'aten::mm')",
    )
    names = {"bag": "_embedding_bag", "conv": "convolution",
             "attend": "_scaled_dot_product_flash_attention_for_cpu"}  # fmt: skip
    assert sorted(found) == sorted(
        [(path, "forward", f"aten::{name}") for path, name in names.items()]
        + [(path, "backward", f"aten::{name}_backward") for path, name in names.items()]
        + [(path, "forward", "aten::addmm") for path in ("up", "out")]
        + [(path, "backward", "aten::mm") for path in ("up", "out")]
    )
    assert rows(profile, LOST) == []


BY_MODULE = """
    SELECT module.path, part.phase, count(DISTINCT op_id) FROM kernel_module AS part
    JOIN kernel USING (kernel_id) JOIN op USING (op_id) JOIN module USING (module_id)
    WHERE op.name IN ('aten::addmm', 'aten::mm') AND kernel.step = 0 GROUP BY ALL
"""
FORWARD = {
    ("left.inner", "forward"): 1, ("left.head", "forward"): 1, ("right.inner", "forward"): 1,
    ("right.head", "forward"): 1, ("twice", "forward"): 2, ("frozen", "forward"): 1,
    ("again.up", "forward"): 1, ("again.down", "forward"): 1, ("out", "forward"): 1,
}  # fmt: skip
BACKWARD = {  # inputs need no gradient, the frozen weight neither
    ("left.inner", "backward"): 1, ("left.head", "backward"): 2, ("right.inner", "backward"): 1,
    ("right.head", "backward"): 2, ("twice", "backward"): 4, ("frozen", "backward"): 1,
    ("again.up", "backward"): 2, ("again.down", "backward"): 2, ("out", "backward"): 2,
    ("again.up", "recompute"): 1, ("again.down", "recompute"): 1,
}  # fmt: skip


@pytest.mark.parametrize("mode", ["eager", "compile"])
@pytest.mark.parametrize("phase", ["forward", "train"])
def test_the_towers_have_the_products_of_their_modules(
    phase: str, mode: str, tmp_path: Path
) -> None:
    """Shared, called twice, frozen, checkpointed: each has as many as its formula has."""
    (tmp_path / "bundle").mkdir()
    options: Any = {"mode": mode, "phase": phase, "steps": 1}
    record(towers(), tmp_path / "bundle", replace(COMPILE, **options))
    profile = ingest(tmp_path / "bundle", tmp_path / "p.duckdb").profile
    wanted = FORWARD | (BACKWARD if phase == "train" else {})
    assert {(path, of): count for path, of, count in rows(profile, BY_MODULE)} == wanted
    assert rows(profile, LOST) == []
