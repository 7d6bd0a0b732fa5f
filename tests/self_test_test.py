# SPDX-License-Identifier: BSD-3-Clause
"""`python -m torch_openreg`: what it says of a sound device, of broken ones, and of no device."""

import contextlib
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
from torch.utils import dlpack
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


def test_sound_device() -> None:
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr  # no progress, as nobody is watching
    lines = done.stdout.splitlines()
    for check in self_test.CHECKS:
        assert any(re.match(rf"PASS  {check.name} +\d+\.\d ms", line) for line in lines)
    assert re.fullmatch(rf"{len(self_test.CHECKS)} checks in \d+\.\d s, none failed", lines[-1])
    for name in ("torch_openreg", "torch", "driver", "python", "openreg:0", "openreg:1"):
        assert any(line.startswith(f"{name} ") for line in lines), name
    assert f"{torch.__version__}, C++11 ABI on" in done.stdout


def test_json() -> None:
    done = run("--json", OPENREG_DEVICE_COUNT="1")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["passed"] is True
    assert report["error"] == ""
    assert [check["name"] for check in report["checks"]] == [c.name for c in self_test.CHECKS]
    assert all(check["passed"] and check["ms"] > 0 for check in report["checks"])
    (device,) = report["devices"]
    assert device["index"] == 0
    assert device["total_memory"] >= device["free_memory"] > 0
    assert report["features"]["autocast"] == ["torch.float16", "torch.bfloat16"]
    (peers,) = (check for check in report["checks"] if check["name"] == "peer copies")
    assert "there is one device only" in peers["message"]


def test_other_device(capsys: pytest.CaptureFixture[str]) -> None:
    current = torch.openreg.current_device()
    assert program.main(["--device", "1"]) == 0
    assert torch.openreg.current_device() == current
    assert "none failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--no-such-flag"], "unrecognized arguments: --no-such-flag"),
        (["--device", "one"], "'one' is no index"),
        (["--device", "-1"], "--device"),
    ],
)
def test_wrong_flags(flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        program.main(flags)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        program.main(["--help"])
    assert ended.value.code == 0
    assert "0 if all is well, 1 if something is not" in capsys.readouterr().out


def test_device_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--device", "9"]) == 1
    printed = capsys.readouterr().out
    assert "FAIL  there is no device 9, but 2 (from 0)" in printed
    assert "next: --device takes an index" in printed


def test_setting_that_is_wrong() -> None:
    done = run(OPENREG_DEVICE_COUNT="many")
    assert done.returncode == 1
    assert "OPENREG_DEVICE_COUNT" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def no_change(*arguments: Any, **named: Any) -> None:
    """In the place of what should have done something."""


def wrong_copy(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The function, with the last element of its result changed."""

    def function(*arguments: Any, **named: Any) -> torch.Tensor:
        result = original(*arguments, **named).clone()
        result.reshape(-1)[-1] = 0.5 if result.dtype.is_floating_point else 0
        return result

    return function


def copied(tensor: Any, *_: Any) -> torch.Tensor:
    result: torch.Tensor = tensor.clone()
    return result


# What is broken (an object, its attribute, what takes its place), and which check says so how.
FAULTS: list[tuple[str, Any, str, Any, str]] = [
    ("memory", openreg, "memory_allocated", lambda device=None: 0, "counts as 0"),
    ("memory", openreg, "mem_get_info", lambda device=None: (2, 1), "2 bytes are free, of 1"),
    ("copies", torch.Tensor, "cpu", wrong_copy(torch.Tensor.cpu), "elements are wrong"),
    ("pinned memory", torch.Tensor, "pin_memory", lambda self: self, "did not pin"),
    ("errors", torch, "ones", lambda *sizes, device=None: torch.zeros(3), "is used, and there are"),
    ("streams", openreg.Stream, "wait_event", no_change, "elements are wrong"),
    ("events", openreg, "_sleep", no_change, "work"),
    ("operators", torch.nn.functional, "layer_norm", None, "differs from the CPU by up to"),
    ("gradients", torch.autograd, "grad", None, "gradient of weight: differs from the CPU"),
    ("autocast", torch, "autocast", lambda *_, **__: contextlib.nullcontext(), "float32"),
    ("random numbers", torch, "manual_seed", no_change, "numbers of the same seed"),
    ("graphs", openreg.OpenRegGraph, "replay", no_change, "a replay gives"),
    ("peer copies", torch.Tensor, "to", None, "a copy from device 0 to 1: 1 of 16384"),
    ("dlpack", dlpack, "from_dlpack", copied, "memory shared by DLPack"),
    ("compiler", torch.compiler, "list_backends", lambda: ["inductor"], "'openreg' is not among"),
]


def broken_on_device(original: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose result on the device is changed."""

    def function(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        many = isinstance(result, tuple)
        first = result[0] if many else result
        if first.device.type == "openreg" and first.dtype == torch.float32:
            first = first.clone()
            first.reshape(-1)[-1] = 100
        return (first, *result[1:]) if many else first

    return function


@pytest.mark.parametrize(
    ("name", "owner", "attribute", "fault", "message"),
    FAULTS,
    ids=[f"{name}-{attribute}" for name, _, attribute, _, _ in FAULTS],
)
def test_fault_is_found(
    name: str,
    owner: Any,
    attribute: str,
    fault: Any,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (check,) = (check for check in self_test.CHECKS if check.name == name)
    monkeypatch.setattr(self_test, "CHECKS", (check,))
    (sound,) = self_test.run()
    assert sound.passed, sound.message
    assert sound.advice == ""
    replaced = fault or broken_on_device(getattr(owner, attribute))
    with monkeypatch.context() as broken:
        broken.setattr(owner, attribute, replaced)
        (outcome,) = self_test.run()
    assert not outcome.passed
    assert message in outcome.message
    assert outcome.advice == check.advice


def test_every_check_can_fail() -> None:
    assert {name for name, *_ in FAULTS} == {check.name for check in self_test.CHECKS}


def test_failure_is_told_with_the_next_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(openreg.OpenRegGraph, "replay", no_change)
    assert program.main([]) == 1
    printed = capsys.readouterr().out
    told = r"^FAIL  graphs .* a replay gives .*\n      next: see docs/graphs.md$"
    assert re.search(told, printed, re.MULTILINE)
    assert "PASS  peer copies" in printed
    assert printed.endswith(", 1 failed\n")
    assert program.main(["--json"]) == 1
    assert json.loads(capsys.readouterr().out)["passed"] is False


def test_checks_leave_everything_as_it_was() -> None:
    torch.openreg.empty_cache()
    torch.manual_seed(4)
    held = torch.openreg.memory_allocated()
    states = [torch.get_rng_state(), torch.openreg.get_rng_state(0)]
    assert all(outcome.passed for outcome in self_test.run())
    assert torch.openreg.memory_allocated() == held
    assert torch.equal(torch.get_rng_state(), states[0])
    assert torch.equal(torch.openreg.get_rng_state(0), states[1])


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A copy of the package, to be broken."""
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
