"""DLRM: embedding bags and a bottom MLP, crossed by dot products, and a top MLP.

The shapes of the performance-model literature (shared facts, models.md section 3), as the original
script builds them: one ``EmbeddingBag`` a table, called in a loop. Names are those of the other
recommender that ships. With ``overlap`` the tables run on a stream of their own beside the bottom
MLP; on a CPU that changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from cb_trace.providers.bags import Bags, check_law, drawn_bag, labels_of, plain_sgd
from cb_trace.providers.workload import Provider

# Rows of the 26 tables of the Criteo 1 TB click logs, as MLPerf caps them.
CRITEO = (
    "40000000,39060,17295,7424,20265,3,7122,1543,63,40000000,3067956,405282,10,2209,11938,155,4,"
    "976,14,40000000,40000000,40000000,590152,12973,108,36"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Sizes. ``bottom`` and ``top`` are layer widths, as ``13-512-256-128``; ``bottom`` starts with
    the number of dense features and ends with the width of every table, ``top`` leaves its input
    out. ``rows`` is one number a table with commas between, ``NxT`` for T tables of N rows.
    """

    batch: int
    bottom: str
    top: str
    rows: str
    rows_cap: int = 40_000_000  # of any table
    pooling: int  # ids a bag
    skew: float = 0.0  # exponent of the id law; 0 is uniform
    overlap: bool = False  # tables on a second stream

    def __post_init__(self) -> None:
        if self.batch < 1 or self.pooling < 1 or self.rows_cap < 1:
            raise ValueError("batch, pooling and rows_cap must be at least 1")
        if len(_numbers(self.bottom)) < 2 or not _numbers(self.top):
            raise ValueError("bottom needs two widths or more, top one")
        check_law(max(self.tables), self.skew)

    @property
    def tables(self) -> list[int]:
        """Rows of each table."""
        found: list[int] = []
        for part in self.rows.split(","):
            rows, _, times = part.partition("x")
            found += [min(int(rows), self.rows_cap)] * int(times or 1)
        return found

    @property
    def width(self) -> int:
        """D: of every table and of the bottom's output."""
        return _numbers(self.bottom)[-1]


def _numbers(text: str) -> list[int]:
    found = [int(part) for part in text.split("-")]
    if min(found) < 1:
        raise ValueError(f"widths must be at least 1, not {text}")
    return found


def _mlp(widths: list[int], *, last: bool) -> nn.Sequential:
    """Linear layers with a ReLU after each; after the last only if ``last``."""
    layers: list[nn.Module] = []
    for given, made in pairwise(widths):
        layers += [nn.Linear(given, made), nn.ReLU()]
    return nn.Sequential(*(layers if last else layers[:-1]))


class DenseArch(nn.Module):
    """The bottom MLP over the dense features."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.model = _mlp(_numbers(config.bottom), last=True)

    def forward(self, dense: Tensor) -> Tensor:
        out: Tensor = self.model(dense)
        return out


class SparseArch(nn.Module):
    """One sum-pooled embedding bag a feature."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embedding_bags = nn.ModuleDict(
            {f"t_{table}": _table(rows, config.width) for table, rows in enumerate(config.tables)}
        )

    def forward(self, bags: Bags) -> Tensor:
        pooled = [
            table(ids, offsets)
            for table, (ids, offsets) in zip(self.embedding_bags.values(), bags, strict=True)
        ]
        return torch.stack(pooled, dim=1)  # B × F × D


def _table(rows: int, width: int) -> nn.EmbeddingBag:
    bag = nn.EmbeddingBag(rows, width, mode="sum", include_last_offset=True)
    nn.init.uniform_(bag.weight, -(rows**-0.5), rows**-0.5)
    return bag


class InteractionArch(nn.Module):
    """Dot products of all pairs of features, beside the dense ones."""

    rows: Tensor
    columns: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        pairs = torch.triu_indices(features, features, offset=1)
        self.register_buffer("rows", pairs[0], persistent=False)
        self.register_buffer("columns", pairs[1], persistent=False)

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        features = torch.cat([dense.unsqueeze(1), sparse], dim=1)  # B × (F + 1) × D
        dots = torch.bmm(features, features.transpose(1, 2))
        return torch.cat([dense, dots[:, self.rows, self.columns]], dim=1)


class OverArch(nn.Module):
    """The top MLP: one logit from all crosses."""

    def __init__(self, crosses: int, config: Config) -> None:
        super().__init__()
        self.model = _mlp([crosses, *_numbers(config.top)], last=False)

    def forward(self, crosses: Tensor) -> Tensor:
        out: Tensor = self.model(crosses)
        return out


class DLRM(nn.Module):
    """The whole ranking model; ``side`` is the stream of the tables, if they have their own."""

    def __init__(self, config: Config, side: torch.cuda.Stream | None = None) -> None:
        super().__init__()
        features = len(config.tables) + 1
        self.side = side
        self.dense_arch = DenseArch(config)
        self.sparse_arch = SparseArch(config)
        self.inter_arch = InteractionArch(features)
        self.over_arch = OverArch(config.width + features * (features - 1) // 2, config)

    def forward(self, dense: Tensor, bags: Bags) -> Tensor:
        low, sparse = self._inputs(dense, bags)
        out: Tensor = self.over_arch(self.inter_arch(low, sparse))
        return out

    def _inputs(self, dense: Tensor, bags: Bags) -> tuple[Tensor, Tensor]:
        if self.side is None:
            return self.dense_arch(dense), self.sparse_arch(bags)
        here = torch.cuda.current_stream(dense.device)
        # This wait also keeps memory safe: the side stream reuses none that this one still reads.
        self.side.wait_stream(here)
        with torch.cuda.stream(self.side):
            sparse = self.sparse_arch(bags)
        low = self.dense_arch(dense)
        here.wait_stream(self.side)
        return low, sparse


def _stream(device: str) -> torch.cuda.Stream:
    return torch.cuda.Stream(torch.device(device))  # type: ignore[no-untyped-call]


def _build(config: Config, device: str) -> tuple[nn.Module, tuple[Tensor, Bags], dict[str, Tensor]]:
    beside = config.overlap and torch.device(device).type == "cuda"
    with torch.device(device):
        model = DLRM(config, _stream(device) if beside else None).eval()
        dense = torch.randn(config.batch, _numbers(config.bottom)[0])
        lengths = torch.full((config.batch,), config.pooling, dtype=torch.int64)
        bags = tuple(drawn_bag(rows, lengths, config.skew) for rows in config.tables)
    return model, (dense, bags), {}


def _loss(args: tuple[Tensor, Bags]) -> Callable[[Tensor], Tensor]:
    """Binary cross entropy against labels that follow from the first dense feature."""
    labels = labels_of(args[0])

    def loss(logit: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(logit.float(), labels)

    return loss


PROVIDER = Provider(
    name="dlrm",
    loss=_loss,
    optimizer=plain_sgd,
    summary="DLRM ranking model: embedding bags, dot products, bottom and top MLP",
    presets={
        "tiny": Config(
            batch=64, bottom="16-32-16", top="32-1", rows="500x3,2000", pooling=4
        ),
        "default": Config(
            batch=2048, bottom="512-512-64", top="1024-1024-1024-1", rows="1000000x8", pooling=100
        ),
        "ddp": Config(
            batch=2048, bottom="128-128-128-128", top="512-512-512-256-1", rows="80000x8",
            pooling=10,
        ),
        "mlperf": Config(
            batch=2048, bottom="13-512-256-128", top="1024-1024-512-256-1", rows=CRITEO, pooling=1,
            skew=1.05,
        ),
    },
    build=_build,
)  # fmt: skip
