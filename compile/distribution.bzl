# SPDX-License-Identifier: BSD-3-Clause
"""Files and entry points that a distribution includes to support torch.compile."""

# The package, and the top-level module openreg_graph. torch finds this module by the name of the
# log.
FILES = [
    "openreg_graph.py",
    "torch_openreg_compile/__init__.py",
    "torch_openreg_compile/backend.py",
    "torch_openreg_compile/checkpointed_random_numbers.py",
    "torch_openreg_compile/checkpointing.py",
    "torch_openreg_compile/convolution.py",
    "torch_openreg_compile/cpp_wrapper.py",
    "torch_openreg_compile/dead_code.py",
    "torch_openreg_compile/debugging.py",
    "torch_openreg_compile/device_interface.py",
    "torch_openreg_compile/device_pass.py",
    "torch_openreg_compile/graph_policy.py",
    "torch_openreg_compile/inductor.py",
    "torch_openreg_compile/kernel.h",
    "torch_openreg_compile/kernel_call.h",
    "torch_openreg_compile/kernel_launch.h",
    "torch_openreg_compile/kernel_module.py",
    "torch_openreg_compile/aten_graph.py",
    "torch_openreg_compile/model_constants.h",
    "torch_openreg_compile/name.py",
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
    "torch_openreg_compile/replay.py",
    "torch_openreg_compile/scheduling.py",
    "torch_openreg_compile/source_text.py",
    "torch_openreg_compile/symmetric_memory.py",
    "torch_openreg_compile/validation.py",
    "torch_openreg_compile/wrapper.py",
]

ENTRY_POINTS = {"torch_dynamo_backends": [
    "openreg = torch_openreg_compile.backend:openreg",
    "openreg_debug = torch_openreg_compile.backend:openreg_debug",
]}
