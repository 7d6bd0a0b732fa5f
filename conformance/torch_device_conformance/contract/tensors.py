# SPDX-License-Identifier: BSD-3-Clause
"""Contract rows for tensors and storages: metadata, views and copies."""

import torch
from torch_device_conformance.contract.row import (
    Backend,
    require,
    require_equal,
    require_error,
    row,
)

FACTORIES = "aten/tensors/factories.cc"
VIEWS = "aten/tensors/views.cc"
COPY = "aten/tensors/copy.cc"


@row(
    "tensors",
    "factories",
    requires="empty, empty_strided, zeros, full and *_like return what was requested",
    implement="aten::empty.memory_format, aten::empty_strided",
    without="nothing works: torch creates every tensor with these functions",
    shown_by=FACTORIES,
)
def factories(backend: Backend) -> None:
    d = backend.device
    strided = torch.empty_strided((2, 3), (1, 2), device=d)
    require_equal("stride of empty_strided", strided.stride(), (1, 2))
    last = torch.empty((2, 3, 4, 5), device=d, memory_format=torch.channels_last)
    require(last.is_contiguous(memory_format=torch.channels_last), "channels_last is lost")
    require_equal("full", torch.full((2,), 7, device=d), torch.full((2,), 7))
    require_equal(
        "zeros", torch.zeros(3, device=d, dtype=torch.int8), torch.zeros(3, dtype=torch.int8)
    )
    require_equal("stride of empty_like", torch.empty_like(strided).stride(), (1, 2))
    require_equal("elements of an empty tensor", torch.empty(0, 4, device=d).sum().item(), 0.0)


@row(
    "tensors",
    "views_share_memory",
    requires="a view sees writes to its base, and the base sees writes to the view",
    implement="aten::view, as_strided, unfold, _reshape_alias: metadata only, never a fallback",
    without="writes such as x[0] = 1 or x.view(-1).add_(1) are lost silently",
    shown_by=VIEWS,
)
def views_share_memory(backend: Backend) -> None:
    base = torch.zeros(4, 6, device=backend.device)
    views = {
        "view": base.view(24),
        "transpose": base.t(),
        "select": base[1],
        "slice": base[:, 2:4],
        "as_strided": base.as_strided((2, 2), (6, 1), 7),
        "unsqueeze": base.unsqueeze(0),
        "diagonal": base.diagonal(),
        "expand": base[:1].expand(3, 6),
        "unfold": base.unfold(0, 2, 1),
        "detach": base.detach(),
    }
    for name, view in views.items():
        base.zero_()
        base.add_(1)
        require(bool((view == 1).all()), f"{name} does not see a write to its base")
        if name != "expand":
            view.fill_(5)
            require(bool((base == 5).any()), f"the base does not see a write to {name}")
        require_equal(f"base of {name}", view._base is base or name == "detach", True)


@row(
    "tensors",
    "strides",
    requires="pointwise operators, clone, contiguous and to return the same strides as on the CPU",
    implement="torch's meta kernels (structured kernels, TensorIterator), or equal strides",
    without="channels_last models are slow or fail in view()",
    shown_by="aten/structured/structured.h",
)
def strides(backend: Backend) -> None:
    x = torch.randn(2, 3, 4, 5)
    for made in (x, x.to(memory_format=torch.channels_last), x.transpose(1, 3), x[:, :, ::2]):
        ours = torch.empty_strided(made.shape, made.stride(), device=backend.device).copy_(made)
        for name, act in (
            ("neg", torch.neg),
            ("add", lambda t: t + 1),
            ("clone", torch.clone),
            ("contiguous", torch.Tensor.contiguous),
            ("to(float64)", lambda t: t.to(torch.float64)),
        ):
            require_equal(
                f"strides of {name} for an input with strides {made.stride()}",
                act(ours).stride(),
                act(made).stride(),
            )


@row(
    "tensors",
    "in_place",
    requires="in-place operators change their argument, increase its version, and return it",
    implement="the kernels whose names end in _",
    without="optimizers have no effect",
    shown_by="aten/structured/structured.h",
)
def in_place(backend: Backend) -> None:
    for name, act in (
        ("add_", lambda t: t.add_(2)),
        ("mul_", lambda t: t.mul_(3)),
        ("copy_", lambda t: t.copy_(torch.tensor([9.0, 8, 7], device=t.device))),
        ("fill_", lambda t: t.fill_(4)),
        (
            "index_put_",
            lambda t: t.index_put_((torch.tensor([1], device=t.device),), t[:1].clone()),
        ),
        ("zero_", torch.Tensor.zero_),
    ):
        ours, theirs = torch.arange(3.0, device=backend.device), torch.arange(3.0)
        version = ours._version
        result = act(ours)
        require(result is ours, f"{name} does not return its argument")
        require_equal(name, ours, act(theirs))
        require_equal(f"increase of the version by {name}", ours._version - version, 1)


@row(
    "tensors",
    "copies",
    requires="copies convert dtypes, respect both tensors' strides, broadcast, and cross devices",
    implement="aten::_copy_from, aten::_copy_from_and_resize",
    without="model.to(device) and print() fail or give wrong values",
    shown_by=COPY,
)
def copies(backend: Backend) -> None:
    source = torch.randn(4, 6)
    last = backend.last()
    for name, made in (("plain", source), ("transposed", source.t()), ("sliced", source[1:, ::2])):
        there = made.to(backend.device)
        require_equal(f"{name} there and back", there.cpu(), made)
        require_equal(f"{name} to device {last.index}", there.to(last).cpu(), made)
        for dtype in (torch.float64, torch.float16, torch.int32, torch.bool, torch.complex64):
            require_equal(f"{name} to {dtype}", there.to(dtype).cpu(), made.to(dtype))
        target = torch.zeros_like(made.t(), device=backend.device).t()
        require_equal(f"{name} to other strides", target.copy_(there), made)
    wide = torch.zeros(3, 6, device=backend.device)
    require_equal("broadcast", wide.copy_(source[0]), source[0].expand(3, 6))
    there = source.to(backend.device, copy=True)
    again = there.clone()
    there.zero_()
    require_equal("a clone after a write to the original", again, source)


@row(
    "tensors",
    "scalars",
    requires="item(), bool(), float(), tolist() and `if x:` read the computed value",
    implement="aten::_local_scalar_dense, which waits for the stream",
    without="data-dependent control flow is wrong",
    shown_by="aten/tensors/copy.cc",
)
def scalars(backend: Backend) -> None:
    backend.delay()
    x = torch.arange(5.0, device=backend.device)
    require_equal("item()", x.sum().item(), 10.0)
    require_equal("int()", int(x[3]), 3)
    require_equal("tolist()", (x * 2).tolist(), [0.0, 2.0, 4.0, 6.0, 8.0])
    require(bool((x[1] == 1).item()), "x[1] == 1 is false for x = arange(5)")
    require("tensor([0., 1., 2., 3., 4.]" in repr(x), f"repr is {x!r}")


@row(
    "tensors",
    "type_promotion",
    requires="operators on mixed dtypes and Python scalars return the same dtypes as on the CPU",
    implement="TensorIterator, or torch.result_type",
    without="losses silently have a different precision",
    shown_by="aten/structured/structured.h",
)
def type_promotion(backend: Backend) -> None:
    kinds = (torch.bool, torch.uint8, torch.int64, torch.float16, torch.float32, torch.complex64)
    for first in kinds:
        a = torch.ones(2, dtype=first)
        for second in kinds:
            b = torch.ones(2, dtype=second)
            found = a.to(backend.device) + b.to(backend.device)
            require_equal(f"{first} + {second}", found.dtype, (a + b).dtype)
            found = a.to(backend.device) * b[0].to(backend.device)
            require_equal(f"{first} * 0-dim {second}", found.dtype, (a * b[0]).dtype)
        require_equal(f"{first} + 1.5", (a.to(backend.device) + 1.5).dtype, (a + 1.5).dtype)


@row(
    "tensors",
    "resize_and_set",
    requires="resize_ and set_ change shape and storage and keep the elements",
    implement="aten::resize_, set_.source_Storage_storage_offset, set_.source_Tensor",
    without="torch.load, deepcopy, and out= tensors of a different size fail",
    shown_by="aten/tensors/storage.cc",
)
def resize_and_set(backend: Backend) -> None:
    x = torch.arange(4.0, device=backend.device)
    x.resize_(2, 3)
    require_equal("the first elements after resize_", x.flatten()[:4], torch.arange(4.0))
    y = torch.empty(0, device=backend.device)
    y.set_(x.untyped_storage(), 1, (3,), (1,))
    require_equal("set_", y, torch.arange(1.0, 4.0))
    require_equal("data_ptr() of set_", y.data_ptr() - x.data_ptr(), 4)
    out = torch.empty(0, device=backend.device)
    torch.add(y, 1, out=out)
    require_equal("an out= tensor that was resized", out, torch.arange(2.0, 5.0))


@row(
    "tensors",
    "repeatable",
    requires="a repeated sum of the same numbers gives the same bits",
    implement="reductions in a fixed order, or an error under use_deterministic_algorithms",
    without="no run is reproducible",
    shown_by="aten/kernels",
)
def repeatable(backend: Backend) -> None:
    x = backend.randn(1000, 37)
    for name, act in (
        ("sum", torch.sum),
        ("mean", torch.mean),
        ("sum of rows", lambda t: t.sum(0)),
        ("matmul", lambda t: t.t() @ t),
        ("softmax", lambda t: t.softmax(1)),
    ):
        first = act(x).cpu()
        for _ in range(4):
            require_equal(f"{name}, repeated", act(x), first)


@row(
    "tensors",
    "indexing",
    requires="indices and masks select elements and assign to them",
    implement="aten::index.Tensor, _index_put_impl_, nonzero, masked_fill",
    without="data-dependent code fails",
    shown_by="aten/kernels",
)
def indexing(backend: Backend) -> None:
    x = torch.arange(12.0).view(3, 4)
    y = x.to(backend.device)
    picks = torch.tensor([2, 0])
    require_equal("x[indices]", y[picks.to(backend.device)], x[picks])
    require_equal("x[mask]", y[y > 4], x[x > 4])
    x[x > 6] = -1
    y[y > 6] = -1
    require_equal("x[mask] = -1", y, x)
    require_equal("nonzero", torch.nonzero(y == -1), torch.nonzero(x == -1))

    def beyond() -> None:
        assert y[picks.to(backend.device) + 5].numel()
        backend.synchronize()

    require_error("indices out of bounds", beyond)


@row(
    "tensors",
    "conjugates",
    requires="conj() and imag return views whose lazy bits are resolved when needed",
    implement="nothing: torch passes resolved tensors to _copy_from",
    without="complex results have the wrong sign",
    shown_by=COPY,
)
def conjugates(backend: Backend) -> None:
    x = torch.randn(3, 3, dtype=torch.complex64)
    y = x.to(backend.device)
    require_equal("conj()", y.conj(), x.conj().resolve_conj())
    require_equal("imag of conj()", y.conj().imag, x.conj().imag.resolve_neg())
    require(torch.allclose((y @ y.mH).cpu(), x @ x.mH, atol=1e-5), "x @ x.mH is wrong")
