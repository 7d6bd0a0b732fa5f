# SPDX-License-Identifier: BSD-3-Clause
"""Runs the command line on the CPU and on a Python backend with planted crashes and hangs."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch_device_conformance.__main__ import main
from torch_device_conformance.command import run as command
from torch_device_conformance.report.report import Report, load, save
from torch_device_conformance.report.waivers import Waivers
from torch_device_conformance.verdict.verdict import (
    COMPOSITE,
    CRASH,
    FALLBACK,
    HANG,
    MISSING,
    NATIVE,
    NOT_RUN,
    WRONG,
    Verdict,
    parse_case,
)

NPY = Path("examples/python_backend/npy.py").absolute()

# The Python backend with a planted crash and a planted hang.
PLANTED = f"""
import ctypes, sys, time
sys.path.insert(0, {str(NPY.parent)!r})
import npy

def hang(x):
    time.sleep(600)

npy.library.impl("tanh", lambda x: ctypes.string_at(8), "PrivateUse1")
npy.library.impl("cos", hang, "PrivateUse1")
"""


def run(folder: Path, *arguments: str, device: str = "cpu") -> tuple[int, dict[str, Any]]:
    """Runs the program. Returns its exit status and the verdict of each case."""
    status = main(["--device", device, "--output", str(folder), *arguments])
    report = load(folder / "report.json")
    return status, {str(v.case): v for v in report.verdicts.values()}


# Modes that a vendor adds. One entry agrees with the CPU, one never does, and one aborts the
# process.
MODES = """
import itertools, os, torch
from torch_device_conformance.comparison.entry import (Entry, Run)

class Planted(Entry):
    drawn = False
    sizes = itertools.count()

    def __init__(self, name):
        self.name = name

    def supports(self, dtype):
        return dtype == torch.float32

    def tolerances(self, dtype):
        return 0, 0

    def samples(self, dtype, device):
        return [None]

    def run(self, sample, device, seed):
        if self.name == "crash":
            os.abort()
        return Run({"output": torch.ones(next(self.sizes) if self.name == "differs" else 3)}, {})

def entries():
    return map(Planted, ("agrees", "crash", "differs"))

SUITES = {"planted": {"plain": entries}}
"""

# Makes the trace crash, as torch's execution trace does on some sparse tensors.
CRASHING_TRACE = """
from torch_device_conformance.subject.routes import Observer

Observer.routes = lambda self, run: os.abort()
"""

WAIVERS = """
[[waiver]]
cases = ["planted/*/differs"]
verdicts = ["wrong"]
reason = "planted"
expires = "never"

[[waiver]]
cases = "planted/*/crash"
verdicts = ["not-run"]
reason = "planted"
expires = "never"
"""


def only(*cases: str) -> list[str]:
    """Returns the flags that select only the given cases."""
    return [flag for case in cases for flag in ("--only", case)]


def test_cpu_agrees_with_itself(tmp_path: Path) -> None:
    cases = only("op/[eo]*/float32/add", "op/backward/float32/svd", "module/*/float32/nn.Linear")
    status, found = run(tmp_path, *cases, "--seed", "3")
    assert status == 0
    assert {v.verdict for v in found.values() if v.counts} == {NATIVE}
    assert "op/out/float32/add" in found
    assert found["op/eager/float32/add"].routes == {"aten::add.Tensor": NATIVE}
    heading = json.loads((tmp_path / "report.json").read_text())
    made = heading["description"]["provenance"]
    assert all(len(made[part]["sha256"]) == 64 for part in ("torch", "kit"))
    assert heading["seed"] == 3


def test_cpu_meets_the_contract(tmp_path: Path) -> None:
    areas = [f"contract/{area}/*" for area in ("device", "errors", "serialization", "tensors")]
    cases = only(*areas, "contract/compiler/fake_tensors", "contract/compiler/streams_and_guards")
    status, found = run(tmp_path, *cases)
    assert status == 0
    # torch's device interface for the CPU does not implement device_count().
    assert found.pop("contract/compiler/streams_and_guards").verdict == MISSING
    assert {v.verdict for v in found.values() if v.counts} == {NATIVE}


def test_crash_and_hang_are_verdicts_with_stacks(tmp_path: Path) -> None:
    backend = tmp_path / "planted.py"
    backend.write_text(PLANTED)
    names = [f"op/eager/float32/{name}" for name in ("tanh", "cos", "sin", "mm")]
    flags = ["--import", str(backend), "--no-autoload", "--timeout", "5"]
    status, found = run(tmp_path, *flags, *only(*names), device="npy")
    assert status == 1
    tanh, cos, sin, mm = (found[name] for name in names)
    assert (tanh.verdict, tanh.message) == (CRASH, "SIGSEGV")
    assert "string_at" in tanh.stack
    assert cos.verdict == HANG
    assert "planted.py" in cos.stack
    assert "in hang" in cos.stack
    assert float(cos.seconds) == 5  # the case was not run a second time
    assert sin.verdict == FALLBACK
    assert mm.verdict == NATIVE
    made = load(tmp_path / "report.json").heading["description"]["provenance"]["backend"]
    assert made["module"] == "planted.py"


def test_python_backend_lists_what_is_missing(tmp_path: Path) -> None:
    names = ("device/available", "generator/own", "streams/order", "compiler/inductor")
    cases = only(*(f"contract/{name}" for name in names))
    status, found = run(tmp_path, "--import", str(NPY), "--no-autoload", *cases, device="npy")
    assert status == 1
    assert found["contract/device/available"].verdict == NATIVE
    assert not found["contract/generator/own"].passes
    assert found["contract/generator/own"].message
    assert found["contract/compiler/inductor"].verdict == MISSING


def test_run_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = only("op/eager/float32/add", "op/eager/float32/mul")
    run(tmp_path, *cases)
    journal = tmp_path / "verdicts.jsonl"
    lines = journal.read_text().splitlines()
    kept = lines[1].replace('"native"', '"composite"')  # shows that the case is not run again
    journal.write_text(f"{lines[0]}\n{kept}\n")
    _, found = run(tmp_path, *cases, "--resume")
    assert sorted(v.verdict for v in found.values()) == ["composite", NATIVE]
    with pytest.raises(SystemExit) as refused:
        run(tmp_path, *cases, "--resume", "--seed", "1")
    assert refused.value.code == 2


def test_progress_is_printed_without_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = only("op/eager/float32/add", "op/eager/float32/mul")
    monkeypatch.setattr(command, "BETWEEN_LINES", 0)
    run(tmp_path, *cases)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["1 of 2 cases, 0 failed", "2 of 2 cases, 0 failed"]
    monkeypatch.setattr(command, "BETWEEN_LINES", 600)
    run(tmp_path, *cases)
    assert not capsys.readouterr().err


def test_shards_make_one_report(tmp_path: Path) -> None:
    cases = only("op/eager/*/abs", "op/eager/*/neg")
    parts = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        run(folder, *cases, "--tier", "full", "--shard", f"{number}/2")
        parts.append(str(folder / "report.json"))
    assert main(["merge", *parts, "--output", str(tmp_path / "all")]) == 0
    merged = load(tmp_path / "all" / "report.json")
    each = [load(Path(part)).verdicts.keys() for part in parts]
    assert not each[0] & each[1]
    assert merged.verdicts.keys() == each[0] | each[1]
    assert NOT_RUN not in merged.counts()
    assert main(["merge", parts[0], "--output", str(tmp_path / "half")]) == 1
    half = load(tmp_path / "half" / "report.json")
    assert half.verdicts.keys() == merged.verdicts.keys()
    assert {c for c, v in half.verdicts.items() if v.verdict == NOT_RUN} == each[1]


def test_merge_lists_the_cases_of_modes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    modes = tmp_path / "shard_modes.py"
    # No earlier test in this process has loaded this suite.
    modes.write_text(MODES.replace('"planted"', '"elsewhere"'))
    ran = Verdict(parse_case("elsewhere/plain/float32/agrees"), NATIVE)
    heading = {"device": "cpu", "tier": "full", "seed": 0, "shard": "1/3", "description": {}}
    selected = {"only": ["elsewhere/*"], "modes": [str(modes)]}
    part = tmp_path / "part.json"
    save(part, Report({**heading, **selected}, {ran.case: ran}), Waivers())
    assert main(["merge", str(part), "--output", str(tmp_path)]) == 1
    merged = load(tmp_path / "report.json")
    assert {v.case.name: v.verdict for v in merged.verdicts.values()} == {
        "agrees": NATIVE,
        "crash": NOT_RUN,
        "differs": NOT_RUN,
    }
    printed = capsys.readouterr().out
    assert "2 cases were not run" in printed
    assert "missing shards: 2/3, 3/3" in printed


def test_merge_refuses_modes_that_cannot_be_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heading = {"device": "cpu", "tier": "full", "seed": 0, "shard": "1/2", "description": {}}
    part = tmp_path / "part.json"
    save(part, Report({**heading, "modes": ["nowhere"]}), Waivers())
    with pytest.raises(SystemExit) as refused:
        main(["merge", str(part), "--output", str(tmp_path)])
    assert refused.value.code == 2
    assert "--modes nowhere failed with ModuleNotFoundError" in capsys.readouterr().err


def test_modes_of_a_vendor_and_strict_waivers(tmp_path: Path) -> None:
    modes, waivers = tmp_path / "vendor_modes.py", tmp_path / "waivers.toml"
    modes.write_text(MODES)
    flags = ["--modes", str(modes), *only("planted/*")]
    status, found = run(tmp_path, *flags)
    assert status == 1
    assert {name: verdict.verdict for name, verdict in found.items()} == {
        "planted/plain/float32/agrees": COMPOSITE,
        "planted/plain/float32/crash": CRASH,
        "planted/plain/float32/differs": WRONG,
    }
    waivers.write_text(WAIVERS)
    flags += ["--waivers", str(waivers)]
    status, found = run(tmp_path, *flags, "--strict")
    assert status == 0
    assert found["planted/plain/float32/crash"].verdict == NOT_RUN
    waivers.write_text(WAIVERS.replace("differs", "[ad]*s"))
    assert run(tmp_path, *flags)[0] == 0
    assert run(tmp_path, *flags, "--strict")[0] == 1


def test_crash_of_the_trace_keeps_the_verdict(tmp_path: Path) -> None:
    modes = tmp_path / "traced_modes.py"
    modes.write_text(MODES.replace('"planted"', '"traced"') + CRASHING_TRACE)
    status, found = run(tmp_path, "--modes", str(modes), *only("traced/*/agrees"))
    assert status == 0
    [verdict] = found.values()
    assert (verdict.verdict, verdict.message) == (NATIVE, "(its routes are unknown)")
    assert not verdict.routes


def test_modes_are_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twice = tmp_path / "twice_modes.py"
    twice.write_text('SUITES = {"op": {"eager": list}}')
    for name, message in (("nowhere", "No module named"), (str(twice), "op/eager already exists")):
        with pytest.raises(SystemExit) as refused:
            main(["--device", "cpu", "--modes", name])
        assert refused.value.code == 2
        assert message in capsys.readouterr().err


def test_modes_without_a_case_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    modes = tmp_path / "unused_modes.py"
    modes.write_text("SUITES = {}")
    with pytest.raises(SystemExit) as refused:
        main(["--device", "cpu", "--modes", str(modes)])
    assert refused.value.code == 2
    assert "the tier quick has no cases of --modes" in capsys.readouterr().err


def test_time_limit_leaves_cases_for_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = only("op/eager/float32/add", "op/eager/float32/mul", "op/eager/float32/sub")
    with monkeypatch.context() as patch:
        # The program reads the clock twice at the start, and twice for each verdict.
        clock = iter(range(0, 10_000, 50))
        patch.setattr(command, "BETWEEN_LINES", math.inf)
        patch.setattr(command, "time", SimpleNamespace(monotonic=lambda: next(clock)))
        status, found = run(tmp_path, *cases, "--minutes", "3")
    assert status == 1
    assert [v.verdict for v in found.values()].count(NOT_RUN) == 1
    assert run(tmp_path, *cases, "--resume")[0] == 0


def test_unknown_device_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["--device", "npu", "--output", str(tmp_path)])
    assert status == 3
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("torch_device_conformance: no device 'npu'")
    assert "--import" in error


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise RuntimeError('needs firmware 7')", "RuntimeError: needs firmware 7"),
        ("import ctypes; ctypes.string_at(8)", "the process that loads the backend: SIGSEGV"),
        ("import os; os._exit(5)", "the process that loads the backend: exit status 5"),
    ],
)
def test_backend_that_cannot_be_loaded(
    code: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = tmp_path / "unusable.py"
    backend.write_text(code)
    arguments = ["--device", "npu", "--import", str(backend), "--output", str(tmp_path)]
    assert main([*arguments, "--no-autoload"]) == 3
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "op/eager/float32/no_such"], "no case matches op/eager/float32/no_such"),
        (["--shard", "3/2"], "is not a shard"),
        (["--jobs", "0"], "is not an integer of at least 1"),
        (["--waivers", "nowhere.toml"], "file nowhere.toml does not exist"),
        (["--tier", "slow"], "invalid choice"),
    ],
)
def test_wrong_flags(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["--device", "cpu", *arguments])
    assert refused.value.code == 2
    assert message in capsys.readouterr().err


def test_list_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--device", "cpu", "--only", "op/eager/float32/ad[d]", "--list"]) == 0
    assert [str(parse_case(line)) for line in capsys.readouterr().out.split()] == [
        "op/eager/float32/add"
    ]
