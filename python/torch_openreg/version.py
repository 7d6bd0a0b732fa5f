# SPDX-License-Identifier: BSD-3-Clause
"""The versions of this package and of the software that its libraries were compiled against."""

import re
from pathlib import Path

__version__ = "0.1.0"

#: The only torch release that the libraries support, because torch's C++ API changes in each one.
TORCH_VERSION = "2.13.0"


def python_versions() -> list[str]:
    """Return the Python releases with an installed extension module, as in ``["3.11"]``.

    The file name of an extension module contains the Python release for which it was built. A wheel
    has one such file. The rest of the package is the same for all releases.
    """
    names = [path.name for path in Path(__file__).parent.glob("_C.*.so")]
    found = [re.match(r"_C\.cpython-3(\d+)-", name) for name in names]
    return [f"3.{minor}" for minor in sorted(int(match[1]) for match in found if match)]
