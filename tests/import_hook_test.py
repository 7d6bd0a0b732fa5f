# SPDX-License-Identifier: BSD-3-Clause
"""Tests code that runs when a module is imported, and its use for torch.distributed.tensor."""

import importlib
import importlib.util
import inspect
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest
from torch_openreg.distributed.import_hook import call_after_import

from tests import child

OFF = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
LEARNED = """
        from torch.distributed.tensor import DTensor
        operator = torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default
        assert operator in DTensor._op_dispatcher.sharding_propagator.op_strategy_funcs
        from torch.distributed.tensor.experimental import context_parallel
        from torch.distributed.tensor.experimental._context_parallel import _attention
        assert operator in _attention.custom_ops
"""


@pytest.mark.parametrize("first", ["torch", "torch_openreg"])
@pytest.mark.parametrize("environment", [{}, OFF], ids=["on", "off"])
def test_torch_is_extended_on_import(first: str, environment: dict[str, str]) -> None:
    child.output(
        f"""
        import {first}, sys, torch, torch.distributed
        loaded = [name for name in sys.modules if name.startswith("torch.distributed.tensor")]
        assert not loaded, loaded
        assert "torch_openreg.distributed.attention" not in sys.modules
        import torch_openreg
        {LEARNED}
        """,
        "-W",
        "error",
        **environment,
    )


def test_tensors_that_are_there_before_the_device() -> None:
    child.output(
        f"""
        import torch, torch.distributed.tensor.experimental, torch_openreg
        {LEARNED}
        """,
        **OFF,
    )


def test_threads_that_import_at_once() -> None:
    child.output(
        f"""
        import sys, threading, torch
        sys.setswitchinterval(1e-5)
        failures = []

        def use():
            try:
                {LEARNED.strip().replace(chr(10), chr(10) + " " * 8)}
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures
        """
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("torch.__version__ = '2.14.0'", "of torch 2.14.0"),
        ("sys.modules['torch_openreg.distributed.attention'] = None", "could not be registered"),
    ],
)
def test_another_torch_than_expected(change: str, reason: str) -> None:
    printed = child.output(
        f"""
        import sys, torch, warnings
        {change}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            from torch.distributed.tensor import DTensor
        print(*(warning.message for warning in caught))
        """
    )
    assert printed.startswith("openreg: the device's attention could not be registered")
    assert reason in printed
    assert "attention.py supports torch 2.13" in printed


# -------------------------------------------------------- the import hook without torch.distributed


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yields a folder on sys.path. Afterwards, removes the imported modules and all hooks."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.py").write_text(text)
    importlib.invalidate_caches()


def test_the_call_follows_the_import(folder: Path) -> None:
    write(folder, "hooked", "value = 1\n")
    seen: list[int] = []
    call_after_import("hooked", lambda module: seen.append(module.value))
    assert importlib.util.find_spec("hooked") is not None
    assert seen == []
    module = importlib.import_module("hooked")
    importlib.import_module("hooked")
    assert seen == [1]
    # The hook must not change the module's loader and source.
    assert type(module.__loader__) is SourceFileLoader
    assert module.__spec__ is not None
    assert module.__spec__.loader is module.__loader__
    assert inspect.getsource(module) == "value = 1\n"
    importlib.reload(module)
    assert seen == [1, 1]
    assert type(module.__loader__) is SourceFileLoader


def test_module_that_is_already_imported(folder: Path) -> None:
    write(folder, "early", "value = 2\n")
    importlib.import_module("early")
    seen: list[str] = []
    call_after_import("early", lambda module: seen.append(module.__name__))
    assert seen == ["early"]


def test_a_package_and_its_module(folder: Path) -> None:
    (folder / "parent").mkdir()
    (folder / "parent" / "__init__.py").touch()
    write(folder / "parent", "child", "")
    seen: list[str] = []
    for name in ("parent.child", "parent"):
        call_after_import(name, lambda module: seen.append(module.__name__))
    importlib.import_module("parent.child")
    assert seen == ["parent", "parent.child"]


def test_a_module_that_fails(folder: Path) -> None:
    write(folder, "failing", "import sys\nif not hasattr(sys, 'fixed'): 1 / 0\n")
    seen: list[ModuleType] = []
    call_after_import("failing", seen.append)
    call_after_import("absent", seen.append)
    with pytest.raises(ZeroDivisionError):
        importlib.import_module("failing")
    with pytest.raises(ModuleNotFoundError, match="absent"):
        importlib.import_module("absent")
    assert seen == []
    write(folder, "failing", "")
    assert importlib.import_module("failing") in seen


def test_a_function_that_fails(folder: Path) -> None:
    write(folder, "spoiled", "")
    failures = [ValueError("first"), None]

    def fail(_: ModuleType) -> None:
        if failure := failures.pop(0):
            raise failure

    call_after_import("spoiled", fail)
    with pytest.raises(ValueError, match="first"):
        importlib.import_module("spoiled")
    assert "spoiled" not in sys.modules
    importlib.import_module("spoiled")


def test_two_hooks_and_a_reentrant_finder(folder: Path) -> None:
    class AsksBack(MetaPathFinder):
        asked = 0

        def find_spec(
            self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
        ) -> ModuleSpec | None:
            if fullname != "shared" or self.asked > 5:
                return None
            self.asked += 1
            return next(
                spec
                for finder in sys.meta_path
                if finder is not self and (spec := finder.find_spec(fullname, path, target))
            )

    write(folder, "shared", "")
    seen: list[str] = []
    call_after_import("shared", lambda _: seen.append("first"))
    finder = AsksBack()
    sys.meta_path.insert(1, finder)
    call_after_import("shared", lambda _: seen.append("second"))
    importlib.import_module("shared")
    assert sorted(seen) == ["first", "second"]
    assert finder.asked <= 2


def test_others_wait_for_the_call(folder: Path) -> None:
    write(folder, "slow", "")
    called, ended = threading.Event(), threading.Event()

    def prepare(module: ModuleType) -> None:
        called.set()
        ended.wait(1)
        module.ready = True

    call_after_import("slow", prepare)
    ready: list[bool] = []

    def use() -> None:
        ready.append(hasattr(importlib.import_module("slow"), "ready"))

    threads = [threading.Thread(target=use) for _ in range(3)]
    threads[0].start()
    assert called.wait(30)
    for thread in threads[1:]:
        thread.start()
    ended.set()
    for thread in threads:
        thread.join()
    assert ready == [True] * 3
