# SPDX-License-Identifier: BSD-3-Clause
"""Calls that wait for the device while queued work needs the GIL. tests/gil_test.py runs them.

Each case is a generator. The code before its ``yield`` prepares the call, and the code after it
makes the call. At the ``yield``, a host function is queued on the current stream. It returns only
after another Python thread has run. A call that waits with the GIL held therefore never returns,
which is why the cases run in a separate process.
"""

import copy
import ctypes
import gc
import io
import pickle
import sys
import threading
from collections.abc import Callable, Generator
from multiprocessing import reduction
from typing import Any

import numpy as np
import torch

Case = Callable[[], Generator[None, None, Any]]

#: Cases whose calls return only after the queued work has run.
WAITING: dict[str, Case] = {}
#: Cases whose calls may return before the queued work has run.
OTHERS: dict[str, Case] = {}
#: Work whose execution on the device must not need the GIL.
WORK: dict[str, Callable[[], Any]] = {}

DEVICE = "openreg"
NAP = 30_000_000  # ns; when the host function starts, the call is already waiting
QUEUE = 600  # more commands than fit into a stream's queue
LARGE = 1 << 20  # elements; a copy of this size from pageable memory is not staged

_driver = ctypes.CDLL("libopenreg.so")
_driver_with_gil = ctypes.PyDLL("libopenreg.so")
_HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_driver.orLaunchHostFunc.argtypes = [ctypes.c_void_p, _HostFunction, ctypes.c_void_p]
_driver.orGetHostWaitHooks.restype = ctypes.c_void_p
_driver.orSetHostWaitHooks.argtypes = [ctypes.c_void_p]
_driver.orSetHostWaitHooks.restype = None
_functions: list[Any] = []  # kept, because the driver may call them until the process ends


def queue_python(stream: torch.Stream | None = None) -> threading.Event:
    """Queues a host function that returns after another Python thread has run.

    Returns:
        An event that is set when the host function has returned.
    """
    started, ticked, done = threading.Event(), threading.Event(), threading.Event()

    def tick() -> None:
        started.wait()
        ticked.set()

    def function(_: int | None) -> None:
        started.set()
        ticked.wait()
        done.set()

    threading.Thread(target=tick, daemon=True).start()
    _functions.append(_HostFunction(function))
    busy: torch.Stream = stream or torch.openreg.current_stream()
    with torch.openreg.stream(busy):
        torch.openreg._sleep(NAP)
    handle = int(busy.native_handle)
    assert _driver.orLaunchHostFunc(handle, _functions[-1], None) == 0
    return done


def run(name: str) -> bool:
    """Runs a case. Returns whether the queued work was done when the call returned."""
    case = (WAITING | OTHERS)[name]()
    next(case)
    torch.openreg.synchronize()
    sys.setswitchinterval(1000)  # threads then switch only in calls that release the GIL
    try:
        done = queue_python()
        next(case, None)
        waited = done.is_set()
    finally:
        sys.setswitchinterval(0.005)
    torch.openreg.synchronize()
    assert done.is_set()
    case.close()
    gc.collect()
    return waited


def run_without_gil(name: str) -> None:
    """Queues work and waits for it with the GIL held. No device thread may need the GIL."""
    WORK[name]()  # the first call may need the GIL
    torch.openreg.synchronize()
    torch.openreg._sleep(NAP)
    kept = WORK[name]()
    hooks = _driver.orGetHostWaitHooks()
    _driver.orSetHostWaitHooks(None)
    try:
        assert _driver_with_gil.orDeviceSynchronize() == 0
    finally:
        _driver.orSetHostWaitHooks(hooks)
    del kept


def waiting(case: Case) -> Case:
    """Registers a case whose call waits."""
    WAITING[case.__name__] = case
    return case


def other(case: Case) -> Case:
    """Registers a case whose call need not wait."""
    OTHERS[case.__name__] = case
    return case


def ones(*shape: int, **options: Any) -> torch.Tensor:
    """Returns a tensor of ones on the device."""
    return torch.ones(shape, device=DEVICE, **options)


def _add_calls(calls: dict[str, Callable[[torch.Tensor], Any]]) -> None:
    """Registers a case for each function, called with a small tensor."""

    def case_of(call: Callable[[torch.Tensor], Any]) -> Case:
        def case() -> Generator[None, None, Any]:
            x = ones(4, 4)
            call(x)
            yield
            call(x)

        return case

    for name, call in calls.items():
        WAITING[name] = case_of(call)


def _save(x: torch.Tensor) -> None:
    torch.save({"x": x}, io.BytesIO())


_add_calls(
    {
        "openreg.synchronize": lambda x: torch.openreg.synchronize(),
        "accelerator.synchronize": lambda x: torch.accelerator.synchronize(),
        "stream.synchronize": lambda x: torch.openreg.current_stream().synchronize(),
        "torch.Stream.synchronize": lambda x: torch.accelerator.current_stream().synchronize(),
        "event.synchronize": lambda x: torch.openreg.current_stream().record_event().synchronize(),
        "item": lambda x: x.sum().item(),
        "tolist": lambda x: x.tolist(),
        "bool": lambda x: bool(x.any()),
        "float": lambda x: float(x.sum()),
        "index": lambda x: [0, 1][x.long().sum() // 16],
        "repr": repr,
        "str": str,
        "format": lambda x: f"{x.sum():.3f}",
        "cpu": lambda x: x.cpu(),
        "to cpu": lambda x: x.to("cpu"),
        "to numpy": lambda x: x.cpu().numpy(),
        "numpy force": lambda x: x.numpy(force=True),
        "copy_ to cpu": lambda x: torch.empty(4, 4).copy_(x),
        "copy_ from cpu": lambda x: torch.empty(LARGE, device=DEVICE).copy_(torch.empty(LARGE)),
        "to device": lambda x: torch.empty(LARGE).to(DEVICE),
        "torch.tensor": lambda x: torch.tensor(np.zeros(LARGE), device=DEVICE),
        "from_dlpack to cpu": lambda x: np.from_dlpack(x, device="cpu"),
        "torch.from_dlpack to cpu": lambda x: torch.from_dlpack(x, device="cpu"),
        "nonzero": lambda x: x.nonzero(),
        "masked_select": lambda x: x.masked_select(x > 0),
        "index by a mask": lambda x: x[x > 0],
        "unique": lambda x: x.unique(),
        "equal": lambda x: torch.equal(x, x.clone()),
        "allclose": lambda x: torch.allclose(x, x),
        "assert_close": lambda x: torch.testing.assert_close(x, x),
        "repeat_interleave": lambda x: x.repeat_interleave(x.long()[0], dim=0),
        "pickle.dumps": pickle.dumps,
        "torch.save": _save,
        "storage.cpu": lambda x: x.untyped_storage().cpu(),
        "storage.tolist": lambda x: x.untyped_storage().tolist(),
        "storage item": lambda x: x.untyped_storage()[0],
        "storage.copy_ to cpu": lambda x: torch.UntypedStorage(64).copy_(x.untyped_storage()),
        "storage to device": lambda x: torch.UntypedStorage(4 * LARGE).to(device=DEVICE),
        "typed storage": lambda x: torch.storage.TypedStorage(
            wrap_storage=x.untyped_storage(), dtype=torch.float32, _internal=True
        ).tolist(),
    }
)


@waiting
def entering_a_capture() -> Generator[None, None, Any]:
    x = ones(4)
    yield
    with torch.openreg.graph(torch.openreg.OpenRegGraph()):
        x.add_(1)


@waiting
def make_graphed_callables() -> Generator[None, None, Any]:
    x = ones(4)
    yield
    torch.openreg.make_graphed_callables(lambda y: y + 1, (x,))


@waiting
def launch_blocking() -> Generator[None, None, Any]:
    x = ones(4)
    torch.openreg.set_launch_blocking(False)
    yield
    torch.openreg.set_launch_blocking(True)
    try:
        x.add_(1)
    finally:
        torch.openreg.set_launch_blocking(False)


@waiting
def launch_blocking_of_a_storage() -> Generator[None, None, Any]:
    storage = ones(4).untyped_storage()
    yield
    torch.openreg.set_launch_blocking(True)
    try:
        storage.fill_(0)
    finally:
        torch.openreg.set_launch_blocking(False)


@waiting
def interprocess_event() -> Generator[None, None, Any]:
    event = torch.openreg.Event(interprocess=True)
    yield
    event.record()
    event.synchronize()


# ----------------------------------------------------------------------- calls that wait for memory


def _full_device() -> torch.Tensor:
    """Fills the device, except for a segment that is free on another stream: allocations wait."""
    torch.openreg.empty_cache()
    torch.openreg.set_per_process_memory_fraction(1e9 / torch.openreg.mem_get_info()[1])
    stream = torch.openreg.Stream()
    with torch.openreg.stream(stream):
        x = torch.empty(int(0.8e9), dtype=torch.uint8, device=DEVICE)
    x.record_stream(torch.openreg.current_stream())
    return x


@waiting
def full_device_tensor() -> Generator[None, None, Any]:
    x = _full_device()
    yield
    del x
    torch.empty(int(0.7e9), dtype=torch.uint8, device=DEVICE)
    torch.openreg.set_per_process_memory_fraction(1.0)


@waiting
def full_device_storage() -> Generator[None, None, Any]:
    x = _full_device()
    yield
    del x
    torch.UntypedStorage(int(0.7e9), device=DEVICE)
    torch.openreg.set_per_process_memory_fraction(1.0)


@waiting
def full_device_raw() -> Generator[None, None, Any]:
    x = _full_device()
    yield
    del x
    pointer = torch.openreg.caching_allocator_alloc(int(0.7e9))
    torch.openreg.caching_allocator_delete(pointer)
    torch.openreg.set_per_process_memory_fraction(1.0)


@waiting
def empty_cache() -> Generator[None, None, Any]:
    x = ones(LARGE)
    yield
    del x
    torch.openreg.empty_cache()


@waiting
def accelerator_empty_cache() -> Generator[None, None, Any]:
    x = ones(LARGE)
    yield
    del x
    torch.accelerator.empty_cache()


@waiting
def a_lock_whose_holder_waits() -> Generator[None, None, Any]:
    """Empties the cache in one thread, while this thread allocates with the GIL held."""
    x = ones(LARGE)
    ready = threading.Event()

    def empty() -> None:
        ready.set()
        torch.openreg.empty_cache()

    thread = threading.Thread(target=empty)
    yield
    del x
    thread.start()
    ready.wait()
    for _ in range(3):  # let the other thread run
        threading.Event().wait(0.003)
    torch.UntypedStorage(1 << 30, device=DEVICE)
    thread.join()


@other
def memory_pool_goes() -> Generator[None, None, Any]:
    pool = torch.openreg.MemPool()
    with torch.openreg.use_mem_pool(pool):
        x = ones(LARGE)
    yield
    x.add_(1)
    del x
    del pool
    gc.collect()


@other
def memory_functions() -> Generator[None, None, Any]:
    x = ones(LARGE)
    yield
    del x
    torch.openreg.memory._snapshot()
    torch.openreg.memory_snapshot()
    torch.openreg.memory_stats()
    torch.openreg.memory_summary()
    torch.openreg.mem_get_info()
    torch.openreg.reset_peak_memory_stats()
    torch.openreg.reset_accumulated_memory_stats()
    torch.openreg.empty_host_cache()
    torch.openreg.host_memory_stats()
    torch.openreg.ipc_collect()


@other
def generators() -> Generator[None, None, Any]:
    x = ones(4)
    x.normal_()
    yield
    x.normal_()
    torch.manual_seed(1)
    state = torch.openreg.get_rng_state()
    torch.openreg.set_rng_state(state)
    torch.openreg.seed_all()
    torch.Generator(DEVICE).manual_seed(3)


@other
def pinned_memory() -> Generator[None, None, Any]:
    host = torch.ones(LARGE, pin_memory=True)
    x = ones(LARGE)
    yield
    x.copy_(host, non_blocking=True)
    host.copy_(x, non_blocking=True)
    x.to("cpu", non_blocking=True)
    del host
    torch.ones(LARGE, pin_memory=True)
    torch.openreg.empty_host_cache()


@other
def tensors_of_several_streams_go() -> Generator[None, None, Any]:
    side = torch.openreg.Stream()
    tensors = [ones(4) for _ in range(QUEUE)]
    yield
    for x in tensors:
        x.record_stream(side)
    done = queue_python(side)
    del x
    tensors.clear()
    side.synchronize()
    assert done.is_set()


@other
def events_and_streams_go() -> Generator[None, None, Any]:
    side = torch.openreg.Stream()
    yield
    event = torch.openreg.Event(enable_timing=True)
    event.record()
    event.wait(side)
    side.record_event(event)
    event.query()
    side.query()
    del event, side
    gc.collect()


@other
def copies_of_tensors() -> Generator[None, None, Any]:
    x = ones(4, requires_grad=True)
    yield
    copy.deepcopy(x)
    copy.copy(x)
    x.detach().share_memory_()
    x.untyped_storage().clone()


@other
def memory_is_exported() -> Generator[None, None, Any]:
    x = ones(4)
    yield
    reduction.ForkingPickler.dumps(x)
    del x
    torch.openreg.ipc_collect()


# ---------------------------------------------------------------------------------- calls on graphs


def _captured(keep: torch.Tensor) -> Any:
    graph = torch.openreg.OpenRegGraph()
    with torch.openreg.graph(graph):
        keep.add_(1)
        torch.ones(LARGE, device=DEVICE).add_(keep[0])
    return graph


@waiting
def graph_goes() -> Generator[None, None, Any]:
    graph = _captured(ones(4))
    yield
    graph.replay()
    del graph
    gc.collect()


@waiting
def graph_reset() -> Generator[None, None, Any]:
    graph = _captured(ones(4))
    yield
    graph.replay()
    graph.reset()


@waiting
def accelerator_graph_goes() -> Generator[None, None, Any]:
    x = ones(4)
    graph = torch.accelerator.Graph()
    torch.openreg.synchronize()
    with torch.openreg.stream(torch.openreg.Stream()):
        graph.capture_begin()
        x.add_(1)
        graph.capture_end()
    yield
    graph.replay()
    del graph
    gc.collect()


@other
def graph_in_a_cycle_goes() -> Generator[None, None, Any]:
    graph = _captured(ones(4))
    cycle: list[Any] = [graph]
    cycle.append(cycle)
    yield
    graph.replay()
    del graph, cycle
    gc.collect()


# ------------------------------------------------------------ calls on a stream whose queue is full


def _add_full_queues(calls: dict[str, Callable[[torch.Tensor], Any]]) -> None:
    """Registers a case for each function, called until the stream's queue is full."""

    def case_of(call: Callable[[torch.Tensor], Any]) -> Case:
        def case() -> Generator[None, None, Any]:
            x = ones(4)
            yield
            for _ in range(QUEUE):
                call(x)

        return case

    for name, call in calls.items():
        WAITING[f"full queue: {name}"] = case_of(call)


_side: list[torch.Stream] = []


def _wait_for_side(x: torch.Tensor) -> None:
    if not _side:
        _side.append(torch.openreg.Stream())
    with torch.openreg.stream(_side[0]):
        torch.openreg._sleep(1)
    torch.openreg.current_stream().wait_stream(_side[0])


_add_full_queues(
    {
        "operator": lambda x: x.add_(1),
        "timed event": lambda x: torch.openreg.Event(enable_timing=True).record(),
        "interprocess event": lambda x: torch.openreg.Event(interprocess=True).record(),
        "storage.fill_": lambda x: x.untyped_storage().fill_(0),
        "storage.clone": lambda x: x.untyped_storage().clone(),
        "storage.resize_": lambda x: x.untyped_storage().resize_(x.untyped_storage().nbytes() + 1),
        "sleep": lambda x: torch.openreg._sleep(1),
        "small copy": lambda x: x.copy_(torch.ones(4)),
        "memory is exported": lambda x: reduction.ForkingPickler.dumps(x + 0),
    }
)


@waiting
def full_queue_of_replays() -> Generator[None, None, Any]:
    x = ones(4)
    graph = _captured(x)
    yield
    for _ in range(QUEUE):
        graph.replay()


@waiting
def full_queue_of_replays_of_two_threads() -> Generator[None, None, Any]:
    graph = _captured(ones(4))

    def replay() -> None:
        for _ in range(QUEUE):
            graph.replay()

    thread = threading.Thread(target=replay)
    yield
    thread.start()
    replay()
    thread.join()


# ------------------------------------------------------------------ work that must not need the GIL


def _known(tensor: torch.Tensor) -> torch.Tensor:
    """Attaches a Python object to a tensor, which is freed with it even if C++ code frees both."""
    tensor.mark = []
    return tensor


def _backward() -> torch.Tensor:
    x = ones(4, requires_grad=True)
    (x * x).sum().backward()
    return x


WORK.update(
    {
        "pointwise": lambda: ones(4) + 1,
        "fallback": lambda: torch.special.i0(ones(4)),
        "scalar tensor": lambda: ones(4) * _known(torch.tensor(2.0)),
        "small copy": lambda: ones(4).copy_(_known(torch.ones(4))),
        "pinned copy": lambda: ones(4).copy_(torch.ones(4).pin_memory(), non_blocking=True),
        "pinned copy back": lambda: ones(4).to("cpu", non_blocking=True),
        "pinned cast": lambda: ones(4).copy_(
            torch.ones(4).pin_memory().double(), non_blocking=True
        ),
        "index": lambda: ones(4)[torch.tensor([0, 1])],
        "cat": lambda: torch.cat([ones(4), ones(4)]),
        "foreach": lambda: torch._foreach_add([ones(4), ones(4)], 1.0),
        "clamp": lambda: ones(4).clamp(min=_known(torch.tensor(0.5))),
        "where": lambda: torch.where(ones(4) > 0, _known(torch.tensor(1.0)), ones(4)),
        "addcmul": lambda: torch.addcmul(_known(torch.tensor(1.0)), ones(4), ones(4)),
        "lerp": lambda: torch.lerp(ones(4), ones(4), _known(torch.tensor(0.5))),
        "quantile": lambda: torch.quantile(ones(4), 0.5),
        "backward": _backward,
        "linear": lambda: torch.nn.functional.linear(ones(4, 4), ones(4, 4), ones(4)),
        "conv2d": lambda: torch.nn.functional.conv2d(ones(1, 1, 4, 4), ones(1, 1, 2, 2)),
        "sort": lambda: ones(4).sort(),
        "random": lambda: ones(4).normal_(),
        "index_put": lambda: ones(4).index_put_((torch.tensor([1]),), torch.tensor(2.0)),
        "index_fill": lambda: ones(4).index_fill_(0, ones(1).long(), torch.tensor(2.0)),
        "masked_fill": lambda: ones(4).masked_fill_(ones(4) > 0, torch.tensor(2.0)),
    }
)
