# SPDX-License-Identifier: BSD-3-Clause
"""C++ of this package as text that becomes part of generated code.

Generated code includes no file of ours: what is in a cache, or in a compiled package, is complete,
and another version of the text is another code.
"""

import re
from importlib.resources import files

_OWN_INCLUDE = re.compile(r'^#include "compile/.*\n', re.MULTILINE)


def read(*names: str) -> str:
    """Return the text of some headers of this package, each behind those that it includes."""
    folder = files(__package__)
    return "\n".join(_OWN_INCLUDE.sub("", (folder / name).read_text()) for name in names)
