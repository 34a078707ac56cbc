"""What ranking models share: ids drawn so that replay meets real reuse, labels, an optimizer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

SCATTER = 2_654_435_761  # a prime above every table size: ids keep their frequencies, not order

Bag = tuple[Tensor, Tensor]  # ids (N,), offsets (B + 1,), both int64
Bags = tuple[Bag, ...]  # one a feature


def drawn_bag(rows: int, lengths: Tensor, skew: float) -> Bag:
    """Ids and offsets of one feature, a bag a sample of ``lengths`` (B,)."""
    offsets = torch.zeros(lengths.numel() + 1, dtype=torch.int64)
    torch.cumsum(lengths, dim=0, out=offsets[1:])
    return _draw(rows, int(offsets[-1]), skew), offsets


def labels_of(dense: Tensor) -> Tensor:
    """Labels (B, 1) that follow from the first dense feature of ``dense`` (B, features)."""
    return (dense[:, :1] > 0).float()


def plain_sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """An optimizer without state: the tables are most of the memory."""
    return torch.optim.SGD(parameters, lr=1e-2)


def check_law(rows_max: int, skew: float) -> None:
    """:raises ValueError: ids cannot be drawn so."""
    if not 1 <= rows_max < SCATTER:
        raise ValueError(f"rows must be at least 1 and below {SCATTER}")
    if skew < 0 or skew == 1:
        raise ValueError("skew must be 0 or more, and not exactly 1")


def _draw(rows: int, count: int, skew: float) -> Tensor:
    """``count`` ids of a table with probability ∝ rank^−skew, by inverting the continuous law."""
    uniform = torch.rand(count, dtype=torch.float64)
    power = 1.0 - skew
    rank = (1.0 + uniform * ((rows + 1.0) ** power - 1.0)) ** (1.0 / power)
    order: Tensor = rank.long().clamp_(1, rows) - 1
    return order * SCATTER % rows
