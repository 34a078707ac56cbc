"""A profile that fills every section of the report, with figures to find again on the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.reporters.profiles import MODULES, RUN, Row, write_profile

TERMS = {"launch": 250_000, "cache": -20_000, "idle": -130_000}
_STEP_NS = 400_000


def full_profile(target: Path, **changes: list[Row]) -> Path:
    """Two deployments, terms, verdicts, kernels on both sides, a fused one, work and memory."""
    rows: dict[str, list[Row]] = {
        "partition": _graph_partition(),
        "term": _terms(),
        "verdict": [
            _at(4, deployment=way, text=f"the {way} verdict") for way in ("eager", "graph")
        ],
        "step_sample": [
            {"run_id": RUN, "kind": "bare", "deployment": way, "sample": n, "ns": ns + n}
            for way, ns in (("eager", 1_000_000), ("graph", _STEP_NS))
            for n in range(3)
        ],
        "knockout": [
            _at(3, deployment="eager", marginal_ns=310_000, low_ns=300_000, high_ns=320_000)
        ],
        "note": [{"run_id": RUN, "reason": "unsteady step", "detail": "for a test", "count": 1}],
        "drop": [{"trace_id": 0, "reason": "no duration", "events": 3, "ns": 0}],
        **_kernels(),
        **_work(),
    }
    merged = {
        table: [*rows.get(table, []), *changes.get(table, [])] for table in {**rows, **changes}
    }
    return write_profile(target, **merged)


def _at(module: int, **values: Any) -> Row:
    return {"run_id": RUN, "module_id": module, "phase": "forward", **values}


def _graph_partition() -> list[Row]:
    return [
        _at(
            number,
            deployment="graph",
            kind="busy",
            ns=busy // 3,
            low_ns=busy // 3,
            high_ns=busy // 3,
        )
        for number, (*_, busy, _replay) in enumerate(MODULES)
        if busy
    ]


def _terms() -> list[Row]:
    """Of h.0: they lead from its cost of 720 µs, less rounding, to its 1,000 µs alone. Of its attn,
    from 300 to 600, one of them within its noise.
    """
    noisy = [("launch", 302_000, 1_000), ("cache", -2_000, 4_000)]
    return [
        _at(module, deployment="eager", kind=kind, ns=ns, low_ns=ns - off, high_ns=ns + off)
        for module, terms in ((2, [(*term, 1_000) for term in TERMS.items()]), (3, noisy))
        for kind, ns, off in terms
    ]


def _kernels() -> dict[str, list[Row]]:
    """In the step: gemm of mlp, a kernel that attn and mlp share. Alone, mlp's gemm is slower."""
    kernels = [(0, 0, "void at::native::gemm<float>(float*)", 390_000), (1, 0, "fused_add", 40_000)]
    kernels.append((2, 1, "void at::native::gemm<float>(float*)", 401_000))
    return {
        "trace": [{"trace_id": 1, "run_id": RUN, "role": "isolated", "path": "alone.json"}],
        "step": [{"trace_id": 0, "step": 0, "name": "s", "start_ns": 0, "dur_ns": 1_000_000}],
        "op": [{"op_id": n, "trace_id": n, "name": "aten::mm"} for n in (0, 1)],
        "kernel": [
            {
                "kernel_id": n, "trace_id": trace, "kind": "kernel", "name": name,
                "start_ns": n * 500_000, "dur_ns": ns, "step": 0,
                "op_id": trace if "gemm" in name else None,
            }
            for n, trace, name, ns in kernels
        ],
        "kernel_module": [
            _part(0, 4, 1.0, 390_000),
            _part(1, 3, 0.25, 10_000),
            _part(1, 4, 0.75, 30_000),
        ],
        "replay_kernel": [{"replay_id": 4, "iteration": 0, "position": 0, "kernel_id": 2}],
    }  # fmt: skip


def _part(kernel: int, module: int, share: float, ns: int) -> Row:
    row = {"kernel_id": kernel, "module_id": module, "phase": "forward", "share": share, "ns": ns}
    return {**row, "method": "range" if share == 1 else "inductor"}


def _work() -> dict[str, list[Row]]:
    sheet = {"run_id": RUN, "source": "a datasheet", "chosen": True}
    return {
        "cost": [
            _at(
                4, call_index=0, calls=1, flops=4 * 10**10, flops_extended=4 * 10**10,
                dtype="bf16", dtype_ratio=1.0, uncounted_ops=0,
                bytes_compulsory=2 * 10**8, bytes_requested=3 * 10**8,
            )
        ],
        "ceiling": [
            {**sheet, "kind": "matmul", "dtype": "bf16", "value": 1e15, "unit": "FLOP/s"},
            {**sheet, "kind": "memory", "value": 4e12, "unit": "byte/s"},
            {"run_id": RUN, "source": "measured", "kind": "matmul", "dtype": "bf16",
             "value": 8e14, "unit": "FLOP/s"},
            {"run_id": RUN, "source": "measured", "kind": "copy", "value": 3.5e12,
             "unit": "byte/s"},
        ],
        "memory": [
            _at(4, scope="context", peak_bytes=3 * 2**20, output_bytes=2**20)
        ],
    }  # fmt: skip
