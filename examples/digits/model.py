# SPDX-License-Identifier: BSD-3-Clause
"""A small image classifier: a convolutional stem, one attention block, a linear head."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CLASSES = 10


class Attention(nn.Module):
    """Multi-head self-attention over the positions of a feature map.

    Args:
        width: the number of features per position; a multiple of `heads`.
        heads: the number of attention heads.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project_in = nn.Linear(width, 3 * width)
        self.project_out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Maps (batch, positions, width) to the same shape."""
        # (batch, positions, 3 * width) -> three tensors of (batch, heads, positions, width / heads)
        query, key, value = (
            self.project_in(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        )
        mixed = F.scaled_dot_product_attention(query, key, value)
        out: Tensor = self.project_out(mixed.transpose(1, 2).flatten(2))
        return out


class DigitClassifier(nn.Module):
    """Classifies gray images of 8 x 8 pixels as one of ten digits.

    The network has no dropout, so that two devices that train with the same weights and batches
    have the same losses.

    Args:
        width: the number of features per position after the stem.
        heads: the number of attention heads.
    """

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, width // 2, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(width // 2),
            nn.GELU(),
            nn.Conv2d(width // 2, width, kernel_size=3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.GELU(),
        )
        # An embedding of the 16 positions in the 4 x 4 map, because attention itself does not
        # distinguish positions.
        self.position = nn.Parameter(torch.randn(16, width) * 0.02)
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.head = nn.Linear(width, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Maps images (batch, 1, 8, 8) in 0..1 to logits (batch, CLASSES)."""
        x = self.stem(images).flatten(2).transpose(1, 2) + self.position
        x = x + self.attention(self.attention_norm(x))
        x = x + self.mlp(self.mlp_norm(x))
        logits: Tensor = self.head(x.mean(dim=1))
        return logits
