# SPDX-License-Identifier: BSD-3-Clause
"""Reads the operators of the installed PyTorch and their C++ signatures through torchgen."""

import pathlib
import re
from collections.abc import Sequence

import torchgen
from torchgen import local
from torchgen.api.types import Binding, NativeSignature
from torchgen.gen import get_grouped_native_functions, parse_native_yaml
from torchgen.model import (
    Argument,
    BackendMetadata,
    BaseTy,
    BaseType,
    DispatchKey,
    ListType,
    NativeFunction,
    NativeFunctionsGroup,
    OptionalType,
    Type,
)


class Torch:
    """The operators of the installed PyTorch, and their CPU kernels."""

    def __init__(self) -> None:
        folder = pathlib.Path(torchgen.__file__).parent / "packaged" / "ATen" / "native"
        parsed = parse_native_yaml(str(folder / "native_functions.yaml"), str(folder / "tags.yaml"))
        self._backends = parsed.backend_indices
        self.functions: dict[str, NativeFunction] = {
            str(function.func.name): function for function in parsed.native_functions
        }
        # The structured operators, by the name of their functional variant.
        self.groups: dict[str, NativeFunctionsGroup] = {
            str(group.functional.func.name): group
            for group in get_grouped_native_functions(parsed.native_functions)
            if isinstance(group, NativeFunctionsGroup)
            and group.structured
            and self._backends[DispatchKey.CPU].get_kernel(group.out) is not None
        }

    def kernel(self, function: NativeFunction) -> BackendMetadata | None:
        """Return the function that implements an operator on the CPU, or None if there is none."""
        return self._backends[DispatchKey.CPU].get_kernel(function) or (
            self.composite_kernel(function)
        )

    def composite_kernel(self, function: NativeFunction) -> BackendMetadata | None:
        """Return the function that implements an operator with other operators, or None."""
        return self._backends[DispatchKey.CompositeExplicitAutograd].get_kernel(function)


class CppArgument:
    """An argument of an operator's C++ function, in the forms that the templates need."""

    def __init__(self, binding: Binding) -> None:
        self._type: Type = binding.argument.type
        annotation = binding.argument.annotation if isinstance(binding.argument, Argument) else None
        self.name: str = binding.name
        self.type = _cpp_spelling(binding.type)
        self.value_type = re.sub(r"^const |&$", "", self.type)
        self.declaration = f"{self.type} {self.name}"
        # A closure stores each argument in a member of type Owned (aten/launch/owned.h).
        self.member = f"{self.name}_"
        self.initializer = f"{self.member}(aliases, {self.name})"
        self.is_optional = isinstance(self._type, OptionalType)
        self.is_list = isinstance(self._type, ListType)
        self.is_scalar = self._is(BaseTy.Scalar)
        self.is_written = annotation is not None and annotation.is_write
        self.holds_tensors = bool(self._type.is_tensor_like())

    @property
    def key(self) -> str | None:
        """The argument's part of a launch's argument_key; None if the kernel does not check it."""
        found = re.search(r"\b(Scalar|str)\b", str(self._type))
        if not found:
            return None
        return f"{'width_of' if found[0] == 'Scalar' else 'text_key'}({self.name})"

    @property
    def meta_reference(self) -> str:
        """The argument in the form for meta(): optional arguments are non-owning references."""
        if self.is_optional and self.holds_tensors:
            return f"optional_tensor({self.name})"
        if self.is_optional and self.is_scalar:
            return f"optional_scalar({self.name})"
        return self.name

    def _is(self, base: BaseTy) -> bool:
        """Return whether the argument, or the value of an optional argument, has this type."""
        type_ = self._type.elem if isinstance(self._type, OptionalType) else self._type
        return bool(type_ == BaseType(base))


def cpp_arguments(function: NativeFunction) -> list[CppArgument]:
    """Return the arguments of an operator's C++ function."""
    with _dispatcher_types(function):
        return [CppArgument(binding) for binding in _signature(function).arguments()]


def cpp_returns(function: NativeFunction) -> str:
    """Return the return type of an operator's C++ function."""
    with _dispatcher_types(function):
        return _cpp_spelling(_signature(function).returns_type().cpp_type())


def argument_keys(arguments: Sequence[CppArgument]) -> list[str]:
    """Return the parts of the launch's argument_key for these arguments."""
    return [argument.key for argument in arguments if argument.key is not None]


def _signature(function: NativeFunction) -> NativeSignature:
    return NativeSignature(function.func, prefix="", symint=False)


def _dispatcher_types(function: NativeFunction) -> local.parametrize:
    """Return a context in which torchgen uses the dispatcher's types for this operator."""
    return local.parametrize(
        use_const_ref_for_mutable_tensors=function.use_const_ref_for_mutable_tensors,
        use_ilistref_for_tensor_lists=function.part_of_structured_group,
    )


def _cpp_spelling(cpp_type: str) -> str:
    """Convert the spelling of a type in torchgen to this project's spelling."""
    spelled = cpp_type.replace("::std::", "std::").replace("c10::string_view", "std::string_view")
    return re.sub(r" ([&*])", r"\1", spelled).replace(",at::", ", at::")
