# SPDX-License-Identifier: BSD-3-Clause
"""The names of the device and of its package. To port this package, change them first."""

# The device type in torch.device("openreg"), and the name of the module torch.openreg.
DEVICE_TYPE = "openreg"
MODULE = f"torch.{DEVICE_TYPE}"

# The name of the backend's package and of its distribution.
PACKAGE = "torch_openreg"
