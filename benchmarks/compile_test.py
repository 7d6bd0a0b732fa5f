# SPDX-License-Identifier: BSD-3-Clause
"""Tests the compile benchmark. No test depends on times."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks import compile as program
from benchmarks.cases import Step
from benchmarks.compile import SECTIONS
from benchmarks.compile_cases import COMPILE_CASES, CompileCase, case_named
from benchmarks.compile_measurement import COMPILERS, Bench, FirstCall, measure_modes, measure_warm
from benchmarks.compile_report import Ratio, Row, Table, chart, ratio, render
from benchmarks.measurement import Effort, Window, answering

CELL = case_named("LSTM cell")


def bench(cache: Path) -> Bench:
    return Bench("openreg", 1, Effort(0.001, 2), processes=2, cache=str(cache))


@pytest.mark.parametrize("case", COMPILE_CASES, ids=lambda case: case.name)
def test_case_computes_the_same_on_both_devices(case: CompileCase) -> None:
    expected, actual = (
        case.make(torch.device(device), lambda function: function)()
        for device in ("cpu", "openreg")
    )
    assert actual.device.type == "openreg"
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-3, atol=1e-3)


def test_names_are_unique() -> None:
    names = [section.name_of(case) for section in SECTIONS for case in section.cases]
    assert len(set(names)) == len(names)


def test_quick_run_writes_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    # In all tables, run only the case that compiles fastest.
    sections = [
        section if CELL in section.cases else replace(section, cases=(CELL, *section.cases))
        for section in SECTIONS
    ]
    monkeypatch.setattr(program, "SECTIONS", sections)
    first_calls: dict[str, list[FirstCall]] = {"cpu": [], "openreg": []}
    first_call = Bench.first_call

    def recorded(bench: Bench, case: str, device: str) -> FirstCall:
        first_calls[device].append(first_call(bench, case, device))
        return first_calls[device][-1]

    monkeypatch.setattr(Bench, "first_call", recorded)
    figures, picture = tmp_path / "compile.json", tmp_path / "compile.png"
    flags = ["--quick", "--threads", "1", "--filter", CELL.name]
    assert program.main([*flags, "--json", str(figures), "--plot", str(picture)]) == 0
    tables = json.loads(figures.read_text())["tables"]
    assert [table["title"] for table in tables] == [section.title for section in SECTIONS]
    times, ratios = [], []
    for table in tables:
        (row,) = table["rows"]
        assert row["name"] == CELL.name
        assert min(row["times"].values()) > 0
        times.append(set(row["times"]))
        for each in row["ratios"]:
            assert 0 < each["low"] <= each["median"] <= each["high"]
            assert each["met"] in ((True, False) if each["bound"] else (None,))
        ratios.append([(each["way"], each["bound"]) for each in row["ratios"]])
    both = {f"{device} {mode}" for device in ("cpu", "openreg") for mode in ("eager", "compiled")}
    assert times == [
        both | {"openreg reduce-overhead"},
        {"openreg eager", "openreg validator"},
        {"cpu", "openreg"},
    ]
    assert ratios == [
        [("openreg compiled", 1.1), ("openreg reduce-overhead", 0.9)],
        [("openreg validator", 1.05)],
        [("openreg", 1.25)],
    ]
    assert tables[0]["geometric_mean"] > 0
    assert tables[0]["geometric_mean_bound"] is None, "the mean has no bound if cases are missing"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out.count(CELL.name) == 3
    # The second process must find all graphs in the caches.
    for first, second in first_calls.values():
        assert first.missed > 0
        assert second.missed == 0
        assert min(first.seconds, second.seconds) > 0


def test_each_variant_sets_the_mode_of_torch_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(torch, "compile", lambda function, **how: asked.append(how))
    COMPILERS["reduce-overhead"](abs)
    COMPILERS["validator"](abs)
    assert COMPILERS["eager"](abs) is abs
    assert asked == [{"mode": "reduce-overhead"}, {"backend": "openreg"}]


class Counted:
    """A case that counts the calls to its step."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Tensor:
        self.calls += 1
        return torch.empty(0)


def test_calls_that_may_compile_or_capture_are_not_timed() -> None:
    step = Counted()
    answer = answering(lambda _: step, lambda _: "cpu", None)
    list(answer(Window("case", "compiled", 0, seconds=0.0)))
    # Two calls compile, four calls capture, and one call estimates the duration.
    assert step.calls >= 7


def test_compiled_functions_are_cached_until_the_next_case() -> None:
    made: list[tuple[str, str]] = []
    forgotten: list[int] = []

    def make(window: Window) -> Step:
        made.append((window.case, window.device))
        return Counted()

    answer = answering(make, lambda _: "cpu", None, lambda: forgotten.append(len(made)))
    for case, mode in [("a", "x"), ("a", "y"), ("a", "x"), ("b", "x"), ("b", "y"), ("a", "x")]:
        list(answer(Window(case, mode, 1)))
    assert made == [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y"), ("a", "x")]
    assert forgotten == [2, 4]


def test_compile_time_with_cache_misses_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bench, "first_call", lambda *_: FirstCall(1.0, missed=2))
    with pytest.raises(RuntimeError, match=r"on cpu: the first call compiled 2 graph\(s\)"):
        measure_warm(CELL, bench(tmp_path))


def test_compile_times_alternate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def first_call(_: Bench, case: str, device: str) -> FirstCall:
        asked.append(device)
        return FirstCall({"cpu": 2.0, "openreg": 3.0}[device], 0)

    monkeypatch.setattr(Bench, "first_call", first_call)
    row = measure_warm(CELL, bench(tmp_path))
    # The first two calls fill the caches.
    assert asked == ["cpu", "openreg", "cpu", "openreg", "openreg", "cpu"]
    assert row.times == {"cpu": 2000.0, "openreg": 3000.0}
    assert row.ratios == (Ratio("openreg", 1.25, 1.5, 1.5, 1.5),)


def modes(compiled: float, replayed: float) -> Callable[..., dict[str, list[float]]]:
    """Returns a substitute for `Bench.times`, with these times for the device."""
    seconds = {way: [1.0] for way in ("cpu eager", "cpu compiled", "openreg eager")}
    seconds |= {"openreg compiled": [compiled], "openreg reduce-overhead": [replayed]}
    return lambda *_: seconds


@pytest.mark.parametrize(
    ("case", "bounds", "met", "remark"),
    [
        (CompileCase("plain", CELL.make), (1.1, None), [False, None], ""),
        (CompileCase("small", CELL.make, small="tiny"), (1.1, 0.9), [False, True], ""),
        (
            CompileCase("gated", CELL.make, gate="ir.thresholds"),
            (1.4, None),
            [True, None],
            "limited by ir.thresholds",
        ),
    ],
    ids=lambda value: value.name if isinstance(value, CompileCase) else "",
)
def test_bounds_of_a_case(
    case: CompileCase,
    bounds: tuple[float, float | None],
    met: list[bool | None],
    remark: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Bench, "times", modes(1.3, 0.9))
    row = measure_modes(case, bench(tmp_path))
    assert tuple(each.bound for each in row.ratios) == bounds
    assert [each.met for each in row.ratios] == met
    assert row.remark == remark


def row(name: str, ours: float) -> Row:
    found = ratio("openreg compiled", 1.1, [ours], [2.0])
    return Row(name, {"cpu compiled": 2.0, "openreg compiled": ours}, (found,))


def test_table_shows_bounds_and_failures(tmp_path: Path) -> None:
    rows = [row("good", 1.0), row("slow", 4.0), Row("none", error="it died")]
    table = Table("a call", "us", "cpu compiled", rows, "openreg compiled")
    lines = render(table).splitlines()
    assert [line.split()[-1] for line in lines[4:6]] == ["met", "missed"]
    assert lines[6].startswith("none")
    assert lines[6].endswith("failed: it died")
    assert lines[7] == "geometric mean of openreg compiled: 1.00"
    chart([table, Table("empty", "us", "cpu", [])], tmp_path / "chart.png")


@pytest.mark.parametrize(("slow", "verdict"), [(4.0, "met"), (5.0, "missed")])
def test_mean_of_all_cases_has_a_bound(slow: float, verdict: str) -> None:
    section = SECTIONS[0]
    rows = [row(case.name, slow if i else 1.0) for i, case in enumerate(section.cases[:2])]
    rows += [row(case.name, 2.0) for case in section.cases[2:]]
    last = render(section.table("openreg", rows)).splitlines()[-1]
    assert last.startswith("geometric mean of openreg compiled: ")
    assert last.endswith(f"<= 1.00  {verdict}")
    rows[-1] = Row("none", error="it died")
    assert "<=" not in render(section.table("openreg", rows)).splitlines()[-1]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--filter", "nothing like it"], "no case name contains 'nothing like it'"),
        (["--threads", "0"], "'0' is not an integer of at least 1"),
        (["--device", "cpu"], "--device cpu is the reference"),
    ],
)
def test_wrong_flag_is_one_line(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        program.main(argv)
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
