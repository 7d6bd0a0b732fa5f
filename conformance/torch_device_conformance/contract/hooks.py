# SPDX-License-Identifier: BSD-3-Clause
"""Contract rows for the hooks, names and methods through which torch accesses the device."""

import torch
from torch_device_conformance.contract.child import run, succeed
from torch_device_conformance.contract.row import Backend, missing, require, require_equal, row

# Attributes of torch.<device> that torch itself uses.
MODULE = (
    "is_available",
    "device_count",
    "current_device",
    "set_device",
    "is_initialized",
    "_is_in_bad_fork",
    "manual_seed",
    "manual_seed_all",
    "get_rng_state",
    "set_rng_state",
    "get_amp_supported_dtype",
    "synchronize",
    "current_stream",
    "Stream",
    "Event",
)


@row(
    "hooks",
    "module",
    requires="torch.<device> has the functions that torch looks up by name",
    implement="torch._register_device_module(name, module)",
    without="torch itself raises AttributeError when it first uses a missing function",
    shown_by="python/torch_openreg/openreg/__init__.py",
)
def module(backend: Backend) -> None:
    absent = [name for name in MODULE if not hasattr(backend.module, name)]
    if absent:
        missing(f"torch.{backend.type} does not have {', '.join(absent)}")


@row(
    "hooks",
    "methods",
    requires="tensors, storages and modules have x.<device>() and x.is_<device>",
    implement="torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)",
    without="model.<device>() and storage.<device>() do not exist",
    shown_by="python/torch_openreg/registration.py",
)
def methods(backend: Backend) -> None:
    name = backend.type
    x = torch.ones(2)
    for holder in (x, torch.nn.Linear(1, 1), x.untyped_storage()):
        if not hasattr(holder, name):
            missing(f"{type(holder).__name__} has no method {name}()")
    moved = getattr(x, name)()
    require(bool(getattr(moved, f"is_{name}")), f"is_{name} is false")
    require_equal("device", moved.device.type, name)
    require_equal("values", moved, x)


@row(
    "hooks",
    "backward_first",
    requires="a backward pass may be the first use of the device in a process",
    implement="hooks init, hasPrimaryContext, deviceCount; setDevice that works on any thread",
    without="the autograd thread fails: 'PyTorch is not linked with support for ...'",
    shown_by="runtime/c10/hooks.cc",
    seconds=180,
)
def backward_first(backend: Backend) -> None:
    lines = """
        x = torch.ones(3, device=device, requires_grad=True)
        (x * x).sum().backward()
        print(x.grad.cpu().tolist())
    """
    require_equal("gradient", succeed(run(backend, lines), "a backward pass"), "[2.0, 2.0, 2.0]")


@row(
    "hooks",
    "resize_storage",
    requires="untyped_storage().resize_() changes a storage's size and keeps its values",
    implement="hook resizePrivateUse1Bytes, which guards storage.device()",
    without="FSDP, which frees parameters this way, fails",
    shown_by="aten/tensors/storage.cc",
)
def resize_storage(backend: Backend) -> None:
    x = torch.arange(4.0, device=backend.device)
    storage = x.untyped_storage()
    storage.resize_(64)
    require_equal("nbytes() after resize_(64)", storage.nbytes(), 64)
    require_equal("values after resize_(64)", x, torch.arange(4.0))
    storage.resize_(0)
    require_equal("nbytes() after resize_(0)", storage.nbytes(), 0)


@row(
    "hooks",
    "generator",
    requires="torch.Generator(device=...) creates a generator for the device",
    implement="hooks getDefaultGenerator, getNewGenerator",
    without="random numbers are not reproducible",
    shown_by="runtime/c10/generator.cc",
)
def generator(backend: Backend) -> None:
    made = torch.Generator(device=backend.device)
    require_equal("device", made.device.type, backend.type)
    made.manual_seed(7)
    require_equal("initial_seed()", made.initial_seed(), 7)
