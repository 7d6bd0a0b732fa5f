# SPDX-License-Identifier: BSD-3-Clause
"""Checks that a graph is well-formed and was traced for the inputs that it receives."""

from collections.abc import Sequence
from typing import Any

import torch
from openreg_graph import log
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, is_fake

from torch_openreg_compile.name import DEVICE_TYPE

# The device types that a graph's tensors may have: openreg, "cpu" for operands and results on the
# host, and "meta" for tensors without data.
_LEGAL_DEVICE_TYPES = (DEVICE_TYPE, "cpu", "meta")


class GraphError(RuntimeError):
    """Raised if a graph is rejected. The message names the node and the cause."""


def _describe(node: fx.Node) -> str:
    """Describe a placeholder by its name and the source of its value in the program."""
    source = getattr(node, "_dynamo_source", None)
    return f"placeholder '{node.name}'" + (f" ({source.name})" if source is not None else "")


def _fake_tensor(node: fx.Node) -> torch.Tensor | None:
    """Return a node's traced value, which torch._dynamo and make_fx store under different keys."""
    for key in ("example_value", "val"):
        value = node.meta.get(key)
        if isinstance(value, torch.Tensor) and is_fake(value):
            return value
    return None


def lint(gm: fx.GraphModule) -> None:
    """Check that a graph and its subgraphs are well-formed.

    Raises:
        GraphError: if the graph or a subgraph is not well-formed.
    """
    for name, module in gm.named_modules():
        if not isinstance(module, fx.GraphModule):
            continue
        try:
            module.graph.lint()
        except (RuntimeError, ValueError) as error:
            where = f" '{name}'" if name else ""
            raise GraphError(f"openreg: graph{where} is malformed: {error}") from error


def check_placeholders(gm: fx.GraphModule, inputs: Sequence[Any]) -> None:
    """Check that each input is on the device that its placeholder was traced with.

    Args:
        gm: a graph whose placeholders are in the order of the inputs.
        inputs: tensors, real or fake, of any shape and dtype; other values are not checked.

    Raises:
        GraphError: if the number of inputs differs, or if a tensor is on a device other than the
            traced one, on an unsupported device, or on openreg without having been traced.
    """
    placeholders = gm.graph.find_nodes(op="placeholder")
    if len(placeholders) != len(inputs):
        raise GraphError(
            f"openreg: the graph has {len(placeholders)} placeholders, but {len(inputs)} inputs "
            "were passed: pass one value for each placeholder"
        )
    for node, value in zip(placeholders, inputs, strict=True):
        if isinstance(value, torch.Tensor):
            _check_placeholder(node, value)


def _check_placeholder(node: fx.Node, value: torch.Tensor) -> None:
    device = value.device
    if device.type not in _LEGAL_DEVICE_TYPES:
        raise GraphError(
            f"openreg: {_describe(node)}: the input is on {device}, but this backend supports "
            "only tensors on openreg and on the CPU: move the input, or choose another backend"
        )
    fake = _fake_tensor(node)
    if fake is None and isinstance(value, FakeTensor):
        fake = value
    if fake is None:
        if device.type == DEVICE_TYPE:
            raise GraphError(
                f"openreg: {_describe(node)}: the input is on {device} and has no FakeTensor, so "
                "the traced device is unknown: trace with FakeTensors (as torch.compile does), or "
                "set node.meta['example_value']"
            )
    elif fake.device != device:
        raise GraphError(
            f"openreg: {_describe(node)}: it was traced on {fake.device}, but the input is on "
            f"{device}: pass a tensor on the traced device, or compile again for this device"
        )
    if device.type == "cpu":
        log.debug("%s is on the CPU", _describe(node))


def validate(gm: fx.GraphModule, inputs: Sequence[Any]) -> None:
    """Check a graph and its inputs.

    Raises:
        GraphError: if a check fails; the message names the node and the cause.
    """
    lint(gm)
    check_placeholders(gm, inputs)
