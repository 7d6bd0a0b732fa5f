# SPDX-License-Identifier: BSD-3-Clause
"""torch selects the expected implementation of attention, and each one matches the CPU."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.differential import assert_same, check, check_error, is_queued, to_device

aten = torch.ops.aten

LAYOUTS = ["heads first", "tokens first", "sliced", "expanded"]


def _heads(sizes: tuple[int, int, int, int], dtype: torch.dtype, layout: str) -> Tensor:
    """Returns a random tensor of shape (batch, heads, tokens, width) in one of LAYOUTS."""
    batch, heads, tokens, width = sizes
    if layout == "tokens first":
        tensor = torch.randn(batch, tokens, heads, width).to(dtype).transpose(1, 2)
    elif layout == "sliced":
        tensor = torch.randn(batch, heads, tokens, 3 * width).to(dtype)[..., width : 2 * width]
    elif layout == "expanded":
        tensor = torch.randn(1, heads, tokens, width).to(dtype).expand(sizes)
    else:
        tensor = torch.randn(sizes).to(dtype)
    return tensor.requires_grad_()


def _mask(kind: str, q: tuple[int, ...], keys: int, dtype: torch.dtype) -> Tensor | None:
    batch, heads, queries, _ = q
    match kind:
        case "bool":
            mask = torch.rand(queries, keys) > 0.3
            mask[:, 0] = True
            return mask
        case "added":
            return torch.randn(batch, 1, queries, keys).to(dtype)
        case "row":
            return torch.randn(batch, heads, 1, keys).to(dtype)
        case "with gradient":
            return torch.randn(queries, keys).to(dtype).requires_grad_()
        case _:
            return None


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.tuples(*[st.integers(1, 3)] * 2, st.integers(1, 9), st.integers(1, 12)),
    keys=st.integers(1, 9),
    groups=st.integers(1, 2),
    causal=st.booleans(),
    kind=st.sampled_from(["none", "bool", "added", "row", "with gradient"]),
    scale=st.sampled_from([None, 0.5]),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16]),
    layouts=st.tuples(*[st.sampled_from(LAYOUTS)] * 3),
)
def test_shapes_masks_layouts(
    sizes: tuple[int, int, int, int],
    keys: int,
    groups: int,
    causal: bool,
    kind: str,
    scale: float | None,
    dtype: torch.dtype,
    layouts: tuple[str, str, str],
) -> None:
    torch.manual_seed(0)
    batch, heads, tokens, width = sizes
    queries = (batch, heads * groups, tokens, width)
    tensors: list[Any] = [
        _heads(queries, dtype, layouts[0]),
        _heads((batch, heads, keys, width), dtype, layouts[1]),
        _heads((batch, heads, keys, width), dtype, layouts[2]),
        None if causal else _mask(kind, queries, keys, dtype),
    ]

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return functional.scaled_dot_product_attention(
            q, k, v, mask, is_causal=causal, scale=scale, enable_gqa=groups > 1
        )

    check(attend, *tensors, strides=False)
    check(attend, *tensors, backward=False)


def _choice(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> int:
    return torch._fused_sdp_choice(q, k, v, **options)


def test_the_fused_kernel_is_selected_like_that_of_the_cpu() -> None:
    q = torch.randn(2, 4, 6, 8, device="openreg")
    kv = torch.randn(2, 2, 5, 8, device="openreg")
    mask = torch.zeros(6, 6, device="openreg")
    fused, math = SDPBackend.OVERRIDEABLE.value, SDPBackend.MATH.value
    assert _choice(q, q, q) == fused
    assert _choice(q, q, q, attn_mask=mask) == fused
    assert _choice(q, q, q, is_causal=True) == fused
    assert _choice(q, kv, kv, enable_gqa=True) == fused
    assert _choice(q, q, q, dropout_p=0.5) == math
    assert _choice(q, q, q, attn_mask=mask.requires_grad_()) == math
    assert _choice(q, q, q[..., :4]) == math
    assert _choice(q[0], q[0], q[0]) == math
    assert _choice(q, q[:, :, :0], q[:, :, :0]) == math
    with sdpa_kernel(SDPBackend.MATH):
        assert _choice(q, q, q) == math


def test_training_selects_the_fused_kernel() -> None:
    q = torch.randn(2, 4, 6, 8, device="openreg", requires_grad=True)
    out = functional.scaled_dot_product_attention(q, q, q)
    assert "Overrideable" in type(out.grad_fn).__name__


def test_the_fused_kernel_is_the_cpus() -> None:
    """The device calls the CPU's kernel, so the output and the logsumexp equal the CPU's."""
    tensors = [torch.randn(2, 4, 40, 16) for _ in range(3)]
    mask = torch.randn(40, 40)
    out, logsumexp = aten._scaled_dot_product_flash_attention_for_cpu(*tensors, attn_mask=mask)
    ours = [to_device(t) for t in tensors]
    result = aten._scaled_dot_product_fused_attention_overrideable(*ours, to_device(mask))
    # torch's fake logsumexp is contiguous on every device, but the CPU's real one is not.
    assert_same([result[0], result[1]], [out, logsumexp.contiguous()])
    assert torch.equal(result[0].cpu(), out)


def test_math_is_right_with_dropout() -> None:
    torch.manual_seed(3)
    q = torch.randn(2, 2, 64, 8, device="openreg", requires_grad=True)
    value = torch.ones(2, 2, 64, 8, device="openreg")
    out = functional.scaled_dot_product_attention(q, q, value, dropout_p=0.25)
    out.sum().backward()
    assert q.grad is not None
    assert bool(q.grad.isfinite().all())
    assert abs(float(out.mean()) - 1.0) < 0.1  # the kept elements are scaled up
    assert float(out.std()) > 0.01


def test_multi_head_attention_trains_like_the_cpu() -> None:
    torch.manual_seed(0)
    theirs = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    ours = torch.nn.MultiheadAttention(16, 4, batch_first=True, device="openreg")
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 5, 16)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    expected, weights = theirs(x, x, x, key_padding_mask=padding)
    moved = x.to("openreg")
    actual, our_weights = ours(moved, moved, moved, key_padding_mask=padding.to("openreg"))
    assert_same([actual, our_weights], [expected, weights], exact_strides=False)
    expected.square().sum().backward()
    actual.square().sum().backward()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_same(mine.grad, other.grad)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_the_encoder_layer_for_inference(activation: str, norm_first: bool) -> None:
    torch.manual_seed(0)
    options: dict[str, Any] = {
        "batch_first": True,
        "activation": activation,
        "norm_first": norm_first,
    }
    theirs = torch.nn.TransformerEncoderLayer(16, 4, 32, **options).eval()
    ours = torch.nn.TransformerEncoderLayer(16, 4, 32, device="openreg", **options).eval()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 5, 16)
    with torch.inference_mode():
        assert_same(ours(x.to("openreg")), theirs(x))


@pytest.mark.parametrize("average", [False, True])
def test_multi_head_attention_for_inference(average: bool) -> None:
    torch.manual_seed(0)
    theirs = torch.nn.MultiheadAttention(16, 4, batch_first=True).eval()
    ours = torch.nn.MultiheadAttention(16, 4, batch_first=True, device="openreg").eval()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 5, 16)
    moved = x.to("openreg")
    with torch.inference_mode():
        expected = theirs(x, x, x, average_attn_weights=average)
        assert_same(ours(moved, moved, moved, average_attn_weights=average), expected)


def test_errors_are_those_of_the_cpu_at_the_call() -> None:
    q, k = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 5, 8)
    attend = functional.scaled_dot_product_attention
    check_error(attend, q, k.double(), k)
    check_error(attend, q, k[..., :4], k)
    check_error(lambda q, k: attend(q, k, k, torch.zeros(3), is_causal=True), q, k)
    check_error(attend, q, k, k, torch.zeros(4, 5, dtype=torch.int64), words="mask")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("sizes", [(5, 7), (2, 4, 5, 7), (2, 1, 5, 7), (1, 4, 1, 7)])
def test_the_mask_has_a_gradient(sizes: tuple[int, ...], dtype: torch.dtype, causal: bool) -> None:
    torch.manual_seed(0)
    q = torch.randn(2, 4, 5, 8, dtype=dtype)
    k, v = (torch.randn(2, 2, 7, 8, dtype=dtype) for _ in range(2))
    mask = torch.randn(sizes, dtype=dtype)
    mask[..., 2] = -torch.inf
    if len(sizes) == 4 and sizes[2] == 5:
        mask[0, 0, 3] = -torch.inf  # masks all keys of this row
    expected = [t.clone().requires_grad_() for t in (q, k, v, mask)]
    actual = [to_device(t.requires_grad_()) for t in (q, k, v, mask)]
    out = aten._scaled_dot_product_fused_attention_overrideable(
        *actual, is_causal=causal, scale=0.3
    )[0]
    lower = torch.ones(5, 7, dtype=torch.bool).tril() if causal else torch.ones(5, 7) > 0
    theirs = functional.scaled_dot_product_attention(
        expected[0],
        expected[1],
        expected[2],
        expected[3].masked_fill(~lower, -torch.inf),
        scale=0.3,
        enable_gqa=True,
    )
    grad = torch.randn_like(theirs)
    out.backward(to_device(grad))
    theirs.backward(grad)
    assert_same([t.grad for t in actual], [t.grad for t in expected], exact_strides=False)


def test_a_backward_without_gradient_has_none() -> None:
    q = torch.randn(1, 1, 4, 8, device="openreg", requires_grad=True)
    mask = torch.zeros(4, 4, device="openreg", requires_grad=True)
    out = aten._scaled_dot_product_fused_attention_overrideable(q, q, q, mask)[0]
    undefined: Any = torch._C._functions.UndefinedGrad()
    gradients = torch.autograd.grad(undefined(out).sum(), [q, mask], allow_unused=True)
    assert set(gradients) == {None}
    assert torch.autograd.gradcheck(
        functional.scaled_dot_product_attention, [q.detach().double().requires_grad_()] * 3
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_fakes_have_the_types_and_strides_of_real_results(dtype: torch.dtype) -> None:
    # Compiled code relies on the metadata of the fake tensors, for example the dtype of the
    # logsumexp.
    q = torch.randn(2, 4, 5, 8, dtype=dtype, device="openreg").transpose(1, 2).contiguous()
    arguments = [q.transpose(1, 2), q.transpose(1, 2), q.transpose(1, 2), q.new_zeros(5, 5)]
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(tensor) for tensor in arguments]
        faked = aten._scaled_dot_product_fused_attention_overrideable(*fakes, is_causal=True)
    real = aten._scaled_dot_product_fused_attention_overrideable(*arguments, is_causal=True)
    for ours, theirs in zip(faked, real, strict=True):
        if isinstance(theirs, Tensor):
            assert ours.dtype == theirs.dtype
            assert ours.shape == theirs.shape
            assert ours.stride() == theirs.stride()
            assert ours.device == theirs.device
        else:
            assert ours == theirs


def test_does_not_wait() -> None:
    q = torch.randn(2, 2, 16, 8)
    assert is_queued(functional.scaled_dot_product_attention, q, q, q)
