# SPDX-License-Identifier: BSD-3-Clause
"""The names of the device and of its package. To port this package, change them first."""

# The name in torch.device("openreg") and of the module torch.openreg.
DEVICE_TYPE = "openreg"
MODULE = f"torch.{DEVICE_TYPE}"

# The backend's package and distribution.
PACKAGE = "torch_openreg"
