# SPDX-License-Identifier: BSD-3-Clause
"""@torch: headers and libraries of the PyTorch that @python imports."""

load("//third_party/python:python_configure.bzl", "PYTHON_ENVIRON", "find_python", "probe")

_PROBE = """
import importlib.metadata, importlib.util, json, os
spec = importlib.util.find_spec("torch")
if spec is None or spec.origin is None:
    raise SystemExit("No module named 'torch'")
print(json.dumps(dict(
    root = os.path.dirname(spec.origin),
    version = importlib.metadata.version("torch"),
)))
"""

_HELP = """\
This build requires PyTorch {version} in its Python environment. Run ./bazelw, which creates a .venv
with it, or set OPENREG_PYTHON to an interpreter that has it (pip install torch=={version})."""

# The headers are one directory, not a glob: 9,400 separate files cost each sandboxed compilation
# seconds. OPENREG_TORCH_BUILD makes each compilation depend on the exact build. Without
# AT_PER_OPERATOR_HEADERS, some headers (ExpandUtils.h, native/Resize.h) include all operators,
# which takes two to four seconds more per file.
#
# The libraries are linked at their own path, not copied into runfiles. Each build of PyTorch finds
# the libraries that belong to it (OpenMP, or CUDA's packages) relative to that path.
_BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

# For compiling.
cc_library(
    name = "headers",
    hdrs = ["include"],
    defines = [
        "AT_PER_OPERATOR_HEADERS",
        'OPENREG_TORCH_BUILD=\\\\"{version}\\\\"',
    ],
    includes = ["include", "include/torch/csrc/api/include"],
)

# For compiling a Kineto profiler.
cc_library(
    name = "kineto_headers",
    defines = ["USE_KINETO", "FMT_HEADER_ONLY"],
    includes = ["include/kineto"],
    deps = [":headers"],
)

# For linking a library that is installed beside PyTorch. Stores no path in the library.
cc_library(
    name = "link",
    linkopts = ["-L{root}/lib", "-ltorch", "-ltorch_cpu", "-lc10"],
)

# The same for an extension module.
cc_library(
    name = "python_link",
    linkopts = ["-L{root}/lib", "-ltorch_python"],
    deps = [":link"],
)

# For linking a program in this workspace.
cc_library(
    name = "torch",
    linkopts = ["-Wl,-rpath,{root}/lib"],
    deps = [":headers", ":link"],
)
"""

def _torch_configure_impl(ctx):
    python = find_python(ctx, ctx.attr._root)
    help = _HELP.format(version = ctx.attr.version)
    info = probe(ctx, python, _PROBE, help)
    if info["version"].split("+")[0] != ctx.attr.version:
        fail("\n\n%s\n(interpreter: %s has torch %s)\n" % (help, python, info["version"]))
    ctx.symlink(info["root"] + "/include", "include")
    ctx.file("BUILD.bazel", _BUILD.format(**info))

torch_configure = repository_rule(
    implementation = _torch_configure_impl,
    attrs = {
        "version": attr.string(
            doc = "PyTorch's version without the part after '+'; every build of it works.",
            mandatory = True,
        ),
        "_root": attr.label(default = "//:WORKSPACE"),
    },
    configure = True,
    doc = "PyTorch: targets headers, kineto_headers, link, python_link, torch.",
    environ = PYTHON_ENVIRON,
    local = True,
)
