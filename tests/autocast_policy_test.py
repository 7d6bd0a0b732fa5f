# SPDX-License-Identifier: BSD-3-Clause
"""Tests the casts and the results of all operators in torch's autocast lists.

Most arguments are those of torch's CUDA tests. more_calls() adds the calls that are not in them.
"""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from torch.testing._internal.autocast_test_lists import AutocastTestLists
from torch.utils._pytree import tree_map_only
from torch_device_conformance.mode import autocast_policies as policies
from torch_device_conformance.mode.autocast_policies import Casts

DEVICE = "openreg"

# Autocast casts the arguments of this operator, but only CUDA has a kernel for it.
WITHOUT_KERNEL = "aten::_scaled_dot_product_flash_attention"
NAMES = sorted(set(policies.lists()) - {WITHOUT_KERNEL})

# The CPU has no kernels for these operators, so it cannot compute their expected results.
WITHOUT_CPU_KERNEL = {"aten::_thnn_fused_gru_cell", "aten::_thnn_fused_lstm_cell"}

# These operators promote their arguments even outside an autocast region.
PROMOTING = {"aten::addcdiv", "aten::addcmul", "aten::atan2"}

Call = tuple[tuple[Any, ...], dict[str, Any]]


def half(*shape: int) -> Tensor:
    """Returns random float16 tensors. on() converts them to the region's dtype."""
    return torch.randn(shape).half()


def more_calls() -> dict[str, Call]:
    """Returns calls to operators that torch's own tests omit or call through Python functions."""
    gates, state = torch.randn(2, 12), torch.randn(2, 3)
    query = torch.randn(2, 2, 4, 8)
    matrices = [torch.randn(4, 4) for _ in range(3)]
    image1, image2, image3 = half(1, 2, 4), half(1, 2, 4, 4), half(1, 2, 4, 4, 4)
    return {
        "_scaled_dot_product_flash_attention": ((query, query, query), {}),
        "_thnn_fused_gru_cell": ((gates[:, :9], gates[:, 3:], state), {}),
        "_thnn_fused_lstm_cell": ((gates, gates, state), {}),
        "_upsample_bicubic2d_aa": ((image2, [6, 6], False), {}),
        "_upsample_bilinear2d_aa": ((image2, [6, 6], False), {}),
        "_upsample_nearest_exact1d": ((image1, [6]), {}),
        "_upsample_nearest_exact2d": ((image2, [6, 6]), {}),
        "_upsample_nearest_exact3d": ((image3, [6, 6, 6]), {}),
        "chain_matmul": ((matrices,), {}),
        "einsum": (("ij,jk->ik", matrices[:2]), {}),
        "frobenius_norm.dim": ((half(4, 4), [0, 1]), {}),
        "huber_loss": ((half(4), half(4)), {}),
        "linalg_matrix_norm": ((half(4, 4), 1), {}),
        "linalg_matrix_norm.str_ord": ((half(4, 4), "fro"), {}),
        "linalg_vector_norm": ((half(4),), {}),
        "native_layer_norm": ((half(2, 4), [4], half(4), half(4), 1e-5), {}),
        "nll_loss": ((half(4, 4), torch.arange(4)), {}),
        "norm.Scalar": ((half(4), 3), {}),
        "norm.ScalarOpt_dim": ((half(4, 4), 2, [0]), {}),
        "nuclear_norm": ((half(4, 4),), {}),
        "nuclear_norm.dim": ((half(4, 4), [0, 1]), {}),
        "pow.Scalar": ((2.0, half(4)), {}),
        "prod.dim_int": ((half(4, 4), 1), {}),
        "scaled_dot_product_attention": ((query, query, query), {}),
        "sum.dim_IntList": ((half(4, 4), [1]), {}),
        "tensordot": ((matrices[0], half(4, 4), [1], [0]), {}),
        "upsample_bicubic2d": ((image2, [6, 6], False), {}),
        "upsample_bilinear2d": ((image2, [6, 6], False), {}),
        "upsample_linear1d": ((image1, [6], False), {}),
        "upsample_nearest1d": ((image1, [6]), {}),
        "upsample_nearest2d": ((image2, [6, 6]), {}),
        "upsample_nearest3d": ((image3, [6, 6, 6]), {}),
        "upsample_trilinear3d": ((image3, [6, 6, 6], False), {}),
    }


def all_calls() -> dict[str, Call]:
    """Returns one call to each operator with CPU tensors. float16 stands for the region's dtype."""
    torch.manual_seed(0)
    calls = {f"aten::{name}": call for name, call in more_calls().items()}
    lists = AutocastTestLists("cpu")
    kinds = "torch_fp16", "torch_fp32", "torch_need_autocast_promote", "nn_fp16", "nn_fp32"
    for kind in (*kinds, "linalg_fp16"):
        for name, *rest in getattr(lists, kind):
            arguments, more = rest[0], rest[1] if len(rest) > 1 else {}
            if name.startswith("cudnn") or f"aten::{name}" in calls:
                continue
            try:
                overload = torch._C._jit_resolve_packet(f"aten::{name}", *arguments, **more)
            except RuntimeError:  # a Python function; more_calls() calls the operator itself
                continue
            whole = f"aten::{name}.{overload}" if overload != "default" else f"aten::{name}"
            calls.setdefault(whole.removesuffix("."), (arguments, more))
    return calls


CALLS = all_calls()


def on(device: str, lower: torch.dtype, call: Call) -> Call:
    """Moves a call's tensors to a device, and converts its float16 tensors to the dtype `lower`."""

    def move(x: Tensor) -> Tensor:
        return x.to(device, lower if x.dtype == torch.float16 else x.dtype)

    moved: Call = tree_map_only(Tensor, move, call)
    return moved


def test_every_listed_operator_has_a_call() -> None:
    registered = set(torch._C._dispatch_get_registrations_for_dispatch_key("AutocastPrivateUse1"))
    others = {"aten::binary_cross_entropy", "openreg::custom_abs"}
    assert registered - others == set(policies.lists())
    assert set(CALLS) == set(policies.lists())


@pytest.mark.parametrize("lower", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_operator_follows_its_list(name: str, lower: torch.dtype) -> None:
    args, kwargs = on(DEVICE, lower, CALLS[name])
    with torch.autocast(DEVICE, dtype=lower):
        found = policies.overload(name)(*args, **kwargs)
    assert_close(found, policies.call(name, Casts(DEVICE, lower), *args, **kwargs), rtol=0, atol=0)
    if name in WITHOUT_CPU_KERNEL:
        return
    args, kwargs = on("cpu", lower, CALLS[name])
    expected = policies.call(name, Casts("cpu", lower), *args, **kwargs)
    assert_close(tree_map_only(Tensor, Tensor.cpu, found), expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("lower", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", sorted(set(NAMES) - PROMOTING))
def test_a_cast_makes_a_difference(name: str, lower: torch.dtype) -> None:
    # Without autocast, the call must fail, or its result must differ in dtype or value. Otherwise
    # the test above cannot detect a missing cast.
    args, kwargs = on(DEVICE, lower, CALLS[name])
    with torch.autocast(DEVICE, dtype=lower):
        found = policies.overload(name)(*args, **kwargs)
    try:
        plain = policies.overload(name)(*args, **kwargs)
        torch.openreg.synchronize()
    except RuntimeError:
        return
    with pytest.raises(AssertionError):
        assert_close(found, plain, rtol=0, atol=0)


def test_operator_without_a_kernel_is_refused() -> None:
    args, kwargs = on(DEVICE, torch.float16, CALLS[WITHOUT_KERNEL])
    with torch.autocast(DEVICE), pytest.raises(NotImplementedError, match="Could not run"):
        policies.overload(WITHOUT_KERNEL)(*args, **kwargs)
    assert torch.ones(1, device=DEVICE).item() == 1
