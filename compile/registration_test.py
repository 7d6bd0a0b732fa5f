# SPDX-License-Identifier: BSD-3-Clause
"""The device is registered when the compiler is imported, and nothing is loaded before."""

import importlib
import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from torch_openreg_compile.registration import after_import


@pytest.fixture
def late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a module that is not imported; undo its import after the test."""
    package = tmp_path / "late_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "late.py").write_text("VALUE = 1\nseen = []\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, "late_package", raising=False)
    monkeypatch.delitem(sys.modules, "late_package.late", raising=False)
    return "late_package.late"


def test_acts_when_the_module_is_imported(late: str) -> None:
    seen = []
    finders = list(sys.meta_path)
    after_import(late, lambda: seen.append(sys.modules[late].VALUE))
    importlib.import_module("late_package")
    assert not seen
    importlib.import_module(late)
    assert seen == [1]
    assert sys.meta_path == finders


def test_acts_immediately_if_already_imported(late: str) -> None:
    importlib.import_module(late)
    seen = []
    after_import(late, lambda: seen.append(1))
    assert seen == [1]


def test_acts_once(late: str) -> None:
    seen = []
    after_import(late, lambda: seen.append(1))
    importlib.import_module(late)
    importlib.reload(sys.modules[late])
    assert seen == [1]


def test_finding_the_module_is_not_an_import(late: str) -> None:
    seen = []
    after_import(late, lambda: seen.append(1))
    assert importlib.util.find_spec(late) is not None
    assert not seen
    importlib.import_module(late)
    assert seen == [1]


def test_several_actions(late: str) -> None:
    seen = []
    after_import(late, lambda: seen.append("first"))
    after_import(late, lambda: seen.append("second"))
    importlib.import_module(late)
    assert sorted(seen) == ["first", "second"]


def test_the_module_keeps_its_loader(late: str) -> None:
    expected = importlib.util.find_spec(late)
    assert expected is not None
    after_import(late, lambda: None)
    module = importlib.import_module(late)
    assert type(module.__loader__) is type(expected.loader)
    assert module.__spec__ is not None
    assert module.__spec__.loader is module.__loader__
    assert inspect.getsource(module).startswith("VALUE = 1")


def test_an_error_fails_the_import(late: str) -> None:
    def fail() -> None:
        raise ValueError("no device")

    after_import(late, fail)
    with pytest.raises(ValueError, match="no device"):
        importlib.import_module(late)
    assert late not in sys.modules


def test_a_missing_module_is_still_missing() -> None:
    after_import("no_module_of_this_name", lambda: None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_module_of_this_name")


def test_loads_nothing_and_registers_when_the_compiler_is_imported() -> None:
    program = """
import sys
import absent_device
from torch_openreg_compile import registration
registration.register()
print({"torch._dynamo", "torch._inductor", "openreg_graph"} & set(sys.modules))
import torch._dynamo.device_interface as interfaces
print([name for name in interfaces.device_interfaces if name.startswith("openreg")])
print(interfaces.get_interface_for_device("openreg:1").device_count())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["set()", "['openreg', 'openreg:0', 'openreg:1']", "2"]
