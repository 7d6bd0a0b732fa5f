# SPDX-License-Identifier: BSD-3-Clause
"""C++ rules for building shared libraries and for linking with them."""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library")

# Options for all code in this project. Symbols are hidden unless a header exports them. (.bazelrc
# sets the language version for every compilation.)
COPTS = [
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
]

# Options for code that includes PyTorch's headers. The compiler does not warn about system headers
# themselves, but it does warn about code that it inlines from them: g++ 12 reports reads of
# uninitialized memory in the small-size buffers of c10's containers.
TORCH_COPTS = COPTS + [
    "-Wno-array-bounds",
    "-Wno-maybe-uninitialized",
    "-Wno-stringop-overflow",
    "-Wno-stringop-overread",
]

def openreg_shared_object(name, libs = [], soname = None, rpaths = ["$$ORIGIN"], extension = False, linkopts = [], **kwargs):
    """A shared object for installation: stripped, with few exports, and only rpaths as RUNPATH.

    libs are files on the link line, not deps. For each .so in deps, Bazel adds a RUNPATH entry for
    its output tree. Such an entry must not be in a package, and no feature disables it.

    exports.lds lists the exports. With `-c dbg` or `--strip=never`, the file is not stripped.

    Args:
      name: the output's file name.
      libs: the .so files to link with; each has a SONAME.
      soname: the output's SONAME; not needed for an extension module.
      rpaths: the entries of RUNPATH.
      extension: whether the output is a Python module. The interpreter resolves the symbols that
        such a module lacks, so missing symbols are no link errors.
      linkopts: further link options.
      **kwargs: as for cc_binary; deps are targets with headers, or with code for this output.
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
    """Expands //a/b to //a/b:b, so that a suffix can be appended to the name."""
    return label if ":" in label else label + ":" + label.split("/")[-1]

def openreg_library(name, srcs, hdrs, soname, libs = [], deps = [], objects = [], torch = False, linkopts = [], visibility = None, **kwargs):
    """A component that is installed as a separate shared library.

    Defines these targets:
      NAME: headers and code, including those of libs, for static linking. Gtests and benchmarks
        depend on it, because it gives them the hidden symbols too.
      NAME_headers: the headers, to compile against.
      NAME_shared: the library that is installed, also under the name SONAME.

    Only the headers of other components are compiled against, and their shared libraries are
    linked. Thus a process contains all code only once.

    Args:
      name: the component's name.
      srcs: the sources and private headers.
      hdrs: the headers that other components may include.
      soname: the library's file name and its SONAME.
      libs: the other components (openreg_library targets) that this component needs.
      deps: other cc_library targets; their code becomes part of this component.
      objects: cc_library targets (alwayslink) whose code becomes part of this component, but whose
        headers do not. Their headers include more than the rest of the component may include, or
        their code registers something.
      torch: whether the component needs PyTorch's headers and libraries.
      linkopts: more linker options, for everything that links this component.
      visibility: the visibility of NAME, NAME_headers and NAME_shared.
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

    # Contains only the code of this component. alwayslink is needed for files that only register
    # something: nothing refers to their symbols, so the linker would omit them.
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
        # In a wheel, the library is in torch_openreg/lib, from where ../../torch/lib is torch's folder.
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
