# SPDX-License-Identifier: BSD-3-Clause
"""The versions of this package and of the software its libraries were compiled against."""

__version__ = "0.1.0"

#: The only torch release that the libraries support. torch's C++ API changes with each release.
TORCH_VERSION = "2.13.0"

#: The Python release for which the extension module was built.
PYTHON_VERSION = (3, 11)
