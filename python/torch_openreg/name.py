# SPDX-License-Identifier: BSD-3-Clause
"""The name of the device: what a new backend changes first."""

# As in torch.device("openreg"), and of the module torch.openreg.
DEVICE_TYPE = "openreg"
MODULE = f"torch.{DEVICE_TYPE}"

# As in torch.distributed.init_process_group("occl").
COLLECTIVE_BACKEND = "occl"
