"""A GPT-2 language model: sizes and layout of the 124 M model, module names as people know them.

The forward runs the tied head on every position (batch × sequence × vocabulary logits out), the
shape of a training or scoring step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from cb_trace.providers.workload import Provider


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Sizes; ``seq`` is the length of the input and of the position table."""

    batch: int
    seq: int
    layers: int
    width: int
    heads: int
    vocab: int
    bias: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("batch", "seq", "layers", "width", "heads", "vocab"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is no multiple of {self.heads} heads")
        if not 0 <= self.dropout < 1:
            raise ValueError("dropout must be in [0, 1)")


class Attention(nn.Module):
    """Causal self-attention: one projection to q, k and v, one back."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.c_attn = nn.Linear(config.width, 3 * config.width, bias=config.bias)
        self.c_proj = nn.Linear(config.width, config.width, bias=config.bias)

    def forward(self, x: Tensor) -> Tensor:
        batch, seq, width = x.shape
        split = (batch, seq, 3, self.heads, width // self.heads)
        q, k, v = self.c_attn(x).view(split).permute(2, 0, 3, 1, 4)  # each B × H × T × D
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.c_proj(y.transpose(1, 2).reshape(batch, seq, width))
        return out


class MLP(nn.Module):
    """Four times the width and back."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.width, 4 * config.width, bias=config.bias)
        self.gelu = nn.GELU(approximate="tanh")
        self.c_proj = nn.Linear(4 * config.width, config.width, bias=config.bias)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.c_proj(self.gelu(self.c_fc(x)))
        return out


class Block(nn.Module):
    """Pre-norm attention and MLP, each with its residual."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.width, bias=config.bias)
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(config.width, bias=config.bias)
        self.mlp = MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        out: Tensor = x + self.mlp(self.ln_2(x))
        return out


class GPT(nn.Module):
    """Token and position embeddings, blocks, a norm, and a head that shares the token table."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.wte = nn.Embedding(config.vocab, config.width)
        self.wpe = nn.Embedding(config.seq, config.width)
        self.drop = nn.Dropout(config.dropout)
        self.h = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(config.width, bias=config.bias)
        self.lm_head = nn.Linear(config.width, config.vocab, bias=False)
        self.lm_head.weight = self.wte.weight
        self.apply(_initialise)

    def forward(self, ids: Tensor) -> Tensor:
        positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.drop(self.wte(ids) + self.wpe(positions))
        for block in self.h:
            x = block(x)
        logits: Tensor = self.lm_head(self.ln_f(x))  # B × T × vocabulary
        return logits


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def _build(config: Config, device: str) -> tuple[nn.Module, tuple[Tensor], dict[str, Tensor]]:
    with torch.device(device):
        model = GPT(config).eval()
        ids = torch.randint(config.vocab, (config.batch, config.seq))
    return model, (ids,), {}


def _loss(args: tuple[Tensor, ...]) -> Callable[[Tensor], Tensor]:
    """Cross entropy of every position's logits against the token that follows it."""
    following = args[0][:, 1:].flatten()

    def loss(logits: Tensor) -> Tensor:
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), following)

    return loss


def _optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    on_device = parameters[0].is_cuda  # its step can then be captured into a CUDA graph
    return torch.optim.AdamW(parameters, lr=1e-4, capturable=on_device)


PROVIDER = Provider(
    name="nanogpt",
    summary="GPT-2 language model, over every position",
    loss=_loss,
    optimizer=_optimizer,
    presets={
        "tiny": Config(batch=4, seq=64, layers=2, width=128, heads=4, vocab=1024),
        "gpt2": Config(batch=8, seq=1024, layers=12, width=768, heads=12, vocab=50304),
    },
    build=_build,
)
