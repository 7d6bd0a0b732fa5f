# SPDX-License-Identifier: BSD-3-Clause
"""Compiles generated C++ into Python modules whose functions launch kernels on the device.

Generated code imports ``openreg_kernel`` from this module. This includes code that an earlier
process cached.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch._inductor.async_compile import AsyncCompile, get_compile_threads
from torch._inductor.codecache import (
    CodeCacheFuture,
    CppPythonBindingsCodeCache,
    LambdaFuture,
)
from torch._inductor.utils import clear_on_fresh_cache

from torch_openreg_compile import source_text

_LAUNCH = source_text.read("kernel.h", "kernel_launch.h")

# The text after the generated function. torch fills in the fields with str.format.
_MODULE = """
static const openreg_generated::KernelApi* openreg_api;

static PyObject* {entry_func}_py(PyObject*, PyObject* const* arguments, Py_ssize_t count) {{
  static constexpr openreg_generated::KernelSite site = OPENREG_KERNEL_SITE;
  {call_entry_func}
}}

static PyMethodDef methods[] = {{
    {{"{entry_func}", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&{entry_func}_py)),
      METH_FASTCALL, nullptr}},
    {{nullptr, nullptr, 0, nullptr}}}};
static PyModuleDef definition = {{
    PyModuleDef_HEAD_INIT, "{entry_func}", nullptr, -1, methods, nullptr, nullptr, nullptr,
    nullptr}};

PyMODINIT_FUNC PyInit_{entry_func}(void) {{
  openreg_api = openreg_generated::find_api();
  return openreg_api == nullptr ? nullptr : PyModule_Create(&definition);
}}
"""


@clear_on_fresh_cache
class KernelModules(CppPythonBindingsCodeCache):
    """The modules of the device's kernels, cached by their source."""

    cache: dict[str, Callable[[], Any]] = {}  # noqa: RUF012 - declared as in torch
    cache_clear = staticmethod(cache.clear)
    suffix_template = _MODULE
    call_entry_function = (
        "return openreg_generated::call(*openreg_api, site, kernel, arguments, count);"
    )


def openreg_kernel(
    compiler: AsyncCompile,
    name: str,
    argument_types: Sequence[str],
    source: str,
    *,
    parallel: bool,
    pointwise: bool,
) -> CodeCacheFuture | Callable[..., None]:
    """Compile a kernel, in another process if the compiler uses several processes.

    Args:
        compiler: torch's object that submits work to compile processes.
        name: the kernel's name in errors and traces.
        argument_types: the C++ types of the kernel's parameters.
        source: defines ``void kernel(...)``; its first line includes torch's prefix.
        parallel: whether the kernel has parallel regions.
        pointwise: whether the result is independent of the number of threads.

    Returns:
        A function that launches the kernel on the current stream, or a future of that function. It
        is called with the kernel's cost and the kernel's arguments.
    """
    prefix, _, rest = source.lstrip().partition("\n")
    site = f'{{"{name}", {str(parallel).lower()}, {str(pointwise).lower()}}}'
    code = f"{prefix}\n{_LAUNCH}\n{rest}\n#define OPENREG_KERNEL_SITE {site}\n"
    if get_compile_threads() <= 1:
        load: Callable[..., None] = KernelModules.load_pybinding(argument_types, code)
        return load
    return LambdaFuture(
        KernelModules.load_pybinding_async(argument_types, code, submit_fn=compiler.submit)
    )
