# SPDX-License-Identifier: BSD-3-Clause
"""clang-tidy as an aspect: one action per source file, so that Bazel caches the results.

    ./bazelw build --aspects=//tools/linters:clang_tidy.bzl%clang_tidy --output_groups=clang_tidy //...
"""

# Runs the command that follows the first argument. If the command succeeds, creates the file that
# the first argument names. If the command fails, prints its output.
_COMMAND = """
out=$1; shift
log=$("$@" 2>&1) || { printf '%s\\n' "$log"; exit 1; }
touch "$out"
"""

def _sources(attr):
    """Returns a target's C++ source files, without generated and external ones."""
    return [
        f
        for src in attr.srcs
        for f in src.files.to_list()
        if f.is_source and f.extension == "cc" and not f.path.startswith("external/")
    ]

def _clang_tidy_impl(target, ctx):
    if CcInfo not in target and not hasattr(ctx.rule.attr, "linkshared"):
        return []
    if not hasattr(ctx.rule.attr, "srcs") or not hasattr(ctx.rule.attr, "copts"):
        return []
    sources = _sources(ctx.rule.attr)
    if not sources:
        return []

    # In Bazel 4, binaries do not provide CcInfo, so use the compilation contexts of their deps.
    contexts = [dep[CcInfo].compilation_context for dep in ctx.rule.attr.deps if CcInfo in dep]
    if CcInfo in target:
        contexts.append(target[CcInfo].compilation_context)
    flags = []
    for context in contexts:
        flags += ["-iquote" + path for path in context.quote_includes.to_list()]
        flags += ["-isystem" + path for path in context.system_includes.to_list()]
        flags += ["-I" + path for path in context.includes.to_list()]
        flags += ["-D" + define for define in context.defines.to_list()]
    flags += ["-D" + define for define in ctx.rule.attr.local_defines]
    flags += ctx.fragments.cpp.cxxopts + ctx.rule.attr.copts

    # copts may contain g++ options that clang does not support.
    flags.append("-Wno-unknown-warning-option")

    headers = [context.headers for context in contexts]
    private = [f for src in ctx.rule.attr.srcs for f in src.files.to_list()]
    marks = []
    for source in sources:
        mark = ctx.actions.declare_file("%s.%s.clang_tidy" % (ctx.rule.attr.name, source.basename))
        ctx.actions.run_shell(
            outputs = [mark],
            inputs = depset(
                [source, ctx.file._config, ctx.file._clang_tidy] + private,
                transitive = headers,
            ),
            command = _COMMAND,
            arguments = [mark.path, ctx.file._clang_tidy.path, "--quiet", source.path, "--"] + flags,
            mnemonic = "ClangTidy",
            progress_message = "Checking " + source.short_path,
        )
        marks.append(mark)
    return [OutputGroupInfo(clang_tidy = depset(marks))]

clang_tidy = aspect(
    implementation = _clang_tidy_impl,
    attrs = {
        "_clang_tidy": attr.label(
            allow_single_file = True,
            default = "@clang_tidy//:bin/clang-tidy",
        ),
        "_config": attr.label(
            allow_single_file = True,
            default = "//:.clang-tidy",
        ),
    },
    doc = "Output group clang_tidy: a marker for each source file of a C++ target without findings.",
    fragments = ["cpp"],
)
