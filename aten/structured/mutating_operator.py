# SPDX-License-Identifier: BSD-3-Clause
"""Computes the values that templates/mutating.cc.jinja inserts for a mutating operator."""

from aten.structured.operator_list import Entry
from aten.structured.torch_operators import (
    CppArgument,
    Torch,
    argument_keys,
    cpp_arguments,
    cpp_returns,
)


class MutatingOperator:
    """An operator whose only effect is to modify its arguments."""

    template = "mutating.cc.jinja"

    def __init__(self, entry: Entry, torch: Torch) -> None:
        function = torch.functions[entry.name]
        kernel = torch.kernel(function)
        assert kernel is not None, entry.name
        self.schema = str(function.func)
        self.operator = entry.name
        self.namespace = entry.namespace
        self.headers = [f"{function.root_name}_native"]
        self.registrations = [(entry.name, "call")]

        self.cpu_function = f"{kernel.cpp_namespace}::{kernel.kernel}"
        self.returns = cpp_returns(function)
        self.arguments = cpp_arguments(function)
        self.parameters = entry.parameters(self.arguments)
        self.prepared = entry.prepared(self.arguments)
        self.check = entry.check
        self.condition = entry.when
        self.operands = [
            (_operands_method(argument), argument.name)
            for argument in self.arguments
            if argument.holds_tensors
        ]
        self.cost = entry.launch_cost
        self.is_foreach = entry.name.startswith("_foreach_")
        self.argument_keys = argument_keys(self.arguments)
        # If torch's kernel is a loop over in-place operators, these operators increment the
        # tensors' version counters. The single launch that replaces the loop must increment them
        # itself.
        is_loop = not function.func.returns and torch.composite_kernel(function) is not None
        self.counted_writes = [
            argument.name for argument in self.arguments if is_loop and argument.is_written
        ]


def _operands_method(argument: CppArgument) -> str:
    """Return the method of Operands for an argument. Only ``add`` accepts 0-dim CPU tensors."""
    must_be_on_device = argument.is_list or argument.type == "at::Tensor&"
    return "add_device" if must_be_on_device and "c10::List" not in argument.type else "add"
