# SPDX-License-Identifier: BSD-3-Clause
"""Device ``openreg`` for PyTorch: an accelerator emulated on the CPU.

Importing the package registers the device with torch. ``import torch`` does this automatically
through the entry point of ``torch_openreg_autoload``. Afterwards
``torch.ones(3, device="openreg")`` works, and ``torch.openreg`` is the device's module
(``torch_openreg.openreg`` for type checkers). ``python -m torch_openreg`` reports what is installed
and checks the device.

The import starts no thread, maps no memory and reads no device setting. All of this happens at the
first use of the device. A second import or a reload has no effect.
"""

import sys

# `python -m torch_openreg` imports this package before it runs __main__. In that case __main__
# registers the device itself, because it must report an error that this import would raise.
if not (sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)].endswith(__name__)):
    # Import torch here, before `registration`. Another thread may be importing torch: its entry
    # point then registers the device on that thread while this thread waits. If this thread waited
    # inside `registration`, the two threads would deadlock.
    import torch as _torch  # noqa: F401

    from torch_openreg import registration as registration
    from torch_openreg.version import __version__ as __version__
