"""A compiled training step from the model to the profile: every product's owner by its sizes."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from cb_trace.capture.record import record
from cb_trace.conduct import ingest
from cb_trace.providers.workload import Workload
from tests.capture.test_record import QUICK
from tests.test_conduct import rows

# PyTorch's own import of its compiler (2.13).
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

ROWS = 32
SIZES = {  # in and out of each Linear: no two alike, so a product's sizes name its module
    (48, 64): "up", (64, 96): "a.fc", (96, 64): "a.proj", (64, 80): "mid", (80, 112): "b.fc",
    (112, 80): "b.proj", (80, 10): "head",
}  # fmt: skip


class Block(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm, self.act = nn.LayerNorm(width), nn.GELU()
        self.fc, self.proj = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        done: Tensor = self.proj(self.act(self.fc(self.norm(x))))
        return x + done


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.a, self.mid = nn.Linear(48, 64), Block(64, 96), nn.Linear(64, 80)
        self.b, self.head = Block(80, 112), nn.Linear(80, 10)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.b(self.mid(self.a(self.up(x)))))
        return y


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "bundle").mkdir()
    work = Workload(name="net", model=Net(), args=(torch.randn(ROWS, 48),))
    quick = replace(QUICK, mode="compile", phase="train", replay=False, compare_plain=False)
    record(work, folder / "bundle", quick)
    return ingest(folder / "bundle", folder / "net.duckdb").profile


def owner(name: str, dims: list[list[int]]) -> tuple[str, str]:
    """Module and phase of a product, by the sizes of its inputs."""
    if name == "aten::addmm":  # bias, input, weight transposed
        return SIZES[dims[2][0], dims[2][1]], "forward"
    left, right = dims[0], dims[1]  # of a weight's gradient, or of an input's
    outputs = left[1] if left[0] == ROWS else left[0]
    return SIZES[right[1], outputs], "backward"


def test_every_product_has_the_owner_that_its_sizes_tell(profile: Path) -> None:
    text = gzip.decompress((profile.parent / "bundle/context.json.gz").read_bytes())
    slices = [e for e in json.loads(text)["traceEvents"] if e.get("cat") == "cpu_op"]
    products = [e for e in slices if e["name"] in {"aten::addmm", "aten::mm"}]
    wanted = [owner(e["name"], e["args"]["Input Dims"]) for e in sorted(products, key=_start)]
    found = rows(
        profile,
        "SELECT any_value(module.path), any_value(part.phase), count(DISTINCT part.module_id) "
        "FROM op JOIN kernel USING (op_id) JOIN kernel_module AS part USING (kernel_id) "
        "LEFT JOIN module USING (module_id) WHERE op.name IN ('aten::addmm', 'aten::mm') "
        "GROUP BY op_id, op.start_ns ORDER BY op.start_ns",
    )
    assert found == [(path, phase, 1) for path, phase in wanted]
    assert {path for path, _ in wanted} == set(SIZES.values())


def _start(event: dict[str, float]) -> float:
    return event["ts"]


def test_fused_kernels_are_of_their_modules(profile: Path) -> None:
    """Forward: a norm, a GELU or a residual sum each; the sums are the blocks' own."""
    found = rows(
        profile,
        "SELECT DISTINCT module.path, kernel.name FROM kernel_module AS part "
        "JOIN kernel USING (kernel_id) JOIN module USING (module_id) "
        "WHERE part.phase = 'forward' AND contains(kernel.name, 'cpp_fused') AND step = 0",
    )
    kinds = {path: name.split("fused_")[1].rsplit("_", 1)[0] for path, name in found}
    assert kinds == {
        "a.norm": "native_layer_norm", "a.act": "gelu", "a": "add",
        "b.norm": "native_layer_norm", "b.act": "gelu", "b": "add",
    }  # fmt: skip


def test_all_of_the_step_is_attributed(profile: Path) -> None:
    lost = rows(profile, "SELECT reason, ns FROM coverage WHERE status = 'unattributed' AND ns > 0")
    methods = rows(profile, "SELECT DISTINCT phase, method FROM coverage WHERE method IS NOT NULL")
    assert lost == []
    assert {("forward", "inductor"), ("backward", "inductor"), ("backward", "parameter"),
            ("optimizer", "parameter")} <= set(methods)  # fmt: skip


def test_the_optimizer_is_split_by_the_parameters_bytes(profile: Path) -> None:
    found = rows(
        profile,
        "SELECT module.path, sum(share) / count(*), any_value(bytes) FROM kernel_module "
        "JOIN module USING (module_id) WHERE phase = 'optimizer' GROUP BY ALL",
    )
    sizes = {m: sum(p.numel() * 4 for p in owner.parameters(recurse=False))
             for m, owner in Net().named_modules()}  # fmt: skip
    sizes = {path: size for path, size in sizes.items() if size}
    assert {path: size for path, _, size in found} == sizes
    total = sum(sizes.values())
    assert {p: s for p, s, _ in found} == {p: pytest.approx(n / total) for p, n in sizes.items()}
