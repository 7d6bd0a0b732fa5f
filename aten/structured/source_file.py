# SPDX-License-Identifier: BSD-3-Clause
"""Renders the generated C++ source files from the templates in templates/."""

import pathlib
from collections.abc import Sequence

import jinja2

from aten.structured.mutating_operator import MutatingOperator
from aten.structured.operator_list import Entry, Kind
from aten.structured.structured_operator import StructuredOperator
from aten.structured.torch_operators import Torch

_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(pathlib.Path(__file__).with_name("templates")),
    undefined=jinja2.StrictUndefined,
    # A line that contains only a tag produces no output.
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def write_shards(entries: Sequence[Entry], torch: Torch, shards: int) -> list[str]:
    """Generate the source files of the kernels.

    Args:
      entries: the operators.
      torch: PyTorch's operators.
      shards: the number of files, with about the same number of kernels each.

    Returns:
      The contents of the files, with operators in the order of ``entries``.
    """
    operators = [
        StructuredOperator(entry, torch)
        if entry.kind is Kind.STRUCTURED
        else MutatingOperator(entry, torch)
        for entry in entries
    ]
    total = sum(len(operator.registrations) for operator in operators)
    members: list[list[StructuredOperator | MutatingOperator]] = [[] for _ in range(shards)]
    done = 0
    for operator in operators:
        members[min(done * shards // total, shards - 1)].append(operator)
        done += len(operator.registrations)
    template = _TEMPLATES.get_template("kernels.cc.jinja")
    return [
        template.render(
            headers=sorted({header for operator in shard for header in operator.headers}),
            operators=shard,
        )
        for shard in members
    ]


def write_table(torch: Torch) -> str:
    """Generate the source file of structured_table.h."""
    groups = [torch.groups[name] for name in sorted(torch.groups)]
    names = sorted(
        (str(function.func.name), index)
        for index, group in enumerate(groups)
        for function in (group.functional, group.inplace, group.out)
        if function is not None
    )
    return _TEMPLATES.get_template("structured_table.cc.jinja").render(groups=groups, names=names)
