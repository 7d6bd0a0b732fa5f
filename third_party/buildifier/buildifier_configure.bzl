# SPDX-License-Identifier: BSD-3-Clause
"""@buildifier: the formatter of BUILD files, from the package of that name in npm's registry.

Fetched for the linters only; package-lock.json pins it with its hash.
"""

_BUILD = """\
exports_files(["buildifier"], visibility = ["//visibility:public"])
"""

_ARCHITECTURES = {
    "aarch64": "arm64",
    "x86_64": "amd64",
}

def _buildifier_configure_impl(ctx):
    npm = ctx.which("npm")
    if npm == None:
        fail("buildifier comes by npm, and there is none: apt-get install npm")
    for name in ["package.json", "package-lock.json"]:
        ctx.symlink(Label("//third_party/buildifier:" + name), name)
    result = ctx.execute([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], timeout = 600)
    if result.return_code != 0:
        fail("npm could not install buildifier: does npm reach a registry from here?\n" + result.stderr)
    machine = ctx.execute(["uname", "-m"]).stdout.strip()
    if machine not in _ARCHITECTURES:
        fail("there is no buildifier for the architecture " + machine)
    ctx.symlink(
        "node_modules/@bazel/buildifier/buildifier-linux_" + _ARCHITECTURES[machine],
        "buildifier",
    )
    ctx.file("BUILD.bazel", _BUILD)

buildifier_configure = repository_rule(
    implementation = _buildifier_configure_impl,
    doc = "buildifier: the file of that name.",
)
