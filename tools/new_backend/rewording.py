# SPDX-License-Identifier: BSD-3-Clause
"""Texts that are true here and not in a new backend, which has no emulated device.

A generation fails if a file does not have such a text, so that the list follows the sources.
"""

# By path: pairs of a text of ours and what replaces it.
REWORDED: dict[str, list[tuple[str, str]]] = {
    "aten/BUILD.bazel": [
        (
            """The packages below, from portable code to code for the emulation only:
#   tensors     factories, views, storages, copies: portable
#   fallback    operators without a kernel, run by CPU kernels; :host is portable
#   table       operators on the kernels of the minimal driver
#   launch      launches a kernel on a stream for an operator's arguments
#   structured  generated kernels, and their templates
#   kernels     handwritten kernels
#   aoti        support for code that torch's compiler generates
#   random_program  a test that compares random programs with the CPU
""",
            """The packages below:
#   tensors     factories, views, storages, copies
#   fallback    operators without a kernel, run by CPU kernels
#   table       operators on the kernels of the driver
#   launch      what the extension module needs of kernels
""",
        ),
    ],
    "aten/fallback/BUILD.bazel": [
        (
            """CPU kernels: by copies on the host, which is
# portable, or on aliases of device memory, for the emulation.
""",
            """CPU kernels, by copies on the host.
""",
        ),
        (": needs only the driver's copies, and nothing of the emulation.", ": needs only copies."),
    ],
    "aten/fallback/fallback.h": [
        (
            """//   host_fallback.h   copies the arguments to the host and the results back: works for every
//                     device, but is the slowest
//   alias_fallback.h  for the emulation: the CPU kernel works on device memory directly, queued
//                     like any other kernel
""",
            """//   host_fallback.h   copies the arguments to the host and the results back: works for every
//                     device, but is slow
""",
        ),
    ],
    "aten/launch/BUILD.bazel": [
        (
            """# Launches operators on the emulated device: aliases of their tensors, a closure with the arguments,
# and the cost that decides where the kernel runs.
""",
            """# What the extension module needs of kernels; //aten/table implements it.
""",
        ),
    ],
    "aten/table/compiled_kernel.cc": [
        (
            """\"aot_eager\\", or build with "
                              "--//runtime:driver=emulation");
""",
            """\"aot_eager\\"");
""",
        ),
    ],
    "distributed/occl/BUILD.bazel": [
        ("; the implementation works\n# only with the emulated device.", "."),
    ],
    "distributed/occl/absent.cc": [
        (
            """with CPU tensors, or build with "
         "--//runtime:driver=emulation";
""",
            """with CPU tensors";
""",
        ),
    ],
    "python/BUILD.bazel": [
        (": an accelerator emulated on the CPU", ""),
    ],
    "python/torch_openreg/__init__.py": [
        (": an accelerator emulated on the CPU", ""),
    ],
    "python/torch_openreg/openreg/compiled.py": [
        (", or build with --//runtime:driver=emulation", ""),
    ],
    "python/torch_openreg/openreg/memory.py": [
        (
            """It lists only this process, or none before its first use of the device: each process emulates
    its own devices and sees only the memory that others have shared with it.
""",
            """It lists only this process, or none before its first use of the device.
""",
        ),
    ],
    "runtime/BUILD.bazel": [
        (
            """Which driver the portable packages stand on: --//runtime:driver=emulation (the default) or minimal.
""",
            """The driver that the other packages stand on.
""",
        ),
    ],
    "runtime/allocator/memcheck.h": [
        (" registers it\n// (runtime/emulation). Without", " registers it.\n// Without"),
    ],
    "runtime/c10/error.h": [
        (
            """If kernels can
// throw exceptions, as in the emulation, the driver registers a hook that rethrows them
// (runtime/emulation/kernel_error.h).
""",
            """If kernels can
// throw exceptions, the driver registers a hook that rethrows them.
""",
        ),
    ],
    "runtime/c10/graph.h": [
        ("driver's package (runtime/emulation) registers it", "driver's package registers it"),
    ],
    "runtime/device/BUILD.bazel": [
        (
            """# The emulated device: openreg.h and its implementation, libopenreg.so. Depends only on the C++
# library and Linux.
""",
            """# The interface of a driver, openreg.h, and its conformance suite (cts/).
""",
        ),
    ],
    "runtime/device/openreg.h": [
        (
            """Functions that only the emulated device has are in
// openreg_emulation.h.
""",
            """Functions that only one driver has are in
// a header of that driver.
""",
        ),
        (" (For the emulation: openreg_emulation.h.)", ""),
    ],
    "runtime/diagnostics/launch_site.h": [
        (
            "where fail_kernel (runtime/emulation/kernel_error.h) finds it and attaches it to",
            "where the driver finds it and attaches it to",
        ),
    ],
    "runtime/minimal/BUILD.bazel": [
        (
            """# A second driver behind openreg.h: what a driver must have and little more.""",
            """# The placeholder of a driver for the hardware: what a driver must have and little more.""",
        ),
    ],
    "tests/wheel_test.py": [
        ('        "torch_openreg/include/aten/aoti/c_shim.h",\n', ""),
        ('        "torch_openreg/include/runtime/device/launch.h",\n', ""),
        ('        "torch_openreg/include/runtime/device/openreg_emulation.h",\n', ""),
        ('        "torch_openreg/lib/libopenreg_aoti.so",\n', ""),
    ],
    "tools/BUILD.bazel": [
        (
            """# Rules of this workspace (cc.bzl, pytest.bzl, package.bzl), and programs for its developers:
#   ./bazelw run //tools:lint [-- --fix]
#   ./bazelw run //tools:architecture
""",
            """# Rules of this workspace (cc.bzl, pytest.bzl, package.bzl).
""",
        ),
    ],
}
