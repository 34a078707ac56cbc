"""The one kernel of the injection suite that torch does not have; only where there is a GPU."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ELEMENTS, WARPS = 2048, 4  # 8 KiB under way on each multiprocessor


@triton.jit  # type: ignore[untyped-decorator]
def stream_copy(
    source: tl.tensor, target: tl.tensor, count: tl.tensor, block: tl.constexpr
) -> None:
    """Copy ``count`` elements, a multiple of ``block``, by as many blocks as there are."""
    for start in range(tl.program_id(0) * block, count, tl.num_programs(0) * block):
        at = start + tl.arange(0, block)
        tl.store(target + at, tl.load(source + at))


def copied(source: Tensor) -> Tensor:
    """A copy, by one block a multiprocessor, on the current stream."""
    target = torch.empty_like(source)
    blocks = torch.cuda.get_device_properties(source.device).multi_processor_count
    stream_copy[(blocks,)](source, target, source.numel(), block=ELEMENTS, num_warps=WARPS)
    return target
