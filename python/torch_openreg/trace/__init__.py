# SPDX-License-Identifier: BSD-3-Clause
"""Reads traces that torch.profiler exported. See ``python -m torch_openreg.trace --help``."""
