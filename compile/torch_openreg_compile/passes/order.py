# SPDX-License-Identifier: BSD-3-Clause
"""The names of the passes, in the order in which they run by default."""

#: Passes that run before autograd. Each replaces several operators with one.
REWRITES = ("silu", "gelu", "layer_norm", "rms_norm", "softmax", "attention")

#: Passes that run on the forward and backward graphs.
SIMPLIFICATIONS = ("fold", "cse", "dead_code")
