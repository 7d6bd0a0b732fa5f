# SPDX-License-Identifier: BSD-3-Clause
"""Provides this package's C++ headers as text for generated code.

Generated code includes none of our files, so code in a cache or a compiled package is
self-contained, and a changed header changes the code and thus its cache key.
"""

import re
from importlib.resources import files

_OWN_INCLUDE = re.compile(r'^#include "compile/.*\n', re.MULTILINE)


def read(*names: str) -> str:
    """Return the text of the named headers of this package, given in dependency order."""
    folder = files(__package__)
    return "\n".join(_OWN_INCLUDE.sub("", (folder / name).read_text()) for name in names)
