# SPDX-License-Identifier: BSD-3-Clause
"""The name of the device: a new backend changes this first."""

# The name in torch.device("openreg") and of the module torch.openreg.
DEVICE_TYPE = "openreg"
MODULE = f"torch.{DEVICE_TYPE}"
