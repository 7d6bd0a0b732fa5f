# SPDX-License-Identifier: BSD-3-Clause
"""Tests any PyTorch backend and reports what works, what falls back, what is wrong, with evidence.

``python -m torch_device_conformance --device NAME`` is the program. The folders:

- ``subject``: the device under test, what it is made of, how its operators are dispatched.
- ``database``: the operators, modules and optimizers of the installed torch.
- ``comparison``: a device beside the CPU, one entry of a database at a time.
- ``mode``: the ways in which an operator is called (eager, out=, in place, ...).
- ``contract``: what torch requires of a device beyond operators, a row each.
- ``execution``: which cases there are, and processes that survive crashes and hangs.
- ``report``: JSON, HTML, Markdown, JUnit, badge, differences, waivers.
- ``model``: the operators of a user's model.
- ``command``: the command line.
"""

from torch_device_conformance.version import VERSION as __version__

__all__ = ["__version__"]
