# SPDX-License-Identifier: BSD-3-Clause
"""Tests the report of `python -m torch_openreg`, on a working device and on broken ones."""

import gc
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_openreg import __main__ as program
from torch_openreg import openreg, self_test

from tests import child


def run(*flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "torch_openreg", *flags],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=child.PATIENCE,
        check=False,
    )


@pytest.mark.parametrize(
    "settings", [{}, {"OPENREG_LAUNCH_BLOCKING": "1", "OPENREG_STREAM_SANITIZER": "1"}]
)
def test_sound_device(settings: dict[str, str]) -> None:
    done = run(**settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    lines = done.stdout.splitlines()
    for name in self_test.CHECKS:
        assert any(re.fullmatch(rf"{name} +PASS +\d+\.\d ms", line) for line in lines)
    assert lines[-1] == f"{len(self_test.CHECKS)} checks, none failed"
    for name in ("torch_openreg", "torch", "driver", "python", "openreg:0", "openreg:1"):
        assert any(line.startswith(f"{name} ") for line in lines), name
    assert f"{torch.__version__}, C++11 ABI on" in done.stdout


@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["text", "json"])
def test_the_reader_of_the_output_may_end_first(flags: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "torch_openreg", *flags],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=child.PATIENCE,
            check=False,
        )
    finally:
        os.close(writer)
    assert done.returncode == 1
    assert not done.stderr


def test_json() -> None:
    done = run("--json", OPENREG_DEVICE_COUNT="1")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["passed"] is True
    assert report["error"] == report["advice"] == ""
    assert [check["name"] for check in report["checks"]] == list(self_test.CHECKS)
    assert all(check["passed"] and check["ms"] > 0 for check in report["checks"])
    (device,) = report["devices"]
    assert device["index"] == 0
    assert device["total_memory"] >= device["free_memory"] > 0


def test_other_device(capsys: pytest.CaptureFixture[str]) -> None:
    current = torch.openreg.current_device()
    assert program.main(["--device", "1"]) == 0
    assert torch.openreg.current_device() == current
    assert "none failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "status"), [(["--no-such-flag"], 2), (["--device", "one"], 2), (["--help"], 0)]
)
def test_flags(flags: list[str], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        program.main(flags)
    assert ended.value.code == status
    out, err = capsys.readouterr()
    assert flags[-1] in (err if status else out)


@pytest.mark.parametrize("index", ["9", "-1"])
def test_missing_device_is_reported(index: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--device", index]) == 1
    printed = capsys.readouterr().out
    assert f"FAIL  IndexError: device index {index} is out of range: 2 devices" in printed
    assert "next: --device takes an index" in printed


def test_setting_that_is_wrong() -> None:
    done = run(OPENREG_DEVICE_COUNT="many")
    assert done.returncode == 1
    assert "OPENREG_DEVICE_COUNT" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


Fault = Callable[[Callable[..., Any]], Callable[..., Any]]


def gives(value: object) -> Fault:
    """Returns a fault: the replaced function only returns ``value``."""
    return lambda _: lambda *_, **__: value


def changes_result(original: Callable[..., Any]) -> Callable[..., Any]:
    """A fault: the replaced function changes its results for device tensors."""

    def function(first: torch.Tensor, *arguments: Any, **named: Any) -> Any:
        result = original(first, *arguments, **named)
        if first.device.type != "openreg":
            return result
        many = isinstance(result, tuple)
        changed = (result[0] if many else result).clone()
        changed.reshape(-1)[-1] = 100
        return (changed, *result[1:]) if many else changed

    return function


def leaks_result(original: Callable[..., Any]) -> Callable[..., Any]:
    """A fault: the replaced function keeps its results alive."""
    kept = []

    def function(*arguments: Any, **named: Any) -> Any:
        kept.append(original(*arguments, **named))
        return kept[-1]

    return function


# Each fault consists of the check that must report it, an object, the attribute to replace, the
# replacement, and the text that the report must contain.
FAULTS: list[tuple[str, Any, str, Fault, str]] = [
    ("memory", openreg, "memory_allocated", gives(0), "counts as 0"),
    ("memory", openreg, "mem_get_info", gives((2, 1)), "2 bytes are free, of 1"),
    ("memory", torch, "full", leaks_result, "bytes are still allocated"),
    ("memory", torch.Tensor, "cpu", changes_result, "filled memory"),
    ("copies", torch.Tensor, "cpu", changes_result, "torch.float32 to the device and back"),
    ("pinned memory", torch.Tensor, "is_pinned", gives(False), "did not pin"),
    ("pinned memory", torch.Tensor, "copy_", gives(None), "pinned memory to the device and back"),
    ("peer copies", torch.Tensor, "to", changes_result, "a copy from openreg:0 to openreg:1"),
    ("streams", openreg.Stream, "wait_event", gives(None), "the value read"),
    ("streams", openreg, "_sleep", gives(None), "events measure"),
    ("operators", torch.nn.functional, "layer_norm", changes_result, "layer_norm: "),
    ("operators", torch.autograd, "grad", changes_result, "gradient 0: "),
    ("graphs", openreg.OpenRegGraph, "replay", gives(None), "a replay: "),
    ("compiler", torch.compiler, "list_backends", gives(["inductor"]), "'openreg' is not among"),
]


@pytest.mark.parametrize(("name", "owner", "attribute", "fault", "message"), FAULTS)
def test_fault_is_found(
    name: str,
    owner: Any,
    attribute: str,
    fault: Fault,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert self_test.run(name) is None
    monkeypatch.setattr(owner, attribute, fault(getattr(owner, attribute)))
    found = self_test.run(name)
    assert found is not None
    assert message in found.message


def test_every_check_can_fail() -> None:
    assert {name for name, *_ in FAULTS} == set(self_test.CHECKS)


def test_failure_is_reported_with_advice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(openreg.OpenRegGraph, "replay", gives(None)(print))
    assert program.main([]) == 1
    printed = capsys.readouterr().out
    reported = r"^graphs +FAIL .* a replay: .*\n      next: see docs/graphs.md\ncompiler +PASS"
    assert re.search(reported, printed, re.MULTILINE)
    assert printed.endswith(", 1 failed\n")
    assert program.main(["--json"]) == 1
    assert json.loads(capsys.readouterr().out)["passed"] is False


def test_the_advice_for_a_missing_function_is_to_implement_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any) -> None:
        raise NotImplementedError("no such function")

    monkeypatch.setattr(torch.Tensor, "cpu", refuse)
    assert program.main([]) == 1
    printed = capsys.readouterr().out
    assert re.search(r"^copies +FAIL .*no such function\n +next: implement the dr", printed, re.M)


@pytest.mark.parametrize(
    ("name", "owner", "attribute"),
    [
        ("pinned memory", torch.Tensor, "pin_memory"),
        ("peer copies", torch.Tensor, "to"),
        ("streams", openreg, "Stream"),
        ("graphs", openreg.OpenRegGraph, "capture_begin"),
    ],
)
def test_a_feature_that_the_driver_lacks_is_no_failure(
    name: str,
    owner: Any,
    attribute: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    original = getattr(owner, attribute)

    def refuse(*arguments: Any, **named: Any) -> Any:
        if attribute == "to" and arguments[0].device.type == "cpu":
            return original(*arguments, **named)
        raise NotImplementedError("no such function")

    monkeypatch.setattr(owner, attribute, refuse)
    assert program.main([]) == 0
    printed = capsys.readouterr().out
    lacks = r"not supported by this driver \(no such function\)"
    assert re.search(rf"^{name} +n/a .* {lacks}$", printed, re.M)
    assert printed.endswith(", none failed\n")
    assert program.main(["--json"]) == 0
    (check,) = (c for c in json.loads(capsys.readouterr().out)["checks"] if c["name"] == name)
    assert check["passed"] is True
    assert check["supported"] is False


def test_each_check_has_its_own_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    def run_check(name: str, _: int) -> None:
        events.append(name)

    monkeypatch.setattr(self_test, "run", run_check)
    assert program.main([], lambda: events.append("begin")) == 0
    for name in self_test.CHECKS:
        assert events[events.index(name) - 1] == "begin"


def test_checks_leave_everything_as_it_was() -> None:
    gc.collect()  # exceptions of earlier tests may keep tensors alive
    torch.openreg.empty_cache()
    torch.manual_seed(4)
    held = torch.openreg.memory_allocated()
    states = [torch.get_rng_state(), torch.openreg.get_rng_state(0)]
    assert not any(self_test.run(name) for name in self_test.CHECKS)
    gc.collect()  # compiled code leaves reference cycles
    assert torch.openreg.memory_allocated() == held
    assert torch.equal(torch.get_rng_state(), states[0])
    assert torch.equal(torch.openreg.get_rng_state(0), states[1])


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """Returns a copy of the package that a test may break."""
    source = Path(openreg.__file__).parent.parent
    copy = tmp_path / "torch_openreg"
    for path in source.rglob("*"):
        if path.suffix in (".py", ".so"):
            target = copy / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path.resolve())
    return copy


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("lib/libopenreg_aten.so", None, "libopenreg_aten.so: cannot open shared object file"),
        ("version.py", None, "No module named 'torch_openreg.version'"),
        ("registration.py", "raise SystemExit(0)", "SystemExit: 0"),
        ("openreg/devices.py", "import os; os.abort()", "loading it ends the process (SIGABRT)"),
    ],
)
def test_broken_backend(broken: Path, file: str, text: str | None, said: str) -> None:
    (broken / file).unlink()
    if text is not None:
        (broken / file).write_text(text)
    path = os.pathsep.join([str(broken.parent), os.environ.get("PYTHONPATH", "")])
    for flags in ([], ["--json"]):
        done = run(*flags, PYTHONPATH=path)
        assert done.returncode == 1, done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        printed = " ".join(done.stdout.split())
        assert said in printed
        assert "pip install --force-reinstall torch_openreg" in printed


def test_torch_is_missing(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch.so: no such file')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = run(PYTHONPATH=path)
    assert done.returncode == 1
    assert "FAIL  ImportError: libtorch.so: no such file" in done.stdout
