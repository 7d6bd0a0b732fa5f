# SPDX-License-Identifier: BSD-3-Clause
"""A pytest plugin that makes a process's first launches in one of torch's modes.

    pytest -p tests.first_launches --first-launches inference_mode FILE...

A launch caches objects for later launches: aliases, launch records, output metadata and dtypes. The
plugin lets all of these be created in the mode, and then runs the tests outside it. The mode must
not affect the tests.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

DEVICE = torch.device("openreg")

# The stream is kept busy for this time, so that launches cannot reuse the objects of earlier ones.
BUSY = 20_000_000  # nanoseconds
ROUNDS = 3


def indices(x: Tensor) -> Tensor:
    return torch.zeros(x.shape, dtype=torch.int64, device=x.device)


def pinned(x: Tensor) -> Tensor:
    return torch.ones(4, 4, pin_memory=True).to(DEVICE, non_blocking=True)


def optimizer_step(x: Tensor) -> None:
    made = torch.zeros(4, 4, device=DEVICE)
    torch._fused_sgd_(
        [made],
        [torch.ones(4, 4, device=DEVICE)],
        [],
        weight_decay=0.0,
        momentum=0.0,
        lr=0.1,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=True,
    )


# A few operators for each path that a launch can take, called with a 4 x 4 matrix.
LAUNCHES: dict[str, Callable[[Tensor], Any]] = {
    # Operators with generated kernels: pointwise, several dtypes, reductions, products.
    "add": lambda x: x + 1,
    "mul": lambda x: x * x,
    "exp": torch.exp,
    "relu": torch.relu,
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "mixed dtypes": lambda x: x + indices(x),
    "to double": lambda x: x.double(),
    "sum": lambda x: x.sum(),
    "amax": lambda x: x.amax(1),
    "matmul": lambda x: x @ x,
    "addmm": lambda x: torch.addmm(x, x, x),
    "softmax": lambda x: x.softmax(-1),
    "cat": lambda x: torch.cat([x, x]),
    "gather": lambda x: x.gather(1, indices(x)),
    "index_select": lambda x: x.index_select(0, indices(x)[0]),
    "sort": lambda x: x.sort().values,
    "cumsum": lambda x: x.cumsum(0),
    "tril": torch.tril,
    # Operators with hand-written kernels.
    "linear": lambda x: nn.functional.linear(x, x, x[0]),
    "conv2d": lambda x: nn.functional.conv2d(x[None, None], x[None, None, :2, :2]),
    "layer_norm": lambda x: nn.functional.layer_norm(x, (4,)),
    "embedding": lambda x: nn.functional.embedding(indices(x), x),
    "mse_loss": lambda x: nn.functional.mse_loss(x, x * 2),
    # Operators that use the fallback, with output metadata from its cache or from Meta kernels.
    "median": lambda x: x.median(),
    "median of a dimension": lambda x: x.median(0),
    "kthvalue": lambda x: x.kthvalue(2, 0).values,
    "cdist": lambda x: torch.cdist(x, x),
    "cummax": lambda x: x.cummax(0).values,
    "i0": torch.special.i0,
    "lgamma": torch.lgamma,
    "renorm": lambda x: x.renorm(2, 0, 1),
    "roll": lambda x: x.roll(1, 0),
    "var": lambda x: x.var(),
    # Operators for which the fallback makes the host wait.
    "nonzero": torch.nonzero,
    "unique": torch.unique,
    "masked_select": lambda x: x.masked_select(x > 0),
    # Random operators.
    "dropout": lambda x: nn.functional.dropout(x, 0.5),
    "rand_like": torch.rand_like,
    "normal_": lambda x: torch.empty(4, 4, device=DEVICE).normal_(),
    "bernoulli": lambda x: torch.empty(4, 4, device=DEVICE).bernoulli_(0.5),
    "randperm": lambda x: torch.randperm(8, device=DEVICE),
    # Copies within the device, and from the host.
    "clone": torch.clone,
    "contiguous": lambda x: x.t().contiguous(),
    "from the CPU": lambda x: torch.ones(4, 4).to(DEVICE),
    "from pinned memory": pinned,
    "fill": lambda x: torch.full((4, 4), 2.0, device=DEVICE),
    # Operators on lists of tensors.
    "foreach_add": lambda x: torch._foreach_add([x, x], [x, x]),
    "foreach_mul_": lambda x: torch._foreach_mul_([torch.ones(4, device=DEVICE)], 2.0),
    "foreach_norm": lambda x: torch._foreach_norm([x, x]),
    "fused optimizer": optimizer_step,
}

# Operators that do not support a mode, not even on the CPU.
REFUSED: dict[str, frozenset[str]] = {
    "forward_ad": frozenset({"cdist", "foreach_norm", "unique"}),
    "vmap": frozenset(
        {
            *("nonzero", "unique", "masked_select", "renorm"),
            *("normal_", "bernoulli", "foreach_add", "foreach_norm"),
        }
    ),
}


def launch_all(x: Tensor, refused: frozenset[str] = frozenset()) -> None:
    """Calls every operator several times on a busy stream."""
    for _ in range(ROUNDS):
        torch.openreg._sleep(BUSY)
        for name, function in LAUNCHES.items():
            if name not in refused:
                function(x)


def matrix() -> Tensor:
    """Returns a CPU matrix. The copy of it to the device is the first launch."""
    return torch.linspace(-1, 1, 16).reshape(4, 4)


def in_inference_mode() -> None:
    with torch.inference_mode():
        launch_all(matrix().to(DEVICE))


def in_no_grad() -> None:
    with torch.no_grad():
        launch_all(matrix().to(DEVICE))


def in_autocast() -> None:
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
        launch_all(matrix().to(DEVICE))


def in_forward_ad() -> None:
    with forward_ad.dual_level():
        made = forward_ad.make_dual(matrix(), torch.ones(4, 4)).to(DEVICE)
        launch_all(made, REFUSED["forward_ad"])


def in_vmap() -> None:
    def function(x: Tensor) -> Tensor:
        launch_all(x, REFUSED["vmap"])
        return x

    torch.vmap(function, randomness="different")(torch.stack([matrix()] * 2).to(DEVICE))


MODES: dict[str, Callable[[], None]] = {
    "inference_mode": in_inference_mode,
    "no_grad": in_no_grad,
    "autocast": in_autocast,
    "forward_ad": in_forward_ad,
    "vmap": in_vmap,
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option --first-launches (a pytest hook)."""
    parser.addoption(
        "--first-launches", choices=sorted(MODES), help="the mode of the first launches"
    )


def pytest_sessionstart(session: pytest.Session) -> None:
    """Makes the launches before pytest imports any test (a pytest hook)."""
    mode = session.config.getoption("--first-launches")
    if mode:
        with seeds_kept():
            MODES[mode]()
            torch.openreg.synchronize()


@contextmanager
def seeds_kept() -> Iterator[None]:
    """Restores the seeds after the `with` block, so that tests draw the usual numbers."""
    host = torch.get_rng_state()
    yield
    torch.set_rng_state(host)
    torch.openreg.manual_seed(0)
