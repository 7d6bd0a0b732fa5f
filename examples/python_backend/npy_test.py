# SPDX-License-Identifier: BSD-3-Clause
"""Tests the statements of README.md about a Python backend. openreg is not loaded."""

import copy
import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.utils.checkpoint import checkpoint

from examples.python_backend import npy, regression

pytestmark = [
    pytest.mark.filterwarnings("ignore:An output with one or more elements was resized"),
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor"),
]


@pytest.fixture
def x() -> Tensor:
    return torch.arange(6.0).reshape(2, 3).to("npy")


def test_tensors_are_arrays(x: Tensor) -> None:
    assert type(x) is Tensor
    assert x.device == torch.device("npy", 0)
    array = np.ones((2, 2), np.int32)
    tensor = npy.wrap(array)
    tensor.add_(4)
    assert array.tolist() == [[5, 5], [5, 5]]
    assert npy.unwrap(tensor) is array
    assert tensor.dtype == torch.int32
    assert torch.accelerator.current_accelerator() == torch.device("npy")


def test_copies(x: Tensor) -> None:
    assert torch.equal(x.cpu(), torch.arange(6.0).reshape(2, 3))
    assert x.to(torch.int64).cpu().tolist() == [[0, 1, 2], [3, 4, 5]]
    copied = x.clone()
    copied.copy_(torch.ones(3))
    assert copied.sum().item() == 6
    assert x.sum().item() == 15
    z = torch.tensor([1 + 2j])
    for bits in (z.conj(), z.conj().imag):
        assert torch.equal(bits.to("npy").cpu(), bits)
    assert torch.equal(z.to("npy").conj().cpu(), z.conj())
    assert torch.equal(z.to("npy").conj().imag.cpu(), z.conj().imag)


def test_any_operator_of_the_cpu_runs(x: Tensor) -> None:
    host = x.cpu()
    assert torch.equal((x @ x.t()).cpu(), host @ host.t())
    assert torch.equal(torch.linalg.qr(x.t())[1].cpu(), torch.linalg.qr(host.t())[1])
    assert torch.equal(x[x > 2].cpu(), host[host > 2])
    assert x[1, 2].relu().view(1).add(1).item() == 6
    assert torch.equal(torch.fft.rfft(x).cpu(), torch.fft.rfft(host))
    torch.manual_seed(1)
    dropped = torch.nn.functional.dropout(x)
    torch.manual_seed(1)
    assert torch.equal(dropped.cpu(), torch.nn.functional.dropout(host))
    assert "device='npy:0'" in repr(x)


def test_outputs(x: Tensor) -> None:
    for out in (torch.empty(2, 3, device="npy"), torch.empty(0, device="npy")):
        assert torch.add(x, 1, out=out) is out
        assert torch.equal(out.cpu(), x.cpu() + 1)
    assert x.clone().resize_(8).cpu().tolist() == [0, 1, 2, 3, 4, 5, 0, 0]


def test_views_share_memory(x: Tensor) -> None:
    for view in (x.t()[1], x[:, 1], x.view(3, 2).view(2, 3).transpose(0, 1)[1]):
        view.add_(10)
    assert x.cpu().tolist() == [[0, 31, 2], [3, 34, 5]]


def test_torch_does_not_know_strides(x: Tensor) -> None:
    assert x.t().is_contiguous()
    copied = x.t().view(-1)  # this is an error on other devices
    copied.zero_()
    assert x.sum().item() == 15
    with pytest.raises(RuntimeError, match="out of bounds for storage of size 0"):
        x.as_strided_((3, 2), (1, 3))


def test_gradients_are_the_cpu_s(x: Tensor) -> None:
    weight = torch.randn(3, 4)

    def gradient(x: Tensor) -> Tensor:
        leaf = weight.to(x.device).requires_grad_()
        (x @ leaf).tanh().exp().softmax(-1).relu().square().sum().backward()
        assert leaf.grad is not None
        return leaf.grad.cpu()

    assert torch.allclose(gradient(x), gradient(x.cpu()))
    leaf = x.clone().requires_grad_()
    result = leaf.exp()
    result.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()
    leaf = x.clone().requires_grad_()
    checkpoint(torch.exp, leaf, use_reentrant=False).sum().backward()
    assert leaf.grad is not None
    assert torch.equal(leaf.grad.cpu(), x.cpu().exp())
    assert torch.equal(torch.func.grad(lambda t: t.square().sum())(x).cpu(), 2 * x.cpu())
    assert torch.equal(torch.func.vmap(lambda t: t * 2)(x).cpu(), 2 * x.cpu())


def test_networks_learn(capsys: pytest.CaptureFixture[str]) -> None:
    assert regression.main() == 0
    assert "at the end  npy" in capsys.readouterr().out


def test_convolutions() -> None:
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ConvTranspose2d(4, 2, 3)
    )
    image = torch.randn(2, 1, 8, 8)
    network(image).square().sum().backward()
    other = copy.deepcopy(network).to("npy")
    other.zero_grad()
    other(image.to("npy")).square().sum().backward()
    for ours, host in zip(other.parameters(), network.parameters(), strict=True):
        assert ours.grad is not None
        torch.testing.assert_close(ours.grad.cpu(), host.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_graphs_are_captured(x: Tensor, backend: str) -> None:
    compiled = torch.compile(lambda t: (t * 2).relu(), backend=backend, fullgraph=True)
    assert torch.equal(compiled(x).cpu(), 2 * x.cpu())
    with FakeTensorMode():
        assert (torch.empty(2, device="npy") + 1).device == torch.device("npy:0")


def test_inductor_has_nothing_to_compile_for(x: Tensor) -> None:
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(lambda t: t * 2 + 1)(x)


def test_streams_are_names_only(x: Tensor) -> None:
    assert torch.Stream(device="npy").stream_id == 0
    with pytest.raises(RuntimeError, match="doesn't support synchronizing all streams"):
        torch.accelerator.synchronize()


def test_waits_for_events_raise() -> None:
    start, end = (torch.Event(device="npy", enable_timing=True) for _ in range(2))
    start.record()
    end.record()
    with pytest.raises(RuntimeError, match="doesn't support synchronizing events"):
        end.synchronize()
    with pytest.raises(RuntimeError, match="doesn't support elapsedTime"):
        start.elapsed_time(end)


def test_no_allocator() -> None:
    with pytest.raises(RuntimeError, match="is not a DeviceAllocator"):
        torch.accelerator.memory_allocated()
    with pytest.raises(NotImplementedError, match="getPinnedMemoryAllocator"):
        torch.ones(2).pin_memory()


def test_no_memory_that_torch_sees(x: Tensor) -> None:
    assert x.data_ptr() == 0
    assert x.untyped_storage().nbytes() == 0


def test_no_generator_of_its_own(x: Tensor) -> None:
    with pytest.raises(NotImplementedError, match="getNewGenerator"):
        torch.Generator(device="npy")
    torch.manual_seed(3)
    ours = torch.randn(3, device="npy")
    torch.manual_seed(3)
    assert torch.equal(ours.cpu(), torch.randn(3))


def test_files(x: Tensor) -> None:
    with pytest.raises(NotImplementedError, match=r"save tensor.cpu\(\)"):
        torch.save(x, io.BytesIO())
    file = io.BytesIO()
    torch.save(x.cpu(), file)
    file.seek(0)
    assert torch.equal(torch.load(file).to("npy").cpu(), x.cpu())


def test_copies_in_python(x: Tensor) -> None:
    copied, view = copy.deepcopy([x, x[0]])
    copied.zero_()
    assert x.sum().item() == 15
    assert view.sum().item() == 3  # views of the same array no longer share memory


def test_dtypes_and_layouts_are_those_of_numpy(x: Tensor) -> None:
    attempts: list[Callable[[], Tensor]] = [
        lambda: torch.ones(2, dtype=torch.bfloat16, device="npy"),
        lambda: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
        lambda: x.to_sparse(),
    ]
    for make in attempts:
        with pytest.raises(TypeError):
            make()


def test_autocast_casts_nothing(x: Tensor) -> None:
    with torch.autocast("npy"):
        assert (x @ x.t()).dtype == torch.float32


def test_there_is_one_device() -> None:
    assert torch.ones(2, device="npy:1").device == torch.device("npy:0")


def test_other_threads(x: Tensor) -> None:
    results: list[float] = []
    thread = threading.Thread(target=lambda: results.append((x + 1).sum().item()))
    thread.start()
    thread.join()
    assert results == [21]


def test_devices_do_not_mix(x: Tensor) -> None:
    with pytest.raises(RuntimeError, match="on the same device"):
        x + torch.ones(2, 3)


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
from examples.python_backend import npy
started = threading.Event()
def spin(gradient):
    started.set()
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        pass
    ended.append(True)
x = torch.ones(2, device="npy", requires_grad=True)
x.register_hook(spin)
thread = threading.Thread(target=lambda: (x * 2).sum().backward(), daemon=True)
thread.start()
started.wait()
"""


def test_exit_waits_for_autograd_threads() -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }
    done = subprocess.run(
        [sys.executable, "-c", EXIT], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1\n"
