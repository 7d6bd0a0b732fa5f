# SPDX-License-Identifier: BSD-3-Clause
"""Tests tensors exchanged through DLPack: shared memory, stream order, and a single release."""

import copy
import ctypes
import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import dlpack
from torch.utils.dlpack import DLDeviceType

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")

NAP = 100_000_000  # nanoseconds, much longer than a launch on a busy machine
EXT = DLDeviceType.kDLExtDev
CPU = DLDeviceType.kDLCPU

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.bfloat16,
    torch.float16,
    torch.float32,
    torch.float64,
    torch.complex32,
    torch.complex64,
    torch.complex128,
]


@pytest.fixture(autouse=True)
def _quiet_devices() -> None:
    torch.openreg.set_device(0)
    for index in range(torch.openreg.device_count()):
        torch.openreg.synchronize(index)


def numbers(*shape: int, device: str = "openreg:1") -> Tensor:
    return torch.arange(float(torch.Size(shape).numel()), device=device).reshape(shape)


WAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "from_dlpack": torch.from_dlpack,
    "capsule": lambda tensor: dlpack.from_dlpack(dlpack.to_dlpack(tensor)),
    "versioned": lambda tensor: torch.from_dlpack(tensor.__dlpack__(max_version=(1, 0))),
    "unversioned": lambda tensor: torch.from_dlpack(tensor.__dlpack__()),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_memory_is_shared(way: Callable[[Tensor], Tensor]) -> None:
    tensor = numbers(2, 3)
    lent = way(tensor)
    assert lent.device == tensor.device
    assert lent.data_ptr() == tensor.data_ptr()
    lent[0, 0] = 7
    tensor[1, 2] = 9
    assert torch.equal(lent, tensor)
    assert tensor.tolist() == [[7, 1, 2], [3, 4, 9]]


@pytest.mark.parametrize(
    "view",
    [
        lambda base: base.t(),
        lambda base: base[1:, ::2],
        lambda base: base[1].expand(3, 5),
        lambda base: base[2, 3],
        lambda base: base[:0],
        lambda base: base[:, 2:2],
        lambda base: base.unfold(1, 2, 1),
    ],
    ids=["transposed", "strided", "expanded", "scalar", "empty", "empty inside", "overlapping"],
)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_layouts(way: Callable[[Tensor], Tensor], view: Callable[[Tensor], Tensor]) -> None:
    tensor = view(numbers(4, 5))
    lent = way(tensor)
    assert lent.shape == tensor.shape
    assert lent.device == tensor.device
    if tensor.numel() > 0:
        assert lent.stride() == tensor.stride()
        assert lent.data_ptr() == tensor.data_ptr()
    assert torch.equal(lent, tensor)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(dtype: torch.dtype) -> None:
    tensor = torch.arange(8).to(dtype).to("openreg:1")
    for way in WAYS.values():
        lent = way(tensor)
        assert lent.dtype == dtype
        assert lent.data_ptr() == tensor.data_ptr()
        assert torch.equal(lent.cpu().view(torch.uint8), tensor.cpu().view(torch.uint8))


def test_devices() -> None:
    for index in range(torch.openreg.device_count()):
        tensor = torch.ones(2, device=f"openreg:{index}")
        assert tensor.__dlpack_device__() == (EXT, index)
        # The current device does not affect the result's device.
        assert torch.from_dlpack(tensor).device == tensor.device
    # For other devices, torch's own method is called.
    assert torch.ones(2).__dlpack_device__() == (CPU, 0)
    with pytest.raises(ValueError, match="Unknown device type meta"):
        torch.ones(2, device="meta").__dlpack_device__()


def test_copies() -> None:
    tensor = numbers(2, 3)
    for copied in (
        torch.from_dlpack(tensor, copy=True),
        torch.from_dlpack(tensor.__dlpack__(copy=True)),
        torch.from_dlpack(tensor, device="openreg:0"),
        torch.from_dlpack(tensor.__dlpack__(dl_device=(EXT, 0))),
        torch.from_dlpack(tensor, device="cpu"),
        torch.from_dlpack(tensor.__dlpack__(dl_device=(CPU, 0))),
        torch.from_dlpack(tensor.__dlpack__(dl_device=(CPU, 0), copy=True)),
    ):
        assert copied.data_ptr() != tensor.data_ptr()
        assert torch.equal(copied.cpu(), tensor.cpu())
    assert torch.from_dlpack(tensor.__dlpack__(dl_device=(CPU, 0))).device.type == "cpu"
    assert torch.from_dlpack(tensor.__dlpack__(dl_device=(EXT, 0))).device.index == 0
    same = torch.from_dlpack(tensor, device="openreg:1", copy=False)
    assert same.data_ptr() == tensor.data_ptr()
    for device in ("cpu", "openreg:0"):
        with pytest.raises(ValueError, match="without copying"):
            torch.from_dlpack(tensor, device=device, copy=False)
    with pytest.raises(ValueError, match=r"copy=False.*from openreg:1 to cpu"):
        tensor.__dlpack__(dl_device=(CPU, 0), copy=False)
    with pytest.raises(RuntimeError, match=r"must be in \[0, 2\), but got 7"):
        tensor.__dlpack__(dl_device=(EXT, 7))
    with pytest.raises(BufferError, match="Unsupported device_type: 99"):
        tensor.__dlpack__(dl_device=(99, 0))  # type: ignore[arg-type]


def test_producers_of_the_cpu() -> None:
    array = np.arange(6.0).reshape(2, 3)
    for producer in (array, torch.from_numpy(array)):
        for device in ("openreg:0", "openreg:1"):
            taken = torch.from_dlpack(producer, device=device)
            assert taken.device == torch.device(device)
            assert np.array_equal(taken.cpu().numpy(), array)
    with torch.openreg.device(1):
        assert torch.from_dlpack(array, device="openreg").device == torch.device("openreg:1")
    with pytest.raises(ValueError, match="without copying"):
        torch.from_dlpack(array, device="openreg", copy=False)
    with pytest.raises(RuntimeError, match=r"must be in \[0, 2\), but got 7"):
        torch.from_dlpack(array, device="openreg:7")


def test_numpy() -> None:
    tensor = numbers(2, 3)
    with pytest.raises(RuntimeError, match="Unsupported device in DLTensor"):
        np.from_dlpack(tensor)
    copied = np.from_dlpack(tensor, device="cpu")
    assert copied.tolist() == tensor.tolist()


def test_pinned_memory() -> None:
    pinned = torch.arange(4.0).pin_memory()
    lent = torch.from_dlpack(pinned)
    assert lent.is_pinned()
    assert lent.data_ptr() == pinned.data_ptr()
    assert np.from_dlpack(pinned).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: numbers(2).requires_grad_(), "require gradient, use tensor.detach()"),
        (lambda: torch.tensor([1j], device="openreg").conj(), "conjugate bit"),
        (lambda: torch.tensor([1j], device="openreg").conj().imag, "negative bit"),
        (lambda: numbers(2, 2).to_sparse(), "layout other than torch.strided"),
        (lambda: TwoTensor(numbers(2), numbers(2)), "own no memory: TwoTensor"),
        (lambda: torch._efficientzerotensor((3,), device="openreg"), "own no memory"),
        (
            lambda: torch.quantize_per_tensor(numbers(2), 0.5, 1, torch.qint8),
            "QInt types are not supported",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_tensors_that_dlpack_cannot_represent(make: Callable[[], Tensor], message: str) -> None:
    tensor = make()
    for export in (tensor.__dlpack__, lambda: torch.from_dlpack(tensor)):
        with pytest.raises(BufferError, match=message):
            export()
    assert torch.from_dlpack(numbers(2)).tolist() == [0, 1]


# Order of streams


def fill_late(tensor: Tensor, value: float) -> None:
    torch.openreg._sleep(NAP)
    tensor.fill_(value)


@pytest.mark.parametrize("copied", [None, True], ids=["shared", "copied"])
def test_the_consumers_stream_waits(copied: bool | None) -> None:
    consumer = torch.openreg.Stream(1)
    with torch.openreg.device(1):
        tensor = torch.zeros(4, device="openreg")
        fill_late(tensor, 3)
        before = torch.openreg.current_stream()
        capsule = tensor.__dlpack__(stream=consumer.native_handle, copy=copied)
        assert torch.openreg.current_stream() == before
        assert not before.query()  # the host did not wait
    with torch.openreg.stream(consumer):
        taken = torch.from_dlpack(capsule)
        assert (taken.data_ptr() == tensor.data_ptr()) == (copied is None)
        assert (taken + 1).tolist() == [4] * 4


def test_a_copy_to_another_device_is_in_the_order_of_the_consumer() -> None:
    consumer = torch.openreg.Stream(0)
    with torch.openreg.device(1):
        tensor = torch.zeros(4, device="openreg")
        fill_late(tensor, 3)
        capsule = tensor.__dlpack__(stream=consumer.native_handle, dl_device=(EXT, 0))
    with torch.openreg.stream(consumer):
        taken = torch.from_dlpack(capsule)
        assert taken.device == torch.device("openreg:0")
        assert (taken + 1).tolist() == [4] * 4


@pytest.mark.parametrize("stream", [None, -1])
def test_streams_that_need_no_order(stream: int | None) -> None:
    tensor = torch.zeros(4, device="openreg")
    fill_late(tensor, 3)
    current = torch.openreg.current_stream()
    other = torch.openreg.Stream()
    taken = torch.from_dlpack(tensor.__dlpack__(stream=stream))
    assert not current.query()
    other.synchronize()
    assert not current.query()  # `other` does not wait for this stream
    assert (taken + 1).tolist() == [4] * 4


def test_the_current_streams_own_handle() -> None:
    tensor = torch.zeros(4, device="openreg")
    fill_late(tensor, 3)
    handle = torch.openreg.current_stream().native_handle
    taken = torch.from_dlpack(tensor.__dlpack__(stream=handle))
    assert (taken + 1).tolist() == [4] * 4


def test_a_copy_to_the_cpu_is_complete() -> None:
    tensor = torch.zeros(4, device="openreg")
    fill_late(tensor, 3)
    assert np.from_dlpack(tensor, device="cpu").tolist() == [3] * 4


def test_memory_stays_while_the_consumers_stream_uses_it() -> None:
    """Memory must not be reused while the consumer's work is queued, even if no tensor owns it."""
    consumer = torch.openreg.Stream(0)
    tensor = torch.ones(1 << 16, device="openreg:0")
    pointer = tensor.data_ptr()
    capsule = tensor.__dlpack__(stream=consumer.native_handle)
    with torch.openreg.stream(consumer):
        torch.openreg._sleep(NAP)
        taken = torch.from_dlpack(capsule)
        total = taken.sum()
        del taken, tensor, capsule
    other = torch.full((1 << 16,), 5.0, device="openreg:0")
    assert other.data_ptr() != pointer
    with torch.openreg.stream(consumer):
        assert total.item() == 1 << 16


def test_wrong_streams() -> None:
    tensor = numbers(3)
    other = torch.openreg.Stream(0).native_handle
    own = torch.openreg.Stream(1).native_handle
    with pytest.raises(RuntimeError, match="belongs to device openreg:0"):
        tensor.__dlpack__(stream=other)
    with pytest.raises(RuntimeError, match="belongs to device openreg:1"):
        tensor.__dlpack__(stream=own, dl_device=(EXT, 0))
    with pytest.raises(RuntimeError, match="is not a valid stream; it may have been destroyed"):
        tensor.__dlpack__(stream=12345)
    for no_handle in (-2, 2**64):
        with pytest.raises(RuntimeError, match=f"{no_handle} is not a stream handle"):
            tensor.__dlpack__(stream=no_handle)
    for no_device in (12, (12,), (12, "a"), (12.5, 0), torch.device("openreg:1")):
        with pytest.raises(TypeError, match="dl_device must be a tuple of two integers"):
            tensor.__dlpack__(stream=own, dl_device=no_device)  # type: ignore[arg-type]
    for wrong in ("stream", 1.0, True, torch.openreg.Stream(1)):
        with pytest.raises(TypeError, match="stream must be ``int`` or ``none``"):
            tensor.__dlpack__(stream=wrong)
    with pytest.raises(ValueError, match="which has no openreg streams: pass stream=None"):
        tensor.__dlpack__(stream=own, dl_device=(CPU, 0))
    assert torch.from_dlpack(tensor.__dlpack__(stream=own)).tolist() == [0, 1, 2]


# Lifetime of shared memory


@pytest.fixture
def allocated() -> Callable[[], int]:
    """Returns a function that returns the bytes allocated on device 0 since the test started."""
    gc.collect()
    before: int = torch.openreg.memory_allocated(0)

    def count() -> int:
        gc.collect()
        now: int = torch.openreg.memory_allocated(0)
        return now - before

    return count


def test_the_consumer_may_outlive_the_producer(allocated: Callable[[], int]) -> None:
    tensor = torch.ones(1 << 20, device="openreg:0")
    size = allocated()
    assert size >= 4 << 20
    lent = torch.from_dlpack(tensor)
    again = torch.from_dlpack(lent)
    assert allocated() == size  # no copy was made
    del tensor, lent
    assert allocated() == size
    assert again.sum().item() == 1 << 20
    del again
    assert allocated() == 0


def test_unused_capsules(allocated: Callable[[], int]) -> None:
    for version in (None, (1, 0)):
        tensor = torch.ones(1 << 20, device="openreg:0")
        capsule = tensor.__dlpack__(max_version=version)
        del tensor
        assert allocated() >= 4 << 20
        del capsule
        assert allocated() == 0


def test_capsules_are_consumed_once() -> None:
    tensor = numbers(3)
    for version in (None, (1, 0)):
        capsule = tensor.__dlpack__(max_version=version)
        first = torch.from_dlpack(capsule)
        with pytest.raises(RuntimeError, match="can be consumed only once"):
            torch.from_dlpack(capsule)
        del capsule
        assert first.tolist() == [0, 1, 2]


class Managed(ctypes.Structure):
    """DLPack's DLManagedTensor, with the fields of its DLTensor inlined."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype_code", ctypes.c_uint8),
        ("dtype_bits", ctypes.c_uint8),
        ("dtype_lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    )


class ForeignArray:
    """Two float32 values on openreg, exported as another library does. Counts deleter calls."""

    def __init__(self, memory: Tensor, device: int) -> None:
        self.deleted = 0
        self.streams: list[Any] = []
        self.device = device
        self._shape = (ctypes.c_int64 * 1)(2)
        deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._delete)
        self._managed = Managed(
            memory.data_ptr(), EXT, device, 1, 2, 32, 1, self._shape, None, 0, None, deleter
        )

    def _delete(self, _: int) -> None:
        self.deleted += 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return int(EXT), self.device

    def __dlpack__(self, stream: int | None = None) -> Any:
        """Exports like libraries older than DLPack 1.0: `stream` is the only argument."""
        self.streams.append(stream)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self._managed), b"dltensor", None)


@pytest.fixture
def foreign() -> Iterator[ForeignArray]:
    memory = torch.tensor([1.0, 2.0, 3.0], device="openreg:1")
    yield ForeignArray(memory[1:], 1)
    torch.openreg.synchronize(1)
    del memory


def test_memory_of_other_libraries(foreign: ForeignArray) -> None:
    taken = torch.from_dlpack(foreign)
    assert taken.device == torch.device("openreg:1")
    assert taken.tolist() == [2, 3]
    view = taken[1:]
    del taken
    gc.collect()
    assert foreign.deleted == 0
    assert view.item() == 3
    del view
    gc.collect()
    assert foreign.deleted == 1


def test_sizes_that_overflow_leave_a_tensor_as_it_was() -> None:
    tensor = numbers(3)
    for sizes in ((1 << 32, 1 << 32), (1 << 62, 4), (1 << 50,)):
        with pytest.raises(RuntimeError):
            tensor.resize_(sizes)
        assert tensor.tolist() == [0, 1, 2]
    assert tensor.resize_(0, 1 << 40).numel() == 0


def test_imported_memory_can_be_copied_and_used_on_streams(foreign: ForeignArray) -> None:
    assert torch.from_dlpack(foreign, copy=True).tolist() == [2, 3]
    assert torch.from_dlpack(foreign, device="cpu").tolist() == [2, 3]
    taken = torch.from_dlpack(foreign)
    taken.record_stream(torch.openreg.Stream(1))
    with pytest.raises(RuntimeError, match="not resizable"):
        taken.resize_(1000)
    assert taken.shape == (2,)
    assert copy.deepcopy(taken).tolist() == [2, 3]
    del taken
    gc.collect()
    assert foreign.deleted == 3


# Behavior that torch_openreg's methods inherit from the torch methods that they wrap


def test_modes_and_subclasses_see_torchs_functions() -> None:
    seen: list[str | None] = []

    class Mode(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(resolve_name(function))
            return function(*args, **(kwargs or {}))

    tensor, host = numbers(3), torch.ones(2)
    with Mode():
        lent = torch.from_dlpack(tensor)
        torch.from_dlpack(host)
    names = ["torch.Tensor.__dlpack_device__", "torch.Tensor.__dlpack__"]
    assert seen == names * 2
    assert lent.data_ptr() == tensor.data_ptr()
    assert torch.Tensor.__dlpack__ in torch.overrides.get_testing_overrides()

    calls: list[Any] = []

    class Sub(Tensor):
        @classmethod
        def __torch_function__(
            cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            calls.append(function)
            return super().__torch_function__(function, types, args, kwargs)  # type: ignore[no-untyped-call]

    handle = torch.openreg.Stream(1).native_handle
    lent = torch.from_dlpack(tensor.as_subclass(Sub).__dlpack__(stream=handle))
    assert lent.data_ptr() == tensor.data_ptr()
    assert calls == [torch.Tensor.__dlpack__]


def test_subclasses_may_have_their_own() -> None:
    class Own(Tensor):
        def __dlpack_device__(self) -> tuple[Any, int]:
            return super().__dlpack_device__()[0], 5

    assert numbers(2).as_subclass(Own).__dlpack_device__() == (EXT, 5)


def test_tensors_of_the_cpu_are_as_before() -> None:
    tensor = torch.arange(3.0)
    assert torch.from_dlpack(tensor).data_ptr() == tensor.data_ptr()
    assert np.from_dlpack(tensor).tolist() == [0, 1, 2]
    with pytest.raises(AssertionError, match="stream should be None on cpu"):
        tensor.__dlpack__(stream=5)
    with pytest.raises(BufferError, match="require gradient"):
        tensor.requires_grad_().__dlpack__()


class ExchangeApi(ctypes.Structure):
    """DLPack's table of C functions, which a type can provide in addition to its two methods."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("from_object", ctypes.c_void_p),
        ("to_object", ctypes.c_void_p),
        ("tensor_from_object", ctypes.c_void_p),
        ("current_work_stream", ctypes.c_void_p),
    )


def exchange_api() -> ExchangeApi:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype = ctypes.c_void_p
    pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    found = pointer(torch.Tensor.__dlpack_c_exchange_api__, b"dlpack_exchange_api")
    return ExchangeApi.from_address(found)


def test_the_c_interface_supports_the_device() -> None:
    tensor = numbers(2, 3)
    api = exchange_api()
    export = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))
    take = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.py_object))
    managed, result = ctypes.c_void_p(), ctypes.py_object()
    assert export(api.from_object)(tensor, ctypes.byref(managed)) == 0
    assert take(api.to_object)(managed, ctypes.byref(result)) == 0
    assert result.value.data_ptr() == tensor.data_ptr()
    assert result.value.device == tensor.device
    assert torch.equal(result.value, tensor)


def test_the_c_interface_returns_the_current_stream() -> None:
    query = ctypes.PYFUNCTYPE(
        ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
    )(exchange_api().current_work_stream)
    found = ctypes.c_void_p()
    stream = torch.openreg.Stream(1)
    with torch.openreg.stream(stream):
        assert query(EXT, 1, ctypes.byref(found)) == 0
    assert found.value == stream.native_handle
