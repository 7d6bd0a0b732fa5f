# SPDX-License-Identifier: BSD-3-Clause
"""Backends with one planted defect each, which check that the kit detects the defect.

A defect is a shim over torch_openreg. It either overrides a correct kernel with a wrong one, or
replaces a function in torch or in ``torch.openreg``. Importing planted.py plants a defect.
"""

import copy
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

DEVICE = "openreg"
KEY = "PrivateUse1"


@dataclass(frozen=True)
class Defect:
    """A defect in a backend, and the verdict with which the kit must report it.

    Attributes:
        name: unique name of the defect.
        plant: function that plants the defect in the backend of this process.
        case: the kit's case that must detect the defect.
        verdict: the verdict that this case must have.
    """

    name: str
    plant: Callable[[], None]
    case: str
    verdict: str


DEFECTS: dict[str, Defect] = {}

# Owns the wrong kernels, which therefore stay registered until the process ends.
_library = torch.library.Library("aten", "IMPL")


def defect(case: str, verdict: str = "wrong") -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Registers the decorated function as a defect. The function's name is the defect's name.

    Args:
        case: the kit's case that must detect the defect.
        verdict: the verdict that this case must have.
    """

    def register(plant: Callable[[], None]) -> Callable[[], None]:
        DEFECTS[plant.__name__] = Defect(plant.__name__, plant, case, verdict)
        return plant

    return register


def replace_kernel(name: str, wrong: Callable[..., Any]) -> None:
    """Replaces one of the backend's kernels with a wrong one.

    Args:
        name: name of the operator, such as "mul.Tensor".
        wrong: the new kernel. Its first argument is a function that calls the correct kernel, and
            the others are the operator's arguments.
    """
    right = torch.library.get_kernel(f"aten::{name}", KEY)

    def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            return right.call_boxed(keys, *given, **named)

        return wrong(call, *args, **kwargs)

    _library.impl(name, kernel, KEY, with_keyset=True, allow_override=True)


def device_module() -> Any:
    """Returns the module torch.openreg."""
    return getattr(torch, DEVICE)


def nothing(*args: Any, **kwargs: Any) -> None:
    """Ignores its arguments and does nothing."""


# Defects in tensors.


@defect("contract/tensors/strides")
def wrong_stride() -> None:
    """The result of neg is contiguous, even if its argument is not."""
    replace_kernel("neg", lambda right, x: right(x.contiguous()))


@defect("contract/tensors/in_place")
def lost_in_place_write() -> None:
    """add_ returns its argument without changing it."""
    replace_kernel("add_.Tensor", lambda right, x, other, alpha=1: x)


@defect("contract/tensors/views_share_memory")
def view_that_copies() -> None:
    """as_strided allocates new memory."""
    replace_kernel("as_strided", lambda right, x, *rest: right(x, *rest).clone())


@defect("contract/tensors/type_promotion")
def wrong_type_promotion() -> None:
    """The sum of an integer tensor and a floating-point tensor is float64."""

    def add(right: Any, x: Tensor, other: Tensor, alpha: Any = 1) -> Tensor:
        result: Tensor = right(x, other, alpha=alpha)
        mixed = x.is_floating_point() != other.is_floating_point()
        return result.double() if mixed and result.is_floating_point() else result

    replace_kernel("add.Tensor", add)


@defect("contract/tensors/repeatable")
def sum_that_changes() -> None:
    """The last bits of a sum differ between calls."""
    count = 0

    def total(right: Any, x: Tensor, *rest: Any, **named: Any) -> Tensor:
        nonlocal count
        count += 1
        result: Tensor = right(x, *rest, **named)
        return result.mul_(1 + 1e-6 * (count % 3)) if result.is_floating_point() else result

    replace_kernel("sum.dim_IntList", total)
    replace_kernel("sum", total)


@defect("contract/tensors/copies")
def copy_without_conversion() -> None:
    """A copy from float32 to float16 rounds to bfloat16 first."""

    def copy_from(right: Any, source: Tensor, target: Tensor, non_blocking: bool = False) -> Any:
        if source.dtype == torch.float32 and target.dtype == torch.float16:
            source = source.to(torch.bfloat16)
        return right(source, target, non_blocking)

    replace_kernel("_copy_from", copy_from)


@defect("contract/tensors/resize_and_set")
def set_that_forgets_the_offset() -> None:
    """set_ ignores the storage offset."""
    replace_kernel(
        "set_.source_Storage_storage_offset",
        lambda right, x, source, offset, size, stride=(): right(x, source, 0, size, stride),
    )


# Defects in operators.


@defect("op/eager/float32/mul", "fallback")
def silent_copy_to_the_cpu() -> None:
    """The mul kernel copies its arguments to the host and computes there."""
    replace_kernel("mul.Tensor", lambda right, x, other: (x.cpu() * other.cpu()).to(x.device))


@defect("op/errors/float32/gather", "late-error")
def late_error() -> None:
    """gather's errors are raised by the next synchronization instead of the call."""
    module = device_module()
    kept: list[Exception] = []

    def gather(right: Any, x: Tensor, *rest: Any, **named: Any) -> Any:
        try:
            return right(x, *rest, **named)
        except Exception as error:
            kept.append(error)
            return torch.empty_like(x)

    synchronize = module.synchronize

    def wait(device: Any = None) -> None:
        synchronize(device)
        if kept:
            raise kept.pop()

    replace_kernel("gather", gather)
    module.synchronize = wait


@defect("op/mixed_devices/float32/bmm", "wrong")
def mixed_devices_accepted() -> None:
    """The bmm kernel accepts CPU tensors."""
    replace_kernel("bmm", lambda right, x, y: right(x.to(DEVICE), y.to(DEVICE)))


@defect("op/eager/float32/tanh", "crash")
def crash() -> None:
    """The tanh kernel reads from the invalid address 8."""
    import ctypes

    replace_kernel("tanh", lambda right, x: ctypes.string_at(8))


@defect("op/eager/float32/erf", "missing")
def missing_operator() -> None:
    """The operator erf has neither a kernel nor a fallback."""

    def erf(right: Any, x: Tensor) -> Tensor:
        raise NotImplementedError("Could not run 'aten::erf' with arguments from this backend")

    replace_kernel("erf", erf)


@defect("op/eager/float32/cos", "raises-wrongly")
def refuses_what_is_right() -> None:
    """The cos kernel raises an error for more than ten elements."""

    def cos(right: Any, x: Tensor) -> Any:
        if x.numel() > 10:
            raise RuntimeError("cos: the workspace is too small")
        return right(x)

    replace_kernel("cos", cos)


@defect("op/backward/float32/sigmoid")
def wrong_gradient() -> None:
    """The gradient of sigmoid has the wrong sign."""
    replace_kernel("sigmoid_backward", lambda right, grad, y: right(-grad, y))


@defect("op/backward/float32/tanh")
def inaccurate_gradient() -> None:
    """The gradient of tanh is wrong by 1 %."""
    replace_kernel("tanh_backward", lambda right, grad, y: right(grad, y) * 1.01)


@defect("op/out/float32/exp")
def out_that_is_not_written() -> None:
    """exp(out=) returns a new tensor and leaves out= unchanged."""

    def exp(right: Any, x: Tensor, *, out: Tensor) -> Tensor:
        if out.shape != x.shape:
            out.resize_(x.shape)
        right(x, out=torch.empty_like(out))
        return out

    replace_kernel("exp.out", exp)


@defect("op/noncontiguous/float32/sin")
def strides_ignored() -> None:
    """The sin kernel treats every input as contiguous."""

    def sin(right: Any, x: Tensor) -> Any:
        if x.is_contiguous() or x.numel() == 0:
            return right(x)
        packed = torch.as_strided(x, (x.numel(),), (1,)) if x.dim() and 0 not in x.stride() else x
        return right(packed.reshape(x.shape).clone())

    replace_kernel("sin", sin)


# Defects in streams, events and devices.


@defect("contract/events/query")
def event_that_never_fires() -> None:
    """query() returns false even if a recorded event has completed."""
    query, record = torch.Event.query, torch.Event.record
    recorded: set[int] = set()

    class Event(torch.Event):
        def record(self, *args: Any) -> Any:
            recorded.add(id(self))
            return record(self, *args)

        def query(self) -> bool:
            return id(self) not in recorded and query(self)

    torch.Event = Event  # type: ignore[misc]


@defect("contract/streams/wait_stream")
def stream_order_violated() -> None:
    """Streams do not wait for each other."""

    class Stream(torch.Stream):
        wait_stream = nothing

    torch.Stream = Stream  # type: ignore[misc]


@defect("contract/events/wait")
def event_wait_ignored() -> None:
    """Streams do not wait for events."""

    class Stream(torch.Stream):
        wait_event = nothing

    torch.Stream = Stream  # type: ignore[misc]


@defect("contract/streams/context_restores")
def stream_that_stays_current() -> None:
    """A stream stays current after its `with` block ends."""

    class Stream(torch.Stream):
        def __enter__(self) -> Any:
            torch.accelerator.set_stream(self)
            return self

        def __exit__(self, *_: object) -> None:
            return None

    torch.Stream = Stream  # type: ignore[misc]


@defect("contract/events/elapsed_time")
def time_that_stands_still() -> None:
    """elapsed_time is always 0."""

    class Event(torch.Event):
        def elapsed_time(self, other: Any) -> float:
            return 0.0

    torch.Event = Event  # type: ignore[misc]


@defect("contract/device/synchronize", "hang")
def deadlock_in_synchronize() -> None:
    """synchronize() never returns."""

    def wait(device: Any = None) -> None:
        time.sleep(3600)

    device_module().synchronize = wait


@defect("contract/device/guard_restores")
def guard_that_does_not_restore() -> None:
    """A device stays current after its `with` block ends."""
    guard = torch.accelerator.device_index

    class Index(guard):  # type: ignore[misc, valid-type]
        def __exit__(self, *_: object) -> None:
            return None

    torch.accelerator.device_index = Index  # type: ignore[misc]


@defect("contract/device/set_device")
def set_device_ignored() -> None:
    """set_device_index does nothing."""
    torch.accelerator.set_device_index = nothing


@defect("contract/device/index_out_of_range", "accepts-wrongly")
def index_wraps_around() -> None:
    """An out-of-range device index selects an existing device."""
    put = torch.accelerator.set_device_index

    def wrapped(index: Any) -> None:
        put(index % torch.accelerator.device_count())

    torch.accelerator.set_device_index = wrapped


@defect("contract/threads/gil")
def synchronize_holds_the_gil() -> None:
    """Other threads cannot run during synchronize()."""
    import ctypes

    module = device_module()
    right = module.synchronize

    def wait(device: Any = None) -> None:
        start = time.monotonic()
        # A function called through PyDLL runs with the GIL held.
        ctypes.PyDLL(None).usleep(400_000)
        right(device)
        del start

    module.synchronize = wait


# Defects in memory management.


@defect("contract/allocator/record_stream")
def record_stream_ignored() -> None:
    """record_stream does nothing."""
    replace_kernel("record_stream", lambda right, x, stream: None)


@defect("contract/allocator/no_leak")
def leak_per_call() -> None:
    """Each call of relu leaks its result."""
    kept: list[Tensor] = []

    def relu(right: Any, x: Tensor) -> Tensor:
        result: Tensor = right(x)
        kept.append(result)
        return result

    replace_kernel("relu", relu)


@defect("contract/allocator/out_of_memory", "crash")
def out_of_memory_that_kills() -> None:
    """A request for too much memory ends the process instead of raising OutOfMemoryError."""

    def empty(right: Any, size: Any, *rest: Any, **named: Any) -> Any:
        try:
            return right(size, *rest, **named)
        except torch.OutOfMemoryError:
            os.abort()

    replace_kernel("empty.memory_format", empty)


@defect("contract/allocator/empty_cache")
def empty_cache_ignored() -> None:
    """empty_cache does not return any memory to the device."""
    torch.accelerator.empty_cache = nothing


@defect("contract/allocator/statistics")
def statistics_of_nothing() -> None:
    """memory_allocated is always 0."""
    torch.accelerator.memory_allocated = lambda *_: 0


@defect("contract/pinned_memory/pin")
def pinned_memory_that_is_not() -> None:
    """pin_memory returns a copy in pageable memory."""
    torch.Tensor.pin_memory = lambda x, *_: x.clone()  # type: ignore[method-assign]


@defect("contract/pinned_memory/pageable_is_safe")
def pageable_copy_too_late() -> None:
    """A non-blocking copy reads its pageable source only after the call has returned."""
    import threading

    def copy_from(right: Any, source: Tensor, target: Tensor, non_blocking: bool = False) -> Any:
        if non_blocking and source.device.type == "cpu" and not source.is_pinned():

            def later() -> None:
                time.sleep(0.05)
                right(source, target, False)

            thread = threading.Thread(target=later)
            thread.start()
            source.__dict__["copy"] = thread
            waiting.append(thread)
            return target
        for thread in waiting:
            thread.join()
        return right(source, target, non_blocking)

    waiting: list[threading.Thread] = []
    replace_kernel("_copy_from", copy_from)


# Defects in random numbers.


@defect("contract/generator/manual_seed")
def seed_ignored() -> None:
    """torch.openreg.manual_seed does nothing."""
    device_module().manual_seed = nothing


@defect("contract/generator/torch_manual_seed")
def global_seed_ignored() -> None:
    """torch.manual_seed does not reach the device."""
    device_module().manual_seed_all = nothing


@defect("contract/generator/state")
def state_that_is_not_put_back() -> None:
    """set_rng_state does nothing."""
    device_module().set_rng_state = nothing


@defect("contract/generator/cpu_apart")
def randperm_of_the_cpu() -> None:
    """The randperm and bernoulli_ kernels draw from the CPU's generator."""
    replace_kernel(
        "randperm.generator_out",
        lambda right, n, generator=None, *, out: out.copy_(torch.randperm(n)),
    )
    replace_kernel(
        "bernoulli_.float",
        lambda right, x, p=0.5, *, generator=None: x.copy_(torch.rand(x.shape) < p),
    )


# Defects in objects that are copied, saved or shared.


@defect("contract/serialization/pickle")
def pickle_that_loses_strides() -> None:
    """A tensor is contiguous after pickle, even if it was not contiguous before."""
    right: Any = torch.Tensor.__reduce_ex__

    def reduce(x: Tensor, protocol: Any) -> Any:
        return right(x.contiguous() if x.device.type == DEVICE else x, protocol)

    torch.Tensor.__reduce_ex__ = reduce  # type: ignore[method-assign]


@defect("contract/serialization/deepcopy")
def deepcopy_that_shares() -> None:
    """A deep copy shares memory with the original."""
    right: Any = torch.Tensor.__deepcopy__

    def deepcopy(x: Tensor, memo: Any) -> Any:
        return x.detach() if x.device.type == DEVICE else right(x, memo)

    torch.Tensor.__deepcopy__ = deepcopy  # type: ignore[method-assign]
    with suppress(KeyError):
        del copy._deepcopy_dispatch[torch.Tensor]  # type: ignore[attr-defined]


@defect("contract/sharing/dlpack")
def dlpack_that_copies() -> None:
    """from_dlpack copies the tensor instead of sharing its memory."""
    module: Any = torch
    right = module.from_dlpack
    module.from_dlpack = lambda x, **named: right(x, **named).clone()


# Defects in mixed precision, graphs and the profiler.


@defect("contract/autocast/lower")
def autocast_that_casts_nothing() -> None:
    """Matrix products in an autocast region keep the dtype of their arguments."""
    for name in ("matmul", "mm"):
        _library.impl(name, torch.library.fallthrough_kernel, f"Autocast{KEY}", allow_override=True)


@defect("contract/autocast/grad_scaler")
def infinities_not_found() -> None:
    """The check for infinite gradients never finds any."""
    replace_kernel(
        "_amp_foreach_non_finite_check_and_unscale_",
        lambda right, grads, found, scale: [grad.mul_(scale) for grad in grads] and None,
    )


@defect("contract/graphs/replay")
def replay_that_does_nothing() -> None:
    """Replaying a captured graph runs no kernel."""

    class Graph(torch.accelerator.Graph):
        replay = nothing

    torch.accelerator.Graph = Graph  # type: ignore[misc]


@defect("contract/profiler/device_rows")
def profile_of_one_kernel() -> None:
    """A profile contains only the device's first kernel."""
    right: Any = torch.profiler.profile.events

    def events(profile: Any) -> list[Any]:
        every = list(right(profile) or ())
        kernels = [event for event in every if event.device_type.name != "CPU"]
        return [event for event in every if event not in kernels[1:]]

    torch.profiler.profile.events = events  # type: ignore[method-assign]


@defect("contract/profiler/device_rows", verdict="missing")
def profile_without_device_rows() -> None:
    """The profiler offers an activity for the device, but its profiles contain no kernels."""
    right: Any = torch.profiler.profile.events
    torch.profiler.profile.events = lambda profile: [  # type: ignore[method-assign]
        event for event in right(profile) or () if event.device_type.name == "CPU"
    ]
