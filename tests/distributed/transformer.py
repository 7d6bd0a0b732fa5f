# SPDX-License-Identifier: BSD-3-Clause
"""A transformer block, and queries, keys and values for attention tests."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from tests.distributed.training import DEVICE

BATCH, HEADS, TOKENS, WIDTH = 4, 4, 8, 8
FEATURES = 16


def line() -> DeviceMesh:
    return init_device_mesh(DEVICE, (dist.get_world_size(),))


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def operands(
    heads: int = HEADS, key_heads: int | None = None, batch: int = BATCH, tokens: int = TOKENS
) -> list[Tensor]:
    """Returns queries, keys and values on the CPU."""
    return [
        random(batch, number, tokens, WIDTH, seed=seed)
        for seed, number in enumerate((heads, key_heads or heads, key_heads or heads))
    ]


def attend(parts: Sequence[Tensor], **options: Any) -> Tensor:
    """Returns the attention of queries to keys and values."""
    query, key, value = parts
    return F.scaled_dot_product_attention(query, key, value, **options)


class Attention(nn.Module):
    """Causal attention as in most programs. ``heads`` query heads share ``key_heads`` key heads."""

    def __init__(self, features: int = FEATURES, heads: int = 8, key_heads: int = 4) -> None:
        super().__init__()
        width = features // heads
        self.width = width
        self.query = nn.Linear(features, features)
        self.key = nn.Linear(features, key_heads * width)
        self.value = nn.Linear(features, key_heads * width)
        self.out = nn.Linear(features, features)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            project(x).unflatten(-1, (-1, self.width)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        heads = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return self.out(heads.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(FEATURES)
        self.attention = Attention()
        self.up = nn.Linear(FEATURES, 32)
        self.down = nn.Linear(32, FEATURES)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm(x))
        return x + self.down(F.gelu(self.up(x)))  # type: ignore[no-any-return]


def block() -> Block:
    """Creates the block on the CPU. Each call creates the same weights."""
    torch.manual_seed(0)
    return Block().double()
