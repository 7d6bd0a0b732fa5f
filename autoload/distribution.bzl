# SPDX-License-Identifier: BSD-3-Clause
"""The distribution's files and its entry point, with which `import torch` loads the device."""

FILES = [
    "torch_openreg_autoload/__init__.py",
    "torch_openreg_autoload/installation.py",
    "torch_openreg_autoload/name.py",
    "torch_openreg_autoload/py.typed",
    "torch_openreg_autoload/stand_in.py",
    "torch_openreg_autoload/trial.py",
]

ENTRY_POINTS = {"torch.backends": ["torch_openreg = torch_openreg_autoload:load"]}
