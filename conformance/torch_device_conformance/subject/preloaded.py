# SPDX-License-Identifier: BSD-3-Clause
"""Imports torch, and leaves installed backends for later.

The fork server imports it for all of its processes, and so does the program itself.
"""

import os
import sys

# A backend that is loaded here could start threads or a device, which no fork survives. The
# processes load it themselves (subject/subject.py).
#: Whether installed backends are still to be loaded, as torch does it when it is imported.
pending = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") != "0" and "torch" not in sys.modules

_before = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD")
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
# torch announces each execution trace on stderr, where last words are read.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import torch  # noqa: E402, F401

if _before is None:
    del os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"]
else:
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = _before
