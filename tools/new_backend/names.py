# SPDX-License-Identifier: BSD-3-Clause
"""The names of a new backend, which replace our names in texts and paths.

By default, all names are derived from the device type, for example ``my_npu``. Two can also be
given: the prefix of the driver's functions and types, because a vendor's SDK may already use the
derived one, and the Python package, which may contain digits, as torch's device types cannot.

=================  ================  ===========================================
ours               for ``my_npu``    used for
=================  ================  ===========================================
``openreg``        ``my_npu``        device, module, namespace, files, libraries
``OpenReg``        ``MyNpu``         classes
``OPENREG``        ``MY_NPU``        macros and environment variables
``torch_openreg``  ``torch_my_npu``  the Python package and its wheel
``orMalloc``       ``myNpuMalloc``   functions and types of the driver
``occl``           ``my_npuccl``     the collective library and its c10d backend
=================  ================  ===========================================
"""

import importlib.util
import keyword
import re
from dataclasses import dataclass
from pathlib import Path

# Words that the C++ sources use or that C++ reserves. A namespace cannot have such a name.
_CPP_WORDS = """
    amp at aten auto bool c10 case catch char compile const delete device do double enum explicit
    export extern float friend goto inline int long mutable namespace new operator private profiler
    protected public python pybind11 register runtime short signed sizeof static std struct switch
    template this throw torch typedef typename union unsigned using virtual void volatile
"""

# The prefix `or` at the start of an identifier, or of a pattern such as or[A-Z]* or orIpc*.
_DRIVER_PREFIX = r"(?<![A-Za-z0-9_])or(?=[A-Z]|\[A-Z\])"
# The article ("a" or "an") before a name depends on the name's first letter.
_OURS = re.compile(
    r"(?P<article>(?<![A-Za-z0-9_])[Aa]n [`'\"]?)?"
    r"(?P<name>(?<!aoti_)torch_openreg|"  # aoti_torch_openreg_* are C functions
    rf"openreg|OpenReg|OPENREG|occl|Occl|OCCL|{_DRIVER_PREFIX})"
)


class NameRefused(ValueError):
    """Raised if a name cannot be used. The message states the reason."""


@dataclass(frozen=True)
class Names:
    """The names of a backend. `Names.of` creates and checks them.

    Attributes:
        device: the device type.
        prefix: the prefix of the driver's functions and types, such as myNpu.
        package: the Python package, such as torch_my_npu.
    """

    device: str
    prefix: str
    package: str

    @classmethod
    def of(cls, device: str, prefix: str = "", package: str = "") -> "Names":
        """Returns the names of the backend for a device type.

        Args:
            device: lower-case letters and single underscores, beginning with a letter.
            prefix: the prefix of the driver's functions and types: letters and digits, beginning
                with a lower-case letter. If empty, it is derived from the device type.
            package: the Python package: lower-case letters, digits and single underscores,
                beginning with a letter. If empty, it is ``torch_`` and the device type.

        Raises:
            NameRefused: if a name has other characters, or contains one of our names, or if torch,
                Python or C++ already uses it. torch accepts no digits in the device type:
                `torch.device("npu2")` is an error.
        """
        if not re.fullmatch(r"[a-z]+(_[a-z]+)*", device):
            raise NameRefused(
                f"the device type {device!r} must consist of lower-case letters and single "
                "underscores, and begin with a letter, for instance my_npu; torch accepts no "
                "digits in it, but --package and --prefix can have them"
            )
        if keyword.iskeyword(device) or device in _CPP_WORDS.split():
            raise NameRefused(
                f"the device type {device!r} is a Python keyword, or a word that the C++ sources "
                "use: choose another name"
            )
        if _torch_has(device):
            raise NameRefused(
                f"torch.{device} already exists, so it cannot be the device's module: choose "
                "another device type"
            )
        if prefix and not re.fullmatch(r"[a-z][A-Za-z0-9]*", prefix):
            raise NameRefused(
                f"the prefix {prefix!r} must consist of letters and digits, and begin with a "
                "lower-case letter, for instance npu2"
            )
        if package and not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", package):
            raise NameRefused(
                f"the package {package!r} must consist of lower-case letters, digits and single "
                "underscores, and begin with a letter, for instance torch_npu2"
            )
        if keyword.iskeyword(package) or package in _CPP_WORDS.split():
            raise NameRefused(
                f"the package {package!r} is a Python keyword, or a module or folder that the "
                "backend uses: choose another name"
            )
        for name in (device, prefix, package):
            if "openreg" in name.lower() or "occl" in name.lower():
                raise NameRefused(
                    f"the name {name!r} contains 'openreg' or 'occl', which the generator "
                    "replaces: choose another name"
                )
        camel = _camel(device)
        return cls(device, prefix or camel[0].lower() + camel[1:], package or f"torch_{device}")

    @property
    def camel(self) -> str:
        """The name in classes, such as MyNpu."""
        return _camel(self.device)

    def rename(self, text: str) -> str:
        """Returns a text or a path with these names instead of ours."""
        mapping = {
            "torch_openreg": self.package,
            "openreg": self.device,
            "OpenReg": self.camel,
            "OPENREG": self.device.upper(),
            "occl": f"{self.device}ccl",
            "Occl": f"{self.camel}ccl",
            "OCCL": f"{self.device.upper()}CCL",
            "or": self.prefix,
        }

        def renamed(match: re.Match[str]) -> str:
            article, name = match["article"] or "", mapping[match["name"]]
            if article and name[0].lower() not in "aeiou":
                article = article.replace("n", "", 1)
            return article + name

        return _OURS.sub(renamed, text)


def _camel(device: str) -> str:
    return "".join(word.capitalize() for word in device.split("_"))


def _torch_has(name: str) -> bool:
    """Returns whether torch has a module with this name. Does not import torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    folder = Path(spec.origin).parent
    return (folder / name).exists() or (folder / f"{name}.py").exists()
