# SPDX-License-Identifier: BSD-3-Clause
"""Generates the C++ host code that calls the kernels, for ``cpp_wrapper`` and AOT compilation.

An operator without a generated kernel is called through a C function of libopenreg_aoti.so. These
functions are named like those that torch provides for its own devices. The library must be loaded
before the generated code. ``torch.openreg._load_compiled_operators()`` loads the library.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch._inductor import config
from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.virtualized import V

from torch_openreg_compile import graph_policy, source_text
from torch_openreg_compile.name import DEVICE_TYPE

# Part of the constructor of a model that was compiled ahead of time. The constructor parses the
# device's name, but supports only torch's own devices. Therefore the name passed to the constructor
# is "cpu" with the device's index (aten/aoti/runner.cc), and this code then sets the device.
_SET_DEVICE = """
device_type_ = aoti_torch_device_type_privateuse1();
device_idx_ = device_idx_ < 0 ? 0 : device_idx_;
"""


class OpenRegCppWrapper(CppWrapperCpu):
    """Generates the C++ code of one compiled graph."""

    def __init__(self) -> None:
        self.device = DEVICE_TYPE
        self.has_kernel_text = False
        super().__init__()

    @staticmethod
    def create(
        is_subgraph: bool,
        subgraph_name: str | None,
        parent_wrapper: PythonWrapperCodegen | None,
        partition_signatures: Any = None,
    ) -> PythonWrapperCodegen:
        """Return the code generator for a graph or subgraph."""
        return OpenRegCppWrapper()

    @staticmethod
    def get_device_include_path_jit(device: str) -> str:
        """Return the line that includes torch's header."""
        return str(CppWrapperCpu.get_device_include_path_jit("cpu"))

    @staticmethod
    def get_device_include_path_aot(device: str) -> str:
        """Return torch's header lines and our constants, for ahead-of-time compilation."""
        return source_text.read("model_constants.h") + str(
            CppWrapperCpu.get_device_include_path_aot("cpu")
        )

    def add_device_include(self, device: str) -> None:
        """Write the includes that the code for a device needs."""
        known = device in self.included_devices
        super().add_device_include(device)
        if device == DEVICE_TYPE and not known:
            self.header.splice(source_text.read("kernel.h", "kernel_call.h"))
            self.header.splice(torch.get_device_module(DEVICE_TYPE)._compiled_operators())

    def write_header(self) -> None:
        """Write the code's header."""
        if V.graph.aot_mode:
            # torch would precompile a header named after this device, but this header does not
            # exist. torch reads the setting later, and no hook can restore it afterwards.
            config.aot_inductor.precompile_headers = False
        graph_policy.record_reason_against(V.graph)
        super().write_header()

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
        """Write a kernel and its properties; see ``kernel_module.openreg_kernel``."""
        site = f'"{fused}", {str(parallel).lower()}, {str(pointwise).lower()}'
        start = source.rfind('extern "C"')
        declaration = source[start : source.find(")", start) + 1]
        prefix, _, rest = source.lstrip().partition("\n")
        text = "" if self.has_kernel_text else source_text.read("kernel.h")
        self.has_kernel_text = True
        self.define_kernel(
            kernel_name,
            f"{prefix}\n{text}\n{rest}",
            gpu=False,
            cpp_definition=f"{declaration};\n"
            f"static constexpr openreg_generated::KernelSite {kernel_name}_site{{{site}}};\n",
        )

    def _generate_kernel_call_helper(
        self,
        kernel_name: str,
        call_args: Sequence[Any],
        *,
        device: torch.device | None = None,
        triton: bool = True,
        arg_types: Sequence[Any] | None = None,
        **others: Any,
    ) -> None:
        device = device or V.graph.get_current_device_or_throw()
        if device.type != DEVICE_TYPE or triton:
            super()._generate_kernel_call_helper(
                kernel_name,
                call_args,
                device=device,
                triton=triton,
                arg_types=arg_types,
                **others,
            )
            return
        assert arg_types is not None
        index = self.codegen_device_idx(device, str(device.index or 0))
        cost, *given = (
            f"({kind})({value}.data_ptr())" if "*" in kind else str(value)
            for value, kind in zip(call_args, arg_types, strict=True)
        )
        self.writeline(
            self.wrap_kernel_call(
                "openreg_generated::launch",
                [f"{kernel_name}_site", index, cost, f"&{kernel_name}", *given],
            )
        )

    def _generate_end_jit(self, result: Any) -> None:
        # Use the compiler flags and the precompiled header of the CPU.
        self.device = "cpu"
        super()._generate_end_jit(result)
        self.device = DEVICE_TYPE

    def codegen_device(self, device: torch.device) -> str:
        """Return the C++ text for the type and the index of a device."""
        if device.type != DEVICE_TYPE:
            return str(super().codegen_device(device))
        self.used_cached_devices.add("privateuse1")
        return f"cached_torch_device_type_privateuse1, {device.index or 0}"

    def codegen_write_arg_with_large_length_string(
        self, arg_name: str, *others: Any, **more: Any
    ) -> None:
        """Write the code that sets a member of a model; set the device before the first member."""
        if arg_name == "in_spec_":
            self.prefix.splice(_SET_DEVICE)
        super().codegen_write_arg_with_large_length_string(arg_name, *others, **more)
