# SPDX-License-Identifier: BSD-3-Clause
"""Tests device acme, built by setup.py and by CMakeLists.txt. openreg is not loaded."""

import copy
import io
import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.checkpoint import checkpoint

SOURCE = Path(__file__).parent

# Builds use two compiler processes, because other tests run concurrently. They do not optimize the
# code, because that takes too long.
ENVIRONMENT = {
    **os.environ,
    "CFLAGS": "-O0 -g0",
    "CMAKE_BUILD_PARALLEL_LEVEL": "2",
    "MAX_JOBS": "2",
}


def run(*command: str | Path, **environment: str) -> str:
    """Runs a command and returns its output."""
    done = subprocess.run(
        command, env={**ENVIRONMENT, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def writable_copy(folder: Path) -> Path:
    """Copies the sources and returns the copy, because a build writes to the source folder."""
    return Path(shutil.copytree(SOURCE, folder / "source", copy_function=shutil.copyfile))


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Installs the package with pip and returns the folder that contains it."""
    folder = tmp_path_factory.mktemp("setuptools")
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps"]
    run(*pip, "--no-build-isolation", "--target", folder / "lib", writable_copy(folder))
    return folder / "lib"


@pytest.fixture(scope="session", autouse=True)
def _device(installed: Path) -> Iterator[None]:
    sys.path.insert(0, str(installed))
    import torch_acme  # noqa: F401  registers the device

    yield
    sys.path.remove(str(installed))


@pytest.fixture
def x() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3).to("acme:1")


def test_an_editable_build_imports_the_source_folder(tmp_path: Path) -> None:
    source = writable_copy(tmp_path)
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps"]
    run(*pip, "--no-build-isolation", "--use-pep517", "--target", tmp_path / "lib", "-e", source)
    program = (
        f"import site; site.addsitedir('{tmp_path}/lib'); import torch_acme as t; print(t.__file__)"
    )
    printed = run(sys.executable, "-c", program, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert printed == f"{source}/torch_acme/__init__.py\n"


# docs/integration.md shows this program.
PROGRAM = """
import torch  # also loads the backend

x = torch.ones(2, device="acme")  # acme stands for your device
print((x + 1).sum().item())
"""


def test_import_torch_loads_it(installed: Path) -> None:
    path = f"{installed}:{os.environ.get('PYTHONPATH', '')}"
    autoload = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}
    assert run(sys.executable, "-c", PROGRAM, PYTHONPATH=path, **autoload) == "4.0\n"
    # README.md shows this line.
    line = "import torch; print(torch.ones(2, device='acme') + 1)"
    printed = run(sys.executable, "-c", line, PYTHONPATH=path, **autoload)
    assert printed == "tensor([2., 2.], device='acme:0')\n"


needs_cmake = pytest.mark.skipif(
    shutil.which("cmake") is None or shutil.which("ninja") is None,
    reason="needs CMake and Ninja, which this project's build does not need",
)


# docs/integration.md shows these commands.
CMAKE = r"""
cmake -S . -B build \
  -DCMAKE_PREFIX_PATH=$(python -c 'import torch; print(torch.utils.cmake_prefix_path)')
cmake --build build
TORCH_DEVICE_BACKEND_AUTOLOAD=0 \
  python -c "import torch, torch_acme; print((torch.ones(2, device='acme') + 1).tolist())"
"""


@needs_cmake
def test_cmake_builds_the_same_package(tmp_path: Path) -> None:
    source = writable_copy(tmp_path)
    environment = {
        "CMAKE_GENERATOR": "Ninja",
        # The commands and CMake find this Python, as in an activated environment.
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "VIRTUAL_ENV": sys.prefix,
        "PYTHONPATH": f"{source}:{os.environ.get('PYTHONPATH', '')}",
    }
    printed = run("bash", "-euc", f"cd {source}\n{CMAKE}", **environment)
    assert printed.endswith("\n[2.0, 2.0]\n")


def test_the_name(x: torch.Tensor) -> None:
    assert x.device == torch.device("acme", 1)
    assert torch._C._get_privateuse1_backend_name() == "acme"
    assert torch.accelerator.current_accelerator() == torch.device("acme")
    assert torch.accelerator.device_count() == torch.acme.device_count() == 2
    assert torch.ones(2).acme().is_acme


def test_operators_and_views(x: torch.Tensor) -> None:
    assert (x + 1).sum().item() == 21  # uses the fallback
    x.t().add_(1)
    assert x.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert torch.relu(-x).device == x.device
    assert x.to(torch.float64).dtype == torch.float64


def test_training() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 4)
    other = copy.deepcopy(model).to("acme")
    for network in (model, other):
        optimizer = torch.optim.SGD(network.parameters(), 0.1)
        inputs = torch.arange(6.0).reshape(2, 3).to(network.weight.device)
        torch.relu(network(inputs)).sum().backward()
        optimizer.step()
    torch.testing.assert_close(other.weight.cpu(), model.weight)


def test_files(x: torch.Tensor) -> None:
    file = io.BytesIO()
    torch.save({"x": x}, file)
    file.seek(0)
    loaded = torch.load(file)["x"]
    assert loaded.device == x.device
    assert loaded.tolist() == x.tolist()
    file.seek(0)
    assert torch.load(file, map_location="cpu")["x"].device.type == "cpu"
    assert copy.deepcopy(x).tolist() == pickle.loads(pickle.dumps(x)).tolist() == x.tolist()


def test_resizing(x: torch.Tensor) -> None:
    x.resize_(4, 3)
    assert x[:2].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert torch.empty(0, device="acme:1").device.index == 1


def test_random_numbers() -> None:
    def draw(generator: torch.Generator | None = None) -> list[float]:
        drawn: list[float] = torch.randn(4, device="acme", generator=generator).tolist()
        return drawn

    torch.manual_seed(3)
    first = draw()
    state = torch.acme.get_rng_state()
    second = draw()
    torch.manual_seed(3)
    assert draw() == first != second
    torch.acme.set_rng_state(state)
    assert draw() == second
    with torch.random.fork_rng(devices=[0], device_type="acme"):
        draw()
    generator = torch.Generator(device="acme").manual_seed(3)
    assert draw(generator) == first
    with pytest.raises(RuntimeError, match="expected a generator of acme:0, but got one of cpu"):
        draw(torch.Generator())


def test_checkpoint_repeats_random_numbers() -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x * torch.empty_like(x).normal_()

    x = torch.ones(8, device="acme", requires_grad=True)
    result = checkpoint(noisy, x, use_reentrant=False)
    result.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad.cpu(), result.detach().cpu())


def test_memory() -> None:
    before = torch.accelerator.memory_allocated(1)
    x = torch.empty(1000, device="acme:1")
    assert torch.accelerator.memory_allocated(1) == before + 4000
    thread = threading.Thread(target=x.untyped_storage().resize_, args=(8,))
    thread.start()
    thread.join()
    assert torch.accelerator.memory_allocated(1) == before + 8
    del x
    assert torch.accelerator.memory_allocated(1) == before


def test_devices_and_streams(x: torch.Tensor) -> None:
    with torch.acme.device(1):
        assert torch.acme.current_device() == 1
        assert torch.empty(1, device="acme").device.index == 1
    assert torch.acme.current_device() == 0
    with pytest.raises(RuntimeError, match="device index 7 is out of range: 2 devices"):
        torch.empty(1, device="acme:7")
    stream, event = torch.Stream("acme:1"), torch.Event("acme:1")
    event.record(stream)
    event.synchronize()
    torch.accelerator.synchronize(1)
    assert x.to("cpu", non_blocking=True).tolist() == x.tolist()


def test_compilers_and_autocast(x: torch.Tensor) -> None:
    compiled = torch.compile(lambda value: value + 1, backend="aot_eager")
    assert compiled(x).tolist() == (x + 1).tolist()
    with torch.autocast("acme"):
        assert (x @ x.t()).dtype == torch.float32


def test_operators_without_a_fallback() -> None:
    convolution = torch.nn.Conv2d(1, 1, 3, device="acme")
    with pytest.raises(NotImplementedError, match="convolution_overrideable"):
        convolution(torch.ones(1, 1, 5, 5, device="acme"))


# Whether the process aborts depends on the machine's load. Therefore this program injects a delay:
# a hook keeps the autograd thread busy when the program ends. `last` is registered first, so it
# runs after the wait.
EXIT = """
import atexit, threading, time
ended = []
def last():
    print(len(ended))
    thread.join()
atexit.register(last)
import torch
import torch_acme
started = threading.Event()
def spin(gradient):
    started.set()
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        pass
    ended.append(True)
x = torch.ones(2, device="acme", requires_grad=True)
x.register_hook(spin)
thread = threading.Thread(target=lambda: (x * 2).sum().backward(), daemon=True)
thread.start()
started.wait()
"""


def test_exit_waits_for_autograd_threads(installed: Path) -> None:
    path = f"{installed}:{os.environ.get('PYTHONPATH', '')}"
    environment = {"PYTHONPATH": path, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    assert run(sys.executable, "-c", EXIT, **environment) == "1\n"
