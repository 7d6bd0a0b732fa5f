# SPDX-License-Identifier: BSD-3-Clause
"""Reads operators.yaml, which lists the operators that get a kernel, and their properties."""

import dataclasses
import enum
import re

import yaml
from torchgen.model import BaseTy, BaseType, NativeFunctionsGroup, SchemaKind

from aten.structured.torch_operators import CppArgument, Torch, cpp_arguments


class ListError(Exception):
    """Raised for an unsupported entry in operators.yaml; names the operator and the reason."""


class Kind(enum.Enum):
    """The kind of a generated kernel."""

    STRUCTURED = "structured"
    MUTATING = "mutating"


class Converts(enum.Enum):
    """The cases in which building a TensorIterator over the arguments converts operands."""

    INTEGERS = "integers"
    MIXED = "mixed"
    NEVER = "never"
    ALWAYS = "always"


class Pointwise(enum.Enum):
    """The dtype of a pointwise operator's result: that of its floating-point operands, or bool."""

    SAME = "same"
    BOOL = "bool"


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A local variable of the generated kernel that replaces an argument."""

    type: str
    name: str
    expression: str


@dataclasses.dataclass(frozen=True)
class Entry:
    """One operator in operators.yaml. The top of that file explains the fields."""

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

    @property
    def namespace(self) -> str:
        """The kernel's C++ namespace, such as `foreach_add_scalar` for `_foreach_add_.Scalar`."""
        return re.sub("_+", "_", self.name.replace(".", "_")).strip("_").lower()

    @property
    def cost_factor(self) -> str:
        """The C++ text that multiplies a number of elements by the cost; empty for cost 1."""
        return "" if self.cost == "1" else f" * {self.cost}"

    @property
    def launch_cost(self) -> str:
        """The C++ expression for the cost of a launch."""
        return f"operands.numel(){self.cost_factor}" if self.cost.isdecimal() else self.cost

    def parameters(self, arguments: list[CppArgument]) -> list[str]:
        """Return the parameters for these arguments. Prepared arguments are renamed."""
        prepared = dict(self.prepare)
        return [
            argument.declaration + ("_given" if argument.name in prepared else "")
            for argument in arguments
        ]

    def prepared(self, arguments: list[CppArgument]) -> list[Prepared]:
        """Return the variables that replace prepared arguments."""
        types = {argument.name: argument.value_type for argument in arguments}
        return [
            Prepared(types[name], name, re.sub(rf"\b{name}\b", f"{name}_given", expression))
            for name, expression in self.prepare
        ]


_FIELDS = {"reason", "operators"} | {field.name for field in dataclasses.fields(Entry)} - {"name"}


def read_entries(text: str, torch: Torch) -> list[Entry]:
    """Parse operators.yaml.

    Args:
      text: the contents of the file.
      torch: PyTorch's operators, against which the names are checked.

    Returns:
      The entries, in the order of the file.

    Raises:
      ListError: for an unknown field, kind or operator, or a duplicate operator.
    """
    entries: list[Entry] = []
    for family in yaml.safe_load(text):
        names = family.get("operators", [])
        unknown = sorted(set(family) - _FIELDS)
        if unknown:
            raise ListError(f"{', '.join(names)}: unknown field {unknown[0]}")
        if not names or not family.get("reason"):
            raise ListError(f"{', '.join(names) or family}: `operators` and `reason` are required")
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
    namespaces: dict[str, str] = {}
    for entry in entries:
        if entry.namespace in namespaces:
            raise ListError(
                f"{entry.name}: the operator is already in the list, as "
                f"{namespaces[entry.namespace]}"
            )
        namespaces[entry.namespace] = entry.name
    return entries


def _check_entry(entry: Entry, torch: Torch) -> None:
    function = torch.functions.get(entry.name)
    if function is None:
        raise ListError(f"{entry.name}: torch has no such operator")
    if entry.kind is Kind.STRUCTURED:
        if entry.name not in torch.groups:
            raise ListError(
                f"{entry.name}: the default kind (structured) requires the functional variant of a "
                "structured operator that has a CPU kernel"
            )
        if entry.when:
            raise ListError(f"{entry.name}: `when` requires `kind: mutating`")
        if entry.pointwise and not _is_pointwise(torch.groups[entry.name]):
            raise ListError(
                f"{entry.name}: `pointwise` requires a TensorIterator, only tensor and scalar "
                "arguments, and one output"
            )
    else:
        if function.func.kind() is not SchemaKind.inplace:
            raise ListError(f"{entry.name}: `kind: mutating` requires an in-place operator")
        if torch.kernel(function) is None:
            raise ListError(f"{entry.name}: `kind: mutating` requires a CPU kernel")
        if entry.pointwise:
            raise ListError(f"{entry.name}: `pointwise` requires a structured operator")
        if entry.when and torch.composite_kernel(function) is None:
            raise ListError(f"{entry.name}: `when` requires a composite kernel")
    arguments = {argument.name for argument in cpp_arguments(function)}
    for field, names in (("prepare", dict(entry.prepare)), ("visits", entry.visits)):
        for name in names:
            if name not in arguments:
                raise ListError(
                    f"{entry.name}: `{field}` names {name}, which is not an argument of "
                    "the operator"
                )


def _is_pointwise(group: NativeFunctionsGroup) -> bool:
    kinds = (BaseType(BaseTy.Tensor), BaseType(BaseTy.Scalar))
    return (
        group.out.structured_inherits is not None
        and len(group.out.func.arguments.out) == 1
        and all(a.type in kinds for a in group.functional.func.arguments.flat_all)
    )
