"""DeepFM-DLRM: embedding bags and a dense MLP, crossed by a factorisation machine and a deep MLP.

The shape of the public example of per-module benchmarking (shared facts, models.md section 2):
dense 1024 → 4096 → D, one table of width D a sparse feature, `inter_arch.{deep_fm, fm}`, and a
single output. Ids are drawn from a Zipf-like law and scattered over the table, so that replay
meets real reuse; bags have uneven lengths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from cb_trace.providers.bags import Bag, Bags, check_law, drawn_bag, labels_of, plain_sgd
from cb_trace.providers.workload import Provider


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Sizes; table rows grow geometrically from ``rows_min`` to ``rows_max``."""

    batch: int
    dense: int
    hidden: int
    width: int  # D: of every table, of the dense output and of the deep output
    tables: int
    rows_min: int
    rows_max: int
    pooling: int  # mean bag length
    skew: float = 1.05  # exponent of the id law; 0 is uniform

    def __post_init__(self) -> None:
        for name in ("batch", "dense", "hidden", "width", "tables", "rows_min", "pooling"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.rows_min > self.rows_max:
            raise ValueError("rows_max must be at least rows_min")
        check_law(self.rows_max, self.skew)

    def rows(self, table: int) -> int:
        """Rows of a table."""
        growth = self.rows_max / self.rows_min
        return int(self.rows_min * growth ** (table / max(self.tables - 1, 1)) + 0.5)


class DenseArch(nn.Module):
    """The bottom MLP over the dense features."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.model = nn.Sequential(
            nn.Linear(config.dense, config.hidden),
            nn.ReLU(),
            nn.Linear(config.hidden, config.width),
            nn.ReLU(),
        )

    def forward(self, dense: Tensor) -> Tensor:
        out: Tensor = self.model(dense)
        return out


def _table(rows: int, width: int) -> nn.EmbeddingBag:
    bag = nn.EmbeddingBag(rows, width, mode="sum", include_last_offset=True)
    nn.init.uniform_(bag.weight, -(rows**-0.5), rows**-0.5)
    return bag


class SparseArch(nn.Module):
    """One sum-pooled embedding bag a feature."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embedding_bags = nn.ModuleDict(
            {
                f"t_{table}": _table(config.rows(table), config.width)
                for table in range(config.tables)
            }
        )

    def forward(self, bags: Bags) -> Tensor:
        pooled = [
            table(ids, offsets)
            for table, (ids, offsets) in zip(self.embedding_bags.values(), bags, strict=True)
        ]
        return torch.stack(pooled, dim=1)  # B × F × D


class DeepFM(nn.Module):
    """A deep MLP over all features side by side."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.dense_module = nn.Sequential(
            nn.Linear((config.tables + 1) * config.width, config.width), nn.ReLU()
        )

    def forward(self, features: Tensor) -> Tensor:
        out: Tensor = self.dense_module(features)
        return out


class FactorizationMachine(nn.Module):
    """Second-order cross of the features side by side: ((Σx)² − Σx²) ÷ 2, Rendle 2010, eq. 5."""

    def forward(self, features: Tensor) -> Tensor:
        total = features.sum(dim=1, keepdim=True)
        squares = (features * features).sum(dim=1, keepdim=True)
        return 0.5 * (total * total - squares)  # B × 1


class InteractionArch(nn.Module):
    """Dense features beside the deep and the factorised cross."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.deep_fm = DeepFM(config)
        self.fm = FactorizationMachine()

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        features = torch.cat([dense, sparse.flatten(1)], dim=1)  # B × (F + 1)·D
        return torch.cat([dense, self.deep_fm(features), self.fm(features)], dim=1)


class OverArch(nn.Module):
    """One probability from all crosses."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(2 * config.width + 1, 1), nn.Sigmoid())

    def forward(self, crosses: Tensor) -> Tensor:
        out: Tensor = self.model(crosses)
        return out


class DeepFMDLRM(nn.Module):
    """The whole ranking model."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.dense_arch = DenseArch(config)
        self.sparse_arch = SparseArch(config)
        self.inter_arch = InteractionArch(config)
        self.over_arch = OverArch(config)

    def forward(self, dense: Tensor, bags: Bags) -> Tensor:
        crosses = self.inter_arch(self.dense_arch(dense), self.sparse_arch(bags))
        out: Tensor = self.over_arch(crosses)
        return out


def _bag(config: Config, table: int) -> Bag:
    """Ids and offsets of a feature; bag lengths are uniform on 0 … 2 × pooling."""
    lengths = torch.randint(2 * config.pooling + 1, (config.batch,))
    return drawn_bag(config.rows(table), lengths, config.skew)


def _build(config: Config, device: str) -> tuple[nn.Module, tuple[Tensor, Bags], dict[str, Tensor]]:
    with torch.device(device):
        model = DeepFMDLRM(config).eval()
        dense = torch.randn(config.batch, config.dense)
        bags = tuple(_bag(config, table) for table in range(config.tables))
    return model, (dense, bags), {}


def _loss(args: tuple[Tensor, Bags]) -> Callable[[Tensor], Tensor]:
    """Binary cross entropy against labels that follow from the first dense feature."""
    labels = labels_of(args[0])

    def loss(probability: Tensor) -> Tensor:
        with torch.autocast(probability.device.type, enabled=False):  # autocast refuses this loss
            return functional.binary_cross_entropy(probability.float(), labels)

    return loss


PROVIDER = Provider(
    name="deepfm",
    loss=_loss,
    optimizer=plain_sgd,
    summary="DeepFM-DLRM ranking model: embedding bags, factorisation machine, deep MLP",
    presets={
        "tiny": Config(
            batch=64,
            dense=64,
            hidden=128,
            width=32,
            tables=4,
            rows_min=500,
            rows_max=4000,
            pooling=8,
        ),
        "paper": Config(
            batch=8192,
            dense=1024,
            hidden=4096,
            width=512,
            tables=26,
            rows_min=100_000,
            rows_max=1_000_000,
            pooling=20,
        ),
    },
    build=_build,
)
