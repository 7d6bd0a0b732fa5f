# SPDX-License-Identifier: BSD-3-Clause
"""Device ``openreg`` for PyTorch: an accelerator emulated on the CPU.

Importing the package makes the device known to torch; ``import torch`` does it by itself through
the entry point of ``torch_openreg_autoload``. Afterwards ``torch.ones(3, device="openreg")`` works
and ``torch.openreg`` is the module of the device; for type checkers: ``torch_openreg.openreg``.
``python -m torch_openreg`` tells what is installed and tries it.

An import starts no thread, maps no memory and reads no setting of the device: all that waits for
the first use. Importing twice, or reloading, changes nothing.
"""

import sys

# While Python looks for `python -m torch_openreg` it imports the package. That program does the
# rest, since it has to say what is wrong where this would raise.
if not (sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)].endswith(__name__)):
    # First, and here: another thread may be importing torch, whose entry point then registers the
    # device while this one waits for it. It could not if `registration` were what waits.
    import torch as _torch  # noqa: F401

    from torch_openreg import registration as registration
    from torch_openreg.version import __version__ as __version__
