# SPDX-License-Identifier: BSD-3-Clause
"""What a distribution ships of torch.compile for the device, and declares so that torch finds it."""

# The package, and the module whose name is that of the log.
FILES = [
    "openreg_graph.py",
    "torch_openreg_compile/__init__.py",
    "torch_openreg_compile/backend.py",
    "torch_openreg_compile/checkpointing.py",
    "torch_openreg_compile/dead_code.py",
    "torch_openreg_compile/debugging.py",
    "torch_openreg_compile/device_interface.py",
    "torch_openreg_compile/drawing.py",
    "torch_openreg_compile/lowering.py",
    "torch_openreg_compile/options.py",
    "torch_openreg_compile/passes/__init__.py",
    "torch_openreg_compile/passes/aliasing.py",
    "torch_openreg_compile/passes/attention.py",
    "torch_openreg_compile/passes/constants.py",
    "torch_openreg_compile/passes/folding.py",
    "torch_openreg_compile/passes/gelu.py",
    "torch_openreg_compile/passes/layer_norm.py",
    "torch_openreg_compile/passes/rewriting.py",
    "torch_openreg_compile/passes/rms_norm.py",
    "torch_openreg_compile/passes/silu.py",
    "torch_openreg_compile/passes/softmax.py",
    "torch_openreg_compile/passes/subexpressions.py",
    "torch_openreg_compile/pipeline.py",
    "torch_openreg_compile/py.typed",
    "torch_openreg_compile/registration.py",
    "torch_openreg_compile/validation.py",
]

ENTRY_POINTS = {"torch_dynamo_backends": [
    "openreg = torch_openreg_compile.backend:openreg",
    "openreg_debug = torch_openreg_compile.backend:openreg_debug",
]}
