# SPDX-License-Identifier: BSD-3-Clause
"""`import torch` loads the device, and a broken backend does not break torch."""

import os
from pathlib import Path

import pytest

from tests import child

OFF = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def test_import_torch_is_enough() -> None:
    printed = child.output("import torch; print(torch.ones(2, device='openreg').device)")
    assert printed == "openreg:0"


@pytest.mark.parametrize("environment", [{}, OFF], ids=["on", "off"])
def test_import_torch_openreg_first(environment: dict[str, str]) -> None:
    code = "import torch_openreg, torch; print(torch.ones(2, device='openreg').sum().item())"
    assert child.output(code, "-W", "error::RuntimeWarning", **environment) == "2.0"


def test_switched_off() -> None:
    printed = child.output(
        """
        import torch
        print(hasattr(torch, "openreg"))
        import torch_openreg
        print(torch.openreg.is_available())
        """,
        **OFF,
    )
    assert printed.split() == ["False", "True"]


@pytest.mark.parametrize("first", ["torch", "torch_openreg", "torch_openreg.openreg"])
@pytest.mark.parametrize("environment", [{}, OFF], ids=["on", "off"])
def test_first_import_is_not_circular(first: str, environment: dict[str, str]) -> None:
    code = f"""
        import {first}
        from torch_openreg import openreg
        import torch, torch.openreg, torch_openreg
        assert torch.openreg is openreg and torch_openreg.__version__
        from torch.openreg import Stream
        print(torch.ones(2, device=Stream().device).sum().item())
    """
    assert child.output(code, "-W", "error", **environment) == "2.0"


@pytest.mark.parametrize("environment", [{}, OFF], ids=["on", "off"])
@pytest.mark.parametrize("stage", ["torch", "torch.nn", "torch._meta_registrations"])
def test_two_threads_import_at_once(stage: str, environment: dict[str, str]) -> None:
    # Several threads import torch and the backend at the same time, so some wait for others. Each
    # thread must be able to use the device after its own import.
    code = f"""
        import sys, threading, time
        sys.setswitchinterval(1e-5)
        results = []

        def use(name):
            __import__(name)
            torch = sys.modules["torch"]
            if name == "torch_openreg" or {not environment}:
                results.append(torch.ones(2, device="openreg").sum().item())

        def use_package():
            while "{stage}" not in sys.modules:
                time.sleep(0)
            use("torch_openreg")

        threads = [
            threading.Thread(target=use, args=("torch",)),
            threading.Thread(target=use_package),
            threading.Thread(target=use_package),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(results)
    """
    expected = [2.0] * (2 if environment else 3)
    assert child.output(code, "-W", "error", **environment) == str(expected)


def test_reload_of_all_there_is() -> None:
    child.output(
        """
        import importlib, torch, torch_openreg, torch_openreg_autoload
        module = torch.openreg
        for reloaded in (torch_openreg_autoload, torch_openreg.registration, torch_openreg):
            importlib.reload(reloaded)
        torch_openreg_autoload.load()
        assert torch.openreg is module
        assert torch.ones(2, device="openreg").sum().item() == 2
        """,
        "-W",
        "error",
    )


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_child_processes(method: str, tmp_path: Path) -> None:
    # A child process imports the function that it runs, so the function must be in a file.
    (tmp_path / "work.py").write_text(
        "import torch\n"
        "def work(queue):\n"
        "    queue.put(torch.full((2,), 3.0, device='openreg').sum().item())\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    printed = child.output(
        f"""
        import torch, torch.multiprocessing as multiprocessing, work
        torch.ones(1, device="openreg")
        context = multiprocessing.get_context("{method}")
        queue = context.Queue()
        process = context.Process(target=work.work, args=(queue,))
        process.start()
        print(queue.get(timeout=90))
        process.join()
        """,
        PYTHONPATH=path,
    )
    assert printed == "6.0"


@pytest.fixture
def broken_backend(tmp_path: Path) -> str:
    """Creates a broken torch_openreg and returns a PYTHONPATH that starts with it."""
    package = tmp_path / "torch_openreg"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('_C.so: undefined symbol: at_empty')\n")
    return os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])


def test_broken_backend_warns_once_and_torch_works(broken_backend: str) -> None:
    done = child.run("import torch; print(torch.ones(2).sum().item())", PYTHONPATH=broken_backend)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "2.0"
    assert done.stderr.count("device openreg is not available") == 1
    assert "ImportError: _C.so: undefined symbol: at_empty" in done.stderr
    assert "pip install --force-reinstall torch_openreg" in done.stderr
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in done.stderr


def test_broken_backend_where_warnings_are_errors(broken_backend: str) -> None:
    code = "import torch; print(torch.ones(2).sum().item())"
    done = child.run(code, "-W", "error::RuntimeWarning", PYTHONPATH=broken_backend)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("device openreg is not available") == 1


@pytest.mark.parametrize("environment", [{}, OFF], ids=["on", "off"])
@pytest.mark.parametrize("code", ["import torch_openreg", "import torch, torch_openreg"])
def test_import_of_a_broken_backend_tells_why(
    code: str, environment: dict[str, str], broken_backend: str
) -> None:
    done = child.run(code, PYTHONPATH=broken_backend, **environment)
    assert done.returncode == 1
    assert "undefined symbol: at_empty" in done.stderr


def test_another_torch(tmp_path: Path) -> None:
    """Simulates another release of torch: the version check runs before any library is loaded."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.abc, importlib.machinery, sys\n"
        "class Older(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name != 'torch.version':\n"
        "            return None\n"
        "        spec = importlib.machinery.PathFinder.find_spec(name, path)\n"
        "        run = spec.loader.exec_module\n"
        "        def exec_module(module):\n"
        "            run(module)\n"
        "            module.__version__ = type(module.__version__)('2.12.1+cpu')\n"
        "        spec.loader.exec_module = exec_module\n"
        "        return spec\n"
        "sys.meta_path.insert(0, Older())\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    code = """
        import torch
        assert "libopenreg" not in open("/proc/self/maps").read()
        assert torch.ones(2).sum().item() == 2
        try:
            torch.openreg.device_count()
        except RuntimeError as error:
            print(error.__cause__)
    """
    done = child.run(code, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("device openreg is not available") == 1
    assert "was built for torch 2.13.0, but torch 2.12.1+cpu is installed" in done.stdout
    assert "pip install --force-reinstall" not in done.stderr  # the same wheel would not help


def test_a_library_of_another_package_is_missing(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.abc, sys\n"
        "class Loader(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'torch_openreg._C':\n"
        "            raise ImportError('libsdk.so.2: cannot open shared object file: '\n"
        "                              'No such file or directory')\n"
        "sys.meta_path.insert(0, Loader())\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = child.run("import torch; print(torch.ones(2).sum().item())", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2.0\n"
    assert done.stderr.count("device openreg is not available") == 1
    assert "needs libsdk.so.2, which is not part of this package: install" in done.stderr
    assert "pip install --force-reinstall" not in done.stderr


def test_another_backend_came_first(tmp_path: Path) -> None:
    # Entry points are called in the order of sys.path, so torch_npu is loaded first.
    (tmp_path / "torch_npu.py").write_text(
        "def load():\n"
        "    import sys, types, torch\n"
        "    torch.utils.rename_privateuse1_backend('npu')\n"
        "    torch._register_device_module('npu', types.ModuleType('torch_npu.npu'))\n"
    )
    info = tmp_path / "torch_npu-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_npu\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torch.backends]\ntorch_npu = torch_npu:load\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    code = "import torch; print(torch.device('npu'), torch.ones(2).sum().item())"
    done = child.run(code, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["npu", "2.0"]
    assert done.stderr.count("device openreg is not available") == 1
    assert "device 'npu' (torch_npu.npu)" in done.stderr
    assert "pip install --force-reinstall" not in done.stderr
