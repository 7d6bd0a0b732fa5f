# SPDX-License-Identifier: BSD-3-Clause
"""Tests a PyTorch backend, and reports what works, what falls back and what is wrong.

``python -m torch_device_conformance --device NAME`` runs the tests. The subpackages are:

- ``subject``: the device under test, its provenance, and the dispatch of its operators.
- ``database``: the operators, modules and optimizers of the installed torch.
- ``comparison``: the comparison of a device's results with the CPU's for one database entry.
- ``mode``: the ways to call an operator (eager, out=, in place, ...).
- ``contract``: what torch requires of a device in addition to operators, one row per requirement.
- ``execution``: the selection of cases, and the worker processes, which may crash or hang.
- ``verdict``: the result of a case, with its evidence.
- ``report``: the report formats, the difference between two reports, and the waivers.
- ``model``: the operators that a user's model calls, recorded as cases.
- ``command``: the command line.
"""

from torch_device_conformance.version import VERSION as __version__

__all__ = ["__version__"]
