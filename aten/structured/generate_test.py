# SPDX-License-Identifier: BSD-3-Clause
"""The generator reads its list, rejects unsupported entries, and is deterministic."""

import os
import pathlib
import subprocess
import sys

import pytest

from aten.structured import generate
from aten.structured.operator_list import Kind, ListError, read_entries
from aten.structured.source_file import write_shards, write_table
from aten.structured.torch_operators import Torch

OPERATORS = pathlib.Path(__file__).with_name("operators.yaml")


@pytest.fixture(scope="module")
def torch_operators() -> Torch:
    """The operators of PyTorch. Parsing them takes half a second."""
    return Torch()


def family(operator: str, **fields: str) -> str:
    """Return the YAML text of a list with one operator."""
    lines = [f"  {name}: {value}" for name, value in fields.items()]
    return "\n".join(["- reason: a test", *lines, f"  operators: [{operator}]"])


def run_generator(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a separate process."""
    return subprocess.run(
        [sys.executable, generate.__file__, *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_list_has_reasons_and_many_operators(torch_operators: Torch) -> None:
    entries = read_entries(OPERATORS.read_text(), torch_operators)
    assert len(entries) >= 150
    assert all(entry.reason for entry in entries)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (family("frobnicate.Tensor"), "frobnicate.Tensor: torch has no such operator"),
        (family("add_.Tensor"), "add_.Tensor: .* requires the functional variant"),
        (family("convolution"), "convolution: .* requires the functional variant of a structured"),
        (family("add.Tensor", colour="red"), "add.Tensor: unknown field colour"),
        (family("add.Tensor", prepare="{weight: f(x)}"), "add.Tensor: `prepare` names weight"),
        (family("zero_", kind="mutating", when="true"), "zero_: `when` requires a composite"),
        (family("exp", kind="mutating"), "exp: `kind: mutating` requires an in-place operator"),
        (family("mm") + "\n" + family("mm"), "mm: the operator is already in the list"),
        (family("mm", pointwise="same"), "mm: `pointwise` requires a TensorIterator"),
        (family("gelu", pointwise="same"), "gelu: `pointwise` requires a TensorIterator"),
        (
            family("zero_", kind="mutating", pointwise="same"),
            "zero_: `pointwise` requires a structured operator",
        ),
        (family("exp", pointwise="same", visits="[x]"), "exp: `visits` names x"),
    ],
)
def test_unsupported_entries_are_named(torch_operators: Torch, text: str, message: str) -> None:
    with pytest.raises(ListError, match=message):
        read_entries(text, torch_operators)


def test_two_runs_write_the_same_with_all_variants(
    torch_operators: Torch, tmp_path: pathlib.Path
) -> None:
    entries = read_entries(OPERATORS.read_text(), torch_operators)
    shards = write_shards(entries, torch_operators, 3)
    result = run_generator(
        "kernels", "--operators", str(OPERATORS), "--shards", "3", "--output", str(tmp_path)
    )
    assert result.returncode == 0, result.stderr
    assert [(tmp_path / f"kernels_{i}.cc").read_text() for i in range(3)] == shards
    text = "".join(shards)
    for name in ("add.Tensor", "add_.Tensor", "add.out", "fill_.Scalar", "_softmax.out"):
        assert text.count(f'm.impl("{name}"') == 1


def test_writes_are_counted_only_if_torch_does_not_count_them(torch_operators: Torch) -> None:
    entries = read_entries(OPERATORS.read_text(), torch_operators)
    mutating = [entry for entry in entries if entry.kind is Kind.MUTATING]
    counting = {
        entry.name
        for entry in mutating
        if "count_writes(self);" in write_shards([entry], torch_operators, 1)[0]
    }
    # torch counts the writes of operators that return a tensor, but not the writes of fused
    # optimizers.
    assert counting == {entry.name for entry in mutating if entry.name.startswith("_foreach_")}


def test_command_names_the_rejected_operator(tmp_path: pathlib.Path) -> None:
    operators = tmp_path / "operators.yaml"
    operators.write_text(family("frobnicate.Tensor"))
    result = run_generator(
        "kernels", "--operators", str(operators), "--shards", "1", "--output", str(tmp_path)
    )
    assert result.returncode == 1
    assert result.stderr == f"{operators}: frobnicate.Tensor: torch has no such operator\n"


def test_table_is_sorted_and_has_the_variants_of_a_group(torch_operators: Torch) -> None:
    text = write_table(torch_operators)
    assert '{"aten::add.Tensor", "aten::add_.Tensor", "aten::add.out"},' in text
    assert '{"aten::mm", nullptr, "aten::mm.out"},' in text
    names = [line for line in text.split("kNames[] = {\n")[1].split("\n") if line[:6] == '    {"']
    assert len(names) > 600
    assert names == sorted(names, key=lambda line: line.split('"')[1])
