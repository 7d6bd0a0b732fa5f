# SPDX-License-Identifier: BSD-3-Clause
"""Computes the values that templates/structured.cc.jinja inserts for a structured operator."""

import dataclasses

from torchgen import local
from torchgen.api import cpp, meta, structured
from torchgen.model import NativeFunction, NativeFunctionsGroup

from aten.structured.operator_list import Converts, Entry, Pointwise
from aten.structured.torch_operators import (
    CppArgument,
    Torch,
    argument_keys,
    cpp_arguments,
    cpp_returns,
)

# The variants with a fast path. In-place comparisons have no fast path, because their output is not
# bool.
_FAST_KINDS: dict[Pointwise | None, tuple[str, ...]] = {
    None: (),
    Pointwise.SAME: ("kFunctional", "kInplace"),
    Pointwise.BOOL: ("kFunctional",),
}


@dataclasses.dataclass(frozen=True)
class FastPath:
    """How a pointwise operator uses the fast path of aten/structured/pointwise.h."""

    operands: list[str]  # The arguments that the loop visits, in the order of the loop.
    scalars: list[CppArgument]  # The other arguments.
    impl_arguments: list[str]
    result_dtype: str
    cost_factor: str


@dataclasses.dataclass(frozen=True)
class Variant:
    """The functional, in-place or out= variant of an operator, which the dispatcher calls."""

    operator: str  # The name in torch, such as add_.Tensor.
    name: str  # The name of the C++ function.
    kind: str  # An OutputKind.
    returns: str
    parameters: list[str]
    operands: list[tuple[str, str]]  # a method of Operands, and its argument
    has_fast_path: bool
    given_outputs: list[str]
    result: str  # the expression to return; the functional variant uses it only with Converting


class StructuredOperator:
    """A structured operator with all its variants."""

    template = "structured.cc.jinja"

    def __init__(self, entry: Entry, torch: Torch) -> None:
        group: NativeFunctionsGroup = torch.groups[entry.name]
        kernel = torch.kernel(group.out)
        assert kernel is not None, entry.name
        self._entry = entry
        self.schema = str(group.functional.func)
        self.namespace = entry.namespace
        self.check = entry.check
        self.cost = entry.launch_cost

        # The classes of torch: the first has meta(). The second is derived from it and has impl().
        self.meta_class = f"at::meta::structured_{meta.name(group)}"
        self.kernel_class = f"{kernel.cpp_namespace}::structured_{kernel.kernel}"
        self.cpu_out_function = cpp.name(group.out.func, faithful_name_for_out_overloads=True)
        self.iterates = group.out.structured_inherits is not None
        self.has_inplace = group.inplace is not None

        self.outputs = [argument.name for argument in group.out.func.arguments.out]
        self.inputs = [a for a in cpp_arguments(group.out) if a.name not in self.outputs]
        self.prepared = entry.prepared(self.inputs)
        self.argument_keys = argument_keys(self.inputs)
        # Losses with a reduction are not elementwise: they sum over the results of their iterator.
        self.is_elementwise = self.iterates and all(a.name != "reduction" for a in self.inputs)

        # meta() runs on aliases only if building its TensorIterator converts no data.
        self.runs_meta_on_aliases = entry.converts is not Converts.ALWAYS
        self.may_convert = entry.converts is Converts.ALWAYS or (
            self.iterates and entry.converts is not Converts.NEVER
        )
        self.conversion_test = "mixes" if entry.converts is Converts.MIXED else "converts"

        self.precomputed = _precomputed(group)
        with local.parametrize(
            use_const_ref_for_mutable_tensors=False, use_ilistref_for_tensor_lists=True
        ):
            meta_arguments = [binding.name for binding in structured.meta_arguments(group)]
            impl_arguments = [binding.name for binding in structured.impl_arguments(group)]
        inputs = {argument.name: argument for argument in self.inputs}
        self.kernel_meta_arguments = [f"{name}_" for name in meta_arguments]
        self.kernel_impl_arguments = [self._kernel_argument(name) for name in impl_arguments]
        self.device_meta_arguments = [inputs[name].meta_reference for name in meta_arguments]

        self.fast_path = self._fast_path(impl_arguments) if entry.pointwise else None
        self.variants = [self._variant("functional", "kFunctional", group.functional)]
        if group.inplace is not None:
            self.variants.append(self._variant("inplace", "kInplace", group.inplace))
        self.variants.append(self._variant("out", "kOut", group.out))
        self.registrations = [(variant.operator, variant.name) for variant in self.variants]
        self.headers = [f"{group.functional.root_name}_native"]
        if self.may_convert:
            self.headers.append(f"{group.functional.root_name}_cpu_dispatch")

    def _kernel_argument(self, name: str) -> str:
        """Return the C++ expression for an argument of impl() in a closure that called meta()."""
        if name in self.outputs:
            return f"op_.maybe_get_output({self.outputs.index(name)})"
        return f"precomputed_.{name}" if name in self.precomputed else f"{name}_"

    def _fast_path(self, impl_arguments: list[str]) -> FastPath:
        compares = self._entry.pointwise is Pointwise.BOOL
        operands = list(self._entry.visits) or [
            argument.name for argument in self.inputs if compares or argument.holds_tensors
        ]
        scalars = [argument for argument in self.inputs if argument.name not in operands]

        def impl_argument(name: str) -> str:
            if any(scalar.name == name for scalar in scalars):
                return f"{name}_"
            # impl() uses only its iterator. It does not use the scalars and tensors that are
            # operands.
            is_scalar = any(a.name == name and a.is_scalar for a in self.inputs)
            return "at::Scalar()" if is_scalar else "none_"

        return FastPath(
            operands=operands,
            scalars=scalars,
            impl_arguments=[impl_argument(name) for name in impl_arguments],
            result_dtype="c10::kBool" if compares else "fast_path.dtype()",
            cost_factor=self._entry.cost_factor,
        )

    def _variant(self, name: str, kind: str, function: NativeFunction) -> Variant:
        made_outputs = [f"op.output({i})" for i in range(len(self.outputs))]
        results = {
            "kFunctional": _tuple("std::make_tuple", made_outputs),
            "kInplace": "self",
            "kOut": _tuple("std::tie", self.outputs),
        }
        return Variant(
            operator=str(function.func.name),
            name=name,
            kind=kind,
            returns=cpp_returns(function),
            # The arguments of an out= variant may be in a different order from `inputs`.
            parameters=self._entry.parameters(cpp_arguments(function)),
            operands=self._operand_calls(kind),
            has_fast_path=kind in _FAST_KINDS[self._entry.pointwise],
            given_outputs=self.outputs if kind == "kOut" else [],
            result=results[kind],
        )

    def _operand_calls(self, kind: str) -> list[tuple[str, str]]:
        calls: list[tuple[str, str]] = []
        for argument in self.inputs:
            if argument.holds_tensors:
                # Operators with a TensorIterator accept 0-dim CPU tensors together with device
                # tensors, but not for the tensor that they write.
                is_written = kind == "kInplace" and argument.name == "self"
                method = "add" if self.iterates and not is_written else "add_device"
                calls.append((method, argument.name))
            elif self.may_convert and argument.is_scalar:
                calls.append(("add_scalar", argument.name))
        return calls


def _tuple(function: str, values: list[str]) -> str:
    return values[0] if len(values) == 1 else f"{function}({', '.join(values)})"


def _precomputed(group: NativeFunctionsGroup) -> set[str]:
    """Return the names of the values that meta() passes to impl()."""
    precomputed = group.out.precomputed
    if precomputed is None:
        return set()
    replaced = [argument for many in precomputed.replace.values() for argument in many]
    return {argument.name for argument in [*replaced, *precomputed.add]}
