# SPDX-License-Identifier: BSD-3-Clause
"""A fixed part of the sweep runs as a test, and the sweep survives crashes and hangs."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from torch_device_conformance.database.data_errors import DATA_ERRORS
from torch_device_conformance.database.host_arguments import HOST_ARGUMENTS

from tests.sweep import hazards, known, merge
from tests.sweep import sweep as program
from tests.sweep.checks import CHECKS, DATABASES, cases, prepare
from tests.sweep.known import Known
from tests.sweep.outcome import AGREES, CPU_FAILS, CRASHED, DIFFERS, TIMED_OUT, Case, Outcome
from tests.sweep.summary import score, summary
from tests.sweep.sweep import sweep

# Operators of each kind: those of networks, hand-written kernels, fallbacks, random operators,
# views, several outputs, other dtypes, unknown shapes.
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


# Modules with and without weights, with buffers, lazy or recurrent modules, modules that differ in
# evaluation, modules with several inputs.
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

# Optimizers: each implementation at least once.
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

# Checks that are covered elsewhere: results above, graphs below, compiled in compiled_test.py.
ELSEWHERE = ("results", "aot_eager", "compiled")

# Operators for all other checks, some of each kind.
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

# Operators whose graphs are checked, which takes longer.
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

# Operators for regions of autocast: some of each list, some unlisted ones, some composites.
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

# Operators on lists: our own kernels, and torch's loops over the tensors.
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

OTHER_DTYPES = ("float16", "bfloat16", "complex64", "int32", "uint8", "bool")

CHOSEN = [
    case
    for databases, checks, dtypes, names in (
        (["op"], ["results"], ["float32"], OPERATORS),
        (["module"], ["results"], ["float32"], MODULES),
        (["optim"], ["results"], ["float32"], OPTIMIZERS),
        (["op"], [check for check in CHECKS if check not in ELSEWHERE], ["float32"], CHECKED),
        (["foreach", "fused"], ["results", "inplace"], ["float32"], LISTS),
        (["op"], ["aot_eager"], ["float32"], TRACED),
        (["op"], ["results", "dtypes"], OTHER_DTYPES, CHECKED),
        (["op"], ["autocast_bfloat16", "autocast_float16"], ["float32"], AUTOCAST),
    )
    for case in cases(databases, checks, dtypes)
    if case.name in names and known.reason(known.UNSUPPORTED, case) is None
]

REFUSED = cases(["refusal"], ["errors"], ["float32"])


def case(name: str) -> Case:
    """A case of the check `results` with float32."""
    return Case("op", "results", "float32", name)


@pytest.fixture(scope="module")
def outcomes() -> dict[Case, Outcome]:
    """All outcomes, from the same two processes: each imports torch and creates the databases."""
    ran = sweep([*CHOSEN, *REFUSED], 2, 60, prepare, "openreg", 1)
    return {outcome.case: outcome for outcome in ran}


@pytest.mark.parametrize("chosen", CHOSEN, ids=str)
def test_entry_agrees_with_the_cpu(chosen: Case, outcomes: dict[Case, Outcome]) -> None:
    outcome = outcomes[chosen]
    assert not known.surprising(outcome), outcome.message
    assert outcome.samples > 0 or not outcome.counts


def test_invalid_calls_are_rejected(outcomes: dict[Case, Outcome]) -> None:
    found = [outcomes[case] for case in REFUSED]
    assert len(found) > 2000
    assert [str(outcome.case) for outcome in found if known.surprising(outcome)] == []


def test_every_chosen_name_has_a_case() -> None:
    assert {case.name for case in CHOSEN} == {
        *OPERATORS,
        *MODULES,
        *OPTIMIZERS,
        *CHECKED,
        *LISTS,
        *TRACED,
        *AUTOCAST,
    }
    assert {case.check for case in CHOSEN} == {*CHECKS} - {"compiled"}


def test_random_module_is_recognized(outcomes: dict[Case, Outcome]) -> None:
    def compared(name: str) -> str:
        return outcomes[Case("module", "results", "float32", name)].compared

    assert compared("nn.LazyConv1d") == "distribution"
    assert compared("nn.Conv2d") == "values"


def test_cases_of_known_lists_exist() -> None:
    everything = {str(case) for case in cases(DATABASES, CHECKS, program.DTYPES)}
    for item in (*known.UNSUPPORTED, *known.FAILING):
        assert any(re.fullmatch(item.cases, case) for case in everything), item.cases
        assert item.reason


def test_entries_of_tables_exist() -> None:
    names = {case.name for case in cases(["op"], CHECKS, program.DTYPES)}
    for item in (*DATA_ERRORS, *HOST_ARGUMENTS):
        assert any(re.fullmatch(item.entries, name) for name in names), item.entries
        assert item.reason


@pytest.mark.parametrize("jobs", [1, 2])
def test_crash_and_hang_are_outcomes(jobs: int, tmp_path: Path) -> None:
    todo = [case(name) for name in ("one", "crash", "two", "hang", "differ", "three")]
    ran = sweep(todo, jobs, 5, hazards.prepare, str(tmp_path / "seen"))
    found = {o.case.name: o for o in ran}
    assert {name: outcome.status for name, outcome in found.items()} == {
        "one": AGREES,
        "crash": CRASHED,
        "two": AGREES,
        "hang": TIMED_OUT,
        "differ": DIFFERS,
        "three": AGREES,
    }
    assert found["crash"].message.startswith("SIGSEGV")
    assert score(list(found.values())) == (3, 6)


def test_summary_groups_by_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Known("op/results/float32/[gh]", "it is so")
    monkeypatch.setattr(known, "FAILING", (expected,))
    outcomes = [
        Outcome(case("a"), DIFFERS, message="forward: output 0: shape is (1, 2) [sample 0]"),
        Outcome(case("b"), AGREES),
        Outcome(case("c"), DIFFERS, message="forward: output 1: shape is (3, 4) [sample 9 first]"),
        Outcome(case("d"), CRASHED, message="SIGSEGV: last words"),
        Outcome(case("e"), CPU_FAILS, message="ValueError: no"),
        Outcome(case("f"), AGREES, compared="distribution"),
        Outcome(case("g"), DIFFERS, message="raises nothing"),
        Outcome(case("h"), AGREES),
    ]
    text = summary(outcomes)
    both = "op/results/float32/a, op/results/float32/c"
    assert f"2 x differs: {both}\n    forward: output 0: shape is (1, 2) [sample 0]" in text
    assert "1 x crashed: op/results/float32/d\n    SIGSEGV: last words" in text
    assert "1 x passes unexpectedly: op/results/float32/h" in text
    assert "expected failures: 1\n    op/results/float32/g: raises nothing" in text
    assert "not counted, CPU fails: 1\n    op/results/float32/e: ValueError: no" in text
    assert "random: metadata, and the distribution of 100 draws: 1\n    op/results" in text
    assert text.endswith("score: 3 of 7 cases agree with the CPU: 42.9%; unexpected: 4")


def run_hazards(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    argv: Sequence[str],
    names: Sequence[str] = ("one", "two", "differ"),
) -> int:
    """Runs the whole program for entries whose names determine what happens."""
    seen = str(tmp_path / "seen")
    with monkeypatch.context() as patch:
        patch.setattr(
            program,
            "sweep",
            lambda todo, jobs, timeout, *_: sweep(todo, jobs, timeout, hazards.prepare, seen),
        )
        patch.setattr(program, "cases", lambda *_: [case(name) for name in names])
        return program.main([*argv, "--device", "cpu"])


def test_exit_status_and_resuming(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.json"
    argv = ["--json", str(file), "--resume"]
    assert run_hazards(monkeypatch, tmp_path, [*argv, "--filter", "^(one|two)$"]) == 0
    assert "score: 2 of 2" in capsys.readouterr().out
    assert run_hazards(monkeypatch, tmp_path, argv) == 1
    assert "score: 2 of 3 cases agree with the CPU: 66.7%" in capsys.readouterr().out
    # The second run did not repeat the cases of the first.
    assert sorted((tmp_path / "seen").read_text().split()) == ["differ", "one", "two"]
    written = json.loads(file.read_text())
    assert written["device"] == "cpu"
    assert [entry["name"] for entry in written["outcomes"]] == ["differ", "one", "two"]
    assert written["outcomes"][0]["check"] == "results"


def test_expected_failure_must_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(known, "FAILING", (Known(".*/differ", "as planted"),))
    assert run_hazards(monkeypatch, tmp_path, []) == 0
    monkeypatch.setattr(known, "FAILING", (Known(".*/(differ|one)", "as planted"),))
    assert run_hazards(monkeypatch, tmp_path, []) == 1


def test_unsupported_is_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(known, "UNSUPPORTED", (Known(".*/differ", "as planted"),))
    assert run_hazards(monkeypatch, tmp_path, []) == 0
    assert "differ" not in (tmp_path / "seen").read_text()


def test_shards_are_merged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["one", "two", "three", "differ", "five"]
    files = [str(tmp_path / f"{part}.json") for part in (1, 2)]
    for part, file in enumerate(files, 1):
        run_hazards(monkeypatch, tmp_path, ["--shard", f"{part}/2", "--json", file], names)
    # Each case was run once.
    assert sorted((tmp_path / "seen").read_text().split()) == sorted(names)
    capsys.readouterr()
    assert merge.main(files) == 1
    printed = capsys.readouterr().out
    assert "| op | float32 | results | 4 | 5 | 80.0% |" in printed
    assert "| all |  |  | 4 | 5 | 80.0% |" in printed
    assert "- `op/results/float32/differ` differs: UNEXPECTED" in printed
    assert merge.main(files[:1]) == 0


def test_time_limit_leaves_cases_for_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.json"
    argv = ["--json", str(file), "--resume"]
    with monkeypatch.context() as patch:
        clock = iter(range(0, 10_000, 100))
        patch.setattr(program, "monotonic", lambda: next(clock))
        assert run_hazards(monkeypatch, tmp_path, [*argv, "--minutes", "3"], ["a", "b", "c"]) == 1
    assert "1 cases are left; --resume runs them" in capsys.readouterr().out
    assert run_hazards(monkeypatch, tmp_path, argv, ["a", "b", "c"]) == 0
    assert "score: 3 of 3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--dtype", "float31"], "torch has no dtype 'float31'"),
        (["--filter", "["], "'[' is not a regular expression"),
        (["--filter", "no_such_operator"], "matches no entry with this check"),
        (["--database", "module", "--filter", "^add$"], "'^add$' matches no entry"),
        (
            ["--database", "dataset"],
            "'dataset' is not one of op, foreach, fused, module, optim, refusal, all",
        ),
        (["--check", "results,speed"], "'speed' is not one of results, aliases"),
        (["--shard", "3/2"], "'3/2' is not a shard"),
        (["--device", "nonsense"], "there is no device 'nonsense'"),
        (["--jobs", "0"], "'0' is not an integer of at least 1"),
        (["--resume"], "--resume needs --json"),
    ],
)
def test_wrong_flag_is_one_line(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        program.main(argv)
    assert exit_.value.code == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert message in err


def test_file_of_another_run_is_not_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.json"
    for content in ('{"device": "cuda"}', "[]", "not JSON"):
        file.write_text(content)
        with pytest.raises(SystemExit) as exit_:
            program.main(["--json", str(file), "--resume", "--filter", "^add$"])
        assert exit_.value.code == 2
        assert "sweep: cannot resume: " in capsys.readouterr().err
