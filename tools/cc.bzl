# SPDX-License-Identifier: BSD-3-Clause
"""C++ rules of this workspace: one way to build a shared library, and to use it."""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library")

# Options of all code of ours (the language is set for every compilation in .bazelrc). Symbols are
# hidden unless a header exports them.
COPTS = [
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
]

# Options of code that includes PyTorch's headers. Those are system headers and warn of nothing,
# but what the compiler inlines from them into ours does: g++ 12 takes the small-size buffers of
# c10's containers for reads of what was never written.
TORCH_COPTS = COPTS + [
    "-Wno-array-bounds",
    "-Wno-maybe-uninitialized",
    "-Wno-stringop-overflow",
    "-Wno-stringop-overread",
]

def openreg_shared_object(name, libs = [], soname = None, rpaths = ["$$ORIGIN"], extension = False, linkopts = [], **kwargs):
    """A shared object as it is installed: with our own RUNPATH only, stripped, few exports.

    libs are files on the link line and not deps: for each .so in deps Bazel adds a RUNPATH into
    its own output tree, which has no place in a package, and no feature turns that off.

    exports.lds says what it exports. `-c dbg` and `--strip=never` keep the symbols.

    Args:
      name: file name of the output.
      libs: .so files to link against; each has a SONAME.
      soname: its own SONAME; an extension module needs none.
      rpaths: entries of RUNPATH.
      extension: whether it is a module of Python, whose symbols the interpreter resolves.
      linkopts: more options of the linker.
      **kwargs: as for cc_binary; deps give headers, or code to link into it.
    """
    cc_binary(
        name = name,
        additional_linker_inputs = libs + ["//tools:exports.lds"],
        linkopts = (["$(location %s)" % lib for lib in libs] +
                    (["-Wl,-soname," + soname] if soname else []) +
                    ([] if extension else ["-Wl,-z,defs"]) +
                    ["-Wl,--enable-new-dtags"] +
                    ["-Wl,--version-script=$(location //tools:exports.lds)"] +
                    ["-Wl,-rpath," + rpath for rpath in rpaths] +
                    linkopts) + select({
            "//tools:debug": [],
            "//tools:with_symbols": [],
            "//conditions:default": ["-Wl,--strip-all"],
        }),
        linkshared = True,
        linkstatic = True,
        **kwargs
    )

def _expand(label):
    """//a/b -> //a/b:b, so that a suffix can be put to its name."""
    return label if ":" in label else label + ":" + label.split("/")[-1]

def openreg_library(name, srcs, hdrs, soname, libs = [], deps = [], objects = [], torch = False, linkopts = [], visibility = None, **kwargs):
    """A component that is installed as a shared library of its own.

    Makes these targets:
      NAME: headers and code, with those of libs, to link statically: what a gtest or a benchmark
        depends on; it sees the hidden symbols too.
      NAME_headers: to compile against.
      NAME_shared: the library that is installed, also under the name SONAME.

    Of another component only headers are compiled against, and its shared library is linked: no
    code is twice in a process.

    Args:
      name: of the component.
      srcs: sources and private headers.
      hdrs: headers that others may include.
      soname: file name of the library and its SONAME.
      libs: other components (targets of openreg_library) that this one needs.
      deps: other cc_library targets; their code becomes part of this component.
      objects: cc_library targets (alwayslink) whose code becomes part of this component, and whose
        headers do not: they see more than the rest of it, or register something with what is below.
      torch: whether it needs PyTorch.
      linkopts: more options of the linker, for all that link it.
      visibility: of all targets.
      **kwargs: as for cc_library (defines, tags...).
    """
    libs = [_expand(lib) for lib in libs]
    lib_headers = [lib + "_headers" for lib in libs]
    cc_library(
        name = name + "_headers",
        hdrs = hdrs,
        visibility = visibility,
        deps = deps + lib_headers + (["@torch//:headers"] if torch else []),
    )

    # All of this component's code and none of another's. alwayslink: registrations have no caller.
    cc_library(
        name = name + "_objects",
        srcs = srcs,
        copts = TORCH_COPTS if torch else COPTS,
        alwayslink = True,
        linkopts = linkopts,
        linkstatic = True,
        deps = [":%s_headers" % name],
        **kwargs
    )
    cc_library(
        name = name,
        visibility = visibility,
        deps = [":%s_headers" % name, ":%s_objects" % name] + objects + libs + (["@torch"] if torch else []),
    )
    openreg_shared_object(
        name = soname,
        libs = [lib + "_shared" for lib in libs],
        # Where a wheel puts it: torch_openreg/lib, and torch/lib beside that.
        rpaths = ["$$ORIGIN"] + (["$$ORIGIN/../../torch/lib"] if torch else []),
        soname = soname,
        visibility = visibility,
        deps = [":%s_objects" % name] + objects + (["@torch//:link"] if torch else []),
    )
    native.alias(
        name = name + "_shared",
        actual = soname,
        visibility = visibility,
    )
