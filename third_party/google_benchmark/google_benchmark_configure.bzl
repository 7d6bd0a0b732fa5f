# SPDX-License-Identifier: BSD-3-Clause
"""@google_benchmark: Google Benchmark as installed on the machine.

$OPENREG_BENCHMARK is the prefix, the folder with include/benchmark and lib. The default is /usr,
where Debian's package `libbenchmark-dev` installs it. Debian packages only the shared library.
"""

_BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

cc_library(
    name = "benchmark",
    hdrs = glob(["include/benchmark/*.h"]),
    includes = ["include"],
    linkopts = [{linkopts}],
)
"""

def _google_benchmark_configure_impl(ctx):
    prefix = ctx.os.environ.get("OPENREG_BENCHMARK", "")
    headers = (prefix or "/usr") + "/include/benchmark"
    if not ctx.path(headers + "/benchmark.h").exists:
        fail("Google Benchmark's headers are not in %s: " % headers +
             "run ./bazelw, which installs libbenchmark-dev, or set OPENREG_BENCHMARK")
    ctx.symlink(headers, "include/benchmark")
    linkopts = ["-lbenchmark", "-pthread"]
    if prefix:
        linkopts = ["-L%s/lib" % prefix, "-Wl,-rpath,%s/lib" % prefix] + linkopts
    ctx.file("BUILD.bazel", _BUILD.format(linkopts = ", ".join([repr(opt) for opt in linkopts])))

google_benchmark_configure = repository_rule(
    implementation = _google_benchmark_configure_impl,
    configure = True,
    doc = "Google Benchmark: target benchmark, without a main function.",
    environ = ["OPENREG_BENCHMARK"],
    local = True,
)
