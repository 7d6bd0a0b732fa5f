# SPDX-License-Identifier: BSD-3-Clause
"""Provides this package's C++ headers as text for generated code.

Generated code contains this text and includes none of our files. Thus code in a cache or in a
compiled package is self-contained. A change to a header changes the code, and therefore its cache
key.
"""

import re
from importlib.resources import files

_OWN_INCLUDE = re.compile(r'^#include "compile/.*\n', re.MULTILINE)


def read(*names: str) -> str:
    """Return the text of headers of this package. List a header after those that it includes."""
    folder = files(__package__)
    return "\n".join(_OWN_INCLUDE.sub("", (folder / name).read_text()) for name in names)
