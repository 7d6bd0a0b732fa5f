# SPDX-License-Identifier: BSD-3-Clause
"""The names of a new backend, and their substitution for ours in texts and paths.

Everything is derived from the device type, for instance ``my_npu``:

============  ===============  ===========================================
ours          of ``my_npu``    where
============  ===============  ===========================================
``openreg``   ``my_npu``       device, module, namespace, files, libraries
``OpenReg``   ``MyNpu``        classes
``OPENREG``   ``MY_NPU``       macros and environment variables
``orMalloc``  ``myNpuMalloc``  functions and types of the driver
``occl``      ``my_npuccl``    the collective library and its c10d backend
============  ===============  ===========================================
"""

import importlib.util
import keyword
import re
from dataclasses import dataclass
from pathlib import Path

# Words that the C++ sources use, or that C++ reserves: a namespace cannot have these names.
_CPP_WORDS = """
    amp at aten auto bool c10 case catch char compile const delete device do double enum explicit
    export extern float friend goto inline int long mutable namespace new operator private profiler
    protected public python pybind11 register runtime short signed sizeof static std struct switch
    template this throw torch typedef typename union unsigned using virtual void volatile
"""

# `or` before a capital, at the start of an identifier or of a pattern such as or[A-Z]* or orIpc*.
_DRIVER_PREFIX = r"(?<![A-Za-z0-9_])or(?=[A-Z]|\[A-Z\])"
# The article before a name changes with its first letter.
_OURS = re.compile(
    r"(?P<article>(?<![A-Za-z0-9_])[Aa]n [`'\"]?)?"
    rf"(?P<name>openreg|OpenReg|OPENREG|occl|Occl|OCCL|{_DRIVER_PREFIX})"
)


class NameRefused(ValueError):
    """Raised if the device type cannot be used; the message says why."""


@dataclass(frozen=True)
class Names:
    """The names of a backend. Make it with `Names.of`, which checks the device type."""

    device: str

    @classmethod
    def of(cls, device: str) -> "Names":
        """Returns the names of the backend for a device type.

        Args:
            device: lower-case letters and single underscores, a letter first.

        Raises:
            NameRefused: torch, Python or C++ uses the name, or it has other characters. torch
                allows no digits: `torch.device("npu2")` is an error.
        """
        if not re.fullmatch(r"[a-z]+(_[a-z]+)*", device):
            raise NameRefused(
                f"the device type {device!r} must consist of lower-case letters and single "
                "underscores, and begin with a letter, for instance my_npu; torch accepts no digits"
            )
        if keyword.iskeyword(device) or device in _CPP_WORDS.split():
            raise NameRefused(f"the device type {device!r} is a word of Python or of the sources")
        if "openreg" in device or "occl" in device:
            raise NameRefused(f"the device type {device!r} contains the name that it replaces")
        if _torch_has(device):
            raise NameRefused(
                f"torch.{device} exists: the module of a device must have a name of its own"
            )
        return cls(device)

    @property
    def camel(self) -> str:
        """The name in classes: MyNpu."""
        return "".join(word.capitalize() for word in self.device.split("_"))

    @property
    def prefix(self) -> str:
        """The prefix of the driver's functions and types: myNpu."""
        return self.camel[0].lower() + self.camel[1:]

    def rename(self, text: str) -> str:
        """Returns a text or a path with these names instead of ours."""
        mapping = {
            "openreg": self.device,
            "OpenReg": self.camel,
            "OPENREG": self.device.upper(),
            "occl": f"{self.device}ccl",
            "Occl": f"{self.camel}ccl",
            "OCCL": f"{self.device.upper()}CCL",
            "or": self.prefix,
        }

        def renamed(match: re.Match[str]) -> str:
            article = match["article"] or ""
            if article and self.device[0] not in "aeiou":
                article = article.replace("n", "", 1)
            return article + mapping[match["name"]]

        return _OURS.sub(renamed, text)


def _torch_has(name: str) -> bool:
    """Whether torch has a module of that name, found without an import of torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    folder = Path(spec.origin).parent
    return (folder / name).exists() or (folder / f"{name}.py").exists()
