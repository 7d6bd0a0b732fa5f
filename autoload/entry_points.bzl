# SPDX-License-Identifier: BSD-3-Clause
"""What a distribution has to declare so that `import torch` loads the device."""

ENTRY_POINTS = {"torch.backends": ["torch_openreg = torch_openreg_autoload:load"]}
