# SPDX-License-Identifier: BSD-3-Clause
"""The versions of this package and of the software its libraries were compiled against."""

import re
from pathlib import Path

__version__ = "0.1.0"

#: The only torch release that the libraries support. torch's C++ API changes with each release.
TORCH_VERSION = "2.13.0"


def python_versions() -> list[str]:
    """Return the Python releases whose extension module is installed: ``["3.11"]`` for a wheel.

    The name of the module's file says for which release it was built. The rest of the package is
    the same for all of them.
    """
    names = [path.name for path in Path(__file__).parent.glob("_C.*.so")]
    found = [re.match(r"_C\.cpython-3(\d+)-", name) for name in names]
    return [f"3.{minor}" for minor in sorted(int(match[1]) for match in found if match)]
