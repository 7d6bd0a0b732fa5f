# SPDX-License-Identifier: BSD-3-Clause
"""Builds the backend with setuptools: pip install --no-build-isolation ."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

SOURCES = ["allocator", "guard", "hooks", "module", "operators"]

setup(
    name="torch_acme",
    version="0.1",
    packages=["torch_acme"],
    ext_modules=[
        CppExtension(
            "torch_acme._C",
            [f"csrc/{name}.cc" for name in SOURCES],
            include_dirs=["csrc"],
            extra_compile_args=["-std=c++20", "-fvisibility=hidden"],
            extra_link_args=["-Wl,-z,now"],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
    # A build works with exactly one release of torch.
    install_requires=["torch==2.13.0"],
    entry_points={"torch.backends": ["torch_acme = torch_acme:load"]},
)
