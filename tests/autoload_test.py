# SPDX-License-Identifier: BSD-3-Clause
"""`import torch` loads the device; a backend that is broken does not break torch."""

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


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_child_processes(method: str, tmp_path: Path) -> None:
    # A child imports its functions from a file.
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
    """A PYTHONPATH on which a torch_openreg that can not be loaded comes first."""
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


def test_import_of_a_broken_backend_still_tells_why(broken_backend: str) -> None:
    done = child.run("import torch_openreg", PYTHONPATH=broken_backend)
    assert done.returncode == 1
    assert "undefined symbol: at_empty" in done.stderr
