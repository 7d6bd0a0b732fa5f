# SPDX-License-Identifier: BSD-3-Clause
"""The operators that random programs call, by name."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Operator = Callable[..., Any]

# A library with a Python kernel, for which a worker thread acquires the GIL. Its namespace is aten,
# because only torch's operators are queued.
library = torch.library.Library("aten", "IMPL")
with warnings.catch_warnings(action="ignore"):
    library.impl("trace", lambda x: x.diagonal().sum(), "CPU", allow_override=True)


def wrap(x: Tensor) -> Tensor:
    return x.remainder(97)


VIEWS: dict[str, Operator] = {
    "all": lambda x, n: x[:],
    "detach": lambda x, n: x.detach(),
    "flatten": lambda x, n: x.view(-1),
    "narrow": lambda x, n: x[n:],
    "step": lambda x, n: x[..., n % 2 :: 2],
    "transpose": lambda x, n: x.transpose(0, -1),
}


def indices(x: Tensor) -> Tensor:
    return torch.empty(0, dtype=torch.int64, device=x.device)


# Functions that return a new tensor.
FUNCTIONS: dict[str, Operator] = {
    "add": lambda x: wrap(x + 1),
    "autocast": lambda x: x.float().remainder(3).view(-1, 1) @ x.float().view(1, -1)[:, :1],
    "cat": lambda x: torch.cat([x, x]),
    "clone": torch.clone,
    "cumsum": lambda x: wrap(x.cumsum(-1)),
    "double": torch.Tensor.double,
    "large": lambda x: wrap(torch.arange(70_000, device=x.device).add_(x.sum().long())).sum() % 97,
    "kthvalue": lambda x: x.flatten().kthvalue(1).values,
    "mask": lambda x: x[x > 3],
    "median": lambda x: x.flatten().median(),
    "nonzero": torch.nonzero,
    "sort": lambda x: x.sort(dim=-1, stable=True).values,
    "square": lambda x: wrap(x * x),
    "unique": torch.unique,
}
# Operators that wait, either for a size or for a copy of host memory.
WAITING = {"gradient", "host_argument", "index_put_", "large", "mask", "nonzero", "out", "unique"}
# The functions that a capture permits.
QUEUED: dict[str, Operator] = {name: FUNCTIONS[name] for name in ("add", "clone", "square")}
CHANGES: dict[str, Operator] = {
    "add_": lambda x, n: x.add_(n).remainder_(97),
    "copy_": lambda x, n: x.copy_(wrap(x + n)),
    "fill_": lambda x, n: x.fill_(n),
    "foreach": lambda x, n: torch._foreach_add_([x], n),
    "index_put_": lambda x, n: x.index_put_((x > n,), torch.full((), n, device=x.device).to(x)),
    "out": lambda x, n: torch.neg(x, out=x),
    "zero_": lambda x, n: x.zero_(),
}
# Functions of a leaf tensor. The programs compare their gradients.
GRADIENTS: dict[str, Operator] = {
    "cumsum": lambda x: x.cumsum(-1) * x,
    "index": lambda x: x.flatten()[torch.tensor([0, 0, -1], device=x.device)] * 2,
    "matmul": lambda x: x.view(-1, 1) @ x.view(1, -1),
    "median": lambda x: x.median() + 2 * x.flatten().median(0).values,
    "product": lambda x: x * x * 3,
    "sort": lambda x: x.sort(stable=True).values * x,
    "where": lambda x: torch.where(x > 2, x, x * 2),
}
# Changes to a tensor that a backward pass needs. torch must detect each of them.
SPOILS: dict[str, Operator] = {
    "nothing": lambda x: None,
    "add_": lambda x: x.add_(1),
    "foreach": lambda x: torch._foreach_mul_([x], 3.0),
    "out": lambda x: torch.neg(x.detach(), out=x.detach()),
}
DRAWS: dict[str, Operator] = {
    "bernoulli_": lambda x, g: x.bernoulli_(0.5, generator=g),
    "random_": lambda x, g: x.random_(0, 97, generator=g),
    "randperm": lambda x, g: x.copy_(torch.randperm(len(x), generator=g, device=x.device)),
}
OUTS: dict[str, Operator] = {
    "add": lambda x, out: torch.add(x, 1, out=out),
    "cumsum": lambda x, out: torch.cumsum(x.flatten(), 0, out=out),
    "kthvalue": lambda x, out: torch.kthvalue(x.flatten(), 1, out=(out, indices(x)))[0],
    "sort": lambda x, out: torch.sort(x.flatten(), stable=True, out=(out, indices(x)))[0],
}
