# SPDX-License-Identifier: BSD-3-Clause
"""Tests which names importing the package adds to torch, and which state it leaves unchanged."""

import importlib.metadata
import inspect
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_openreg

from tests import child
from tests.devices import LAST

# Attributes of the device module that torch 2.13 itself or CUDA programs read.
EXPECTED = [
    "Event",
    "Stream",
    "amp",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "fallback",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "random",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
    "FloatTensor",
    "FloatStorage",
    "_exchange_device",
    "_is_in_bad_fork",
    "_lazy_init",
    "_maybe_exchange_device",
    "_sleep",
    "_utils",
]


def test_module_is_registered() -> None:
    assert torch.openreg.__name__ == "torch_openreg.openreg"
    assert sys.modules["torch.openreg"] is torch.openreg
    assert torch.get_device_module("openreg") is torch.openreg
    assert torch.accelerator.current_accelerator() == torch.device("openreg")
    assert torch._C._get_privateuse1_backend_name() == "openreg"


@pytest.mark.parametrize("name", EXPECTED)
def test_has(name: str) -> None:
    assert hasattr(torch.openreg, name)


def test_torch_backends_has_the_device() -> None:
    code = """
        import torch.backends.openreg
        print(torch.backends.openreg.is_built(), torch.backends.openreg.is_available())
        import torch.openreg.amp.autocast_mode as mode
        print(mode.autocast is torch.openreg.amp.autocast)
        print(torch.openreg.amp.amp_definitely_not_available(), torch.openreg.is_initialized())
    """
    assert child.output(code).split() == ["True", "True", "True", "False", "False"]


def test_errors_of_the_driver_have_their_number() -> None:
    stream = torch.openreg.Stream()
    with pytest.raises(torch.openreg.AcceleratorError, match="is not a valid stream") as error:
        torch.openreg.ExternalStream(12345).synchronize()
    assert error.value.error_code > 0
    stream.synchronize()
    with pytest.raises(torch.openreg.OutOfMemoryError):
        torch.empty(1 << 50, device="openreg")


def test_unknown_attribute_is_an_attribute_error() -> None:
    assert not hasattr(torch.openreg, "no_such_thing")


def test_public_functions_have_docstrings() -> None:
    silent = [
        name
        for name in torch.openreg.__all__
        if callable(getattr(torch.openreg, name))
        and not inspect.getdoc(getattr(torch.openreg, name))
    ]
    assert not silent


def test_tensor_module_and_storage_methods() -> None:
    tensor = torch.arange(3.0)
    assert not tensor.is_openreg
    assert tensor.openreg().is_openreg
    assert tensor.openreg(LAST).device == torch.device(LAST)
    layer: Any = torch.nn.Linear(2, 2)
    assert layer.openreg().weight.is_openreg
    storage = tensor.untyped_storage().openreg()
    assert storage.is_openreg
    assert bytes(storage.cpu()) == bytes(tensor.untyped_storage())
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)])
    to_device: Any = packed.openreg
    assert to_device().is_openreg


def test_versions_agree() -> None:
    assert importlib.metadata.version("torch_openreg") == torch_openreg.__version__
    (requirement,) = importlib.metadata.requires("torch_openreg") or []
    assert requirement == f"torch=={torch_openreg.version.TORCH_VERSION}"


def test_second_import_and_reload_change_nothing() -> None:
    child.output(
        """
        import importlib, sys
        import torch, torch_openreg
        module = torch.openreg
        importlib.reload(torch_openreg)
        assert torch.openreg is module
        del sys.modules["torch_openreg"]
        import torch_openreg
        assert torch.openreg is module
        assert torch.ones(2, device="openreg").sum().item() == 2
        """
    )


def test_each_library_is_loaded_once() -> None:
    torch.ones(1, device="openreg")
    lines = Path("/proc/self/maps").read_text().splitlines()
    mapped = {line.split(maxsplit=5)[5] for line in lines if ".so" in line}
    for name in (
        "libopenreg.so",
        "libopenreg_allocator.so",
        "libopenreg_c10.so",
        "libopenreg_diagnostics.so",
        "libopenreg_aten.so",
        "libopenreg_profiler.so",
        "libc10.so",
        "libtorch_cpu.so",
    ):
        assert len([path for path in mapped if path.endswith("/" + name)]) == 1, (name, mapped)


# Functions for the programs below. held() counts the threads, open files and shared mappings of the
# process. space() returns the size of its address space in MiB.
HELD = """
import os, sys

def held():
    maps = open("/proc/self/maps").read()
    lists = [os.listdir("/proc/self/task"), os.listdir("/proc/self/fd")]
    return [len(entries) for entries in lists] + [maps.count("memfd"), maps.count("/dev/shm")]

def space():
    return int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE") >> 20
"""


def test_import_is_lazy() -> None:
    child.output(
        HELD
        + """
import torch
modules = set(sys.modules)
before, space_before = held(), space()
import torch_openreg
assert held() == before, (before, held())
# Libraries only: an address window for device memory would take gigabytes.
assert space() - space_before < 64, space() - space_before
new = set(sys.modules) - modules
heavy = [name for name in new if name.startswith(("torch._dynamo", "torch._inductor"))]
assert not heavy, heavy
assert not torch.openreg.is_initialized()

# Settings are read at the first use, not earlier.
os.environ["OPENREG_DEVICE_COUNT"] = "3"
assert torch.openreg.device_count() == 3

# After the first use, the checks detect the resources.
torch.ones(1, device="openreg")
assert held() > before, (before, held())
assert space() - space_before > 1024
""",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )


def test_autoload_is_lazy() -> None:
    printed = child.output(
        HELD
        + """
import torch
heavy = [name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor"))]
print(held(), torch.accelerator.current_accelerator(), "torch_openreg._C" in sys.modules, heavy)
"""
    )
    without = child.output(HELD + "import torch; print(held())", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert printed == f"{without} openreg True []"


def test_seeds_and_queries_initialize_nothing() -> None:
    child.output(
        """
        import os, torch
        threads = len(os.listdir("/proc/self/task"))
        torch.manual_seed(3)
        torch.seed()
        assert torch.random.initial_seed() != 3
        with torch.random.fork_rng(device_type="openreg"):
            torch.manual_seed(6)
        torch.openreg.manual_seed_all(4)
        assert torch.openreg.initial_seed() == 4
        with torch.random.fork_rng(devices=range(torch.openreg.device_count())):
            torch.openreg.manual_seed(5)
        assert torch.openreg.is_available() and torch.openreg.device_count() > 0
        last = torch.openreg.device_count() - 1
        torch.openreg.set_device(last)
        assert torch.openreg.current_device() == last
        assert torch.openreg.memory_allocated() == 0
        torch.openreg.empty_cache()
        assert not torch.openreg.is_initialized()
        assert len(os.listdir("/proc/self/task")) == threads
        torch.openreg.init()
        assert torch.openreg.is_initialized()
        """
    )


@pytest.mark.parametrize(
    ("make", "use"),
    [
        ("torch.sparse_coo_tensor(size=(2, 3), device='openreg')", "x.to_dense().sum()"),
        ("torch.nested.nested_tensor([], device='openreg')", "x.sin().size(0)"),
        ("torch.eye(2).to_sparse().to('openreg')", "(x @ torch.ones(2, 2, device=x.device)).sum()"),
        ("torch.eye(2).to_sparse_csr().to('openreg')", "x.sin().to_dense().sum()"),
        (
            "torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.qint8).to('openreg')",
            "torch.ops.quantized.add(x, x, 0.5, 0).dequantize().sum()",
        ),
        (
            "torch.nested.nested_tensor([torch.ones(2)], device='openreg')",
            "x.sin().to_padded_tensor(0.0).sum()",
        ),
    ],
    ids=["empty", "empty-nested", "sparse", "csr", "quantized", "nested"],
)
def test_first_use_of_the_device_may_be_a_tensor_with_parts(make: str, use: str) -> None:
    # The first use of the device must register the fallbacks for sparse, quantized and nested
    # tensors.
    child.output(
        f"""
        import torch
        def compute(x):
            return torch.as_tensor({use}).cpu()
        there, here = {make}, {make.replace("openreg", "cpu")}
        assert there.device.type == "openreg"
        torch.testing.assert_close(compute(there), compute(here))
        """
    )
