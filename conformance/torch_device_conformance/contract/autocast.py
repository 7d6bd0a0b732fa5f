# SPDX-License-Identifier: BSD-3-Clause
"""Contract rows for automatic mixed precision."""

import torch
from torch import Tensor
from torch_device_conformance.contract.row import Backend, missing, require, require_equal, row
from torch_device_conformance.mode import autocast_policies

FILE = "amp/autocast.cc"
KERNELS = (
    "KERNEL_PRIVATEUSEONE for the lists in ATen/autocast_mode.h, and a fallthrough for the rest"
)


def lower_types(backend: Backend) -> list[torch.dtype]:
    """Returns the dtypes that autocast supports on the device."""
    return list(backend.function("get_amp_supported_dtype")())


@row(
    "autocast",
    "lower",
    requires="matrix products and convolutions run in the region's dtype",
    implement=KERNELS + "; get_amp_supported_dtype",
    without="an autocast region has no effect, or every operator in it fails",
    shown_by=FILE,
)
def lower(backend: Backend) -> None:
    x = torch.ones(4, 4, device=backend.device)
    image = torch.ones(1, 2, 5, 5, device=backend.device)
    types = lower_types(backend)
    require(bool(types), "get_amp_supported_dtype() is empty")
    for dtype in types:
        with torch.autocast(backend.type, dtype=dtype):
            require_equal("dtype of mm", (x @ x).dtype, dtype)
            require_equal("dtype of linear", torch.nn.functional.linear(x, x).dtype, dtype)
            found = torch.nn.functional.conv2d(image, torch.ones(1, 2, 3, 3, device=backend.device))
            require_equal("dtype of conv2d", found.dtype, dtype)
        require_equal("dtype of mm after the region", (x @ x).dtype, torch.float32)


@row(
    "autocast",
    "float32",
    requires="exponentials, norms and losses run in float32",
    implement=KERNELS,
    without="float16 overflows silently",
    shown_by=FILE,
)
def float32(backend: Backend) -> None:
    for dtype in lower_types(backend):
        x = torch.ones(4, 4, device=backend.device, dtype=dtype)
        with torch.autocast(backend.type, dtype=dtype):
            for name, found in {
                "exp": x.exp(),
                "softmax": x.softmax(0),
                "sum": x.sum(),
                "layer_norm": torch.nn.functional.layer_norm(x, (4,)),
                "mse_loss": torch.nn.functional.mse_loss(x, x),
            }.items():
                require_equal(f"dtype of {name} for a {dtype} input", found.dtype, torch.float32)


@row(
    "autocast",
    "widest",
    requires="operators that take several tensors run in their widest dtype",
    implement=KERNELS,
    without="an error such as 'expected scalar type Half but found Float'",
    shown_by=FILE,
)
def widest(backend: Backend) -> None:
    for dtype in lower_types(backend):
        x = torch.ones(4, device=backend.device)
        y = x.to(dtype)
        with torch.autocast(backend.type, dtype=dtype):
            require_equal("dtype of cat", torch.cat([x, y]).dtype, torch.float32)
            require_equal("dtype of addcmul", torch.addcmul(x, y, y).dtype, torch.float32)


@row(
    "autocast",
    "lists",
    requires="every operator in torch's autocast lists for devices has an autocast kernel",
    implement=KERNELS,
    without="some operators run in a dtype that loses precision",
    shown_by=FILE,
)
def lists(backend: Backend) -> None:
    key = "Autocast" + ("PrivateUse1" if is_private(backend) else backend.type.upper())
    absent = [
        name
        for name in autocast_policies.lists()
        if not torch._C._dispatch_has_kernel_for_dispatch_key(name, key)
    ]
    if absent:
        missing(
            f"{len(absent)} operators in torch's lists have no {key} kernel: "
            f"{', '.join(absent[:12])}{', ...' if len(absent) > 12 else ''}"
        )


def is_private(backend: Backend) -> bool:
    """Returns whether the subject is the out-of-tree device with the dispatch key PrivateUse1."""
    return backend.type == torch._C._get_privateuse1_backend_name()


@row(
    "autocast",
    "gradients",
    requires="gradients computed through a region have the same dtype as their parameters",
    implement="casts that autograd records",
    without="gradients and parameters have different dtypes in the optimizer",
    shown_by=FILE,
)
def gradients(backend: Backend) -> None:
    for dtype in lower_types(backend):
        w = torch.ones(3, 3, device=backend.device, requires_grad=True)
        with torch.autocast(backend.type, dtype=dtype):
            loss = (w @ w).float().sum()
        loss.backward()
        grad: Tensor | None = w.grad
        assert grad is not None
        require_equal("dtype of the gradient", grad.dtype, torch.float32)
        require_equal("gradient", grad, torch.full((3, 3), 6.0))


@row(
    "autocast",
    "grad_scaler",
    requires="GradScaler scales the loss; if gradients are infinite, it skips the step and lowers "
    "the scale",
    implement="aten::_amp_foreach_non_finite_check_and_unscale_, _amp_update_scale_",
    without="float16 training diverges at the first overflow",
    shown_by="aten/kernels",
)
def grad_scaler(backend: Backend) -> None:
    w = torch.ones(3, device=backend.device, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=1.0)
    scaler = torch.amp.GradScaler(backend.type, init_scale=1024.0, growth_interval=1)

    def step(factor: float) -> None:
        optimizer.zero_grad()
        scaler.scale((w * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    step(0.5)
    require_equal("parameters after finite gradients", w, torch.full((3,), 0.5))
    require_equal("scale after finite gradients", scaler.get_scale(), 2048.0)
    step(float("inf"))
    require_equal("parameters after an infinite gradient", w, torch.full((3,), 0.5))
    require_equal("scale after an infinite gradient", scaler.get_scale(), 1024.0)
