# SPDX-License-Identifier: BSD-3-Clause
"""Versions: of this package, and of what its libraries were compiled against."""

__version__ = "0.1.0"

#: The C++ interface of torch changes with each release: the libraries work with this one only.
TORCH_VERSION = "2.13.0"

#: The extension module is for this release of Python.
PYTHON_VERSION = (3, 11)
