# SPDX-License-Identifier: BSD-3-Clause
"""The module ``torch.openreg``: the device's interface for programs and for torch itself."""

from typing import Any

import torch

from torch_openreg._C import empty_strided
from torch_openreg.name import MODULE
from torch_openreg.openreg import _utils as _utils
from torch_openreg.openreg import (
    amp,
    compiled,
    debugging,
    devices,
    fallback,
    graphs,
    memcheck,
    memory,
    profiler,
    random,
    sharing,
    stream_sanitizer,
    streams,
    tensor_meta,
)
from torch_openreg.openreg.amp import (
    get_amp_supported_dtype,
    is_bf16_supported,
    is_float16_supported,
)
from torch_openreg.openreg.debugging import (
    get_launch_blocking,
    get_launch_sites,
    get_sync_debug_mode,
    set_launch_blocking,
    set_launch_sites,
    set_sync_debug_mode,
)
from torch_openreg.openreg.devices import (
    DeviceProperties,
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_initialized,
    is_tf32_supported,
    set_device,
    synchronize,
)
from torch_openreg.openreg.graphs import (
    OpenRegGraph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
    make_graphed_callables,
)
from torch_openreg.openreg.legacy import legacy_types
from torch_openreg.openreg.memory import (
    MemPool,
    caching_allocator_alloc,
    caching_allocator_delete,
    device_memory_used,
    empty_cache,
    empty_host_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    list_gpu_processes,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
    use_mem_pool,
)
from torch_openreg.openreg.random import (
    default_generator,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torch_openreg.openreg.sharing import ipc_collect
from torch_openreg.openreg.streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    get_stream_from_external,
    set_stream,
    stream,
)
from torch_openreg.openreg.tensor_meta import get_tensor_meta, set_tensor_meta

__all__ = [
    "AcceleratorError",
    "DeviceProperties",
    "Event",
    "ExternalStream",
    "MemPool",
    "OpenRegGraph",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "amp",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "debugging",
    "default_generator",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_memory_used",
    "device_of",
    "empty_cache",
    "empty_host_cache",
    "fallback",
    "get_allocator_backend",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_launch_blocking",
    "get_launch_sites",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "get_stream_from_external",
    "get_sync_debug_mode",
    "get_tensor_meta",
    "graph",
    "graph_pool_handle",
    "graphs",
    "has_half",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_float16_supported",
    "is_initialized",
    "is_tf32_supported",
    "list_gpu_processes",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memcheck",
    "memory",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "profiler",
    "random",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_launch_blocking",
    "set_launch_sites",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "set_sync_debug_mode",
    "set_tensor_meta",
    "sharing",
    "stream",
    "stream_sanitizer",
    "streams",
    "synchronize",
    "tensor_meta",
    "use_mem_pool",
]

# The exceptions raised for failed kernels and failed allocations.
AcceleratorError = torch.AcceleratorError
OutOfMemoryError = torch.OutOfMemoryError

#: Legacy constant for ``is_float16_supported()``: every device supports float16.
has_half = True

# These names are for torch, for code that torch's compiler generates, or for programs written for
# CUDA.
_DeviceGuard = devices._DeviceGuard
_compiled_operators = compiled.operators
_empty_strided = empty_strided
_exchange_device = devices._exchange_device
_get_generator = default_generator
_get_rng_state_offset = random._get_rng_state_offset
_is_compiled = devices._is_compiled
_is_in_bad_fork = devices._is_in_bad_fork
_lazy_call = devices._lazy_call
_lazy_init = devices._lazy_init
_load_compiled_operators = compiled.load
_supports_compiled_operators = compiled.supported
_maybe_exchange_device = devices._maybe_exchange_device
_Recording = graphs.Recording
_set_rng_state_offset = random._set_rng_state_offset
_set_stream_by_id = streams._set_stream_by_id
_sleep = devices._sleep
_tls = devices._tls

# Defines FloatTensor, FloatStorage and so on. Only legacy interfaces of torch use these types.
globals().update(legacy_types())


def __getattr__(name: str) -> Any:
    """Return an attribute whose value is not fixed at import.

    ``default_generators`` has one generator per device, and a setting determines the number of
    devices. torch.utils.checkpoint reads ``_initialized`` and saves the states of the device's
    generators only if it is true.
    """
    if name == "_initialized":
        return is_initialized()
    if name == "default_generators":
        generators: tuple[torch.Generator, ...] = tuple(
            default_generator(index) for index in range(device_count())
        )
        return generators
    raise AttributeError(f"module '{MODULE}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), "_initialized", "default_generators"])
