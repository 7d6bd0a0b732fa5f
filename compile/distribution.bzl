# SPDX-License-Identifier: BSD-3-Clause
"""What a distribution ships of torch.compile for the device, and declares so that torch finds it."""

# The package, and the module whose name is that of the log.
FILES = [
    "openreg_graph.py",
    "torch_openreg_compile/__init__.py",
    "torch_openreg_compile/backend.py",
    "torch_openreg_compile/checkpointing.py",
    "torch_openreg_compile/convolution.py",
    "torch_openreg_compile/cpp_wrapper.py",
    "torch_openreg_compile/dead_code.py",
    "torch_openreg_compile/device_interface.py",
    "torch_openreg_compile/device_pass.py",
    "torch_openreg_compile/inductor.py",
    "torch_openreg_compile/kernel.h",
    "torch_openreg_compile/kernel_call.h",
    "torch_openreg_compile/kernel_launch.h",
    "torch_openreg_compile/kernel_module.py",
    "torch_openreg_compile/py.typed",
    "torch_openreg_compile/registration.py",
    "torch_openreg_compile/scheduling.py",
    "torch_openreg_compile/source_text.py",
    "torch_openreg_compile/validation.py",
    "torch_openreg_compile/wrapper.py",
]

ENTRY_POINTS = {"torch_dynamo_backends": ["openreg = torch_openreg_compile.backend:openreg"]}
