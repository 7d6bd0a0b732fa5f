# SPDX-License-Identifier: BSD-3-Clause
"""Sharding of attention for DTensor, and ring attention for context parallelism.

On this device ``F.scaled_dot_product_attention`` calls
``_scaled_dot_product_fused_attention_overrideable``. torch has sharding rules for the attention
operators of CUDA, but none for this operator.

This file uses private names of torch's DTensor, so it supports only torch 2.13. The names are:

- ``DTensor._op_dispatcher.sharding_propagator.register_op_strategy``, ``_op_schema``,
  ``_dtensor_spec`` and ``_ops.utils.expand_to_full_mesh_op_strategy``. The public
  ``register_sharding`` cannot reject a combination of placements over several mesh dimensions, and
  importing it imports further modules of torch, which import_hook.py forbids.
- ``experimental._context_parallel._attention``: ``custom_ops``, the handlers that
  ``context_parallel`` installs; ``_templated_ring_attention`` and its ``_backward``. torch's own
  handler cannot be extended: its table of operators is local to a function (``_sdpa_handler``).

registration.py imports this module only after torch.distributed.tensor.
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

# Dimension indices of queries, keys, values, outputs and logsumexp.
_BATCH, _HEADS, _SEQUENCE = 0, 1, 2

# Placements on one mesh dimension. Rows of the batch, and heads, can be computed independently.
_PLACEMENTS: tuple[Placement, ...] = (Replicate(), Shard(_HEADS), Shard(_BATCH))


# ------------------------------------------------------------------------------------ sharding


def register_sharding() -> None:
    """Make DTensor shard the operator and its gradient by batch and by heads."""
    propagator = DTensor._op_dispatcher.sharding_propagator
    propagator.register_op_strategy(_FORWARD, _shard_forward, RuntimeSchemaInfo())
    # needs_pytree is set because grad_input_mask is a list. static_argnum is set because the
    # strategy depends on is_causal.
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
        # Only ring attention produces an output like this. Its load balancing may have reordered
        # the tokens.
        raise RuntimeError(
            "openreg: the gradient of causal ring attention was requested outside of "
            "context_parallel: call backward() inside it"
        )
    # The seed and the offset are 0-dim tensors.
    scalars = [Replicate() for arg in rest if isinstance(arg, OpStrategy)]
    choices: list[PlacementList] = []
    for place in _PLACEMENTS:
        biases = _place_bias(bias, place)
        grad_bias: Placement | None = biases[0] if biases else None
        if isinstance(place, Shard) and isinstance(grad_bias, Replicate):
            grad_bias = Partial()  # each rank has the sum over its own rows or heads
        outputs: PlacementList = [place, place, place, grad_bias]
        # grad_out, query, key, value, attn_bias, out, logsumexp
        inputs: PlacementList = [place, place, place, place, *biases, place, place, *scalars]
        choices.append([*outputs, *inputs])
    return _expand(schema, choices, 4, query, key, first=1)


def _place_bias(bias: object, place: Placement) -> list[Placement]:
    """Return [the bias's placement] for queries placed at ``place``, or [] if there is no bias."""
    if not isinstance(bias, OpStrategy):
        return []
    if isinstance(place, Shard) and (bias.ndim < 4 or bias.shape[place.dim] == 1):
        return [Replicate()]  # broadcast over the batch, or over the heads
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
    """Expand the choices for one mesh dimension to all mesh dimensions.

    Args:
        schema: the call.
        choices: for one mesh dimension, lists of placements: first of outputs, then of arguments.
        outputs: the number of outputs.
        query: the OpStrategy of the queries.
        key: the OpStrategy of the keys.
        first: the index of the query among the tensor arguments; the key is the next one.
    """
    mesh = schema.get_mesh_from_args()
    query_heads, key_heads = query.shape[_HEADS], key.shape[_HEADS]

    def pairs_heads(inputs: list[DTensorSpec], _: object) -> bool:
        """Return whether each rank has the keys of its queries. Queries may share key heads."""
        parts = _count_parts(mesh, inputs[first + 1].placements)
        return bool(query_heads == key_heads or key_heads % parts == 0)

    return expand_to_full_mesh_op_strategy(
        mesh, schema, choices, input_index=outputs, is_valid_strategy_cb=pairs_heads
    )


def _count_parts(mesh: DeviceMesh, placements: Sequence[Placement]) -> int:
    """Return the number of parts into which the heads are split."""
    return math.prod(
        mesh.size(dim) for dim, place in enumerate(placements) if place == Shard(_HEADS)
    )


# --------------------------------------------------------------------------- ring attention


def register_ring(context_parallel: ModuleType) -> None:
    """Make ``context_parallel`` run the operator and its gradient as ring attention.

    Args:
        context_parallel: torch's ``_context_parallel._attention`` module.
    """
    context_parallel.custom_ops[_FORWARD] = partial(
        _handle, partial(_ring_forward, context_parallel._templated_ring_attention)
    )
    context_parallel.custom_ops[_BACKWARD] = partial(
        _handle, partial(_ring_backward, context_parallel._templated_ring_attention_backward)
    )


def _handle(ring: Any, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run ring attention instead of the operator. DTensor calls this as a custom handler."""
    with torch.no_grad():  # autograd has already run before DTensor's dispatcher
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
    """Return the mesh and the placements of tensors with an evenly sharded sequence dimension.

    Raises:
        NotImplementedError: if there is a bias, or if the tensors have other placements.
    """
    if attn_bias is not None:
        raise NotImplementedError(
            "openreg: context parallelism does not support attn_mask: use is_causal, or call "
            "attention outside of context_parallel"
        )
    mesh = query.device_mesh
    wanted = (Shard(_SEQUENCE),)
    for tensor in (query, key, value):
        if tensor.placements != wanted or tensor.size(_SEQUENCE) % mesh.size() != 0:
            raise NotImplementedError(
                "openreg: context parallelism requires query, key and value whose sequence "
                f"dimension ({_SEQUENCE}) is split evenly over a one-dimensional mesh, but got "
                f"shape {tuple(tensor.shape)} as {tensor.placements} on {mesh}: call attention for "
                "such tensors outside of context_parallel"
            )
    return mesh, wanted


def _spread(
    mesh: DeviceMesh, placements: Sequence[Placement], *parts: torch.Tensor
) -> list[DTensor]:
    return [DTensor.from_local(part, mesh, placements, run_check=False) for part in parts]
