# SPDX-License-Identifier: BSD-3-Clause
"""Registers the device with Lightning as an accelerator and as strategies.

    import lightning.pytorch
    from torch_openreg.lightning import register

    register(lightning.pytorch)  # or pytorch_lightning, lightning.fabric, lightning_fabric
    lightning.pytorch.Trainer(accelerator="openreg", strategy="openreg", devices=1)
    lightning.pytorch.Trainer(accelerator="openreg", strategy="openreg_ddp", devices=2)

Lightning supports only its built-in devices correctly. For any other device, its default strategy
puts the model on the CPU, it uses CUDA's mixed precision, and it sets up DDP on a CUDA stream. The
strategies registered here are derived from Lightning's and avoid these errors.
"""

from types import ModuleType
from typing import Any

import torch

from torch_openreg.name import DEVICE_TYPE

DDP = f"{DEVICE_TYPE}_ddp"


def register(package: ModuleType) -> None:
    """Register the accelerator ``openreg`` and the strategies ``openreg`` and ``openreg_ddp``.

    Args:
        package: the module that contains Trainer or Fabric: ``lightning.pytorch``,
            ``lightning.fabric``, or the same under their other names. Each has separate registries.
    """
    accelerators, strategies = package.accelerators, package.strategies
    of_trainer = hasattr(accelerators, "AcceleratorRegistry")
    accelerator_registry = (
        accelerators.AcceleratorRegistry if of_trainer else accelerators.ACCELERATOR_REGISTRY
    )
    strategy_registry = strategies.StrategyRegistry if of_trainer else strategies.STRATEGY_REGISTRY
    accelerator_registry.register(DEVICE_TYPE, _accelerator(package), override=True)
    precision = "precision_plugin" if of_trainer else "precision"
    strategy_registry.register(DEVICE_TYPE, _single_device(package, precision), override=True)
    strategy_registry.register(DDP, _ddp(package, precision), override=True)


def _accelerator(package: ModuleType) -> type:
    class Accelerator(package.accelerators.Accelerator):  # type: ignore[name-defined, misc]
        """Describes the devices of this process to Lightning."""

        def setup_device(self, device: torch.device) -> None:
            if device.type != DEVICE_TYPE:
                raise ValueError(
                    f"the accelerator is {DEVICE_TYPE!r}, but the strategy uses {device}: pass"
                    f" strategy={DEVICE_TYPE!r} for one device, or strategy={DDP!r} for several"
                )
            torch.accelerator.set_device_index(device)

        def teardown(self) -> None:
            torch.accelerator.empty_cache()

        def get_device_stats(self, device: Any) -> dict[str, Any]:
            return dict(torch.accelerator.memory_stats(device))

        @staticmethod
        def parse_devices(devices: int | str | list[int]) -> list[int]:
            count = torch.accelerator.device_count()
            indices = _indices(devices, count)
            missing = [index for index in indices if not 0 <= index < count]
            if missing:
                raise ValueError(
                    f"device index {missing[0]} is out of range: {DEVICE_TYPE} has {count} devices "
                    "(OPENREG_DEVICE_COUNT)"
                )
            if not indices:
                raise ValueError(
                    f"devices={devices!r} selects no device: pass the number of devices, -1 for"
                    ' all devices, or a list of indices such as [0, 1] or "0,1"'
                )
            if len(set(indices)) < len(indices):
                raise ValueError(
                    f"devices={devices!r} selects a device more than once: pass each index once"
                )
            return indices

        @staticmethod
        def get_parallel_devices(devices: list[int]) -> list[torch.device]:
            return [torch.device(DEVICE_TYPE, index) for index in devices]

        @staticmethod
        def auto_device_count() -> int:
            return torch.accelerator.device_count()

        @staticmethod
        def is_available() -> bool:
            return torch.accelerator.is_available()

        @staticmethod
        def name() -> str:
            return DEVICE_TYPE

    return Accelerator


def _indices(devices: int | str | list[int], count: int) -> list[int]:
    """Return the indices that Trainer's or Fabric's argument selects; [] if it has no meaning.

    -1 and "-1" select all ``count`` devices, 2 and "2" the first two, [1] and "1," the second.
    """
    if isinstance(devices, str):
        try:
            numbers = [int(index) for index in devices.split(",") if index.strip()]
        except ValueError:
            numbers = []
        devices = numbers if "," in devices or not numbers else numbers[0]
    if isinstance(devices, int):
        devices = list(range(count if devices == -1 else devices))
    return devices


def _with_precision(package: ModuleType, base: type, name: str) -> type:
    """Derive a strategy whose property ``name`` uses our mixed precision instead of CUDA's."""
    mixed_precision: Any = package.plugins.MixedPrecision
    inherited = getattr(base, name)

    def change(self: Any, precision: Any) -> None:
        if isinstance(precision, mixed_precision) and precision.device == "cuda":
            precision = mixed_precision(precision.precision, DEVICE_TYPE)
        inherited.fset(self, precision)

    return type(base.__name__, (base,), {name: property(inherited.fget, change)})


def _single_device(package: ModuleType, precision: str) -> type:
    base: Any = _with_precision(package, package.strategies.SingleDeviceStrategy, precision)

    class SingleDeviceStrategy(base):  # type: ignore[misc]
        """Runs on the device that Trainer's or Fabric's connector sets in ``parallel_devices``."""

        strategy_name = DEVICE_TYPE

        def __init__(self, device: Any = DEVICE_TYPE, **settings: Any) -> None:
            super().__init__(device=device, **settings)
            self._devices: list[torch.device] = []

        @property
        def parallel_devices(self) -> list[torch.device]:
            return self._devices

        @parallel_devices.setter
        def parallel_devices(self, devices: list[torch.device]) -> None:
            if len(devices) != 1:
                raise ValueError(
                    f"strategy={DEVICE_TYPE!r} takes one device, but got {len(devices)}:"
                    f" pass devices=1, or strategy={DDP!r}"
                )
            self._devices = devices
            self._root_device = devices[0]

    return SingleDeviceStrategy


def _ddp(package: ModuleType, precision: str) -> type:
    base: Any = _with_precision(package, package.strategies.DDPStrategy, precision)

    class DDPStrategy(base):  # type: ignore[misc]
        """Runs one process per device.

        The model is already on its device, so DDP needs no device indices. If Lightning passed
        device indices, it would create a CUDA stream.
        """

        strategy_name = DDP

        def determine_ddp_device_ids(self) -> None:
            return None

        def _determine_ddp_device_ids(self) -> None:
            return None

    return DDPStrategy
