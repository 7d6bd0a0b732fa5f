# SPDX-License-Identifier: BSD-3-Clause
"""Processes share tensors without copies, and each process can keep the memory alive."""

import ctypes
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.multiprocessing
from torch_openreg import _C

from tests import child, peer
from tests.peer import Peer


@pytest.fixture(scope="module")
def other() -> Iterator[Peer]:
    with Peer() as process:
        yield process


def allocated() -> int:
    torch.openreg.synchronize()
    gc.collect()
    torch.openreg.ipc_collect()
    return int(torch.openreg.memory_allocated())


def becomes(expected: Any, function: Callable[[], Any]) -> bool:
    end = time.monotonic() + peer.PATIENCE
    while function() != expected:
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def test_both_sides_use_one_memory(other: Peer) -> None:
    tensor = torch.arange(6.0, device="openreg")
    other.call(peer.keep, "t", tensor)
    other.call(peer.add, "t", 10)
    other.call(peer.synchronize)
    assert tensor.tolist() == [10.0, 11, 12, 13, 14, 15]
    tensor.mul_(2)
    torch.openreg.synchronize()
    assert other.call(peer.values, "t") == [20.0, 22, 24, 26, 28, 30]
    other.call(peer.drop, "t")


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(3, 5, device="openreg").t(),
        lambda: torch.randn(40, device="openreg")[7:31:3],
        lambda: torch.randn(2, device="openreg").expand(4, 2),
        lambda: torch.randn(3, device="openreg", requires_grad=True),
        lambda: torch.nn.Parameter(torch.randn(3, device="openreg")),
        lambda: torch.nn.Parameter(torch.arange(3, device="openreg"), requires_grad=False),
        lambda: torch.randn(4, dtype=torch.complex64, device="openreg").conj(),
        lambda: torch.randn(4, dtype=torch.complex64, device="openreg").conj().imag,
        lambda: torch.nn.Parameter(torch.randn(4, dtype=torch.cfloat, device="openreg").conj()),
        lambda: torch.tensor(3, device="openreg:1"),
        lambda: torch.tensor([True, False], device="openreg"),
        lambda: torch.empty(0, 3, dtype=torch.half, device="openreg:1"),
        lambda: torch.randn(1_000_003, device="openreg")[3:],
        lambda: torch.randn(4, device="openreg").as_subclass(peer.Marked),
    ],
)
def test_a_tensor_arrives_unchanged(other: Peer, make: Callable[[], torch.Tensor]) -> None:
    tensor = make()
    other.call(peer.keep, "t", tensor)
    peer.kept["t"] = tensor
    assert other.call(peer.describe, "t") == peer.describe("t")
    assert other.call(peer.values, "t") == tensor.tolist()
    back = other.call(peer.give, "t")
    assert back.untyped_storage()._cdata == tensor.untyped_storage()._cdata or not tensor.numel()
    other.call(peer.drop, "t")


def test_tensors_of_one_storage_stay_so(other: Peer) -> None:
    base = torch.zeros(100, device="openreg")
    other.call(peer.keep, "pair", (base[:50], base[50:]))
    first, second = other.call(peer.give, "pair")
    assert first.untyped_storage()._cdata == second.untyped_storage()._cdata
    other.call(peer.keep, "a", base[10:20])
    other.call(peer.keep, "b", base.view(10, 10))
    assert other.call(peer.same_storage, "a", "b")
    other.call(peer.add, "a", 1)
    other.call(peer.synchronize)
    assert base.sum().item() == 10
    for name in ("pair", "a", "b"):
        other.call(peer.drop, name)


def test_storages(other: Peer) -> None:
    tensor = torch.arange(4, dtype=torch.int16, device="openreg")
    for storage in (tensor.untyped_storage(), tensor._typed_storage()):
        other.call(peer.keep, "s", storage)
        back = other.call(peer.give, "s")
        assert type(back) is type(storage)
        assert back._cdata == storage._cdata
        assert len(back) == len(storage)
    other.call(peer.drop, "s")


def test_a_module_is_trained_by_another_process(other: Peer) -> None:
    module = torch.nn.Linear(3, 2).to("openreg")
    other.call(peer.keep, "m", module)
    back = other.call(peer.give, "m")
    assert back is not module
    with torch.no_grad():
        back.weight.fill_(2)
    assert module.weight.tolist() == [[2.0] * 3] * 2
    assert isinstance(back.weight, torch.nn.Parameter)
    other.call(peer.drop, "m")


def test_sparse_tensors(other: Peer) -> None:
    tensor = torch.eye(3).to_sparse().to("openreg")
    other.call(peer.keep, "t", tensor)
    back = other.call(peer.give, "t")
    assert back.layout == torch.sparse_coo
    assert back.to_dense().tolist() == torch.eye(3).tolist()
    other.call(peer.drop, "t")


def test_memory_is_released_when_the_other_side_is_done(other: Peer) -> None:
    before = allocated()
    tensor = torch.ones(1000, device="openreg")
    other.call(peer.keep, "t", tensor)
    del tensor
    assert allocated() > before
    assert other.call(peer.values, "t") == [1.0] * 1000
    other.call(peer.drop, "t")
    assert becomes(before, allocated)


def test_memory_waits_for_an_unread_message(other: Peer) -> None:
    before = allocated()
    other.send(time.sleep, 0.5)
    other.send(peer.keep, "t", torch.full((5000,), 3.0, device="openreg"))
    decoys = [torch.zeros(5000, device="openreg") for _ in range(8)]
    other.receive()
    other.receive()
    assert other.call(peer.values, "t") == [3.0] * 5000
    del decoys
    other.call(peer.drop, "t")
    assert becomes(before, allocated)


def test_returned_tensor_is_the_same_memory(other: Peer) -> None:
    tensor = torch.ones(100, device="openreg")
    pointer = tensor.data_ptr()
    other.call(peer.keep, "t", tensor)
    del tensor
    gc.collect()
    torch.openreg.ipc_collect()
    back = other.call(peer.give, "t")  # returns to its owner, which has released it
    assert back.data_ptr() == pointer
    other.call(peer.drop, "t")
    assert back.add_(1).tolist() == [2.0] * 100
    torch.openreg.ipc_collect()
    assert torch.zeros(100, device="openreg").data_ptr() != pointer
    assert back.untyped_storage().resize_(800).nbytes() == 800


def test_a_third_process(other: Peer) -> None:
    before = allocated()
    with Peer() as third:
        tensor = torch.zeros(64, device="openreg")
        other.call(peer.keep, "t", tensor)
        other.call(peer.pass_on, "t", third.connection, "passed")
        other.call(peer.drop, "t")
        third.call(peer.add, "passed", 5)
        third.call(peer.synchronize)
        assert tensor.tolist() == [5.0] * 64
        del tensor
        assert allocated() > before
        third.kill()
    assert becomes(before, allocated)


def test_a_kill_of_the_importer_frees_the_memory() -> None:
    before = allocated()
    with Peer() as third:
        third.call(peer.keep, "t", torch.ones(1000, device="openreg"))
        assert allocated() > before
        third.kill()
    assert becomes(before, allocated)


def test_memory_outlives_its_killed_owner(other: Peer) -> None:
    with Peer() as third:
        tensor = third.call(peer.make, "t", 1000, 7.0)
        torch.openreg.synchronize()
        third.kill()
    assert tensor.add_(1).tolist() == [8.0] * 1000
    other.call(peer.keep, "t", tensor)  # the tensor can be exported again
    assert other.call(peer.values, "t") == [8.0] * 1000
    other.call(peer.drop, "t")


def test_missing_work_of_a_killed_owner_is_an_error() -> None:
    with Peer() as third:
        third.call(peer.nap, 60.0)
        tensor = third.call(peer.make, "t", 10, 7.0)
        result = tensor + 1
        third.kill()
    with pytest.raises(RuntimeError, match="ended before it had done the work"):
        torch.openreg.synchronize()
    torch.openreg.synchronize()
    del result


def test_the_importer_is_ordered_after_the_exporters_work(other: Peer) -> None:
    tensor = torch.zeros(1000, device="openreg")
    torch.openreg._sleep(300_000_000)
    tensor.fill_(9)
    other.call(peer.keep, "t", tensor)
    assert not torch.openreg.current_stream().query()
    assert other.call(peer.values, "t") == [9.0] * 1000
    other.call(peer.drop, "t")


def test_the_importer_is_ordered_after_a_stream_of_another_device(other: Peer) -> None:
    tensor = torch.zeros(1000, dtype=torch.uint8, device="openreg:0")
    stream = torch.openreg.Stream("openreg:1")
    tensor.record_stream(stream)
    torch.openreg.synchronize()
    with torch.openreg.stream(stream):
        torch.openreg._sleep(300_000_000)
    driver = ctypes.CDLL("libopenreg.so")
    pointer, handle = ctypes.c_void_p(tensor.data_ptr()), ctypes.c_void_p(stream.native_handle)
    assert driver.orMemsetAsync(pointer, 9, ctypes.c_size_t(1000), handle) == 0
    other.call(peer.keep, "t", tensor)
    assert not stream.query()
    assert other.call(peer.values, "t") == [9] * 1000
    other.call(peer.drop, "t")


@pytest.mark.parametrize("use", ["own stream", "side stream", "side stream of another device"])
def test_memory_waits_for_the_importer_s_work(other: Peer, use: str) -> None:
    before = allocated()
    tensor = torch.zeros(1000, device="openreg")
    torch.openreg.synchronize()
    other.call(peer.keep, "t", tensor)
    start = time.monotonic()
    if use == "own stream":
        other.call(peer.nap, 1.0)
        other.call(peer.add, "t", 1)
        other.call(peer.drop, "t")
    else:
        device = "openreg:1" if use == "side stream of another device" else "openreg:0"
        other.call(peer.on_side_stream, "t", 1.0, device)
    del tensor
    assert allocated() > before or time.monotonic() - start > 1
    assert becomes(before, allocated)
    assert time.monotonic() - start >= 0.99


def test_an_imported_storage_is_not_resized(other: Peer) -> None:
    tensor = torch.ones(10, device="openreg")
    other.call(peer.keep, "t", tensor)
    with pytest.raises(RuntimeError, match="not resizable"):
        other.call(peer.resize, "t", 4000)
    tensor.resize_(1000)  # allocates new memory, which is not shared
    tensor.fill_(3)
    assert other.call(peer.values, "t") == [1.0] * 10
    other.call(peer.drop, "t")


def test_one_message_read_twice_is_an_error(other: Peer) -> None:
    from multiprocessing.reduction import ForkingPickler

    tensor = torch.ones(10, device="openreg")
    message = bytes(ForkingPickler.dumps(tensor))
    assert torch.equal(ForkingPickler.loads(message).cpu(), tensor.cpu())
    with pytest.raises(RuntimeError, match="A handle can be imported only once"):
        ForkingPickler.loads(message)


def test_invalid_handle_of_a_storage_is_rejected(other: Peer) -> None:
    from torch_openreg.openreg.sharing import _rebuild_storage

    before = allocated()
    storage = torch.zeros(100, device="openreg").untyped_storage()
    kind = torch.UntypedStorage
    for handle, size, device, message in (
        (b"short", 400, 0, "ValueError: expected a handle of 64 bytes, but got 5 bytes"),
        (bytes(64), 400, 0, "these bytes are not a valid handle"),
        (_C.export_storage(storage), 400, 1, "on device 0, but the stream is on device 1"),
        (_C.export_storage(storage), 4000, 0, "400 bytes cannot be imported as a storage of 4000"),
        (
            _C.export_storage(storage),
            40,
            0,
            "400 bytes cannot be imported as a storage of 40 bytes",
        ),
    ):
        with pytest.raises(RuntimeError, match=message):
            other.call(_rebuild_storage, kind, handle, size, device)
    with pytest.raises(ValueError, match="400 bytes cannot be imported as a storage of 4000"):
        _rebuild_storage(kind, _C.export_storage(storage), 4000, 0)
    del storage
    assert allocated() > before  # a handle that was never imported keeps its memory
    other.call(peer.keep, "t", torch.ones(3, device="openreg"))
    assert other.call(peer.values, "t") == [1.0] * 3
    other.call(peer.drop, "t")


def test_nonleaf_tensors_that_require_grad_are_rejected(other: Peer) -> None:
    tensor = torch.ones(3, dtype=torch.cfloat, device="openreg", requires_grad=True) * 2
    for refused in (tensor, tensor.conj()):
        with pytest.raises(RuntimeError, match="refusing to serialize non-leaf"):
            other.call(peer.keep, "t", refused)


def test_a_tensor_of_the_device_is_always_shared() -> None:
    tensor = torch.ones(3, device="openreg")
    assert tensor.is_shared()
    assert tensor.share_memory_() is tensor
    module = torch.nn.Linear(2, 2).to("openreg")
    assert module.share_memory() is module
    assert not torch.ones(3).is_shared()
    assert torch.ones(3).share_memory_().is_shared()


def test_tensors_of_the_cpu_are_shared_as_before(other: Peer) -> None:
    tensor = torch.zeros(10)
    other.call(peer.keep, "t", tensor)
    other.call(peer.add, "t", 4)
    assert tensor.tolist() == [4.0] * 10
    assert tensor.is_shared()
    other.call(peer.drop, "t")


def _through(queue: Any, back: Any, tensor: torch.Tensor) -> None:
    received = queue.get()
    received.add_(tensor)
    torch.openreg.synchronize()
    back.put(received)
    assert queue.get() == "read"  # the sender must run until the receiver has read its memory


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("kind", ["Queue", "SimpleQueue"])
def test_queues_and_arguments_of_processes(method: str, kind: str) -> None:
    context = torch.multiprocessing.get_context(method)
    queue, back = getattr(context, kind)(), getattr(context, kind)()
    one = torch.ones(4, device="openreg")
    process = context.Process(target=_through, args=(queue, back, one), daemon=True)
    process.start()
    tensor = torch.zeros(4, device="openreg")
    queue.put(tensor)
    assert back.get().data_ptr() == tensor.data_ptr()
    queue.put("read")
    process.join(peer.PATIENCE)
    assert process.exitcode == 0
    assert tensor.tolist() == [1.0] * 4


def _values_of_one(queue: Any, back: Any) -> None:
    torch.zeros(4, device="openreg").tolist()
    back.put("ready")
    back.put(queue.get().tolist())


@pytest.mark.parametrize("use", ["allocated on", "recorded on"])
def test_a_queue_orders_a_tensor_after_the_streams_that_use_it(use: str) -> None:
    context = torch.multiprocessing.get_context("spawn")
    queue, back = context.Queue(), context.Queue()  # a Queue pickles in a separate thread
    process = context.Process(target=_values_of_one, args=(queue, back), daemon=True)
    process.start()
    assert back.get() == "ready"
    stream = torch.openreg.Stream()
    tensor = torch.zeros(4, device="openreg")
    torch.openreg.synchronize()
    with torch.openreg.stream(stream):
        if use == "allocated on":
            tensor = torch.zeros(4, device="openreg")
        else:
            tensor.record_stream(stream)
        torch.openreg.synchronize()
        torch.openreg._sleep(1_000_000_000)  # longer than the other process needs to read
        tensor.fill_(5)
        queue.put(tensor)
    assert back.get() == [5.0] * 4
    process.join(peer.PATIENCE)
    assert process.exitcode == 0


def test_a_forked_child_gets_an_error() -> None:
    printed = child.output(
        """
        import torch
        import torch.multiprocessing as mp
        from multiprocessing.reduction import ForkingPickler

        def use(tensor, queue, answers):
            for attempt in (lambda: tensor + 1, queue.get, lambda: ForkingPickler.dumps(tensor)):
                try:
                    attempt()
                except RuntimeError as error:
                    answers.put(str(error))
                else:
                    answers.put("no error")

        context = mp.get_context("fork")
        queue, answers = context.SimpleQueue(), context.SimpleQueue()
        tensor = torch.ones(3, device="openreg")
        process = context.Process(target=use, args=(tensor, queue, answers))
        process.start()
        queue.put(torch.ones(3, device="openreg"))
        for _ in range(3):
            print(answers.get())
        process.join()
        assert process.exitcode == 0
        assert tensor.tolist() == [1.0] * 3
        """
    )
    message = (
        "Cannot re-initialize OpenReg in forked subprocess. To use OpenReg with "
        "multiprocessing, you must use the 'spawn' start method"
    )
    assert [line for line in printed.splitlines() if line] == [message] * 3
