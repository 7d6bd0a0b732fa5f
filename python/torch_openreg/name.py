# SPDX-License-Identifier: BSD-3-Clause
"""The names of the device and its collective backend. To port this package, change them first."""

# The device type in torch.device("openreg"), and the name of the module torch.openreg.
DEVICE_TYPE = "openreg"
MODULE = f"torch.{DEVICE_TYPE}"

# The name of this package and of its distribution. Import statements repeat this name.
PACKAGE = "torch_openreg"

# The backend in torch.distributed.init_process_group("occl").
COLLECTIVE_BACKEND = "occl"
