# SPDX-License-Identifier: BSD-3-Clause
"""Writes C++ kernels of the device for the operators listed in operators.yaml.

PyTorch's own operator list, which is part of the installed torchgen, says what each operator takes
and returns and what class implements it on the CPU. The text depends on nothing else, so that two
runs write the same bytes.

  generate.py kernels --operators operators.yaml --shards 7 --output DIR    DIR/kernels_0.cc ...
  generate.py table --output structured_table.cc                            for the boxed fallback
"""

import argparse
import dataclasses
import enum
import pathlib
import re
import sys
from collections.abc import Iterable, Sequence

import torchgen
import yaml
from torchgen import local
from torchgen.api import cpp, meta, structured
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
    SchemaKind,
    Type,
)

WIDTH = 100


class ListError(Exception):
    """operators.yaml asks for what can not be written; says which operator and why."""


class Kind(enum.Enum):
    """How a kernel is written."""

    STRUCTURED = "structured"
    MUTATING = "mutating"


class Converts(enum.Enum):
    """When a TensorIterator over the arguments converts data while it is built."""

    INTEGERS = "integers"
    MIXED = "mixed"
    NEVER = "never"
    ALWAYS = "always"


class Pointwise(enum.Enum):
    """What a pointwise operator makes of floating numbers."""

    SAME = "same"
    BOOL = "bool"


@dataclasses.dataclass(frozen=True)
class Entry:
    """One operator of operators.yaml; its head explains the fields."""

    name: str
    reason: str
    kind: Kind = Kind.STRUCTURED
    cost: str = "1"
    converts: Converts = Converts.INTEGERS
    prepare: tuple[tuple[str, str], ...] = ()
    check: str | None = None
    when: str | None = None
    pointwise: Pointwise | None = None
    visits: tuple[str, ...] = ()


class Torch:
    """The operators of the installed PyTorch, and their kernels for the CPU."""

    def __init__(self) -> None:
        folder = pathlib.Path(torchgen.__file__).parent / "packaged" / "ATen" / "native"
        parsed = parse_native_yaml(str(folder / "native_functions.yaml"), str(folder / "tags.yaml"))
        self._backends = parsed.backend_indices
        self.functions: dict[str, NativeFunction] = {
            str(function.func.name): function for function in parsed.native_functions
        }
        self.groups: dict[str, NativeFunctionsGroup] = {
            str(group.functional.func.name): group
            for group in get_grouped_native_functions(parsed.native_functions)
            if isinstance(group, NativeFunctionsGroup)
            and group.structured
            and self._backends[DispatchKey.CPU].get_kernel(group.out) is not None
        }

    def kernel(self, function: NativeFunction) -> BackendMetadata | None:
        """The function that implements an operator on the CPU; None: there is none."""
        return self._backends[DispatchKey.CPU].get_kernel(function) or (
            self.composite_kernel(function)
        )

    def composite_kernel(self, function: NativeFunction) -> BackendMetadata | None:
        """The function that implements an operator by other operators; None: there is none."""
        return self._backends[DispatchKey.CompositeExplicitAutograd].get_kernel(function)


# --------------------------------------------------------------------------------------- the list


_FIELDS = {"reason", "operators"} | {field.name for field in dataclasses.fields(Entry)} - {"name"}


def read_entries(text: str, torch: Torch) -> list[Entry]:
    """Parses operators.yaml.

    Args:
      text: its contents.
      torch: to check the names against.

    Returns:
      The entries, in the order of the file.

    Raises:
      ListError: an unknown field, kind or operator, or an operator that is there twice.
    """
    entries: list[Entry] = []
    for family in yaml.safe_load(text):
        names = family.get("operators", [])
        unknown = sorted(set(family) - _FIELDS)
        if unknown:
            raise ListError(f"{', '.join(names)}: unknown field {unknown[0]}")
        if not names or not family.get("reason"):
            raise ListError(f"{', '.join(names) or family}: operators and reason are needed")
        for name in names:
            entry = Entry(
                name=name,
                reason=family["reason"],
                kind=Kind(family.get("kind", "structured")),
                cost=str(family.get("cost", 1)),
                converts=Converts(family.get("converts", "integers")),
                prepare=tuple(family.get("prepare", {}).items()),
                check=family.get("check"),
                when=family.get("when"),
                pointwise=Pointwise(family["pointwise"]) if "pointwise" in family else None,
                visits=tuple(family.get("visits", ())),
            )
            _check_entry(entry, torch)
            entries.append(entry)
    spaces: dict[str, str] = {}
    for entry in entries:
        space = _namespace(entry.name)
        if space in spaces:
            raise ListError(f"{entry.name}: is in the list already, as {spaces[space]}")
        spaces[space] = entry.name
    return entries


def _check_entry(entry: Entry, torch: Torch) -> None:
    function = torch.functions.get(entry.name)
    if function is None:
        raise ListError(f"{entry.name}: torch has no such operator")
    if entry.kind is Kind.STRUCTURED:
        if entry.name not in torch.groups:
            raise ListError(
                f"{entry.name}: is not the functional variant of a structured operator with a "
                "kernel for the CPU"
            )
        if entry.when:
            raise ListError(f"{entry.name}: `when` is for mutating operators")
        if entry.pointwise and not _is_pointwise(torch.groups[entry.name]):
            raise ListError(
                f"{entry.name}: `pointwise` is for operators with a TensorIterator over tensors "
                "and numbers, and one output"
            )
    else:
        if function.func.kind() is not SchemaKind.inplace:
            raise ListError(f"{entry.name}: kind mutating is for operators that work in place")
        if torch.kernel(function) is None:
            raise ListError(f"{entry.name}: has no kernel for the CPU")
        if entry.pointwise:
            raise ListError(f"{entry.name}: `pointwise` is for structured operators")
        if entry.when and torch.composite_kernel(function) is None:
            raise ListError(f"{entry.name}: `when` needs a kernel made of other operators")
    arguments = {binding.name for binding in _arguments(function)}
    for field, names in (("prepare", dict(entry.prepare)), ("visits", entry.visits)):
        for name in names:
            if name not in arguments:
                raise ListError(f"{entry.name}: has no argument {name}, which `{field}` names")


def _is_pointwise(group: NativeFunctionsGroup) -> bool:
    kinds = (BaseType(BaseTy.Tensor), BaseType(BaseTy.Scalar))
    return (
        group.out.structured_inherits is not None
        and len(group.out.func.arguments.out) == 1
        and all(a.type in kinds for a in group.functional.func.arguments.flat_all)
    )


# ------------------------------------------------------------------------------------------ layout


def _namespace(name: str) -> str:
    """`_foreach_add_.Scalar` -> `foreach_add_scalar`."""
    return re.sub("_+", "_", name.replace(".", "_")).strip("_").lower()


def _tidy(cpp_type: str) -> str:
    """The spelling of a type by torchgen -> ours."""
    spelled = cpp_type.replace("::std::", "std::").replace("c10::string_view", "std::string_view")
    return re.sub(r" ([&*])", r"\1", spelled).replace(",at::", ", at::")


def _value_type(binding: Binding) -> str:
    """The type of an argument without const and &."""
    return re.sub(r"^const |&$", "", _tidy(binding.type))


def _fill(head: str, items: Sequence[str], tail: str, indent: int) -> str:
    """`head(item, item, ...)tail` in lines of at most WIDTH, continued below the parenthesis."""
    line = " " * indent + head
    hang = len(line)
    longest = max((len(item) + 1 for item in items), default=0) + len(tail)
    lines: list[str] = []
    if hang + longest > WIDTH:
        lines.append(line)
        hang = indent + 4
        line = " " * hang
    for i, item in enumerate(items):
        text = item + (tail if i == len(items) - 1 else ",")
        if len(line) > hang and len(line) + 1 + len(text) > WIDTH:
            lines.append(line)
            line = " " * hang + text
        else:
            line += (" " if len(line) > hang else "") + text
    lines.append(line if items else line + tail)
    return "\n".join(lines) + "\n"


def _comment(text: str) -> str:
    """A comment of as many lines as it takes."""
    line, lines = "//", []
    for word in text.split(" "):
        if len(line) + 1 + len(word) > WIDTH:
            lines.append(line)
            line = "//    "
        line += " " + word
    return "\n".join([*lines, line]) + "\n"


# ----------------------------------------------------------------------------------- one operator


def _signature(function: NativeFunction) -> NativeSignature:
    return NativeSignature(function.func, prefix="", symint=False)


def _arguments(function: NativeFunction) -> list[Binding]:
    with local.parametrize(
        use_const_ref_for_mutable_tensors=function.use_const_ref_for_mutable_tensors,
        use_ilistref_for_tensor_lists=function.part_of_structured_group,
    ):
        return list(_signature(function).arguments())


def _returns(function: NativeFunction) -> str:
    with local.parametrize(
        use_const_ref_for_mutable_tensors=function.use_const_ref_for_mutable_tensors,
        use_ilistref_for_tensor_lists=function.part_of_structured_group,
    ):
        return _tidy(_signature(function).returns_type().cpp_type())


def _declare(bindings: Iterable[Binding]) -> list[str]:
    return [f"{_tidy(binding.type)} {binding.name}" for binding in bindings]


def _members(bindings: Iterable[Binding]) -> str:
    return "".join(f"  Owned<{_tidy(binding.type)}> {binding.name}_;\n" for binding in bindings)


def _initializers(bindings: Iterable[Binding]) -> list[str]:
    return [f"{binding.name}_(aliases, {binding.name})" for binding in bindings]


def _is(binding: Binding, base: BaseTy) -> bool:
    """Whether an argument is of this type, optional or not."""
    type_: Type = binding.argument.type
    if isinstance(type_, OptionalType):
        type_ = type_.elem
    return bool(type_ == BaseType(base))


def _holds_tensors(binding: Binding) -> bool:
    return bool(binding.argument.type.is_tensor_like())


def _is_written(binding: Binding) -> bool:
    argument = binding.argument
    annotation = argument.annotation if isinstance(argument, Argument) else None
    return annotation is not None and annotation.is_write


def _is_list(binding: Binding) -> bool:
    return isinstance(binding.argument.type, ListType)


def _cost(entry: Entry) -> str:
    if not re.fullmatch(r"\d+", entry.cost):
        return entry.cost
    return "operands.numel()" + ("" if entry.cost == "1" else f" * {entry.cost}")


def _prepared(entry: Entry, bindings: Sequence[Binding]) -> tuple[list[str], str]:
    """Parameters and the statements that put prepared arguments in the place of some."""
    parameters = _declare(bindings)
    statements = ""
    for name, expression in entry.prepare:
        place = [binding.name for binding in bindings].index(name)
        parameters[place] = parameters[place].removesuffix(name) + f"{name}_given"
        source = re.sub(rf"\b{name}\b", f"{name}_given", expression)
        statements += f"  const {_value_type(bindings[place])} {name} = {source};\n"
    if entry.check:
        statements += f"  {entry.check};\n"
    return parameters, statements


@dataclasses.dataclass(frozen=True)
class Block:
    """The code of one operator with all its variants."""

    header: str  # of ATen/ops
    code: str
    registrations: tuple[str, ...]


class StructuredWriter:
    """Writes the block of a structured operator."""

    def __init__(self, entry: Entry, torch: Torch) -> None:
        self._entry = entry
        self._group: NativeFunctionsGroup = torch.groups[entry.name]
        kernel = torch.kernel(self._group.out)
        assert kernel is not None, entry.name
        self._space = _namespace(entry.name)
        self._meta_class = f"at::meta::structured_{meta.name(self._group)}"
        self._kernel_class = f"{kernel.cpp_namespace}::structured_{kernel.kernel}"
        self._outputs = [binding.name for binding in _outputs(self._group.out)]
        self._inputs = [
            binding for binding in _arguments(self._group.out) if binding.name not in self._outputs
        ]
        self._iterates = self._group.out.structured_inherits is not None
        self._always = entry.converts is Converts.ALWAYS
        self._may_convert = self._always or (
            self._iterates and entry.converts is not Converts.NEVER
        )

    def block(self) -> Block:
        """The code of the functional, in-place and out= variants."""
        group = self._group
        code = _comment(str(group.functional.func))
        code += f"namespace {self._space} {{\n\n"
        if not self._always:
            code += self._kernel()
        if self._may_convert:
            code += self._converting()
        if self._entry.pointwise:
            code += self._pointwise()
        code += self._function("functional", "kFunctional", group.functional)
        registrations = [f"{group.functional.func.name}|functional"]
        if group.inplace is not None:
            code += self._function("inplace", "kInplace", group.inplace)
            registrations.append(f"{group.inplace.func.name}|inplace")
        code += self._function("out", "kOut", group.out)
        registrations.append(f"{group.out.func.name}|out")
        code += f"}}  // namespace {self._space}\n"
        return Block(
            header=group.functional.root_name,
            code=code,
            registrations=tuple(
                f'  m.impl("{name}", TORCH_FN({self._space}::{function}));\n'
                for name, function in (pair.split("|") for pair in registrations)
            ),
        )

    def _kernel(self) -> str:
        """The closure that holds the operator's class, whose meta() has run."""
        with local.parametrize(
            use_const_ref_for_mutable_tensors=False, use_ilistref_for_tensor_lists=True
        ):
            meta_arguments = [binding.name for binding in structured.meta_arguments(self._group)]
            impl_arguments = [binding.name for binding in structured.impl_arguments(self._group)]
        precomputed = self._precomputed()
        code = "template <OutputKind kKind>\nclass Kernel {\n public:\n"
        code += "  template <class... Outputs>\n"
        code += _fill(
            "Kernel(",
            [
                "AliasPool& aliases",
                "c10::DeviceIndex device",
                *_declare(self._inputs),
                "const Outputs&... outputs",
            ],
            ")",
            2,
        )
        code += _fill(": ", [*_initializers(self._inputs), "op_(aliases, device)"], " {", 6)
        if self._group.inplace is None:
            code += "    op_.give_outputs(outputs...);\n"
        else:
            code += (
                "    if constexpr (kKind == OutputKind::kInplace) {\n"
                "      op_.give_output(0, self, self_);\n"
                "    } else {\n"
                "      op_.give_outputs(outputs...);\n"
                "    }\n"
            )
        assign = "precomputed_ = " if precomputed else ""
        code += _fill(f"{assign}op_.meta(", [f"{name}_" for name in meta_arguments], ");", 4)
        code += "  }\n  auto result() { return op_.take_outputs(); }\n"
        code += self._overlaps("kKind == OutputKind::kOut")
        if self._group.inplace is not None and not self._iterates:
            code += (
                "  template <class... Others>\n"
                "  static uint64_t overlaps(c10::DeviceIndex /*device*/, const at::Tensor& self,\n"
                "                           const Others&... others)\n"
                "    requires(kKind == OutputKind::kInplace)\n"
                "  {\n    return overlap_key(self, others...);\n  }\n"
            )
        if self._iterates:
            code += "  int64_t iterations() const { return op_.iterations(); }\n"
            if not any(binding.name == "reduction" for binding in self._inputs):
                code += "  static constexpr bool kPointwise = true;\n"
        code += "  void run() {\n"
        code += _fill(
            "op_.impl(",
            [
                f"op_.maybe_get_output({self._outputs.index(name)})"
                if name in self._outputs
                else f"precomputed_.{name}"
                if name in precomputed
                else f"{name}_"
                for name in impl_arguments
            ],
            ");",
            4,
        )
        code += "    op_.finish();\n  }\n"
        if self._iterates:
            code += (
                "  void repeat() {\n"
                "    const typename decltype(op_)::KeptOperands kept(op_);\n"
                "    run();\n  }\n"
            )
        code += "\n private:\n" + _members(self._inputs)
        code += f"  StructuredKernel<{self._kernel_class}, {len(self._outputs)}, kKind> op_;\n"
        if precomputed:
            code += f"  {self._meta_class}::meta_return_ty precomputed_;\n"
        return code + "};\n\n"

    def _overlaps(self, condition: str) -> str:
        """The method that says how given outputs overlap; a TensorIterator looks itself."""
        if self._iterates:
            return ""
        return (
            "  template <class... Arguments>\n"
            "  static uint64_t overlaps(const Arguments&... arguments)\n"
            f"    requires({condition})\n"
            f"  {{\n    return output_overlaps<{len(self._outputs)}>(arguments...);\n  }}\n"
        )

    def _precomputed(self) -> set[str]:
        """The names of what meta() hands to impl()."""
        precomputed = self._group.out.precomputed
        if precomputed is None:
            return set()
        arguments = [
            *(argument for many in precomputed.replace.values() for argument in many),
            *precomputed.add,
        ]
        return {argument.name for argument in arguments}

    def _operands(self) -> list[str]:
        """The names of what the loop of a pointwise operator visits, in its order."""
        if self._entry.visits:
            return list(self._entry.visits)
        compares = self._entry.pointwise is Pointwise.BOOL
        return [binding.name for binding in self._inputs if compares or _holds_tensors(binding)]

    def _numbers(self) -> list[Binding]:
        """The other arguments of a pointwise operator."""
        operands = self._operands()
        return [binding for binding in self._inputs if binding.name not in operands]

    def _pointwise(self) -> str:
        """The closure of the fast path."""
        with local.parametrize(
            use_const_ref_for_mutable_tensors=False, use_ilistref_for_tensor_lists=True
        ):
            impl_arguments = [binding.name for binding in structured.impl_arguments(self._group)]
        numbers = self._numbers()
        names = [binding.name for binding in numbers]
        count = len(self._operands())
        # What impl() takes of numbers that are operands: it does not look at them either.
        scalars = {binding.name for binding in self._inputs if _is(binding, BaseTy.Scalar)}
        base = f"PointwiseKernel<{self._kernel_class}, {count}>"
        code = _fill("class Pointwise final : public ", [base], " {", 0) + " public:\n"
        code += _fill(
            "Pointwise(",
            [
                "AliasPool& /*aliases*/",
                f"const FastPath<{count}>& fast_path",
                "const at::Tensor& output",
                *_declare(numbers),
            ],
            ")",
            2,
        )
        initializers = [
            "PointwiseKernel(fast_path, output)",
            *(f"{name}_({name})" for name in names),
        ]
        code += _fill(": ", initializers, " {}", 6)
        code += "  void run() {\n"
        code += _fill(
            "impl(",
            [
                f"{name}_" if name in names else "at::Scalar()" if name in scalars else "none_"
                for name in impl_arguments
            ],
            ");",
            4,
        )
        code += "  }\n"
        if numbers:
            code += "\n private:\n" + "".join(f"  const at::Scalar {name}_;\n" for name in names)
        return code + "};\n\n"

    def _launch_pointwise(self, function: NativeFunction, kind: str) -> str:
        """The statements of the fast path, if the arguments are eligible."""
        operands = self._operands()
        numbers = [binding.name for binding in self._numbers()]
        inplace = kind == "kInplace"
        conditions = [f"fast_path.eligible{'_inplace' if inplace else ''}()"]
        conditions += [f"is_plain({name})" for name in numbers]
        fast_path = f"const FastPath<{len(operands)}> fast_path({', '.join(operands)})"
        code = f"  if ({fast_path}; {' && '.join(conditions)}) {{\n"
        if len(code) > WIDTH + 1:
            code = f"  if ({fast_path};\n      {' && '.join(conditions)}) {{\n"
        cost = "fast_path.numel()" + ("" if self._entry.cost == "1" else f" * {self._entry.cost}")
        code += "    const bool serial = fast_path.numel() <= kSerialIterations;\n"
        site = [f'"aten::{function.func.name}"', cost, "false", "serial"]
        code += _fill("const LaunchSite site{", site, "};", 4)
        result = "self"
        if not inplace:
            result = "result"
            compares = self._entry.pointwise is Pointwise.BOOL
            dtype = "c10::kBool" if compares else "fast_path.dtype()"
            code += f"    at::Tensor result = fast_path.make_output({dtype});\n"
        arguments = ["site", "fast_path.device()", "fast_path", result, *numbers]
        code += _fill("launch<Pointwise>(", arguments, ");", 4)
        return code + f"    return {result};\n  }}\n"

    def _converting(self) -> str:
        """The closure that runs all of the CPU's operator later."""
        outputs = _outputs(self._group.out)
        code = "template <OutputKind kKind>\nclass Converting {\n public:\n"
        code += _fill(
            "Converting(",
            [
                "AliasPool& aliases",
                *_declare(self._inputs),
                *(f"const at::Tensor& {binding.name}" for binding in outputs),
            ],
            ")",
            2,
        )
        initializers = _initializers(self._inputs)
        for output in outputs:
            alias = f"aliases.alias({output.name})"
            if self._group.inplace is not None:
                alias = f"kKind == OutputKind::kInplace ? *self_.value : {alias}"
            initializers.append(f"{output.name}_({alias})")
        code += _fill(": ", initializers, " {}", 6)
        code += "  std::nullptr_t result() const { return nullptr; }\n"
        code += self._overlaps("kKind != OutputKind::kFunctional") + "  void run() {\n"
        out_name = cpp.name(self._group.out.func, faithful_name_for_out_overloads=True)
        names = [f"{binding.name}_" for binding in [*self._inputs, *outputs]]
        code += _fill(f"at::cpu::{out_name}(", names, ");", 4)
        code += "  }\n\n private:\n" + _members(self._inputs)
        code += "".join(f"  at::Tensor {output.name}_;\n" for output in outputs)
        return code + "};\n\n"

    def _function(self, name: str, kind: str, function: NativeFunction) -> str:
        """The function that the dispatcher calls."""
        bindings = _arguments(function)
        given = self._outputs if kind == "kOut" else []
        # torch's out= variant may order its arguments in another way than the functional one.
        inputs = [binding.name for binding in self._inputs]
        parameters, statements = _prepared(self._entry, bindings)
        code = _fill(f"{_returns(function)} {name}(", parameters, ") {", 0)
        code += statements
        # A comparison writes truth values into self.
        in_place = kind == "kInplace" and self._entry.pointwise is Pointwise.SAME
        if in_place or (kind == "kFunctional" and self._entry.pointwise):
            code += self._launch_pointwise(function, kind)
        code += "  Operands operands;\n"
        for binding in self._inputs:
            code += self._add(binding, strict=kind == "kInplace" and binding.name == "self")
        if self._may_convert and not self._always:
            # Before the outputs are added: an output of another dtype is converted by the kernel.
            condition = "mixes" if self._entry.converts is Converts.MIXED else "converts"
            code += f"  const bool converts = operands.{condition}();\n"
        code += "".join(f"  operands.add_device({name});\n" for name in given)
        code += _site(function, self._entry, _scalar_keys(self._inputs))
        if self._always:
            return code + self._convert(kind, inputs, given, indent=2) + "}\n\n"
        if self._may_convert:
            code += "  if (converts) {\n" + self._convert(kind, inputs, given, indent=4) + "  }\n"
        arguments = ["site", "operands.device()", "operands.device()", *inputs, *given]
        call = f"launch<Kernel<OutputKind::{kind}>>("
        if kind == "kFunctional":
            code += _fill(f"return {call}", arguments, ");", 2)
            return code + "}\n\n"
        code += _fill(call, arguments, ");", 2)
        return code + f"  return {self._result(kind)};\n}}\n\n"

    def _add(self, binding: Binding, strict: bool) -> str:
        if _holds_tensors(binding):
            # Operators that iterate take numbers of the CPU among tensors of the device.
            add = "add" if self._iterates and not strict else "add_device"
            return f"  operands.{add}({binding.name});\n"
        if self._may_convert and _is(binding, BaseTy.Scalar):
            return f"  operands.add_scalar({binding.name});\n"
        return ""

    def _convert(self, kind: str, inputs: Sequence[str], given: Sequence[str], indent: int) -> str:
        """The statements of the way that runs meta() on the device tensors."""
        count = len(self._outputs)
        with local.parametrize(
            use_const_ref_for_mutable_tensors=False, use_ilistref_for_tensor_lists=True
        ):
            meta_arguments = [binding.name for binding in structured.meta_arguments(self._group)]
        outputs = [f"op.output({i})" for i in range(count)]
        code = _fill(
            "StructuredMeta<",
            [self._meta_class, str(count), f"OutputKind::{kind}> op(operands.device());"],
            "",
            indent,
        )
        if kind != "kFunctional":
            code += _fill("op.give_outputs(", given or ["self"], ");", indent)
        arguments = [self._meta_argument(argument) for argument in meta_arguments]
        code += _fill("op.meta(", arguments, ");", indent)
        code += _fill(
            f"launch<Converting<OutputKind::{kind}>>(",
            ["site", "operands.device()", *inputs, *outputs],
            ");",
            indent,
        )
        return code + " " * indent + f"return {self._result(kind, outputs)};\n"

    def _meta_argument(self, name: str) -> str:
        (binding,) = (binding for binding in self._inputs if binding.name == name)
        if isinstance(binding.argument.type, OptionalType):
            if _holds_tensors(binding):
                return f"optional_tensor({name})"
            if _is(binding, BaseTy.Scalar):
                return f"optional_scalar({name})"
        return name

    def _result(self, kind: str, outputs: Sequence[str] = ()) -> str:
        if kind == "kInplace":
            return "self"
        names = self._outputs if kind == "kOut" else outputs
        if len(names) == 1:
            return names[0]
        return f"{'std::tie' if kind == 'kOut' else 'std::make_tuple'}({', '.join(names)})"


def _outputs(function: NativeFunction) -> list[Binding]:
    names = {argument.name for argument in function.func.arguments.out}
    return [binding for binding in _arguments(function) if binding.name in names]


def _scalar_keys(bindings: Iterable[Binding]) -> list[str]:
    """Of arguments whose values the kernel checks."""
    return [
        f"{'width_of' if found[0] == 'Scalar' else 'text_key'}({binding.name})"
        for binding in bindings
        if (found := re.search(r"\b(Scalar|str)\b", str(binding.argument.type)))
    ]


def _site(function: NativeFunction, entry: Entry, keys: Sequence[str]) -> str:
    site = [f'.name = "aten::{function.func.name}"', f".cost = {_cost(entry)}"]
    if entry.name.startswith("_foreach_"):
        site += [".pointwise = true", ".loops = static_cast<int64_t>(self.size())"]
    if keys:
        site.append(f".argument_key = argument_key({', '.join(keys)})")
    return _fill("const LaunchSite site{", site, "};", 2)


def mutating_block(entry: Entry, torch: Torch) -> Block:
    """The code of an operator whose CPU kernel is queued on aliases as it is."""
    function = torch.functions[entry.name]
    kernel = torch.kernel(function)
    assert kernel is not None, entry.name
    bindings = _arguments(function)
    space = _namespace(entry.name)
    qualified = f"{kernel.cpp_namespace}::{kernel.kernel}"

    code = _comment(str(function.func)) + f"namespace {space} {{\n\nclass Kernel {{\n public:\n"
    code += _fill("Kernel(", ["AliasPool& aliases", *_declare(bindings)], ")", 2)
    code += _fill(": ", _initializers(bindings), " {}", 6)
    code += "  std::nullptr_t result() const { return nullptr; }\n  void run() {\n"
    code += _fill(
        f"{qualified}(",
        [f"{binding.name}_" for binding in bindings],
        ");",
        4,
    )
    code += "  }\n\n private:\n" + _members(bindings) + "};\n\n"

    parameters, statements = _prepared(entry, bindings)
    returns = _returns(function)
    names = [binding.name for binding in bindings]
    code += _fill(f"{returns} call(", parameters, ") {", 0) + statements
    if entry.when:
        code += f"  if (!({entry.when})) {{\n"
        code += _fill(f"return {qualified}(", names, ");", 4) + "  }\n"
    code += "  Operands operands;\n"
    for binding in bindings:
        if _holds_tensors(binding):
            # Lists and what is changed are on the device; a number may be the CPU's.
            strict = _is_list(binding) or _tidy(binding.type) == "at::Tensor&"
            add = "add_device" if strict and "c10::List" not in binding.type else "add"
            code += f"  operands.{add}({binding.name});\n"
    code += _site(function, entry, _scalar_keys(bindings))
    if not function.func.returns and torch.composite_kernel(function):
        # torch leaves the version counters to the in-place operators of its composite kernel.
        written = [binding.name for binding in bindings if _is_written(binding)]
        code += "".join(f"  count_writes({name});\n" for name in written)
    code += _fill("launch<Kernel>(", ["site", "operands.device()", *names], ");", 2)
    code += "" if returns == "void" else f"  return {names[0]};\n"
    code += f"}}\n\n}}  // namespace {space}\n"
    return Block(
        header=function.root_name,
        code=code,
        registrations=(f'  m.impl("{entry.name}", TORCH_FN({space}::call));\n',),
    )


# ------------------------------------------------------------------------------------------- files


_HEAD = """\
// SPDX-License-Identifier: BSD-3-Clause
//
// Written by aten/structured/generate.py: what to change stands in there, or in operators.yaml.
"""


def write_shards(entries: Sequence[Entry], torch: Torch, shards: int) -> list[str]:
    """The source files.

    Args:
      entries: what to write.
      torch: PyTorch's operators.
      shards: how many files, of about as many kernels each.

    Returns:
      The contents of the files. Operators stand in the order of entries.
    """
    blocks = [
        StructuredWriter(entry, torch).block()
        if entry.kind is Kind.STRUCTURED
        else mutating_block(entry, torch)
        for entry in entries
    ]
    total = sum(len(block.registrations) for block in blocks)
    members: list[list[Block]] = [[] for _ in range(shards)]
    done = 0
    for block in blocks:
        members[min(done * shards // total, shards - 1)].append(block)
        done += len(block.registrations)
    return [_shard(blocks_of_shard) for blocks_of_shard in members]


def _shard(blocks: Sequence[Block]) -> str:
    includes = sorted(
        {
            f"#include <ATen/ops/{block.header}_{suffix}.h>\n"
            for block in blocks
            for suffix in ("native", "cpu_dispatch")
            if suffix == "native" or "at::cpu::" in block.code
        }
    )
    return (
        _HEAD
        + "#include <ATen/core/Tensor.h>\n"
        + "".join(includes)
        + "#include <torch/library.h>\n\n"
        + "#include <cstddef>\n#include <optional>\n#include <tuple>\n\n"
        + '#include "aten/launch/argument_key.h"\n#include "aten/structured/arguments.h"\n'
        + '#include "aten/launch/launch.h"\n#include "aten/launch/owned.h"\n#include "aten/structured/pointwise.h"\n'
        + '#include "aten/structured/structured.h"\n\n'
        + "namespace openreg {\nnamespace {\n\n"
        + "\n".join(block.code for block in blocks)
        + "\n}  // namespace\n\n"
        + "TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {\n"
        + "".join(line for block in blocks for line in block.registrations)
        + "}\n\n}  // namespace openreg\n"
    )


def write_table(torch: Torch) -> str:
    """The source file of structured_table.h."""
    groups = [torch.groups[name] for name in sorted(torch.groups)]
    rows: list[str] = []
    names: list[tuple[str, int]] = []
    for index, group in enumerate(groups):
        row = [group.functional, group.inplace, group.out]
        names += [(f"aten::{f.func.name}", index) for f in row if f is not None]
        quoted = ["nullptr" if f is None else f'"aten::{f.func.name}"' for f in row]
        rows.append(_fill("{", quoted, "},", 4))
    entries = [_fill("{", [f'"{name}"', str(index)], "},", 4) for name, index in sorted(names)]
    return (
        _HEAD
        + '#include "aten/structured/structured_table.h"\n\n'
        + "#include <algorithm>\n#include <cstdint>\n#include <iterator>\n\n"
        + "namespace openreg {\nnamespace {\n\n"
        + "constexpr StructuredGroup kGroups[] = {\n"
        + "".join(rows)
        + "};\n\nstruct Name {\n  std::string_view name;\n  uint16_t group;\n};\n\n"
        + "// In the order of the bytes of the names.\nconstexpr Name kNames[] = {\n"
        + "".join(entries)
        + "};\n\n}  // namespace\n\n"
        + "const StructuredGroup* find_structured(std::string_view qualified_name) {\n"
        + "  const Name* const found =\n"
        + "      std::lower_bound(std::begin(kNames), std::end(kNames), qualified_name,\n"
        + "                       [](const Name& entry, std::string_view name) {\n"
        + "                         return entry.name < name;\n"
        + "                       });\n"
        + "  return found != std::end(kNames) && found->name == qualified_name\n"
        + "             ? &kGroups[found->group]\n"
        + "             : nullptr;\n"
        + "}\n\n}  // namespace openreg\n"
    )


def main(arguments: Sequence[str]) -> int:
    """Runs the program; returns its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    kernels = commands.add_parser("kernels", help="write the kernels of the listed operators")
    kernels.add_argument("--operators", type=pathlib.Path, required=True, help="operators.yaml")
    kernels.add_argument("--shards", type=int, required=True, help="number of files")
    kernels.add_argument("--output", type=pathlib.Path, required=True, help="folder of the files")
    table = commands.add_parser("table", help="write the table of structured operators")
    table.add_argument("--output", type=pathlib.Path, required=True, help="the file")
    options = parser.parse_args(arguments)

    torch = Torch()
    if options.command == "table":
        options.output.write_text(write_table(torch))
        return 0
    try:
        entries = read_entries(options.operators.read_text(), torch)
    except ListError as error:
        print(f"{options.operators}: {error}", file=sys.stderr)
        return 1
    for number, text in enumerate(write_shards(entries, torch, options.shards)):
        (options.output / f"kernels_{number}.cc").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
