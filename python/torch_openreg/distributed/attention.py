# SPDX-License-Identifier: BSD-3-Clause
"""Attention of DTensors: how it is sharded, and ring attention for context parallelism.

``F.scaled_dot_product_attention`` is ``_scaled_dot_product_fused_attention_overrideable`` on this
device. torch knows how to shard the attention operators of CUDA, not this one.

For torch 2.13: this file is the only one that uses private names of ``torch.distributed.tensor``.

- ``DTensor._op_dispatcher.sharding_propagator.register_op_strategy``, ``_op_schema``,
  ``_dtensor_spec`` and ``_ops.utils.expand_to_full_mesh_op_strategy``. The public
  ``register_sharding`` cannot refuse a combination of placements over several mesh dimensions, and
  its import imports more of torch, which import_hook.py does not allow.
- ``experimental._context_parallel._attention``: ``custom_ops``, the handlers which
  ``context_parallel`` installs; ``_templated_ring_attention`` and its ``_backward``. torch's own
  handler has its table of operators inside a function (``_sdpa_handler``).

Not imported before torch.distributed.tensor is: registration.py sees to that.
"""

import math
from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import (
    OpSchema,
    OpStrategy,
    PlacementList,
    RuntimeSchemaInfo,
)
from torch.distributed.tensor._ops.utils import expand_to_full_mesh_op_strategy

__all__ = ["register_ring", "register_sharding"]

if not torch.__version__.startswith("2.13."):
    raise ImportError("private names of torch may have changed")

_FORWARD = torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default
_BACKWARD = torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward.default

# Dimensions of queries, keys, values and the output; the first three of the logsumexp, too.
_BATCH, _HEADS, _SEQUENCE = 0, 1, 2

# Of one mesh dimension. Rows of the batch do not depend on each other, and neither do heads.
_PLACEMENTS: tuple[Placement, ...] = (Replicate(), Shard(_HEADS), Shard(_BATCH))


# ------------------------------------------------------------------------------------ sharding


def register_sharding() -> None:
    """Let DTensor shard the operator and its gradient by batch and by heads."""
    propagator = DTensor._op_dispatcher.sharding_propagator
    propagator.register_op_strategy(_FORWARD, _shard_forward, RuntimeSchemaInfo())
    # It takes a list, grad_input_mask, and its strategy depends on is_causal.
    info = RuntimeSchemaInfo(static_argnum=12, needs_pytree=True)
    propagator.register_op_strategy(_BACKWARD, _shard_backward, info)


def _shard_forward(schema: OpSchema) -> OpStrategy:
    query, key, _, *rest = schema.args_schema
    bias = rest[0] if rest else None
    choices: list[PlacementList] = []
    for place in _PLACEMENTS:
        # output, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, seed, offset, debug_attn_mask
        outputs: PlacementList = [place, place, *[None] * 7]
        choices.append([*outputs, place, place, place, *_place_bias(bias, place)])
    return _expand(schema, choices, 9, query, key, first=0)


def _shard_backward(schema: OpSchema) -> OpStrategy:
    _, query, key, _, bias, _, output, _, *rest = schema.args_schema
    is_causal = rest[5]
    assert isinstance(output, OpStrategy)
    if is_causal and Shard(_SEQUENCE) in output.strategies[0].output_spec.placements:
        # No strategy gives such an output. Load balancing may have changed the order of tokens.
        raise RuntimeError(
            "openreg: the gradient of causal ring attention was asked for outside of "
            "context_parallel: call backward() inside"
        )
    # Seed and offset: scalars.
    scalars = [Replicate() for arg in rest if isinstance(arg, OpStrategy)]
    choices: list[PlacementList] = []
    for place in _PLACEMENTS:
        biases = _place_bias(bias, place)
        grad_bias: Placement | None = biases[0] if biases else None
        if isinstance(place, Shard) and isinstance(grad_bias, Replicate):
            grad_bias = Partial()  # each rank has what comes from its rows or heads
        outputs: PlacementList = [place, place, place, grad_bias]
        # grad_out, query, key, value, attn_bias, out, logsumexp
        inputs: PlacementList = [place, place, place, place, *biases, place, place, *scalars]
        choices.append([*outputs, *inputs])
    return _expand(schema, choices, 4, query, key, first=1)


def _place_bias(bias: object, place: Placement) -> list[Placement]:
    """Return the placement of the bias, if there is one, beside queries at ``place``."""
    if not isinstance(bias, OpStrategy):
        return []
    if isinstance(place, Shard) and (bias.ndim < 4 or bias.shape[place.dim] == 1):
        return [Replicate()]  # the same for the whole batch, or for all heads
    return [place]


def _expand(
    schema: OpSchema,
    choices: list[PlacementList],
    outputs: int,
    query: Any,
    key: Any,
    *,
    first: int,
) -> OpStrategy:
    """Combine the choices for one mesh dimension to those for all.

    Args:
        schema: of the call.
        choices: for one mesh dimension: placements of the outputs, then of the tensors passed in.
        outputs: how many outputs there are.
        query: the OpStrategy of queries.
        key: the OpStrategy of keys.
        first: which of the tensors passed in is the query; the key is the next.
    """
    mesh = schema.get_mesh_from_args()
    query_heads, key_heads = query.shape[_HEADS], key.shape[_HEADS]

    def pairs_heads(inputs: list[DTensorSpec], _: object) -> bool:
        """Tell whether each rank has the keys of its queries, which several heads may share."""
        parts = _count_parts(mesh, inputs[first + 1].placements)
        return bool(query_heads == key_heads or key_heads % parts == 0)

    return expand_to_full_mesh_op_strategy(
        mesh, schema, choices, input_index=outputs, is_valid_strategy_cb=pairs_heads
    )


def _count_parts(mesh: DeviceMesh, placements: Sequence[Placement]) -> int:
    """Return in how many parts heads are split."""
    return math.prod(
        mesh.size(dim) for dim, place in enumerate(placements) if place == Shard(_HEADS)
    )


# --------------------------------------------------------------------------- ring attention


def register_ring(context_parallel: ModuleType) -> None:
    """Let ``context_parallel`` run the operator and its gradient as ring attention.

    Args:
        context_parallel: torch's module of it.
    """
    context_parallel.custom_ops[_FORWARD] = partial(
        _handle, partial(_ring_forward, context_parallel._templated_ring_attention)
    )
    context_parallel.custom_ops[_BACKWARD] = partial(
        _handle, partial(_ring_backward, context_parallel._templated_ring_attention_backward)
    )


def _handle(ring: Any, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a ring in place of the operator, as a handler of DTensor's dispatcher does."""
    with torch.no_grad():  # autograd is above the dispatcher
        return ring(*args, **kwargs)


def _ring_forward(
    ring: Any,
    query: DTensor,
    key: DTensor,
    value: DTensor,
    attn_bias: object = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    mesh, placements = _require_sequence(query, key, value, attn_bias)
    output, logsumexp, *rest = ring(
        mesh.get_group(),
        _SEQUENCE,
        _FORWARD,
        query=query.to_local(),
        key=key.to_local(),
        value=value.to_local(),
        is_causal=is_causal,
        dropout_p=dropout_p,
        return_debug_mask=return_debug_mask,
        scale=scale,
    )
    return *_spread(mesh, placements, output, logsumexp), *rest


def _ring_backward(
    ring: Any,
    grad_out: DTensor,
    query: DTensor,
    key: DTensor,
    value: DTensor,
    attn_bias: object,
    grad_input_mask: list[bool],
    out: DTensor,
    logsumexp: DTensor,
    *rest: Any,
    scale: float | None = None,
) -> tuple[Any, ...]:
    mesh, placements = _require_sequence(query, key, value, attn_bias)
    cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, seed, offset = rest
    grads = ring(
        mesh.get_group(),
        _SEQUENCE,
        _BACKWARD,
        grad_out=grad_out.redistribute(mesh, placements).to_local(),
        grad_out_name="grad_out",
        query=query.to_local(),
        key=key.to_local(),
        value=value.to_local(),
        out=out.to_local(),
        logsumexp=logsumexp.to_local(),
        is_causal=is_causal,
        attn_bias=None,
        grad_input_mask=grad_input_mask,
        cum_seq_q=cum_seq_q,
        cum_seq_k=cum_seq_k,
        max_q=max_q,
        max_k=max_k,
        dropout_p=dropout_p,
        philox_seed=seed,
        philox_offset=offset,
        scale=scale,
    )
    return *_spread(mesh, placements, *grads[:3]), None


def _require_sequence(
    query: DTensor, key: DTensor, value: DTensor, attn_bias: object
) -> tuple[DeviceMesh, Sequence[Placement]]:
    """Return mesh and placements of tensors whose sequence is shared out evenly.

    Raises:
        NotImplementedError: there is a bias, or the tensors are placed in another way.
    """
    if attn_bias is not None:
        raise NotImplementedError(
            "openreg: context parallelism takes no attn_mask: use is_causal, or attend outside of "
            "context_parallel"
        )
    mesh = query.device_mesh
    wanted = (Shard(_SEQUENCE),)
    for tensor in (query, key, value):
        if tensor.placements != wanted or tensor.size(_SEQUENCE) % mesh.size() != 0:
            raise NotImplementedError(
                "openreg: context parallelism takes query, key and value with sequences (dimension "
                f"{_SEQUENCE}) in equal parts on a mesh of one dimension, but got shape "
                f"{tuple(tensor.shape)} as {tensor.placements} on {mesh}: attend to such tensors "
                "outside of context_parallel"
            )
    return mesh, wanted


def _spread(
    mesh: DeviceMesh, placements: Sequence[Placement], *parts: torch.Tensor
) -> list[DTensor]:
    return [DTensor.from_local(part, mesh, placements, run_check=False) for part in parts]
