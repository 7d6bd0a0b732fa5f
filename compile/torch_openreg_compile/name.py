# SPDX-License-Identifier: BSD-3-Clause
"""The name of the device. To port this package to another device, change this name first."""

# The device type in torch.device("openreg"), and the name of the module torch.openreg.
DEVICE_TYPE = "openreg"
MODULE = f"torch.{DEVICE_TYPE}"
