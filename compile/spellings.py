# SPDX-License-Identifier: BSD-3-Clause

"""Different ways to write an operator's computation, all of which a rewrite must recognize.

``SPELLINGS`` maps the name of a rewrite to such programs. ``shapes`` returns the shapes of their
arguments.
"""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

EPS = 1e-5
ROOT = math.sqrt(2 / math.pi)

Program = Callable[..., Tensor]


def _cube(x: Tensor) -> Tensor:
    return x * x * x


def _ln_of_variance(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = x.var(-1, keepdim=True, unbiased=False)
    return (x - mean) / torch.sqrt(variance + EPS) * w + b


def _ln_of_correction(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    variance = torch.var(x, dim=-1, keepdim=True, correction=0)
    return b + w * ((x - torch.mean(x, dim=-1, keepdim=True)) * torch.rsqrt(variance + EPS))


def _ln_of_squares(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    centered = x - x.mean(-1, keepdim=True)
    return centered * (centered.pow(2).mean(-1, keepdim=True) + EPS).rsqrt() * w + b


def _ln_of_products(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    centered = x - x.mean(dim=[-1], keepdim=True)
    return w * (centered / ((centered * centered).mean([-1], True) + EPS).sqrt()) + b


def _ln_centered_twice(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return w * ((x - mean) / torch.sqrt(variance + EPS)) + b


def _ln_of_two_means(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    variance = (x - x.mean(-1, True)).square().mean(-1, True)
    return (x - x.mean(-1, True)) / torch.sqrt(variance + EPS) * w + b


def _ln_without_bias(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    centered = x - x.mean(-1, keepdim=True)
    return w * (centered / torch.sqrt(centered.square().mean(-1, keepdim=True) + EPS))


def _ln_alone(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    variance, mean = torch.var(x, -1, False, True), x.mean(-1, True)
    return (x - mean) * torch.rsqrt(variance + EPS)


def _ln_of_two_dimensions(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    variance = x.var([-2, -1], keepdim=True, unbiased=False)
    return (x - x.mean([-2, -1], keepdim=True)) / torch.sqrt(variance + EPS)


def _softmax(x: Tensor) -> Tensor:
    exponentials = torch.exp(x - x.amax(-1, keepdim=True))
    return exponentials / exponentials.sum(-1, keepdim=True)


def _softmax_of_max(x: Tensor) -> Tensor:
    exponentials = (x - torch.max(x, -1, keepdim=True)[0]).exp()
    return exponentials / torch.sum(exponentials, dim=-1, keepdim=True)


def _softmax_of_first(x: Tensor) -> Tensor:
    exponentials = (x - x.max(0, keepdim=True).values).exp()
    return exponentials / exponentials.sum(0, keepdim=True)


def _attention_permuted(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = (torch.matmul(q, k.permute(0, 1, 3, 2)) * 0.3).softmax(dim=3)
    return torch.matmul(F.dropout(weights, 0.1, training=False), v)


SPELLINGS: dict[str, dict[str, Program]] = {
    "silu": {
        "function": lambda x: torch.sigmoid(x) * x,
        "method": lambda x: x * x.sigmoid(),
        "of_nn": lambda x: torch.mul(x, F.sigmoid(x)),
    },
    "gelu": {
        "power": lambda x: 0.5 * x * (1 + torch.tanh(ROOT * (x + 0.044715 * x**3))),
        "power_function": lambda x: (
            0.5 * x * (1.0 + torch.tanh(ROOT * (x + 0.044715 * torch.pow(x, 3.0))))
        ),
        "product": lambda x: 0.5 * x * (1 + torch.tanh(ROOT * (x + 0.044715 * x * x * x))),
        "cube": lambda x: x * (0.5 * (torch.tanh((0.044715 * _cube(x) + x) * ROOT) + 1)),
        "factored": lambda x: x * 0.5 * (1 + torch.tanh(x * 0.7978845608 * (1 + 0.044715 * x * x))),
        "rounded": lambda x: 0.5 * (x * (1 + (0.797885 * (x + 0.044715 * x**3)).tanh())),
        "erf": lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))),
        "erf_product": lambda x: 0.5 * (x * (1.0 + torch.erf(x * 0.70710678))),
    },
    "layer_norm": {
        "variance": _ln_of_variance,
        "correction": _ln_of_correction,
        "squares": _ln_of_squares,
        "products": _ln_of_products,
        "centered_twice": _ln_centered_twice,
        "two_means": _ln_of_two_means,
        "without_bias": _ln_without_bias,
        "alone": _ln_alone,
        "two_dimensions": _ln_of_two_dimensions,
    },
    "rms_norm": {
        "power": lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * w,
        "square": lambda x, w: w * (x / torch.sqrt(x.square().mean(-1, True) + EPS)),
        "product": lambda x, w: ((x * x).mean(-1, True) + EPS).rsqrt() * x * w,
        "alone": lambda x, w: x / ((x**2).mean([-1], keepdim=True) + EPS).sqrt(),
    },
    "softmax": {"amax": _softmax, "max": _softmax_of_max, "first": _softmax_of_first},
    "attention": {
        "divided": lambda q, k, v: torch.softmax(q @ k.transpose(-2, -1) / 1.7, dim=-1) @ v,
        "multiplied": lambda q, k, v: F.softmax(0.4 * (q @ k.transpose(2, 3)), -1).matmul(v),
        "scaled_before": lambda q, k, v: torch.softmax((q * 0.5) @ k.transpose(-1, -2), -1) @ v,
        "divided_before": lambda q, k, v: torch.softmax((q / 2) @ k.transpose(-1, -2), -1) @ v,
        "unscaled": lambda q, k, v: (q @ k.transpose(-1, -2)).softmax(-1) @ v,
        "permuted": _attention_permuted,
        "softmax_too": lambda q, k, v: _softmax(q @ k.transpose(-1, -2) / 2) @ v,
    },
}


#: The GELU programs with a constant that is not exact in float64.
ROUNDED_CONSTANTS = ("factored", "rounded", "erf_product")


def shapes(rewrite: str, sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the shapes of the tensors that the programs of a rewrite expect.

    Args:
        rewrite: the rewrite's name.
        sizes: the four sizes of the first tensor: batch, heads, tokens and width.
    """
    batch, heads, tokens, width = sizes
    whole = (batch, heads, tokens, width)
    more: dict[str, list[tuple[int, ...]]] = {
        "layer_norm": [(width,), (width,)],
        "rms_norm": [(width,)],
        "attention": [(batch, heads, tokens + 1, width)] * 2,
    }
    return [whole, *more.get(rewrite, [])]
