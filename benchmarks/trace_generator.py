"""Write a GPU-shaped Kineto trace of any size: seeded, streaming, realistic in what costs time.

A transformer's eager forward, step after step: Python frames with ``nn.Module:`` slices, nested
operators with their shapes, launches on the host, kernels on two streams, flows, memory events,
``ProfilerStep`` annotations. The mix of kinds follows a real eager trace with stacks.

    python -m benchmarks.trace_generator OUT.json.gz --events 1000000 --seed 0
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PID, TID, DEVICE, STREAM, SIDE_STREAM = 4200, 4200, 0, 7, 20
BASE_NS = 5_126_667_474_542_782  # since Kineto's base time
LAYERS = 12
LEAVES = (
    ("LayerNorm", "aten::layer_norm", "aten::native_layer_norm"),
    ("Linear", "aten::linear", "aten::addmm"),
    ("Attention", "aten::scaled_dot_product_attention", "aten::_flash_attention_forward"),
    ("Linear", "aten::linear", "aten::addmm"),
    ("LayerNorm", "aten::layer_norm", "aten::native_layer_norm"),
    ("Linear", "aten::linear", "aten::addmm"),
    ("GELU", "aten::gelu", "aten::gelu"),
    ("Linear", "aten::linear", "aten::addmm"),
)
KERNELS = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>,"
    " std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*>)",
    "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_bias_TNT",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>"
    "(int, float, c10::BFloat16 const*, c10::BFloat16 const*, c10::BFloat16 const*, float*)",
    "pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false>>",
)
FRAMES = (
    "torch/nn/modules/module.py(1775): _wrapped_call_impl",
    "torch/nn/modules/module.py(1786): _call_impl",
    "torch/nn/modules/linear.py(134): forward",
    "<built-in method linear of type object at 0x7f2a5c0d2e40>",
)
HEADER = (
    '{\n"schemaVersion": 1,\n"deviceProperties": [{"id": 0, "name": "NVIDIA H200", '
    '"totalGlobalMem": 150109880320, "numSms": 132, "warpSize": 32}],\n'
    '"cuda_runtime_version": 13000,\n"with_stack": 1,\n"record_shapes": 1,\n'
    '"displayTimeUnit": "ms",\n"baseTimeNanoseconds": 1790857026000000000,\n"traceEvents": [\n'
)


def us(ns: int) -> str:
    """Nanoseconds as Kineto's decimal microseconds."""
    return f"{ns // 1000}.{ns % 1000:03}"


@dataclass(slots=True)
class Writer:
    """Makes the text of events and keeps clocks and counters."""

    random: random.Random
    now_ns: int = BASE_NS
    device_ns: int = BASE_NS
    correlation: int = 346_000
    index: int = 0
    python_id: int = 0
    stack: list[int] = field(default_factory=list)
    modules: dict[str, int] = field(default_factory=dict)

    def event(self, cat: str, name: str, start: int, args: str, *, dur: int | None = None) -> str:
        self.index += 1
        return (
            f'{{\n"ph": "X", "cat": "{cat}", "name": "{name}", "pid": {PID}, "tid": {TID},\n'
            f'"ts": {us(start)}, "dur": {us(self.now_ns - start if dur is None else dur)},\n'
            f'"args": {{\n{args}, "Ev Idx": {self.index}\n}}\n}}'
        )

    def tick(self, least: int = 300, most: int = 2500) -> None:
        self.now_ns += self.random.randint(least, most)

    def frame(self, name: str, inside: Iterator[str], module: int | None = None) -> list[str]:
        """A Python frame around other events, parent first as Kineto writes them."""
        self.python_id += 1
        own, parent = self.python_id, self.stack[-1] if self.stack else "null"
        start = self.now_ns
        self.tick(200, 900)
        self.stack.append(own)
        events = list(inside)
        self.stack.pop()
        self.tick(100, 400)
        number = "" if module is None else f', "Python module id": {module}'
        args = f'"Python parent id": {parent}, "Python id": {own}{number}'
        return [self.event("python_function", name, start, args), *events]

    def operator(self, name: str, inside: Iterator[str], external: int) -> list[str]:
        start = self.now_ns
        self.tick()
        events = list(inside)
        self.tick(100, 600)
        rows = self.random.randint(1, 64) * 8
        args = (
            f'"External id": {external},"Record function id": 0, "Concrete Inputs": ["", "", ""], '
            '"Input type": ["c10::BFloat16", "c10::BFloat16", "c10::BFloat16"], '
            '"Input Strides": [[768, 1], [768, 1], [1]], '
            f'"Input Dims": [[{rows}, 768], [3072, 768], [3072]]'
        )
        return [self.event("cpu_op", name, start, args), *events]

    def launch(self, external: int) -> Iterator[str]:
        """A launch, its kernel, and the flow between them."""
        self.correlation += 1
        correlation, start = self.correlation, self.now_ns
        self.tick(1500, 6000)
        driver = correlation % 5 == 0
        call = "cuLaunchKernelEx" if driver else "cudaLaunchKernel"
        yield self.event(
            "cuda_driver" if driver else "cuda_runtime", call, start,
            f'"External id": {external},"cbid": 211, "correlation": {correlation}',
        )  # fmt: skip
        yield self.flow("s", correlation, PID, TID, start)
        begin = max(self.device_ns + self.random.randint(300, 900), self.now_ns)
        dur = self.random.randint(1200, 60_000)
        self.device_ns = begin + dur
        stream = SIDE_STREAM if correlation % 17 == 0 else STREAM
        yield self.kernel(correlation, external, stream, begin, dur)
        yield self.flow("f", correlation, DEVICE, stream, begin)

    def kernel(self, correlation: int, external: int, stream: int, start: int, dur: int) -> str:
        return (
            f'{{\n"ph": "X", "cat": "kernel", "name": "{KERNELS[correlation % len(KERNELS)]}", '
            f'"pid": {DEVICE}, "tid": {stream},\n"ts": {us(start)}, "dur": {us(dur)},\n'
            f'"args": {{\n"External id": {external},"queued": 0, "device": {DEVICE}, "context": 1,'
            f'\n"stream": {stream}, "correlation": {correlation},\n"registers per thread": 168,\n'
            '"shared memory": 231424,\n"blocks per SM": 0.848485,\n"warps per SM": 10.181818,\n'
            '"grid": [132, 1, 1],\n"block": [384, 1, 1],\n"est. achieved occupancy %": 12\n}\n}'
        )

    def flow(self, ph: str, correlation: int, pid: int, tid: int, start: int) -> str:
        end = ', "bp": "e"' if ph == "f" else ""
        return (
            f'{{\n"ph": "{ph}", "id": {correlation}, "pid": {pid}, "tid": {tid}, '
            f'"ts": {us(start)},\n"cat": "ac2g", "name": "ac2g"{end}\n}}'
        )

    def memory(self) -> str:
        self.index += 1
        return (
            f'{{\n"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]",\n'
            f'"pid": {PID}, "tid": {TID},\n"ts": {us(self.now_ns)},\n"args": {{\n'
            f'"Total Reserved": 2097152, "Total Allocated": {self.index * 512}, "Bytes": 512, '
            f'"Addr": {140_000_000_000_000 + self.index * 512}, "Device Id": 0, '
            f'"Device Type": 1, "Ev Idx": {self.index}\n}}\n}}'
        )

    # --- the model ----------------------------------------------------------------------------

    def module(self, name: str, inside: Iterator[str]) -> list[str]:
        module = self.modules.setdefault(name, len(self.modules))
        return self.frame(f"nn.Module: {name}", inside, module)

    def leaf(self, outer: str, inner: str) -> Iterator[str]:
        external = self.index + 1

        def body() -> Iterator[str]:
            yield self.memory()
            yield from self.operator(inner, self.launch(external), external)

        def call() -> Iterator[str]:
            yield from self.frame(FRAMES[3], iter(self.operator(outer, body(), external)))
            yield from self.frame(FRAMES[0], iter(()))

        yield from self.frame(FRAMES[2], call())

    def layer(self, number: int) -> Iterator[str]:
        def children() -> Iterator[str]:
            for position, (kind, outer, inner) in enumerate(LEAVES):
                name = f"{kind}_{number * len(LEAVES) + position}"
                yield from self.frame(FRAMES[1], iter(self.module(name, self.leaf(outer, inner))))

        yield from self.module(f"Block_{number}", children())

    def step(self, number: int) -> Iterator[str]:
        start = self.now_ns

        def body() -> Iterator[str]:
            for layer in range(LAYERS):
                yield from self.layer(layer)

        yield from self.module("Transformer_0", body())
        self.now_ns = max(self.now_ns, self.device_ns) + 20_000
        yield self.event(
            "user_annotation", f"ProfilerStep#{number}", start - 1000,
            f'"External id": {self.index + 1}', dur=self.now_ns - start,
        )  # fmt: skip
        self.tick(20_000, 50_000)


def events(count: int, seed: int) -> Iterator[str]:
    """The texts of ``count`` events; the last step is cut where the count is reached."""
    writer, number = Writer(random.Random(seed)), 0
    yield (
        f'{{\n"name": "process_name", "ph": "M", "ts": {us(BASE_NS)}, "pid": {PID}, "tid": 0,\n'
        '"args": {\n"name": "python"\n}\n}'
    )
    made = 1
    while made < count:
        for event in writer.step(number):
            if made == count:
                return
            yield event
            made += 1
        number += 1


def generate(path: Path, count: int, seed: int = 0) -> None:
    """Write a gzip-compressed trace of ``count`` events."""
    from isal import igzip

    with igzip.open(path, "wb", compresslevel=1) as stream:  # type: ignore[no-untyped-call]
        stream.write(HEADER.encode())
        separator = ""
        for event in events(count, seed):
            indented = event.replace("\n", "\n    ")
            stream.write(f"{separator}  {indented}".encode())
            separator = ",\n"
        stream.write(b'\n],\n"traceName": "generated.json"\n}')


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("path", type=Path)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    generate(given.path, given.events, given.seed)


if __name__ == "__main__":
    main()
