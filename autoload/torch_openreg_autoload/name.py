# SPDX-License-Identifier: BSD-3-Clause
"""The device's name. To port this project to a different device, change it first."""

# The name in torch.device("openreg") and of the module torch.openreg.
DEVICE_TYPE = "openreg"
MODULE = f"torch.{DEVICE_TYPE}"
