# SPDX-License-Identifier: BSD-3-Clause
"""Device ``npy``: a backend for PyTorch in pure Python. Its tensors are NumPy arrays.

Importing this module registers the device. torch supports only one out-of-tree device, so no other
backend may be loaded in the process: set TORCH_DEVICE_BACKEND_AUTOLOAD=0. README.md lists what such
a backend can and cannot do.

The class of a device tensor is torch.Tensor. The array is an attribute of the tensor's storage.
When torch creates another tensor with the same data (for example when autograd saves a result), it
reuses the storage, so the array is preserved. Arrays have their own strides, but torch treats every
tensor as contiguous.
"""

import atexit
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

Array = NDArray[Any]

NAME = "npy"


class Module:
    """The module torch.npy. It has the functions that torch calls in a device's module."""

    @staticmethod
    def is_available() -> bool:
        """Returns whether the device can be used."""
        return True

    @staticmethod
    def is_initialized() -> bool:
        """Returns whether the device is initialized. This device needs no initialization."""
        return True

    @staticmethod
    def device_count() -> int:
        """Returns the number of devices."""
        return 1

    @staticmethod
    def current_device() -> int:
        """Returns the index of the only device."""
        return 0

    @staticmethod
    def get_amp_supported_dtype() -> Sequence[torch.dtype]:
        """Returns the dtypes that torch.autocast accepts. Autocast has no effect on operators."""
        return [torch.float16]

    @staticmethod
    def _is_in_bad_fork() -> bool:
        return False

    @staticmethod
    def manual_seed_all(seed: int) -> None:
        """Does nothing, because random numbers come from the CPU's generator, which torch seeds."""


# This must be the first registration. If another backend is registered, it fails before any kernel
# of that backend is replaced.
_setup_privateuseone_for_python_backend(NAME, backend_module=Module())


def wait_for_autograd_threads() -> None:
    """Waits until torch's autograd threads sleep, but at most one second.

    backward() returns when the last gradient is ready. The thread that computed the gradient may
    still be releasing Python objects. If it acquires the GIL after Python is finalized, the process
    aborts. torch has no function that waits for these threads, so this function reads their states.
    """
    deadline = time.monotonic() + 1
    asleep = 0
    # A thread that is between two states may be missed in one scan, so several scans must agree.
    while asleep < 3 and time.monotonic() < deadline:
        asleep = 0 if _any_autograd_thread_runs() else asleep + 1
        time.sleep(1e-4)  # sleep without the GIL, which the threads need


def _any_autograd_thread_runs() -> bool:
    for stat in Path("/proc/self/task").glob("*/stat"):
        try:
            line = stat.read_bytes()  # id (name) state ...
        except OSError:
            continue  # the thread has ended
        if re.search(rb"\(pt_autograd_.*\) [^S]", line):
            return True
    return False


atexit.register(wait_for_autograd_threads)


def wrap(array: Array) -> Tensor:
    """Creates a device tensor over the memory of ``array``.

    Raises:
        TypeError: if torch does not support the dtype.
    """
    array = np.asarray(array)  # NumPy functions may return scalars instead of 0-dim arrays
    dtype = torch.from_numpy(np.empty(0, array.dtype)).dtype
    tensor = torch._C._acc.create_empty_tensor(array.shape, dtype)
    storage: Any = tensor.untyped_storage()
    storage.array = array
    # torch assumes that the storage has no bytes. Without the next two functions, a copy of the
    # storage would crash, and a saved file would contain no values.
    storage.__deepcopy__ = lambda memo: wrap(array.copy()).untyped_storage()
    storage.cpu = refuse_bytes
    return tensor


def refuse_bytes() -> None:
    """Raises an error when a program accesses the bytes of a storage, as in torch.save.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(
        f"{NAME}: a storage has no bytes that torch can read or save: save tensor.cpu()"
    )


def unwrap(tensor: Tensor) -> Array:
    """Returns the array of a device tensor."""
    array: Array = tensor.untyped_storage().array
    return array


def is_ours(value: object) -> bool:
    """Returns whether ``value`` is a device tensor."""
    return isinstance(value, Tensor) and value.device.type == NAME


def run_on_host(operator: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Runs any operator with the CPU kernels of torch, on the memory of the arrays."""
    given: dict[int, tuple[Tensor, Tensor]] = {}
    outs = {argument.name for argument in operator._schema.arguments if argument.is_out}

    def to_host(value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device("cpu")
        if not is_ours(value):
            return value
        array = unwrap(value)
        host = torch.from_numpy(np.ascontiguousarray(array) if operator in STRIDED else array)
        host = flip(host, value.is_conj(), value.is_neg())  # a view with the lazy bits
        given[id(host)] = host, value
        return host

    def to_device(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        # The result is a changed argument or a new array. A new array may be a view of an
        # argument's array.
        if id(value) in given:
            return given[id(value)][1]
        bits = value.is_conj(), value.is_neg()
        tensor = wrap(flip(value, *bits).numpy())
        torch._C._set_conj(tensor, bits[0])
        torch._C._set_neg(tensor, bits[1])
        return tensor

    arguments, named = tree_map(to_host, (args, kwargs))
    for name in outs & named.keys():
        # A kernel may resize its output, but NumPy's memory cannot be resized.
        named[name] = named[name].clone()
        given[id(named[name])] = named[name], kwargs[name]
    results = operator(*arguments, **named)
    for name in outs & named.keys():
        write_out(named[name].numpy(), kwargs[name])
    return tree_map(to_device, results)


def flip(host: Tensor, conjugate: bool, negative: bool) -> Tensor:
    """Returns a view of a host tensor with the given lazy conjugate and negative bits."""
    if conjugate:
        host = host.conj()
    return torch._neg_view(host) if negative else host


def write_out(array: Array, tensor: Tensor) -> None:
    """Copies an output's values to a tensor. Resizes the tensor if the shapes differ."""
    if tensor.shape == array.shape:
        np.copyto(unwrap(tensor), array)
    else:
        tensor.data = wrap(array)


library = torch.library.Library("aten", "IMPL")
fallback = torch.library.Library("_", "IMPL")

# Operators with stride arguments. torch computes these for a contiguous array, because it does not
# know the strides of the array.
STRIDED = {
    torch.ops.aten.as_strided.default,
    torch.ops.aten._reshape_alias.default,
    torch.ops.aten.view.default,
}

# Views that torch would create with as_strided, from the strides that it assumes. They run on the
# host instead, where a tensor over the array has the real strides.
VIEWS = (
    "alias",
    "diagonal",
    "expand",
    "permute",
    "select.int",
    "slice.Tensor",
    "split.Tensor",
    "split_with_sizes",
    "squeeze",
    "squeeze.dim",
    "squeeze.dims",
    "t",
    "transpose.int",
    "unbind.int",
    "unsqueeze",
)


def overload(name: str) -> torch._ops.OpOverload:
    """Returns the ATen overload with the given name."""
    packet, _, variant = name.partition(".")
    found: torch._ops.OpOverload = getattr(getattr(torch.ops.aten, packet), variant or "default")
    return found


def kernel(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator that registers a function as the device's kernel for an operator."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        library.impl(name, function, "PrivateUse1")
        return function

    return register


def host_kernel(name: str) -> None:
    """Registers a kernel that runs an operator on the host. By default torch decomposes it."""
    operator = overload(name)
    library.impl(
        name, lambda *args, **kwargs: run_on_host(operator, *args, **kwargs), "PrivateUse1"
    )


@kernel("_copy_from")
def copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    """Copies to, from and within the device. NumPy converts dtypes and broadcasts."""
    read = unwrap(source) if is_ours(source) else source.resolve_conj().resolve_neg().numpy()
    write = unwrap(target) if is_ours(target) else target.numpy()
    if is_ours(source) and source.is_conj():
        read = read.conj()
    if is_ours(source) and source.is_neg():
        read = -read
    np.copyto(write, read, casting="unsafe")
    return target


@kernel("resize_")
def resize_(x: Tensor, size: Sequence[int], memory_format: Any = None) -> Tensor:
    """Resizes a tensor. Elements keep their order, and new elements are 0."""
    array = np.zeros(size, unwrap(x).dtype)
    kept = min(array.size, unwrap(x).size)
    array.reshape(-1)[:kept] = unwrap(x).reshape(-1)[:kept]
    x.data = wrap(array)
    return x


@kernel("set_.source_Storage_storage_offset")
def set_(
    x: Tensor,
    source: torch.UntypedStorage,
    offset: int,
    size: Sequence[int],
    stride: Sequence[int] = (),
) -> Tensor:
    """Sets a tensor to a whole storage, as copy.deepcopy does.

    Raises:
        NotImplementedError: if the arguments describe only a part of a storage.
    """
    if offset != 0 or tuple(size) != source.array.shape:
        raise NotImplementedError(
            "npy: set_ takes only a whole storage: expected offset 0 and shape "
            f"{source.array.shape}, but got offset {offset} and shape {tuple(size)}"
        )
    x.data = wrap(source.array)
    return x


@kernel("convolution_overrideable")
def convolution(*args: Any) -> Any:
    """Replaces aten::convolution, which torch does not call for unknown device types."""
    return run_on_host(torch.ops.aten.convolution.default, *args)


@kernel("convolution_backward_overrideable")
def convolution_backward(
    gradient: Tensor, x: Tensor, weight: Tensor, *args: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients of a convolution whose bias has one element per output channel."""
    operator = torch.ops.aten.convolution_backward.default
    results: tuple[Tensor, Tensor, Tensor] = run_on_host(
        operator, gradient, x, weight, [gradient.shape[1]], *args
    )
    return results


@kernel("mm")
def mm(left: Tensor, right: Tensor) -> Tensor:
    """Multiplies matrices. A vendor calls its own library here."""
    return wrap(unwrap(left) @ unwrap(right))


@kernel("relu")
def relu(x: Tensor) -> Tensor:
    """Replaces negative elements with 0, as a second example of a kernel."""
    return wrap(np.maximum(unwrap(x), 0))


fallback.fallback(run_on_host, "PrivateUse1")
for view in VIEWS:
    host_kernel(view)
for lazy in ("Conjugate", "Negative"):  # otherwise torch makes a copy first, to resolve the bit
    library.impl("_copy_from", torch.library.fallthrough_kernel, lazy)
fallback.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
