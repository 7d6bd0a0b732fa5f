# SPDX-License-Identifier: BSD-3-Clause
"""Rules that arrange a Python package as it is installed, and pack it into a wheel."""

load("@python//:defs.bzl", "PYTHON", "WHEEL_TAG")

def _copy_files_impl(ctx):
    outs = []
    for target, path in ctx.attr.srcs.items():
        files = target[DefaultInfo].files.to_list()
        if len(files) != 1:
            fail("%s provides %d files; copy_files needs exactly one" % (target.label, len(files)))
        out = ctx.actions.declare_file(path)
        ctx.actions.run(
            outputs = [out],
            inputs = files,
            executable = "/bin/cp",
            arguments = ["-fL", files[0].path, out.path],
            mnemonic = "CopyFile",
        )
        outs.append(out)
    return [DefaultInfo(files = depset(outs), runfiles = ctx.runfiles(files = outs))]

copy_files = rule(
    implementation = _copy_files_impl,
    attrs = {
        "srcs": attr.label_keyed_string_dict(
            allow_files = True,
            doc = "Maps targets, each of which has one file, to the path of the copy in this package.",
            mandatory = True,
        ),
    },
    doc = "Copies files of other packages to their locations in the installed package.",
)

def _file_name(distribution):
    """Returns a distribution's name in the form that is used in file names."""
    return distribution.replace("-", "_").replace(".", "_").lower()

def _dist_info_impl(ctx):
    folder = "%s-%s.dist-info/" % (_file_name(ctx.attr.distribution), ctx.attr.version)

    lines = [
        "Metadata-Version: 2.4",
        "Name: " + ctx.attr.distribution,
        "Version: " + ctx.attr.version,
        "Summary: " + ctx.attr.summary,
        "License-Expression: " + ctx.attr.license,
        "License-File: " + ctx.file.license_file.basename,
        "Requires-Python: " + ctx.attr.requires_python,
    ]
    if ctx.attr.keywords:
        lines.append("Keywords: " + ",".join(ctx.attr.keywords))
    lines += ["Classifier: " + classifier for classifier in ctx.attr.classifiers]
    lines += ["Requires-Dist: " + requirement for requirement in ctx.attr.requires]
    metadata = ctx.actions.declare_file(folder + "METADATA")
    ctx.actions.write(metadata, "".join([line + "\n" for line in lines]))

    entry_points = ctx.actions.declare_file(folder + "entry_points.txt")
    lines = []
    for group, entries in ctx.attr.entry_points.items():
        lines += ["[%s]" % group] + entries + [""]
    ctx.actions.write(entry_points, "".join([line + "\n" for line in lines]))

    license_file = ctx.actions.declare_file(folder + "licenses/" + ctx.file.license_file.basename)
    ctx.actions.symlink(output = license_file, target_file = ctx.file.license_file)

    files = [metadata, entry_points, license_file]
    return [DefaultInfo(files = depset(files), runfiles = ctx.runfiles(files = files))]

dist_info = rule(
    implementation = _dist_info_impl,
    attrs = {
        "classifiers": attr.string_list(doc = "Classifiers that the Python Package Index defines."),
        "distribution": attr.string(doc = "Name of the distribution.", mandatory = True),
        "entry_points": attr.string_list_dict(
            doc = "Maps groups to entries 'NAME = MODULE:OBJECT'.",
        ),
        "keywords": attr.string_list(),
        "license": attr.string(doc = "SPDX expression.", mandatory = True),
        "license_file": attr.label(allow_single_file = True, mandatory = True),
        "requires": attr.string_list(doc = "Requirements, as pip reads them."),
        "requires_python": attr.string(mandatory = True),
        "summary": attr.string(doc = "The description in one line.", mandatory = True),
        "version": attr.string(mandatory = True),
    },
    doc = """The folder NAME-VERSION.dist-info without the files of an archive (WHEEL, RECORD), and
without the description.

With it in the runfiles, importlib.metadata finds the package's entry points as if it were
installed. The wheel packs the same files.""",
)

def _wheel_impl(ctx):
    name = "%s-%s" % (_file_name(ctx.attr.distribution), ctx.attr.version)
    tag = ctx.attr.tag or WHEEL_TAG
    out = ctx.actions.declare_file("%s-%s.whl" % (name, tag))
    files = depset(transitive = [src[DefaultInfo].files for src in ctx.attr.srcs] +
                                [src[DefaultInfo].default_runfiles.files for src in ctx.attr.srcs])
    root = ctx.label.package + "/"
    members = [
        [f.short_path[len(root):], f.path]
        for f in files.to_list()
        if f.short_path.startswith(root)
    ]
    contents = ctx.actions.declare_file(ctx.label.name + ".json")
    ctx.actions.write(contents, json.encode(struct(
        dist_info = name + ".dist-info",
        description = ctx.file.description.path if ctx.file.description else "",
        members = members,
        tag = tag,
    )))
    ctx.actions.run(
        outputs = [out],
        inputs = depset([contents, ctx.file._archive] + ctx.files.description, transitive = [files]),
        executable = PYTHON,
        arguments = ["-I", ctx.file._archive.path, contents.path, out.path],
        mnemonic = "PyWheel",
        progress_message = "Packing " + out.short_path,
    )
    return [DefaultInfo(files = depset([out]), runfiles = ctx.runfiles(files = [out]))]

wheel = rule(
    implementation = _wheel_impl,
    attrs = {
        "description": attr.label(
            allow_single_file = True,
            doc = "A page in Markdown. Only the wheel has it, so its changes do not run the tests " +
                  "of the package again.",
        ),
        "distribution": attr.string(doc = "As in the dist_info.", mandatory = True),
        "srcs": attr.label_list(
            allow_files = True,
            doc = "Targets whose files and runfiles in this package are packed; one is a dist_info.",
            mandatory = True,
        ),
        "tag": attr.string(
            doc = "PYTHON-ABI-PLATFORM; by default that of this build ('py3-none-any' for pure Python).",
        ),
        "version": attr.string(doc = "As in the dist_info.", mandatory = True),
        "_archive": attr.label(
            allow_single_file = True,
            default = "//tools/wheel:archive.py",
        ),
    },
    doc = """A wheel (PEP 427), by default for the interpreter and platform of this build.

It contains the files of srcs that are in the rule's own package, at their paths relative to that
package, but no dependencies from elsewhere (torch). The same contents give the same bytes.""",
)
