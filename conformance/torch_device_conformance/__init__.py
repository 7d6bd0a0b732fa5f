# SPDX-License-Identifier: BSD-3-Clause
"""Tests any PyTorch backend and reports what works, what falls back and what is wrong.

``python -m torch_device_conformance --device NAME`` runs the tests. The folders:

- ``subject``: the device under test, its provenance, and how its operators are dispatched.
- ``database``: the operators, modules and optimizers of the installed torch.
- ``comparison``: compares a device with the CPU, one entry of a database at a time.
- ``mode``: the ways to call an operator (eager, out=, in place, ...).
- ``contract``: what torch requires of a device beyond operators, one row per requirement.
- ``execution``: selects cases and runs them in processes that may crash or hang.
- ``report``: JSON, HTML, Markdown, JUnit, badge, differences, waivers.
- ``model``: records the operators of a user's model and tests them.
- ``command``: the command line.
"""

from torch_device_conformance.version import VERSION as __version__

__all__ = ["__version__"]
