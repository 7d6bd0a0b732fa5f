# SPDX-License-Identifier: BSD-3-Clause
"""Runs a fixed part of the sweep: some entries of each kind, in all modes except the slowest."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from torch_device_conformance.database.data_errors import DATA_ERRORS
from torch_device_conformance.database.host_arguments import HOST_ARGUMENTS
from torch_device_conformance.mode.modes import SUITES
from torch_device_conformance.report.report import load
from torch_device_conformance.verdict.verdict import NOT_RUN, Case, Verdict

from tests.sweep.modes import OPERATOR_MODES
from tests.sweep.verdicts import KNOWN, chosen, every_case, results, verdicts

# Operators of each kind: common in networks, with a hand-written kernel, with the fallback, random,
# views, with several outputs, and with output dtypes or shapes that depend on data.
OPERATORS = (
    "__getitem__",
    "add",
    "addmm",
    "amax",
    "argmax",
    "as_strided",
    "baddbmm",
    "bernoulli",
    "bmm",
    "cat",
    "cdist",
    "clamp",
    "cumsum",
    "diagonal",
    "div.floor_rounding",
    "einsum",
    "empty",
    "exp",
    "expand",
    "fft.rfft",
    "flatten",
    "gather",
    "index_add",
    "index_put",
    "isnan",
    "item",
    "linalg.cholesky",
    "linalg.svd",
    "log_softmax",
    "logsumexp",
    "masked_fill",
    "masked_select",
    "matmul",
    "max.reduction_with_dim",
    "mean",
    "mul",
    "nn.functional.batch_norm",
    "nn.functional.conv2d",
    "nn.functional.cross_entropy",
    "nn.functional.dropout",
    "nn.functional.embedding",
    "nn.functional.gelu",
    "nn.functional.interpolate.bilinear",
    "nn.functional.layer_norm",
    "nn.functional.max_pool2d",
    "nn.functional.mse_loss",
    "nn.functional.scaled_dot_product_attention",
    "nonzero",
    "normal",
    "permute",
    "roll",
    "scatter_add",
    "sort",
    "split",
    "std_mean",
    "sum",
    "to",
    "topk",
    "triu",
    "unbind",
    "unique",
    "var",
    "view",
    "where",
)


# Modules of each kind: with and without weights, with buffers, lazy, recurrent, with several
# inputs, and with a different result in evaluation mode.
MODULES = (
    "nn.BatchNorm2d",
    "nn.Conv2d",
    "nn.CrossEntropyLoss",
    "nn.Embedding",
    "nn.GELU",
    "nn.GroupNorm",
    "nn.GRUCell",
    "nn.LazyConv1d",
    "nn.LSTM",
    "nn.Linear",
    "nn.MaxPool2d",
    "nn.MultiheadAttention",
    "nn.RNN",
    "nn.TransformerEncoderLayer",
)

# Optimizer entries. Each implementation (foreach, fused, capturable, ...) occurs at least once.
OPTIMIZERS = (
    "Adadelta.capturable_foreach",
    "Adafactor",
    "Adagrad.for_loop",
    "Adam.fused",
    "AdamW",
    "AdamW.capturable_fused",
    "LBFGS",
    "Muon",
    "NAdam.differentiable",
    "RMSprop.capturable",
    "Rprop.foreach",
    "SGD.fused",
)

# A few operators of each kind. All other modes run these.
CHECKED = (
    "add",
    "addr",
    "cat",
    "cumsum",
    "diagonal",
    "index_put",
    "index_select",
    "linalg.qr",
    "linalg.svd",
    "matmul",
    "max.reduction_with_dim",
    "mode",
    "mul",
    "nn.functional.adaptive_max_pool2d",
    "nn.functional.layer_norm",
    "nn.functional.pad.constant",
    "sigmoid",
    "sort",
    "split",
    "sub",
    "sum",
    "view",
    "where",
)

# Operators for the mode compiled_aot: a subset, because tracing is slow.
TRACED = (
    "cat",
    "cumsum",
    "diagonal",
    "index_put",
    "matmul",
    "max.reduction_with_dim",
    "mul",
    "nn.functional.layer_norm",
    "sort",
    "split",
    "sum",
    "view",
    "where",
)

# Operators for autocast regions: some of each list, some unlisted ones, and some composite ones.
AUTOCAST = (
    "addcmul",
    "addmm",
    "dist",
    "einsum",
    "exp",
    "logsumexp",
    "mean",
    "nn.functional.bilinear",
    "nn.functional.conv2d",
    "nn.functional.cosine_similarity",
    "nn.functional.cross_entropy",
    "nn.functional.group_norm",
    "nn.functional.interpolate.bilinear",
    "nn.functional.linear",
    "nn.functional.scaled_dot_product_attention",
    "nn.functional.triplet_margin_loss",
    "norm",
    "pow",
    "prod",
    "scatter_add",
    "softmax",
    "tensordot",
)

# Operators on lists. Some have kernels of openreg, and some use torch's loop over the tensors.
LISTS = (
    "_foreach_add",
    "_foreach_addcdiv",
    "_foreach_copy",
    "_foreach_exp",
    "_foreach_lerp",
    "_foreach_max",
    "_foreach_mul",
    "_foreach_sqrt",
    "_foreach_sub",
    "_foreach_zero",
    "_fused_adagrad_",
    "_fused_adamw_",
    "_fused_sgd_",
)

# Operators whose results differ between eager mode and torch.compile on the CPU, too.
DECOMPOSED = ("nn.functional.interpolate.bilinear",)

# Operators that CUDA supports for bool or complex64, unlike the CPU or with other texts.
OF_ACCELERATORS = ("fft.fft", "trace")
COMPLEX = ("abs", "nn.functional.conv1d")

# Operators for complex32, for which only the CPU raises a warning.
COMPLEX_HALF = ("abs", "alias_copy", "mul")

OTHER_DTYPES = ("float16", "bfloat16", "complex64", "int32", "uint8", "bool")

# Modes of the kit that run the operators in CHECKED.
OF_THE_KIT = ("errors", "forward_ad", "inplace", "mixed_devices", "noncontiguous", "out")

CHOSEN = [
    *results(["float32"], OPERATORS),
    *chosen("module", ["train"], ["float32"], MODULES),
    *chosen("optim", ["steps"], ["float32"], OPTIMIZERS),
    *chosen("op", [*OF_THE_KIT, *OPERATOR_MODES], ["float32"], CHECKED),
    *chosen("foreach", ["new", "inplace"], ["float32"], LISTS),
    *chosen("fused", ["inplace"], ["float32"], LISTS),
    *chosen("op", ["compiled_aot"], ["float32"], TRACED),
    *results(OTHER_DTYPES, CHECKED),
    *chosen("op", ["dtypes"], OTHER_DTYPES, CHECKED),
    *chosen("op", ["compiled_aot"], ["uint8"], DECOMPOSED),
    *chosen("op", ["accelerator_dtypes"], ["bool", "float16"], OF_ACCELERATORS),
    *chosen("op", ["mixed_devices"], ["complex64"], COMPLEX),
    *chosen("op", ["inplace", "out"], ["complex32"], COMPLEX_HALF),
    *chosen("op", ["autocast_bfloat16", "autocast_float16"], ["float32"], AUTOCAST),
]

REFUSED = [case for case in every_case() if case.suite == "refusal"]


@pytest.fixture(scope="module")
def found() -> dict[Case, Verdict]:
    """Runs all cases in one run, because each worker must first import torch and its databases."""
    return verdicts([*CHOSEN, *REFUSED])


@pytest.mark.parametrize("case", CHOSEN, ids=str)
def test_entry_agrees_with_the_cpu(case: Case, found: dict[Case, Verdict]) -> None:
    verdict = found[case]
    assert not KNOWN.fails(verdict), f"{verdict.verdict} {verdict.message}\n{verdict.stack}"
    assert verdict.samples > 0 or not verdict.passes


def test_invalid_calls_are_rejected(found: dict[Case, Verdict]) -> None:
    assert len(REFUSED) > 2000
    assert [str(case) for case in REFUSED if KNOWN.fails(found[case])] == []


def test_every_chosen_name_has_a_case() -> None:
    assert {case.name for case in CHOSEN} == {
        *OPERATORS,
        *MODULES,
        *OPTIMIZERS,
        *CHECKED,
        *LISTS,
        *TRACED,
        *AUTOCAST,
        *DECOMPOSED,
        *OF_ACCELERATORS,
        *COMPLEX,
        *COMPLEX_HALF,
    }
    modes = {case.mode for case in CHOSEN if case.suite == "op"}
    assert modes == {*SUITES["op"]} - {"compiled_inductor", "other_stream"}


def test_random_module_is_recognized(found: dict[Case, Verdict]) -> None:
    def compared(name: str) -> str:
        return found[Case("module", "train", "float32", name)].compared

    assert compared("nn.LazyConv1d") == "distribution"
    assert compared("nn.Conv2d") == "values"


def test_known_cases_exist() -> None:
    for waiver in KNOWN.waivers:
        for pattern in waiver.cases:
            one = dataclasses.replace(waiver, cases=(pattern,))
            assert any(map(one.names, every_case())), pattern


def test_entries_of_tables_exist() -> None:
    names = {case.name for case in every_case() if case.suite == "op"}
    for item in (*DATA_ERRORS, *HOST_ARGUMENTS):
        assert any(re.fullmatch(item.entries, name) for name in names), item.entries
        assert item.reason


def test_commands_run_a_part_and_merge_the_parts(tmp_path: Path) -> None:
    """Runs the programs of the targets sweep and merge, with the targets' flags."""

    def program(*flags: str) -> None:
        command = [sys.executable, "-m", "torch_device_conformance", *flags]
        waivers = ["--waivers", str(Path(__file__).with_name("known.toml")), "--strict"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [*command, *waivers], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    parts = []
    for shard in ("1/2", "2/2"):
        part = tmp_path / f"part{shard[0]}"
        sweep = ["--device=openreg", "--tier=full", "--modes=tests.sweep.modes"]
        cases = ["--only", "op/aliases/*/nn.functional.gelu", "--only", "module/train/*/nn.GELU"]
        limits = ["--shard", shard, "--minutes", "40", "--output", str(part), "--resume"]
        program(*sweep, *cases, *limits)
        parts.append(str(part / "report.json"))
    program("merge", *parts, "--output", str(tmp_path / "full"))
    merged = load(tmp_path / "full" / "report.json")
    assert {case.name for case in merged.verdicts} == {"nn.functional.gelu", "nn.GELU"}
    assert not merged.counts().keys() & {NOT_RUN}
