# SPDX-License-Identifier: BSD-3-Clause
"""@nlohmann_json: the headers of JSON for Modern C++, as installed on the machine.

torch's FlightRecorderDetail.hpp includes them, and torch does not ship them. $OPENREG_JSON is the
folder that contains nlohmann/json.hpp. The default is /usr/include, where Debian's
`nlohmann-json3-dev` installs it.
"""

_BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

cc_library(
    name = "json",
    hdrs = glob(["include/nlohmann/**/*.hpp"]),
    includes = ["include"],
)
"""

def _nlohmann_json_configure_impl(ctx):
    headers = (ctx.os.environ.get("OPENREG_JSON", "") or "/usr/include") + "/nlohmann"
    if not ctx.path(headers + "/json.hpp").exists:
        fail("JSON for Modern C++ is not in %s: " % headers +
             "run ./bazelw, which installs nlohmann-json3-dev, or set OPENREG_JSON")
    ctx.symlink(headers, "include/nlohmann")
    ctx.file("BUILD.bazel", _BUILD)

nlohmann_json_configure = repository_rule(
    implementation = _nlohmann_json_configure_impl,
    configure = True,
    doc = "JSON for Modern C++: target json, headers only.",
    environ = ["OPENREG_JSON"],
    local = True,
)
