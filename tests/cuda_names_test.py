# SPDX-License-Identifier: BSD-3-Clause
"""Each public name in torch.cuda exists for this device, or a table states why it does not.

To port a CUDA program to this device, one replaces the name "cuda". The tables below list the names
that have no counterpart. It is an error if a listed name exists on the device.
"""

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

import pytest
import torch

# Reasons that apply to several names.
IMPORT = "an import in torch's file, not part of its interface"
RUNTIME = "CUDA's runtime library; the driver of this device is runtime/device/openreg.h"
ARCHITECTURE = "kernels are CPU code; there are no architectures to compile for"
SENSOR = "not measured while kernels run; torch.profiler records the time of each kernel"
LIBRARY = "a handle to an NVIDIA library; kernels call the CPU's libraries, which have no handles"
PLUGGABLE = (
    "replaces the allocator with functions from a C library; this device gets other memory "
    "through a different driver (openreg.h)"
)
CACHE = "the allocator cannot bypass its cache; torch.openreg.memcheck finds errors that it hides"
DEFERRED = "calls before the first use are not deferred, so they cannot fail late"
MULTIPROCESSOR = "reserves a part of a device; streams share all cores"
SDPA = "torch.nn.attention.sdpa_kernel has it for all devices"
SDPA_CUDA = "concerns CUDA kernels; torch itself selects among this device's kernels"
CPU_LIBRARY = "a CUDA library; the device uses the CPU's, whose settings are in torch.backends"
GRAPH_HANDLE = "a handle for the CUDA runtime library"

# Classes whose names contain "CUDA", with their names here.
RENAMED = {"CUDAGraph": "OpenRegGraph"}

ABSENT: dict[str, dict[str, str]] = {
    "torch.cuda": {
        "CUDAPluggableAllocator": PLUGGABLE,
        "Callable": IMPORT,
        "CudaError": RUNTIME,
        "DEVICE_REQUIREMENT": ARCHITECTURE,
        "DeferredCudaCallError": DEFERRED,
        "Device": IMPORT,
        "GreenContext": MULTIPROCESSOR,
        "NewType": IMPORT,
        "Optional": IMPORT,
        "PYTORCH_RELEASES_CODE_CC": ARCHITECTURE,
        "TYPE_CHECKING": IMPORT,
        "caching_allocator_disabled": CACHE,
        "caching_allocator_enable": CACHE,
        "cast": IMPORT,
        "change_current_allocator": PLUGGABLE,
        "check_error": RUNTIME,
        "classproperty": IMPORT,
        "clock_rate": SENSOR,
        "cudaStatus": RUNTIME,
        "cudart": RUNTIME,
        "current_blas_handle": LIBRARY,
        "current_solver_handle": LIBRARY,
        "gds": "files that a GPU reads directly; here the CPU reads files",
        "get_arch_list": ARCHITECTURE,
        "get_gencode_flags": ARCHITECTURE,
        "green_contexts": MULTIPROCESSOR,
        "has_magma": "MAGMA is a CUDA library; linear algebra uses the CPU's LAPACK",
        "importlib": IMPORT,
        "jiterator": "compiles CUDA C++; torch.compile generates kernels for this device",
        "lru_cache": IMPORT,
        "memory_usage": SENSOR,
        "nccl": "NVIDIA's collectives; here, torch.distributed has the backend occl",
        "nvtx": "ranges for NVIDIA's tools; torch.profiler.record_function works for every device",
        "os": IMPORT,
        "platform": IMPORT,
        "power_draw": SENSOR,
        "sparse": "legacy sparse tensor types; layout=torch.sparse_coo creates sparse tensors",
        "temperature": SENSOR,
        "threading": IMPORT,
        "traceback": IMPORT,
        "tunable": "selects among several libraries' matrix products; here there is one of each",
        "utilization": SENSOR,
        "warnings": IMPORT,
    },
    "torch.cuda.amp": {
        "common": "the file that defines amp_definitely_not_available, which is in amp"
    },
    "torch.cuda.amp.autocast_mode": {
        "Any": IMPORT,
        "deprecated": IMPORT,
        "functools": IMPORT,
        "sys": IMPORT,
    },
    "torch.cuda.amp.grad_scaler": {"deprecated": IMPORT},
    "torch.cuda.graphs": {
        "ParamSpec": IMPORT,
        "Self": IMPORT,
        "TYPE_CHECKING": IMPORT,
        "Tensor": IMPORT,
        "TypeAlias": IMPORT,
        "TypeVar": IMPORT,
        "Union": IMPORT,
        "annotations": IMPORT,
        "overload": IMPORT,
        "typing": IMPORT,
    },
    "torch.cuda.memory": {
        "CUDAPluggableAllocator": PLUGGABLE,
        "Literal": IMPORT,
        "TYPE_CHECKING": IMPORT,
        "caching_allocator_disabled": CACHE,
        "caching_allocator_enable": CACHE,
        "change_current_allocator": PLUGGABLE,
        "collections": IMPORT,
        "contextlib": IMPORT,
        "ctypes": IMPORT,
        "deprecated": IMPORT,
        "is_initialized": IMPORT,
        "pickle": IMPORT,
        "signature": IMPORT,
        "sys": IMPORT,
    },
    "torch.cuda.profiler": {
        "DEFAULT_FLAGS": "options of an earlier NVIDIA profiler; they have no effect",
        "check_error": RUNTIME,
        "contextlib": IMPORT,
        "cudart": RUNTIME,
    },
    "torch.cuda.random": {
        "Tensor": IMPORT,
        "current_device": IMPORT,
        "device_count": IMPORT,
        "is_initialized": IMPORT,
    },
    "torch.cuda.streams": {"annotations": IMPORT, "ctypes": IMPORT},
    "torch.backends.cuda": {
        "Any": IMPORT,
        "SDPAParams": SDPA_CUDA,
        "SDPBackend": IMPORT,
        "allow_fp16_bf16_reduction_math_sdp": SDPA,
        "blas_workspace_size": CPU_LIBRARY,
        "can_use_cudnn_attention": SDPA_CUDA,
        "can_use_efficient_attention": SDPA_CUDA,
        "can_use_flash_attention": SDPA_CUDA,
        "contextlib": IMPORT,
        "cuBLASModule": CPU_LIBRARY,
        "cuFFTPlanCache": CPU_LIBRARY,
        "cuFFTPlanCacheAttrContextProp": CPU_LIBRARY,
        "cuFFTPlanCacheManager": CPU_LIBRARY,
        "cublas_workspace_size": CPU_LIBRARY,
        "cublaslt_workspace_size": CPU_LIBRARY,
        "cudnn_sdp_enabled": SDPA,
        "cufft_plan_cache": CPU_LIBRARY,
        "deprecated": IMPORT,
        "enable_cudnn_sdp": SDPA,
        "enable_flash_sdp": SDPA,
        "enable_math_sdp": SDPA,
        "enable_mem_efficient_sdp": SDPA,
        "flash_sdp_enabled": SDPA,
        "fp16_bf16_reduction_math_sdp_allowed": SDPA,
        "is_ck_sdpa_available": SDPA_CUDA,
        "is_flash_attention_available": SDPA_CUDA,
        "math_sdp_enabled": SDPA,
        "matmul": CPU_LIBRARY,
        "mem_efficient_sdp_enabled": SDPA,
        "preferred_blas_library": CPU_LIBRARY,
        "preferred_linalg_library": CPU_LIBRARY,
        "preferred_rocm_fa_library": CPU_LIBRARY,
        "sdp_kernel": SDPA,
        "torch": IMPORT,
    },
}

# Class members that torch.cuda defines in Python and that do not exist here.
ABSENT_MEMBERS: dict[str, dict[str, str]] = {
    "CUDAGraph": {
        "get_graph_data": GRAPH_HANDLE,
        "raw_cuda_graph": GRAPH_HANDLE,
        "raw_cuda_graph_exec": GRAPH_HANDLE,
    },
}
CLASSES = ["CUDAGraph", "Event", "ExternalStream", "MemPool", "Stream", "StreamContext", "graph"]

# Parameters whose names differ in torch.openreg.
RENAMED_PARAMETERS = {"cuda_graph": "openreg_graph", "handle": "ipc_handle"}

# Classes whose constructors are defined in C++, so Python cannot inspect their signatures.
WITHOUT_SIGNATURE = {"Stream", "Event"}


def ours(name: str) -> Any:
    """Returns the counterpart in torch.openreg of a module in torch.cuda."""
    return importlib.import_module(name.replace("cuda", "openreg"))


def public(names: object) -> set[str]:
    """Returns the public names of a module or a class."""
    return {name for name in dir(names) if not name.startswith("_")}


def check(theirs: set[str], has: set[str], absent: Mapping[str, str]) -> None:
    """Fails unless each of torch's names either exists here or is in the table, but not both."""
    found = {name for name in theirs if RENAMED.get(name, name) in has}
    assert theirs - found - absent.keys() == set(), "neither implemented nor in the table"
    assert found & absent.keys() == set(), "implemented, but in the table"
    assert absent.keys() - theirs == set(), "in the table, but not a name in torch"


@pytest.mark.parametrize("name", ABSENT)
def test_names(name: str) -> None:
    theirs = importlib.import_module(name)
    check(public(theirs), public(ours(name)), ABSENT[name])


@pytest.mark.parametrize(
    ("theirs", "has", "absent", "message"),
    [
        ({"a", "b"}, {"a"}, {}, "neither implemented"),
        ({"a"}, {"a"}, {"a": ""}, "implemented, but in"),
        ({"a"}, set(), {"a": "", "b": ""}, "not a name in torch"),
    ],
)
def test_the_check_fails(
    theirs: set[str], has: set[str], absent: dict[str, str], message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        check(theirs, has, absent)


def test_every_module_is_compared() -> None:
    """The list of module pairs contains each module that torch.cuda and torch.openreg share."""
    modules = {name for name in public(torch.cuda) if inspect.ismodule(getattr(torch.cuda, name))}
    both = {f"torch.cuda.{name}" for name in modules & public(torch.openreg)}
    assert both - ABSENT.keys() == {"torch.cuda.torch"}


@pytest.mark.parametrize("name", CLASSES)
def test_members(name: str) -> None:
    theirs = {member for member in vars(getattr(torch.cuda, name)) if not member.startswith("_")}
    has = public(getattr(torch.openreg, RENAMED.get(name, name)))
    if name == "Event":
        has |= public(type(torch.openreg.Event(interprocess=True)))
    check(theirs, has, ABSENT_MEMBERS.get(name, {}))


def parameters(function: Any) -> list[inspect.Parameter]:
    """Returns the named parameters of a function."""
    return [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]


def signature(function: Any) -> list[inspect.Parameter]:
    """Returns the named parameters of a function, or of the constructor of a class."""
    if not inspect.isclass(function):
        return parameters(function)
    for constructor in (function.__new__, function.__init__):
        found = parameters(constructor)[1:]
        if found:
            return found
    return []


def with_signature() -> list[tuple[str, str]]:
    """Returns (module, name) of each function and class that torch.cuda and torch.openreg share."""
    found = []
    for name, absent in ABSENT.items():
        module = importlib.import_module(name)
        declared = getattr(module, "__all__", public(module))
        for member in sorted(set(declared) & public(module) - absent.keys()):
            value = getattr(module, member)
            of_torch = str(getattr(value, "__module__", "")).startswith("torch")
            legacy = member.endswith(("Tensor", "Storage")) or member.endswith("Error")
            if callable(value) and of_torch and not legacy:
                found.append((name, member))
    return found


@pytest.mark.parametrize(("module", "name"), with_signature())
def test_signatures(module: str, name: str) -> None:
    """A CUDA program's positional and keyword arguments have the same meaning in torch.openreg."""
    theirs = signature(getattr(importlib.import_module(module), name))
    here = getattr(ours(module), RENAMED.get(name, name))
    if isinstance(here, type) and issubclass(here, torch.Event):
        has = parameters(type(here).__call__)[1:]
    else:
        has = signature(here)
    positional = [each.name for each in has if each.kind is not inspect.Parameter.KEYWORD_ONLY]
    expected = [
        RENAMED_PARAMETERS.get(each.name, each.name)
        for each in theirs
        if each.kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    assert positional[: len(expected)] == expected
    keywords = {each.name for each in theirs if each.kind is inspect.Parameter.KEYWORD_ONLY}
    assert keywords <= {each.name for each in has}
    required = {each.name for each in has if each.default is inspect.Parameter.empty}
    assert required <= {
        RENAMED_PARAMETERS.get(each.name, each.name)
        for each in theirs
        if each.default is inspect.Parameter.empty
    }
