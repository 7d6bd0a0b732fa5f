# SPDX-License-Identifier: BSD-3-Clause
"""The eager benchmark measures what it says. No test here depends on how long anything takes."""

import json
import math
from pathlib import Path

import pytest
import torch

from benchmarks import eager, measurement
from benchmarks.cases import CASES, Case
from benchmarks.eager import QUICK
from benchmarks.measurement import Result, measure, quartiles
from benchmarks.report import Run, table


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_computes_the_same_on_both_devices(case: Case) -> None:
    expected = case.make(torch.device("cpu"))()
    actual = case.make(torch.device("openreg"))()
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    if case.deterministic:
        # Sums of millions of float32 numbers: the order of adding may differ. In a region of
        # autocast the CPU has other lists.
        rtol, atol = case.tolerance / 10, case.tolerance
        torch.testing.assert_close(actual.cpu(), expected, rtol=rtol, atol=atol)


def test_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


def test_quick_run_writes_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures, picture = tmp_path / "eager.json", tmp_path / "eager.png"
    flags = ["--quick", "--filter", "tiny: add 16|embedding", "--threads", "1,2"]
    assert eager.main([*flags, "--json", str(figures), "--plot", str(picture)]) == 0
    written = json.loads(figures.read_text())
    assert written["machine"]["torch"] == torch.__version__
    assert [run["threads"] for run in written["runs"]] == [1, 2]
    for run in written["runs"]:
        assert run["device"] == "openreg"
        assert not run["isolated"]
        assert run["geometric_mean"] > 0
        assert [r["name"] for r in run["results"]] == ["add 16", "embedding"]
        for result in run["results"]:
            assert result["cpu_us"] > 0
            assert result["device_us"] > 0
            assert result["low"] <= result["ratio"] <= result["high"]
            assert result["error"] == ""
        assert [r["bound"] for r in run["results"]] == [1.2, None]
        assert [r["met"] is None for r in run["results"]] == [False, True]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "geometric mean" in capsys.readouterr().out


def test_isolated_devices(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--quick", "--isolate", "--filter", "views", "--threads", "1"]
    assert eager.main(flags) == 0
    assert "each device in its own process" in capsys.readouterr().out


def test_failed_case_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # The parent knows this case, its workers do not.
    missing = Case("tiny", "missing", CASES[0].make)
    monkeypatch.setattr(measurement, "CASES", (missing, *CASES))
    names = [missing.name, "views"]
    rows = [result for result, _ in measure(names, "cpu", 1, False, QUICK)]
    assert "not enough values to unpack" in rows[0].error
    assert rows[0].met is None
    assert rows[1].error == ""
    assert rows[1].ratio > 0


def result(ratio: float, bound: float | None) -> Result:
    return Result("tiny", f"case {ratio} {bound}", bound, 2.0, 2.0 * ratio, ratio, ratio, ratio)


def test_bounds_are_judged_as_printed() -> None:
    assert result(1.2, 1.2).met
    assert result(1.204, 1.2).met
    assert result(1.206, 1.2).met is False
    assert result(9.0, None).met is None
    assert Result("tiny", "failed", 1.2, error="died").met is False


def test_table_says_what_was_met() -> None:
    run = Run("openreg", 1, False, [result(1.0, 1.2), result(4.0, 1.2), result(2.0, None)])
    assert run.geometric_mean == pytest.approx(2.0)
    lines = table(run).splitlines()
    assert lines[0] == "1 thread, both devices in one process"
    assert lines[3].endswith("<= 1.20  met")
    assert lines[4].endswith("<= 1.20  missed")
    assert lines[-1] == "geometric mean of the ratios 2.000; bounds met: 1 of 2"


def test_quartiles() -> None:
    assert quartiles([3.0]) == (3.0, 3.0, 3.0)
    low, median, high = quartiles([5.0, 1.0, 4.0, 2.0, 3.0])
    assert (low, median, high) == (2.0, 3.0, 4.0)
    assert math.isclose(quartiles([1.0, 2.0])[1], 1.5)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--threads", "0"], "'0' is no number of threads"),
        (["--threads", "1,"], "'' is no number of threads"),
        (["--filter", "("], "'(' is no regular expression"),
        (["--filter", "no such case"], "'no such case' finds none of the"),
        (["--device", "nonsense"], "no device 'nonsense' here"),
        (["--plot", "eager.txt"], "'eager.txt' ends in none of"),
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
    assert out[-1] == "matmul: mm 1024x1024  (<= 1.05)"
    assert len(out) == 3
