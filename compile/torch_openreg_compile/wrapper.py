# SPDX-License-Identifier: BSD-3-Clause
"""Generates the Python code that allocates the kernels' results and launches the kernels."""

from collections.abc import Sequence
from typing import Any

import torch
from torch._inductor.codegen.wrapper import (
    PythonWrapperCodegen,
    SubgraphPythonWrapperCodegen,
)
from torch._inductor.virtualized import V

from torch_openreg_compile import graph_policy
from torch_openreg_compile.name import DEVICE_TYPE, MODULE


class _Wrapper(PythonWrapperCodegen):
    """The code that differs from the CPU's wrapper, for graphs and subgraphs."""

    def define_launched_kernel(
        self,
        kernel_name: str,
        fused: str,
        types: Sequence[str],
        source: str,
        *,
        parallel: bool,
        pointwise: bool,
    ) -> None:
        """Write the code that compiles a kernel. The arguments are those of ``openreg_kernel``."""
        self.define_kernel(
            kernel_name,
            f"openreg_kernel(async_compile, {fused!r}, {types!r}, r'''{source}''', "
            f"{parallel=}, {pointwise=})",
            gpu=False,
        )

    def _generate_kernel_call_helper(
        self,
        kernel_name: str,
        call_args: Sequence[Any],
        *,
        device: torch.device | None = None,
        triton: bool = True,
        **others: Any,
    ) -> None:
        device = device or V.graph.get_current_device_or_throw()
        if device.type == DEVICE_TYPE and not triton:
            self.writeline(self.wrap_kernel_call(kernel_name, call_args))
        else:
            super()._generate_kernel_call_helper(
                kernel_name, call_args, device=device, triton=triton, **others
            )

    def make_allocation(
        self,
        name: str,
        device: torch.device,
        dtype: torch.dtype,
        shape: Sequence[Any],
        stride: Sequence[Any],
        allocation_shape: Sequence[Any] | None = None,
        is_pinned: bool = False,
    ) -> str:
        # torch's version omits the device index.
        if device.type != DEVICE_TYPE:
            line = super().make_allocation(
                name, device, dtype, shape, stride, allocation_shape, is_pinned
            )
            return str(line)
        as_tuple = self.codegen_python_shape_tuple
        strides = as_tuple(stride)
        allocated = as_tuple(shape if allocation_shape is None else allocation_shape)
        line = f"{name} = empty_strided_openreg({allocated}, {strides}, {dtype}, {device.index})"
        if allocated != as_tuple(shape):
            line += f".as_strided({as_tuple(shape)}, {strides})"
        return line


class OpenRegWrapper(_Wrapper):
    """Generates the module of one compiled graph."""

    @staticmethod
    def create(
        is_subgraph: bool,
        subgraph_name: str | None,
        parent_wrapper: PythonWrapperCodegen | None,
        partition_signatures: Any = None,
    ) -> PythonWrapperCodegen:
        """Return the generator for a module, or for a function of a module."""
        if is_subgraph:
            assert subgraph_name is not None
            assert parent_wrapper is not None
            return OpenRegSubgraphWrapper(subgraph_name, parent_wrapper, partition_signatures)
        return OpenRegWrapper()

    def write_header(self) -> None:
        """Write the imports of the module."""
        super().write_header()
        graph_policy.record_reason_against(V.graph)
        self.imports.writeline(f"from {__package__}.kernel_module import openreg_kernel")
        self.header.writeline(f"empty_strided_openreg = {MODULE}._empty_strided")
        # This import replaces torch's function of the same name, which the lines above import.
        self.header.writeline(f"from {__package__}.symmetric_memory import empty_strided_p2p")


class OpenRegSubgraphWrapper(_Wrapper, SubgraphPythonWrapperCodegen):
    """Generates a function for a subgraph (such as a loop's body) in its parent's module."""
