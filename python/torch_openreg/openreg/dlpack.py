# SPDX-License-Identifier: BSD-3-Clause
"""DLPack: shares device memory with other libraries, and their memory with torch, without a copy.

torch implements DLPack (``torch.from_dlpack``, ``Tensor.__dlpack__``), but two methods of Tensor
support only a fixed list of devices. ``__dlpack_device__`` raises an error for a renamed
PrivateUse1 device, and ``__dlpack__`` synchronizes only CUDA streams. torch has no extension point
for these methods, so ``register`` wraps both. For other devices, and for objects that
__torch_function__ handles, the wrappers call torch's methods with the same arguments.
"""

import functools
from typing import Any

import torch
from torch.overrides import has_torch_function_unary
from torch.utils.dlpack import DLDeviceType

from torch_openreg.name import DEVICE_TYPE
from torch_openreg.openreg.streams import ExternalStream, Stream, current_stream
from torch_openreg.openreg.streams import stream as stream_context

#: A device in DLPack: its type and its index.
DLDevice = tuple[int, int]


def _is_on_device(tensor: torch.Tensor) -> bool:
    return not has_torch_function_unary(tensor) and tensor.device.type == DEVICE_TYPE


def _consumer(stream: int, tensor: torch.Tensor, dl_device: DLDevice | None) -> Stream:
    """Return the consumer's stream, on the device to which the data is exported.

    Raises:
        TypeError: if ``dl_device`` is not two integers.
        ValueError: if ``dl_device`` is not an openreg device.
        RuntimeError: if ``stream`` is not a stream on that device.
    """
    if dl_device is None:
        return ExternalStream(stream, tensor.device)
    if (
        not isinstance(dl_device, tuple)
        or len(dl_device) != 2
        or not all(isinstance(part, int) for part in dl_device)
    ):
        raise TypeError(
            f"dl_device must be a tuple of two integers, a type and an index, but got {dl_device!r}"
        )
    if dl_device[0] != DLDeviceType.kDLExtDev:
        raise ValueError(
            f"__dlpack__ got openreg stream {stream:#x} for a copy to dl_device {dl_device}, which "
            "has no openreg streams: pass stream=None. The copy is complete when the call returns"
        )
    return ExternalStream(stream, dl_device[1])


def _check(tensor: torch.Tensor) -> None:
    """Reject tensors that torch would export with wrong values or without memory.

    Raises:
        BufferError: for such a tensor.
    """
    if tensor.layout == torch.strided and tensor.is_neg():
        raise BufferError(
            "Can't export tensors with the negative bit set, use tensor.resolve_neg()"
        )
    if tensor.layout == torch.strided and tensor.numel() > 0 and tensor.data_ptr() == 0:
        raise BufferError(f"Can't export tensors that own no memory: {type(tensor).__name__}")


def register() -> None:
    """Wrap the two methods of torch.Tensor. Must be called only once."""
    export = torch.Tensor.__dlpack__
    export_device = torch.Tensor.__dlpack_device__

    @functools.wraps(export_device)
    def __dlpack_device__(self: torch.Tensor) -> Any:
        if _is_on_device(self):
            return DLDeviceType.kDLExtDev, self.device.index
        return export_device(self)

    @functools.wraps(export)
    def __dlpack__(
        self: torch.Tensor,
        *,
        stream: Any = -1,
        max_version: tuple[int, int] | None = None,
        dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:
        make = functools.partial(
            export, self, max_version=max_version, dl_device=dl_device, copy=copy
        )
        if not _is_on_device(self):
            return make(stream=stream)
        _check(self)
        if type(stream) is not int or stream == -1:
            return make(stream=stream)  # None: consumer and producer use the current stream
        consumer = _consumer(stream, self, dl_device)
        producer = current_stream(self.device)
        if consumer == producer:
            return make(stream=None)
        consumer.wait_stream(producer)
        # If a copy is needed, it runs on the consumer's stream.
        with stream_context(consumer):
            capsule = make(stream=None)
        if consumer.device == self.device:
            self.record_stream(consumer)
        return capsule

    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign]
    torch.Tensor.__dlpack__ = __dlpack__  # type: ignore[method-assign]
