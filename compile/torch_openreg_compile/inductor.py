# SPDX-License-Identifier: BSD-3-Clause
"""Registers the generation of kernels for the device with torch's compiler."""

from collections.abc import Callable
from typing import Any

import torch
from torch._inductor.codegen.common import (
    DeviceOpOverrides,
    register_backend_for_device,
    register_device_op_overrides,
)
from torch._inductor.kernel.mm import aten_bias_addmm
from torch._inductor.runtime.benchmarking import Benchmarker, register_benchmarker
from torch._inductor.scheduler import (
    BaseSchedulerNode,
    ForeachKernelSchedulerNode,
    Scheduler,
)
from torch._inductor.template_heuristics.base import TemplateConfigHeuristics
from torch._inductor.template_heuristics.registry import register_template_heuristic

from torch_openreg_compile import (
    checkpointed_random_numbers,
    cpp_wrapper,
    graph_policy,
    scheduling,
    wrapper,
)
from torch_openreg_compile.device_pass import DevicePass
from torch_openreg_compile.name import DEVICE_TYPE, MODULE


class _OpenRegOverrides(DeviceOpOverrides):
    """The Python statements that generated code uses to control the device."""

    def import_get_raw_stream_as(self, name: str) -> str:
        return (
            f"from {__package__}.device_interface import OpenRegInterface\n"
            f"{name} = OpenRegInterface.get_raw_stream"
        )

    def set_device(self, device_idx: int) -> str:
        return f"{MODULE}.set_device({device_idx})"

    def synchronize(self) -> str:
        return f"{MODULE}.synchronize()"

    def device_guard(self, device_idx: int) -> str:
        return f"{MODULE}.device({device_idx})"

    def current_stream(self) -> str:
        return f"{MODULE}.current_stream()"

    def cpp_kernel_type(self) -> str:
        return "void*"


def _benchmark(
    benchmarker: Benchmarker,
    function: Callable[[], Any],
    *,
    warmup: int,
    rep: int,
    **others: Any,
) -> float:
    """Return how long a call and the device work that it queues take, in milliseconds."""

    def call() -> None:
        function()
        torch.accelerator.synchronize()

    return float(benchmarker.benchmark_cpu(call, warmup=warmup, rep=rep))


def _register_candidates() -> None:
    """Register a single candidate per matrix product, so that ``max_autotune`` has no choice.

    torch has two candidates for a product with a broadcast bias, but on this device both run the
    same kernel. Moreover, torch would run the benchmark on CUDA, as for every device that it does
    not know.
    """
    register_template_heuristic(aten_bias_addmm.uid, DEVICE_TYPE, op_name="addmm")(
        TemplateConfigHeuristics  # This class offers no candidates.
    )


def _leave_out_of_combinations() -> None:
    """Exclude device kernels from ``config.combo_kernels``, which supports only Triton.

    The option reduces the number of launches. This device does not need it: ``KernelGroup``
    combines consecutive kernels into one launch, even if they depend on each other.
    """
    group = ForeachKernelSchedulerNode.group_algorithm_for_combo_kernels

    def of_other_devices(scheduler: Scheduler) -> list[list[BaseSchedulerNode]]:
        return [
            [node for node in nodes if getattr(node.get_device(), "type", None) != DEVICE_TYPE]
            for nodes in group(scheduler)
        ]

    ForeachKernelSchedulerNode.set_group_algorithm_for_combo_kernels(of_other_devices)


class _NoScheduling(scheduling.OpenRegScheduling):
    """The scheduling for a driver that cannot run generated kernels: it raises an error."""

    def __init__(self, scheduler: Scheduler | None) -> None:
        torch.get_device_module(DEVICE_TYPE)._load_compiled_operators()
        super().__init__(scheduler)  # type: ignore[no-untyped-call]


def register() -> None:
    """Register all parts of kernel generation: scheduling, wrappers, benchmark and graph policy."""
    device_module = torch.get_device_module(DEVICE_TYPE)
    if device_module._supports_compiled_operators():
        device_module._load_compiled_operators()
    register_backend_for_device(
        DEVICE_TYPE,
        scheduling.OpenRegScheduling
        if device_module._supports_compiled_operators()
        else _NoScheduling,
        wrapper.OpenRegWrapper,
        cpp_wrapper.OpenRegCppWrapper,
        device_custom_pass=DevicePass(),
    )
    register_device_op_overrides(DEVICE_TYPE, _OpenRegOverrides())
    _register_candidates()
    _leave_out_of_combinations()
    register_benchmarker(DEVICE_TYPE, _benchmark, override=True)
    checkpointed_random_numbers.register()
    graph_policy.register()
