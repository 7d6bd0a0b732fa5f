# SPDX-License-Identifier: BSD-3-Clause
"""Imports torch without loading the installed backends.

The fork server imports this module for all of its processes. The main program imports it too.
"""

import os
import sys

# A backend loaded here could start threads or open a device, which do not survive a fork. The
# processes load backends themselves (subject/subject.py).
#: Whether this process has yet to load the installed backends, as `import torch` would have done.
pending = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") != "0" and "torch" not in sys.modules

_before = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD")
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
# torch logs a line to stderr for each execution trace. The parent reads the last output of a
# crashed process from stderr, and these lines would hide it.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import torch  # noqa: E402, F401

if _before is None:
    del os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"]
else:
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = _before
