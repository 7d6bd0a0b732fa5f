# SPDX-License-Identifier: BSD-3-Clause
"""Tests the collective benchmark. No test depends on times."""

import json
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from benchmarks import collectives
from benchmarks.collective_cases import (
    COLLECTIVE_CASES,
    OPERATIONS,
    SIZES,
    TRAINING,
    CollectiveCase,
    make,
    size_text,
)
from benchmarks.collective_measurement import GROUP, Measured, measure
from benchmarks.collective_report import goals, table
from benchmarks.measurement import Effort
from tests.distributed.ranks import run

TINY = Effort(window=0.001, rounds=2)


def run_calls(cases: list[CollectiveCase]) -> None:
    for case in cases:
        for device in ("cpu", "openreg"):
            call = make(case, torch.device(device))
            call()
            call()


@pytest.mark.parametrize("processes", [2, 4])
def test_calls_run_on_both_backends(processes: int) -> None:
    run(
        processes,
        run_calls,
        [CollectiveCase(processes, name, size) for name in OPERATIONS for size in SIZES[:3]],
        group=GROUP,
    )


def test_names_are_unique() -> None:
    names = {f"{case.group}: {case.name}" for case in COLLECTIVE_CASES}
    assert len(names) == len(COLLECTIVE_CASES)


def test_bounds() -> None:
    assert CollectiveCase(2, "all-reduce", 4).bound == 0.5
    assert CollectiveCase(2, "all-reduce", 64 << 20).bound == pytest.approx(1 / 3)
    assert CollectiveCase(2, "all-reduce", 4096).bound is None
    assert CollectiveCase(4, TRAINING).bound == 0.8


def test_size_text() -> None:
    assert [size_text(size) for size in (4, 4096, 64 << 20)] == ["4 B", "4 KiB", "64 MiB"]


def result(operation: str, size: int, ratio: float, error: str = "") -> Measured:
    return Measured(
        CollectiveCase(2, operation, size), 100.0, 90.0, 100 * ratio, 90 * ratio, ratio, error=error
    )


def test_verdict() -> None:
    assert result("all-reduce", 4, 0.5).met is True
    assert result("all-reduce", 4, 0.51).met is False
    assert result("all-reduce", 64 << 20, 1 / 3).met is True
    assert result("all-reduce", 64 << 20, 0.34).met is False
    assert result("all-reduce", 4096, 9.0).met is None
    assert result("all-reduce", 4, 0.1, error="hangs").met is False


def test_goals_report_the_worst_case() -> None:
    found = [
        result("all-reduce", 4, 0.2),
        result("broadcast", 4, 0.75),
        result("all-reduce", 64 << 20, 0.25),
        result(TRAINING, 0, 0.7),
        result("all-gather", 4096, 5.0),
    ]
    latency, bandwidth, training = goals(found)
    assert latency.startswith("missed latency at 4 B <= 0.5 of Gloo's: in 1 of 2 cases; worst 0.75")
    assert bandwidth.startswith("met    bandwidth at 64 MiB >= 3 times Gloo's: in 1 of 1 cases")
    assert "worst 4.00 times (all-reduce 64 MiB, 2 processes)" in bandwidth
    assert training.startswith("met    DDP step <= 0.8")
    assert goals([result("all-reduce", 4, 0.1, error="hangs")]) == []


def test_table_has_bandwidth_and_errors() -> None:
    lines = table([result("all-reduce", 64 << 20, 0.5), result("broadcast", 4, 0.0, "it hangs")])
    assert "671" in lines.splitlines()[1]  # 64 MiB in 100 us
    assert "missed" in lines.splitlines()[1]
    assert lines.splitlines()[2].endswith("failed: it hangs")


def test_failure_is_reported_for_all_remaining_cases() -> None:
    cases = [
        CollectiveCase(2, "all-reduce", 4),
        CollectiveCase(2, "no such operation", 4),
        CollectiveCase(2, "broadcast", 4),
    ]
    first, second, third = measure(cases, TINY)
    assert (first.case, first.error) == (cases[0], "")
    assert first.gloo_us >= first.gloo_least_us > 0
    assert first.occl_us >= first.occl_least_us > 0
    for one, case in ((second, cases[1]), (third, cases[2])):
        assert one.case == case
        assert one.error == "KeyError: 'no such operation'"


def test_quick_run_writes_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {name: tmp_path / f"collectives.{name}" for name in ("json", "png")}
    flags = ["--quick", "--filter", "2 processes: (all-reduce (4 B|4 KiB)|DDP)"]
    flags += ["--json", str(files["json"]), "--plot", str(files["png"])]
    assert collectives.main(flags) == 0
    document = json.loads(files["json"].read_text())
    assert document["rounds"] == 3
    results = document["results"]
    assert [one["case"]["operation"] for one in results] == ["all-reduce", "all-reduce", TRAINING]
    assert [one["bound"] for one in results] == [0.5, None, 0.8]
    for one in results:
        assert one["gloo_us"] > 0
        assert one["occl_us"] > 0
        assert one["error"] == ""
    assert files["png"].read_bytes().startswith(b"\x89PNG")
    out = capsys.readouterr().out
    assert "latency at 4 B <= 0.5 of Gloo's: in " in out
    assert "DDP step <= 0.8 of the time on CPU and Gloo: in " in out


def test_list_names_the_cases(capsys: pytest.CaptureFixture[str]) -> None:
    assert collectives.main(["--list", "--filter", "4 processes: all-to-all"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(SIZES)
    assert lines[0] == "4 processes: all-to-all 4 B  (<= 0.50)"
    assert not dist.is_initialized()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--filter", "none"], f"'none' matches none of the {len(COLLECTIVE_CASES)} cases"),
        (["--filter", "("], "'(' is not a regular expression"),
        (["--plot", "bars.txt"], "'bars.txt' must end in one of"),
        (["--json", "missing/c.json"], "missing/c.json cannot be written"),
    ],
)
def test_wrong_flag_is_one_line(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        collectives.main(argv)
    assert exit_.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("collectives: ")
    assert err.count("\n") == 1
    assert message in err
