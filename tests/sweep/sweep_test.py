# SPDX-License-Identifier: BSD-3-Clause
"""A fixed part of the sweep runs as a test, and the sweep survives what its entries do."""

import json
from pathlib import Path

import pytest

from tests.sweep import database, hazards
from tests.sweep import sweep as program
from tests.sweep.outcome import AGREES, CRASHED, DIFFERS, TIMED_OUT, UNSUPPORTED, Outcome
from tests.sweep.sweep import score, summary, sweep

# Some of each kind: what networks use, what has a kernel of its own, what falls back, what is
# random, what returns views, several outputs, other dtypes or unknown shapes.
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


# With and without weights, with buffers, lazy, recurrent, other in evaluation, several inputs.
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

# Each way at least once.
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

CHOSEN = [
    (kind, name)
    for kind, names in (("op", OPERATORS), ("module", MODULES), ("optim", OPTIMIZERS))
    for name in names
]


@pytest.fixture(scope="module")
def outcomes() -> dict[tuple[str, str], Outcome]:
    found = {}
    for kind in database.DATABASES:
        names = [name for of, name in CHOSEN if of == kind]
        for outcome in sweep(names, 2, 60, database.prepare, kind, "openreg", "float32", 1):
            found[kind, outcome.name] = outcome
    return found


@pytest.mark.parametrize(("kind", "name"), CHOSEN)
def test_entry_agrees_with_the_cpu(
    kind: str, name: str, outcomes: dict[tuple[str, str], Outcome]
) -> None:
    outcome = outcomes[kind, name]
    assert outcome.status == AGREES, outcome.message
    assert outcome.samples > 0


def test_random_module_is_recognized(outcomes: dict[tuple[str, str], Outcome]) -> None:
    assert outcomes["module", "nn.LazyConv1d"].compared == "distribution"
    assert outcomes["module", "nn.Conv2d"].compared == "values"


@pytest.mark.parametrize("jobs", [1, 2])
def test_crash_and_hang_are_outcomes(jobs: int, tmp_path: Path) -> None:
    names = ["one", "crash", "two", "hang", "differ", "three"]
    found = {o.name: o for o in sweep(names, jobs, 5, hazards.prepare, str(tmp_path / "seen"))}
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


def test_summary_groups_by_cause() -> None:
    text = summary(
        [
            Outcome("a", DIFFERS, message="forward: output 0: shape is (1, 2) [sample 0]"),
            Outcome("b", AGREES),
            Outcome("c", DIFFERS, message="forward: output 1: shape is (3, 4) [sample 9]"),
            Outcome("d", CRASHED, message="SIGSEGV: last words"),
            Outcome("e", UNSUPPORTED),
            Outcome("f", AGREES, compared="distribution"),
        ]
    )
    assert "2 x differs: a, c\n    forward: output 0: shape is (1, 2) [sample 0]" in text
    assert "1 x crashed: d\n    SIGSEGV: last words" in text
    assert "not counted, no such dtype: 1" in text
    assert "random: metadata, and the distribution of 100 draws: 1\n    f" in text
    assert text.endswith("score: 2 of 5 entries agree with the CPU: 40.0% (bound 95%)")


def run_hazards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, argv: list[str]) -> int:
    """The whole program over the names that say what is to happen."""
    seen = str(tmp_path / "seen")
    real = program.sweep
    monkeypatch.setattr(
        program,
        "sweep",
        lambda names, jobs, timeout, _prepare, *_: real(
            names, jobs, timeout, hazards.prepare, seen
        ),
    )
    names = dict.fromkeys(["one", "two", "differ"])
    monkeypatch.setitem(program.DATABASES, "op", lambda: names)
    return program.main([*argv, "--device", "cpu"])


def test_exit_status_and_resuming(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.json"
    argv = ["--json", str(file), "--resume"]
    assert run_hazards(monkeypatch, tmp_path, [*argv, "--filter", "^(one|two)$"]) == 0
    assert "score: 2 of 2" in capsys.readouterr().out
    monkeypatch.undo()
    assert run_hazards(monkeypatch, tmp_path, argv) == 1
    assert "score: 2 of 3 entries agree with the CPU: 66.7%" in capsys.readouterr().out
    # What the first run had done was not done again.
    assert sorted((tmp_path / "seen").read_text().split()) == ["differ", "one", "two"]
    written = json.loads(file.read_text())
    heading = (written["database"], written["device"], written["dtype"])
    assert heading == ("op", "cpu", "float32")
    assert (written["agree"], written["counted"]) == (2, 3)
    assert [entry["name"] for entry in written["entries"]] == ["differ", "one", "two"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--dtype", "float31"], "torch has no dtype 'float31'"),
        (["--filter", "["], "'[' is no regular expression"),
        (["--filter", "no_such_operator"], "finds none of the entries of op_db"),
        (["--database", "module", "--filter", "^add$"], "none of the entries of module_db"),
        (["--database", "dataset"], "invalid choice: 'dataset'"),
        (["--device", "nonsense"], "no device 'nonsense' here"),
        (["--jobs", "0"], "'0' is not a whole number of at least 1"),
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
