# SPDX-License-Identifier: BSD-3-Clause
"""@buildifier: the formatter for BUILD files, from the npm package of the same name.

It is fetched only for the linters; package-lock.json pins it by its hash.
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
        fail("npm, which installs buildifier, was not found: apt-get install npm")
    for name in ["package.json", "package-lock.json"]:
        ctx.symlink(Label("//third_party/buildifier:" + name), name)
    result = ctx.execute([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], timeout = 600)
    if result.return_code != 0:
        fail("npm could not install buildifier: check that npm can reach a registry\n" + result.stderr)
    machine = ctx.execute(["uname", "-m"]).stdout.strip()
    if machine not in _ARCHITECTURES:
        fail("npm has no buildifier for the architecture " + machine)
    ctx.symlink(
        "node_modules/@bazel/buildifier/buildifier-linux_" + _ARCHITECTURES[machine],
        "buildifier",
    )
    ctx.file("BUILD.bazel", _BUILD)

buildifier_configure = repository_rule(
    implementation = _buildifier_configure_impl,
    doc = "buildifier: the file of the same name.",
)
