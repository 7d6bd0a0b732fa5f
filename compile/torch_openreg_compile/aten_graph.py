# SPDX-License-Identifier: BSD-3-Clause
"""Lowers a graph from torch._dynamo to ATen operators, before autograd.

A graph from torch._dynamo contains the calls of the program: ``torch.sigmoid(x)``, ``x.sigmoid()``,
``x * y``. Patterns match operators, because several spellings call the same operator. Therefore
each node that calls a torch function is replaced by the operators that this function calls
directly. Autograd, autocast and functionalization have not run yet. Composite operators (softmax,
layer_norm) are still one node.

Only known functions are replaced, node by node. Other nodes are unchanged: functions of
torch.autograd, branches, and nodes that switch gradients or autocast. AOTAutograd accepts the
lowered graph like the original one.
"""

import operator
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from openreg_graph import log
from torch import fx
from torch._higher_order_ops.wrap import tag_activation_checkpoint
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import traceback
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

# The functions of these modules do nothing except call operators.
_MODULES = ("torch.functional", "torch.nn.functional")
_BUILTIN_MODULES = (
    "_operator",
    "torch._C._nn",
    "torch._C._fft",
    "torch._C._linalg",
    "torch._C._special",
)


# Tensor methods that do not have the name of the operator that they call, and methods that set a
# property of the tensor.
_CASTS = ("bfloat16", "bool", "cpu", "double", "float", "half", "int", "long", "short")
_SETTERS = ("backward", "requires_grad_", "retain_grad", "set_data")


# Functions that switch gradients or autocast. A torch function may call them and restore the
# previous state.
_ENTER_AUTOCAST = torch.amp.autocast_mode._enter_autocast
_EXIT_AUTOCAST = torch.amp.autocast_mode._exit_autocast
_SWITCHES = (torch._C._set_grad_enabled, _ENTER_AUTOCAST, _EXIT_AUTOCAST)


class _StaysAsCaptured(Exception):
    """Raised if nodes cannot be lowered. The message states the reason."""


def _is_function_of_torch(node: fx.Node) -> bool:
    target = node.target
    if isinstance(target, str):
        if node.op != "call_method":
            return False
        return target in _CASTS or (hasattr(torch.ops.aten, target) and target not in _SETTERS)
    if node.op != "call_function":
        return False
    if isinstance(target, BuiltinFunctionType):
        of_torch = getattr(torch._C._VariableFunctions, target.__name__, None) is target
        return of_torch or target.__module__ in _BUILTIN_MODULES
    return isinstance(target, FunctionType) and target.__module__ in _MODULES


def value_of(node: fx.Node) -> Any:
    """Return the value recorded in tracing: a FakeTensor, a number or a container of them."""
    return node.meta["val"] if "val" in node.meta else node.meta.get("example_value")


@contextmanager
def autocast_at(node: fx.Node) -> Iterator[None]:
    """Enter the autocast regions that enclose ``node`` in the graph."""
    opened: list[fx.Node] = []
    if node.graph.find_nodes(op="call_function", target=_ENTER_AUTOCAST):
        for earlier in node.graph.nodes:
            if earlier is node:
                break
            if earlier.target is _ENTER_AUTOCAST:
                opened.append(earlier)
            elif earlier.target is _EXIT_AUTOCAST:
                opened.remove(earlier.args[0])
    with ExitStack() as regions:
        for region in opened:
            regions.enter_context(torch.autocast(*region.args))  # type: ignore[arg-type]
        yield


def _is_traced(value: Any) -> bool:
    """Return whether a value consists of FakeTensors whose shapes do not depend on data."""
    leaves = pytree.tree_leaves(value)
    return all(type(leaf) is FakeTensor for leaf in leaves) and not free_unbacked_symbols(leaves)


def _can_be_lowered(node: fx.Node) -> bool:
    """Return whether a node calls a torch function on tensors and returns only tensors or None."""
    result = value_of(node)
    return (
        _is_function_of_torch(node)
        and bool(node.all_input_nodes)
        and (result is None or _is_traced(result))
        and (
            not isinstance(result, (tuple, list))
            or all(
                user.target is operator.getitem and isinstance(user.args[1], int)
                for user in node.users
            )
        )
    )


def _operators(
    run: Sequence[fx.Node], inputs: Sequence[fx.Node], results: Sequence[fx.Node]
) -> fx.GraphModule:
    """Return a graph of the operators that the nodes call.

    Args:
        run: consecutive nodes.
        inputs: the earlier nodes that ``run`` uses, which become the graph's inputs.
        results: the nodes of ``run`` that other nodes use, which become the graph's outputs.
    """
    values = [value_of(node) for node in inputs]
    if not all(isinstance(v, (torch.SymInt, int, float)) or type(v) is FakeTensor for v in values):
        raise _StaysAsCaptured("an argument is neither a FakeTensor nor a number")
    mode = next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None)
    if mode is None:
        raise _StaysAsCaptured("no argument is a tensor")

    def call(*traced: Any) -> list[Any]:
        known = dict(zip(inputs, traced, strict=True))
        for node in run:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
            with traceback.set_current_meta(node):
                if isinstance(node.target, str):
                    known[node] = getattr(args[0], node.target)(*args[1:], **kwargs)
                else:
                    assert callable(node.target)
                    known[node] = node.target(*args, **kwargs)
        return [known[node] for node in results]

    # Trace with detached copies, because the traced code may write to its arguments.
    with mode, autocast_at(run[0]), torch.no_grad(), traceback.preserve_node_meta():
        copies = [v.detach() if isinstance(v, FakeTensor) else v for v in values]
        lowered: fx.GraphModule = make_fx(call, pre_dispatch=True)(*copies)
    if lowered.graph.find_nodes(op="get_attr"):
        raise _StaysAsCaptured("its trace contains a constant")
    if any(node.target in _SWITCHES for node in lowered.graph.nodes):
        # The code restores the previous state at its end. Tracing would record the tracer's state
        # as the previous state, instead of the program's.
        raise _StaysAsCaptured("it changes the state of autograd or autocast")
    return lowered


def _replace_uses(node: fx.Node, result: Any) -> None:
    """Replace each use of a node with its result, or with the result that the use selects."""
    if isinstance(result, fx.Node):
        node.replace_all_uses_with(result)
        return
    for user in list(node.users):
        user.replace_all_uses_with(result[user.args[1]])
        node.graph.erase_node(user)


def _replace(run: Sequence[fx.Node]) -> None:
    """Replace nodes with the operators that they call.

    Raises:
        _StaysAsCaptured: if the operators cannot be determined; the graph is unchanged.
    """
    inside = set(run)
    used = dict.fromkeys(source for node in run for source in node.all_input_nodes)
    inputs = [node for node in used if node not in inside]
    # An unused node may have side effects. Dead-code removal keeps the node if it is a result.
    results = [
        node
        for node in run
        if (not node.users and value_of(node) is not None)
        or any(user not in inside for user in node.users)
    ]
    lowered = _operators(run, inputs, results)
    graph = run[0].graph
    here: dict[fx.Node, fx.Node] = {}
    sources = iter(inputs)
    with graph.inserting_before(run[0]):
        for node in lowered.graph.nodes:
            if node.op == "placeholder":
                here[node] = next(sources)
            elif node.op == "output":
                for old, new in zip(results, node.args[0], strict=True):
                    _replace_uses(old, fx.node.map_arg(new, here.__getitem__))
            else:
                here[node] = graph.node_copy(node, here.__getitem__)
    for node in reversed(run):
        graph.erase_node(node)
    for node in here.values():
        if node.target is operator.getitem and not node.users:
            graph.erase_node(node)


def _lower_run(run: Sequence[fx.Node]) -> None:
    """Lower consecutive nodes together. If that fails, try to lower each node separately."""
    try:
        _replace(run)
    except _StaysAsCaptured as why:
        if len(run) == 1:
            log.debug("'%s' stays as it was captured: %s", run[0].name, why)
        else:
            for node in run:
                if not node._erased:
                    _lower_run([node])


def _reason_against_lowering(graph: fx.Graph) -> str | None:
    """Return why a graph cannot be lowered, or None if it can be lowered."""
    for node in graph.nodes:
        if "functorch" in (getattr(node.target, "__module__", None) or ""):
            return f"'{node.name}' belongs to a transform of torch.func"
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        packet = getattr(torch.ops.aten, name, None) if node.op.startswith("call_") else None
        if isinstance(packet, torch._ops.OpOverloadPacket) and any(
            torch.Tag.inplace_view in getattr(packet, overload).tags
            for overload in packet.overloads()
        ):
            # The node cannot be traced again, because the traced value already has the changed
            # shape.
            return f"'{node.name}' changes the shape of a tensor in place"
    return None


def lower(gm: fx.GraphModule) -> list[fx.GraphModule]:
    """Replace calls to torch functions with the operators that they call, in place.

    Graphs of checkpointed regions are lowered too. Other subgraphs are not lowered. If a graph
    transforms functions (torch.func) or changes the shape of a tensor in place (``x.t_()``), it is
    not lowered, and the reason is logged.

    Args:
        gm: a well-formed graph whose nodes have FakeTensors.

    Returns:
        The graphs that were lowered, ``gm`` first.
    """
    reason = _reason_against_lowering(gm.graph)
    if reason is not None:
        log.debug("the graph stays as it was captured: %s", reason)
        return []
    lowered = [gm]
    run: list[fx.Node] = []
    for node in list(gm.graph.nodes):
        if _can_be_lowered(node):
            run.append(node)
            continue
        if run:
            _lower_run(run)
            run = []
        if node.target is tag_activation_checkpoint:
            lowered += lower(getattr(gm, node.args[0].target))
    gm.recompile()
    return lowered
