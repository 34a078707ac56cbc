"""A model of modules of distinct sizes: a kernel's tensors say whose it is.

Nothing here needs the reading half, so that machines that only record can use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from cb_trace.providers.workload import Workload

ROWS = 32
SIZES = {  # in and out of each Linear, no two alike; as matrix units take them, so none is padded
    (48, 64): "up", (64, 96): "a.fc", (96, 64): "a.proj", (64, 80): "mid", (80, 112): "b.fc",
    (112, 80): "b.proj", (80, 16): "head",
}  # fmt: skip
WIDTHS = {  # the modules that have tensors of a width
    48: {"up"}, 64: {"up", "a.norm", "a", "a.fc", "a.proj", "mid"}, 96: {"a.fc", "a.act", "a.proj"},
    80: {"mid", "b.norm", "b", "b.fc", "b.proj", "head"}, 112: {"b.fc", "b.act", "b.proj"},
    16: {"head"},
}  # fmt: skip
PRODUCTS = ("aten::addmm", "aten::mm")


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
        self.b, self.head = Block(80, 112), nn.Linear(80, 16)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.b(self.mid(self.a(self.up(x)))))
        return y


def net() -> Workload:
    """A provider."""
    torch.manual_seed(0)
    return Workload(name="net", model=Net(), args=(torch.randn(ROWS, 48),))


def product_owner(dims: Sequence[Sequence[int]], *, backward: bool) -> str:
    """The module of a product, by the sizes of its inputs; a bias may come first."""
    left, right = [size for size in dims if len(size) == 2 and size[0] > 1][:2]
    if not backward:  # input, weight transposed
        return SIZES[left[1], right[1]]
    outputs = left[1] if left[0] == ROWS else left[0]  # of an input's gradient, or a weight's
    return SIZES[right[1], outputs]


def widths(dims: Iterable[Sequence[int]]) -> set[int]:
    """The widths of :data:`WIDTHS` among the last dimensions of tensors."""
    return {size[-1] for size in dims if size} & set(WIDTHS)
