# SPDX-License-Identifier: BSD-3-Clause
"""Decides which operations are fused into one kernel, and generates the kernel's C++.

The code generator extends torch's C++ generator for the CPU and differs in three ways. The wrapper
launches a kernel and passes its cost. A kernel uses the threads that the launch provides. An
exception in a parallel loop is propagated to the program.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import sympy
from torch._inductor import config
from torch._inductor.codegen.common import BracesBuffer, KernelArgs
from torch._inductor.codegen.cpp import (
    CppKernelProxy,
    CppScheduling,
    KernelGroup,
    WorkSharing,
)
from torch._inductor.scheduler import BaseSchedulerNode, SchedulerNode
from torch._inductor.utils import Placeholder, get_fused_kernel_name, sympy_product
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from torch_openreg_compile.name import DEVICE_TYPE

# torch selects the code generator with the setting "<device>_backend". For a device that it does
# not know, it reads CUDA's setting.
_GENERATE_CPP: dict[str, Any] = {"cuda_backend": "cpp"}

# Operations that execute ten or more instructions.
_HEAVY = frozenset(
    {"erf", "exp", "exp2", "expm1", "lgamma", "log", "log10", "log1p", "log2", "pow", "rand"}
    | {"randn", "sigmoid", "sin", "cos", "tan", "tanh", "atan2", "acos", "asin", "atan", "erfinv"}
)

# Calls in generated loops that may throw: index checks and integer divisions.
_THROWING = re.compile(r"TORCH_CHECK\(|\b(floor_divide_integral|mod|remainder_integral)\(")

# The variable in which torch's generated code reports divisions by zero. All launches would share
# this variable, so it is removed from the code. Without it, a division by zero throws.
_SHARED_ERROR = "inductor_cpu_integer_div_error"


def _cost(nodes: Iterable[SchedulerNode]) -> sympy.Expr:
    """Return the approximate cost of nodes, in elementary operations of 0.25 ns each."""
    cost: sympy.Expr = sympy.Integer(0)
    for node in nodes:
        counts = node._body.op_counts
        heavy = sum(count for name, count in counts.items() if name in _HEAVY)
        # Loads, stores and arithmetic are vectorized with eight or more lanes.
        each = max(1, sum(counts.values()) // 8 + 2 * heavy)
        cost += each * sympy_product([size for sizes in node.get_ranges() for size in sizes])
    return cost


class _LaunchedWorkSharing(WorkSharing):
    """Parallel regions that use the launch's threads, up to the number assumed at compile time."""

    def parallel(self, threads: int) -> None:
        super().parallel(f"openreg_generated::team({threads})")


class LaunchedKernelGroup(KernelGroup):
    """Several kernels that are generated as one function and run in one launch."""

    def __init__(self) -> None:
        super().__init__()
        self.ws = self.stack.enter_context(_LaunchedWorkSharing(self.loops_code))

    def codegen_group(self, name: str | None = None) -> str:
        """Return the function's C++ code."""
        self.stack.close()
        if _THROWING.search(self.loops_code.getvalue()):
            loops = self.loops_code
            self.loops_code = BracesBuffer()
            self.loops_code.writeline("openreg_generated::Failure failure;")
            self.loops_code.splice(loops)
            self.loops_code.writeline("failure.rethrow();")
        code = super().codegen_group(name)
        return "\n".join(line for line in code.splitlines() if _SHARED_ERROR not in line)

    def call_kernel(self, wrapper: Any, kernel_name: str) -> None:
        """Write the call of the kernel. Its cost is passed before the arguments."""
        _, arguments, types = self.args.cpp_argdefs()
        cost = _cost(self.scheduled_nodes)
        for symbol in cost.free_symbols:
            wrapper.ensure_size_computed(symbol)
        wrapper.generate_kernel_call(
            kernel_name,
            [wrapper.codegen_sizevar(cost), *arguments],
            triton=False,
            arg_types=["int64_t", *types],
        )


class LaunchedKernelProxy(CppKernelProxy):
    """A loop nest that stores an exception from its body until the kernel ends."""

    def gen_body(self, code: BracesBuffer | None = None) -> None:
        """Write the loop body. If a call in the body may throw, write a try block around it."""
        assert code is not None
        body = BracesBuffer()
        super().gen_body(body)
        if not _THROWING.search(body.getvalue()):
            code.splice(body)
            return
        code.writeline("try")
        with code.indent():
            code.splice(body)
        code.writeline("catch (...)")
        with code.indent():
            code.writeline("failure.keep();")


class _Loops(tuple[sympy.Expr, ...]):
    """The sizes of a node's nested loops, with a product that equals no other node's.

    For devices other than the CPU, the scheduler compares the total number of iterations of two
    nodes. If the numbers are equal, it splits the loops of one node to match the other. C++ has
    nested loops, so this must not happen. Therefore the product returned here equals no other
    node's.
    """

    def __mul__(self, other: object) -> sympy.Expr:
        return sympy.Integer(-1)


def _has_changed_loops(node: BaseSchedulerNode) -> bool:
    """Return whether the scheduler changed a node's loops so that the node can be fused.

    The scheduler does this only for devices other than the CPU. The C++ generator undoes the change
    when it looks for common loops. Therefore such nodes are not fused, as on the CPU. A listener
    records reordered and split loops. An inverted index is visible in the node's writes.
    """
    for leaf in node.get_nodes():
        if not isinstance(leaf, SchedulerNode):
            continue
        listener = getattr(leaf._loop_mutation_listener, "__self__", None)
        if listener is not None and listener.state is not None:
            return True
        for write in leaf.read_writes.writes:
            index = getattr(write, "index", None)
            if index is not None and index.has(FloorDiv, ModularIndexing):
                return True
    return False


class OpenRegScheduling(CppScheduling):
    """Selects the nodes of each C++ kernel for device openreg, and generates the kernels."""

    kernel_proxy_cls = LaunchedKernelProxy

    def group_fn(self, sizes: Sequence[Sequence[sympy.Expr]]) -> tuple[_Loops, ...]:
        """Return loop sizes in the form in which the scheduler compares them."""
        return tuple(map(_Loops, super().group_fn(sizes)))

    def can_fuse_horizontal(self, node1: BaseSchedulerNode, node2: BaseSchedulerNode) -> bool:
        """Return whether two independent nodes become one kernel."""
        if _has_changed_loops(node1) or _has_changed_loops(node2):
            return False
        return bool(super().can_fuse_horizontal(node1, node2))

    def can_fuse_vertical(self, node1: BaseSchedulerNode, node2: BaseSchedulerNode) -> bool:
        """Return whether a node and a node that reads its results become one kernel."""
        if _has_changed_loops(node1) or _has_changed_loops(node2):
            return False
        return bool(super().can_fuse_vertical(node1, node2))

    def reset_kernel_group(self) -> None:
        """Begin a new group, which becomes one kernel."""
        self.kernel_group = LaunchedKernelGroup()

    def codegen_node(self, node: Any) -> None:
        """Add a node to the current kernel."""
        with config.patch(_GENERATE_CPP):
            super().codegen_node(node)

    def flush(self) -> None:
        """End the current kernel and write its launch."""
        with config.patch(_GENERATE_CPP):
            super().flush()

    def define_kernel(
        self,
        src_code: str,
        nodes: Sequence[BaseSchedulerNode],
        kernel_args: KernelArgs | None = None,
    ) -> str:
        """Write a kernel's definition unless it already exists, and return its name."""
        wrapper: Any = V.graph.wrapper_code
        known = wrapper.src_to_kernel.get(src_code)
        if known is not None:
            return str(known)
        fused = get_fused_kernel_name(nodes, config.cpp.descriptive_names or "original_aten")
        kernel_name = "_".join([DEVICE_TYPE, fused, wrapper.next_kernel_suffix()])
        wrapper.src_to_kernel[src_code] = kernel_name
        function = kernel_name if V.graph.cpp_wrapper else "kernel"
        source = src_code.replace(str(Placeholder.KERNEL_NAME), function)
        source = source.replace(str(Placeholder.DESCRIPTIVE_NAME), kernel_name)
        source = source.replace("#pragma CMT", "//")
        args = self.kernel_group.args if kernel_args is None else kernel_args
        parallel = "#pragma omp parallel" in source
        pointwise = not any(node.is_reduction() for node in nodes)
        types = args.cpp_argdefs()[2]
        wrapper.define_launched_kernel(
            kernel_name, fused, types, source, parallel=parallel, pointwise=pointwise
        )
        return kernel_name
