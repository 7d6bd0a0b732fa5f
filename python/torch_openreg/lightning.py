# SPDX-License-Identifier: BSD-3-Clause
"""Lightning on the device, by its registries of accelerators and strategies.

    import lightning.pytorch
    from torch_openreg.lightning import register

    register(lightning.pytorch)  # or pytorch_lightning, lightning.fabric, lightning_fabric
    lightning.pytorch.Trainer(accelerator="openreg", strategy="openreg", devices=1)

Lightning's default strategy puts the model on the CPU unless the accelerator is one of its own,
and its mixed precision is CUDA's: the strategy that is registered here does neither. Several
devices are for Lightning's strategy "ddp".
"""

from types import ModuleType
from typing import Any

import torch

from torch_openreg.name import DEVICE_TYPE


def register(package: ModuleType) -> None:
    """Registers the accelerator and the strategy of the device, by its name.

    Args:
        package: the module of Trainer or of Fabric: ``lightning.pytorch``, ``lightning.fabric``, or
            the same under their other names. Each has registries of its own.
    """
    accelerators, strategies = package.accelerators, package.strategies
    of_trainer = hasattr(accelerators, "AcceleratorRegistry")
    accelerator_registry = (
        accelerators.AcceleratorRegistry if of_trainer else accelerators.ACCELERATOR_REGISTRY
    )
    strategy_registry = (
        strategies.StrategyRegistry if of_trainer else strategies.STRATEGY_REGISTRY
    )
    accelerator_registry.register(DEVICE_TYPE, _accelerator(package), override=True)
    strategy_registry.register(
        DEVICE_TYPE, _strategy(package, "precision_plugin" if of_trainer else "precision"), override=True
    )


def _accelerator(package: ModuleType) -> type:
    class Accelerator(package.accelerators.Accelerator):  # type: ignore[name-defined, misc]
        """The devices of this process."""

        def setup_device(self, device: torch.device) -> None:
            if device.type != DEVICE_TYPE:
                raise ValueError(
                    f"the accelerator is {DEVICE_TYPE!r}, but the strategy is for {device}: pass"
                    f" strategy={DEVICE_TYPE!r} for one device, or strategy='ddp' for several"
                )
            torch.accelerator.set_device_index(device)

        def teardown(self) -> None:
            torch.accelerator.empty_cache()

        def get_device_stats(self, device: Any) -> dict[str, Any]:
            return dict(torch.accelerator.memory_stats(device))

        @staticmethod
        def parse_devices(devices: int | str | list[int]) -> list[int]:
            count = torch.accelerator.device_count()
            if isinstance(devices, str):
                devices = [int(index) for index in devices.split(",") if index.strip()]
                # "-1" is all of them, "2" the first two, "1," the second.
                if len(devices) == 1 and "," not in str(devices):
                    devices = devices[0]
            if isinstance(devices, int):
                devices = list(range(count if devices == -1 else devices))
            missing = [index for index in devices if not 0 <= index < count]
            if missing:
                raise ValueError(f"there is no device {missing[0]}: {DEVICE_TYPE} has {count}")
            return devices

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


def _strategy(package: ModuleType, precision_name: str) -> type:
    base: Any = package.strategies.SingleDeviceStrategy
    mixed_precision: Any = package.plugins.MixedPrecision

    class Strategy(base):  # type: ignore[misc]
        """One device, which the connector of Trainer or Fabric sets as ``parallel_devices``."""

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
                    f"strategy={DEVICE_TYPE!r} is for one device, but there are {len(devices)}:"
                    " pass devices=1, or strategy='ddp'"
                )
            self._devices = devices
            self._root_device = devices[0]

    def get_precision(self: Any) -> Any:
        return getattr(base, precision_name).fget(self)

    def set_precision(self: Any, precision: Any) -> None:
        if isinstance(precision, mixed_precision) and precision.device == "cuda":
            precision = mixed_precision(precision.precision, DEVICE_TYPE)
        getattr(base, precision_name).fset(self, precision)

    setattr(Strategy, precision_name, property(get_precision, set_precision))
    return Strategy
