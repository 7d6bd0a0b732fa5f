# SPDX-License-Identifier: BSD-3-Clause
"""Tests the eager benchmark. No test depends on times."""

import json
import math
from pathlib import Path

import pytest
import torch

from benchmarks import eager, measurement
from benchmarks.cases import CASES, Case
from benchmarks.eager import QUICK
from benchmarks.measurement import Effort, Result, measure, quartiles
from benchmarks.report import Run, table


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_computes_the_same_on_both_devices(case: Case) -> None:
    expected = case.make(torch.device("cpu"))()
    actual = case.make(torch.device("openreg"))()
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    if case.deterministic:
        # The devices may add millions of float32 values in a different order. Under autocast, the
        # CPU also runs different operators in lower precision.
        rtol, atol = case.tolerance / 10, case.tolerance
        torch.testing.assert_close(actual.cpu(), expected, rtol=rtol, atol=atol)


def test_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


def test_quick_run_writes_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures, picture = tmp_path / "eager.json", tmp_path / "eager.png"
    flags = ["--quick", "--filter", "tiny: add 16|embedding", "--threads", "1,2"]
    assert eager.main([*flags, "--json", str(figures), "--plot", str(picture)]) == 0
    written = json.loads(figures.read_text())
    assert written["machine"]["torch"] == torch.__version__
    assert [run["threads"] for run in written["runs"]] == [1, 2]
    for run in written["runs"]:
        assert run["device"] == "openreg"
        assert run["geometric_mean"] > 0
        assert [r["name"] for r in run["results"]] == ["add 16", "embedding"]
        for result in run["results"]:
            assert result["cpu_us"] > 0
            assert result["device_us"] > 0
            assert result["low"] <= result["ratio"] <= result["high"]
            assert result["error"] == ""
        assert [r["bound"] for r in run["results"]] == [1.1 if run["threads"] == 1 else 1.15] * 2
        assert run["geometric_mean_bound"] is None  # not all cases ran
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "geometric mean" in capsys.readouterr().out


def test_passes_are_rows_of_one_case() -> None:
    effort = Effort(window=0.001, rounds=2, passes=3)
    found = list(measure(["views", "add 16"], "cpu", 1, effort, 1.5))
    assert [result.name for result, _ in found] == ["views", "add 16"] * 3
    first, last = found[0][0], found[4][0]
    assert first.low == first.ratio == first.high  # there is only one pass
    assert last.low <= last.ratio <= last.high
    assert last.bound == 1.5


def test_failed_case_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # The parent process has this case, but its workers do not.
    missing = Case("tiny", "missing", CASES[0].make)
    monkeypatch.setattr(measurement, "CASES", (missing, *CASES))
    names = [missing.name, "views"]
    effort = Effort(QUICK.window, QUICK.rounds, passes=2)
    rows = [result for result, _ in measure(names, "cpu", 1, effort)]
    assert "not enough values to unpack" in rows[0].error
    assert rows[0].met is None
    assert rows[1].error == ""
    assert rows[1].ratio > 0
    assert rows[2] is rows[0]  # the case is not run again
    assert rows[3].error == ""


def result(ratio: float, bound: float | None) -> Result:
    return Result("tiny", f"case {ratio} {bound}", bound, 2.0, 2.0 * ratio, ratio, ratio, ratio)


def test_bounds_are_judged_as_printed() -> None:
    assert result(1.2, 1.2).met
    assert result(1.204, 1.2).met
    assert result(1.206, 1.2).met is False
    assert result(9.0, None).met is None
    assert Result("tiny", "failed", 1.2, error="died").met is False


def test_table_shows_met_bounds() -> None:
    run = Run("openreg", 1, [result(1.0, 1.2), result(4.0, 1.2), result(2.0, None)], 1.5)
    assert run.geometric_mean == pytest.approx(2.0)
    lines = table(run).splitlines()
    assert lines[0] == "1 thread"
    assert lines[3].endswith("<= 1.20  met")
    assert lines[4].endswith("<= 1.20  missed")
    assert lines[-1] == (
        "geometric mean of the ratios 2.000  <= 1.50  missed; cases within their bounds: 1 of 2"
    )


def test_quartiles() -> None:
    assert quartiles([3.0]) == (3.0, 3.0, 3.0)
    low, median, high = quartiles([5.0, 1.0, 4.0, 2.0, 3.0])
    assert (low, median, high) == (2.0, 3.0, 4.0)
    assert math.isclose(quartiles([1.0, 2.0])[1], 1.5)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--threads", "0"], "'0' is neither a number of threads"),
        (["--threads", "1,"], "'' is neither a number of threads"),
        (["--filter", "("], "'(' is not a regular expression"),
        (["--filter", "no such case"], "'no such case' matches none of the"),
        (["--device", "nonsense"], "there is no device 'nonsense'"),
        (["--plot", "eager.txt"], "'eager.txt' must end in one of"),
    ],
)
def test_wrong_flag_is_one_line(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        eager.main(argv)
    assert exit_.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("eager: ")
    assert err.count("\n") == 1
    assert message in err


def test_list_names_the_cases(capsys: pytest.CaptureFixture[str]) -> None:
    assert eager.main(["--list", "--device", "cpu", "--filter", "matmul"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == "matmul: mm 1024x1024"
    assert len(out) == 3
