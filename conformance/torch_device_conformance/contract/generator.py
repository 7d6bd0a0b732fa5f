# SPDX-License-Identifier: BSD-3-Clause
"""Contract rows for random number generators."""

from collections.abc import Callable

import torch
from torch_device_conformance.contract.row import Backend, require, require_equal, row

FILE = "runtime/c10/generator.cc"
HOOKS = "hooks getDefaultGenerator, getNewGenerator; c10::GeneratorImpl"
MODULE = "python/torch_openreg/openreg/random.py"

DRAWS: dict[str, Callable[[torch.device], torch.Tensor]] = {
    "rand": lambda d: torch.rand(100, device=d),
    "randn": lambda d: torch.randn(100, device=d),
    "randint": lambda d: torch.randint(1000, (100,), device=d),
    "randperm": lambda d: torch.randperm(100, device=d),
    "bernoulli": lambda d: torch.full((100,), 0.5, device=d).bernoulli(),
    "dropout": lambda d: torch.nn.functional.dropout(torch.ones(100, device=d), 0.5),
    "exponential_": lambda d: torch.empty(100, device=d).exponential_(),
    "multinomial": lambda d: torch.multinomial(torch.ones(50, device=d), 20),
}


@row(
    "generator",
    "torch_manual_seed",
    requires="torch.manual_seed seeds the device's random numbers",
    implement="torch.<device>.manual_seed_all, _is_in_bad_fork; " + HOOKS,
    without="training is not reproducible",
    shown_by=MODULE,
)
def torch_manual_seed(backend: Backend) -> None:
    for name, draw in DRAWS.items():
        torch.manual_seed(5)
        first = draw(backend.device).cpu()
        second = draw(backend.device).cpu()
        torch.manual_seed(5)
        require_equal(f"{name} after the same seed", draw(backend.device), first)
        require(not torch.equal(first, second), f"two calls to {name} draw the same numbers")
        torch.manual_seed(6)
        require(not torch.equal(draw(backend.device).cpu(), first), f"{name} ignores the seed")


@row(
    "generator",
    "manual_seed",
    requires="torch.<device>.manual_seed seeds the device's generator but not the CPU's",
    implement="torch.<device>.manual_seed, manual_seed_all",
    without="libraries cannot seed the device",
    shown_by=MODULE,
)
def manual_seed(backend: Backend) -> None:
    seed = backend.function("manual_seed")
    host = torch.get_rng_state()
    seed(5)
    first = torch.randn(50, device=backend.device).cpu()
    seed(5)
    require_equal("randn after the same seed", torch.randn(50, device=backend.device), first)
    require_equal("state of the CPU's generator", torch.get_rng_state(), host)


@row(
    "generator",
    "state",
    requires="the generator's state can be saved and restored",
    implement="get_state, set_state; torch.<device>.get_rng_state, set_rng_state",
    without="activation checkpointing and checkpoint files do not reproduce dropout",
    shown_by=FILE,
)
def state(backend: Backend) -> None:
    get, put = backend.function("get_rng_state"), backend.function("set_rng_state")
    torch.randn(10, device=backend.device)
    saved = get(backend.device)
    first = torch.randn(50, device=backend.device).cpu()
    torch.randn(33, device=backend.device)
    put(saved, backend.device)
    require_equal("randn after the same state", torch.randn(50, device=backend.device), first)


@row(
    "generator",
    "own",
    requires="generators are independent of each other and of the default one",
    implement="getNewGenerator; kernels that use the generator argument",
    without="the order of the data depends on dropout",
    shown_by=FILE,
)
def own(backend: Backend) -> None:
    a, b = (torch.Generator(device=backend.device) for _ in range(2))
    a.manual_seed(3)
    b.manual_seed(3)
    first = torch.randn(20, device=backend.device, generator=a).cpu()
    torch.randn(20, device=backend.device)
    require_equal(
        "randn with another generator that has the same seed",
        torch.randn(20, device=backend.device, generator=b),
        first,
    )
    torch.manual_seed(9)
    wanted = torch.randn(20, device=backend.device).cpu()
    torch.manual_seed(9)
    torch.randn(20, device=backend.device, generator=a)
    require_equal("randn of the default generator", torch.randn(20, device=backend.device), wanted)


@row(
    "generator",
    "cpu_apart",
    requires="drawing random numbers on the device does not change the CPU's generator",
    implement="a generator for the device, which fallbacks use as well",
    without="data augmentation on the host depends on the model",
    shown_by="aten/fallback/queued_call.cc",
)
def cpu_apart(backend: Backend) -> None:
    for name, draw in DRAWS.items():
        before = torch.get_rng_state()
        draw(backend.device)
        require_equal(f"state of the CPU's generator after {name}", torch.get_rng_state(), before)


@row(
    "generator",
    "fork_rng",
    requires="torch.random.fork_rng(device_type=...) restores the generator's state",
    implement="torch.<device>.get_rng_state, set_rng_state, device_count",
    without="checkpoint(preserve_rng_state=True) fails",
    shown_by=MODULE,
)
def fork_rng(backend: Backend) -> None:
    torch.manual_seed(4)
    wanted = torch.randn(10, device=backend.device).cpu()
    torch.manual_seed(4)
    with torch.random.fork_rng(device_type=backend.type):
        torch.randn(100, device=backend.device)
    require_equal("randn after the block", torch.randn(10, device=backend.device), wanted)


@row(
    "generator",
    "checkpoint",
    requires="torch.utils.checkpoint reproduces dropout in backward",
    implement="get_rng_state, set_rng_state; torch.<device>._initialized",
    without="gradients are computed with a different mask than the loss",
    shown_by=MODULE,
)
def checkpoint(backend: Backend) -> None:
    def block(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 0.5)

    x = torch.ones(1000, device=backend.device, requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
    y.sum().backward()
    require_equal("gradient, which must equal the scaled mask", x.grad, y)
