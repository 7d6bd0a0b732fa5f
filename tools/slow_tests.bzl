# SPDX-License-Identifier: BSD-3-Clause
"""The tests that take longer than about 20 seconds on two quiet cores.

`./bazelw test //...` omits them, so that it ends within ten minutes. Each can be run by its name;
`bash .ci/run slow` runs all of them.
"""

SLOW_TESTS = [
    "//benchmarks:compile_test",
    "//benchmarks:eager_test",
    "//benchmarks:soak_test",
    "//conformance:command_test",
    "//conformance/broken:defects_test",
    "//docs:examples_test",
    "//examples/cpp_backend:acme_test",
    "//examples/ddp:ddp_test",
    "//examples/digits:digits_test",
    "//tests:autoload_test",
    "//tests:broken_installation_test",
    "//tests:compile_passes_test",
    "//tests:cpp_wrapper_test",
    "//tests:exit_test",
    "//tests:fallback_policy_test",
    "//tests:first_launches_in_forward_ad_test",
    "//tests:graph_operator_test",
    "//tests:inductor_test",
    "//tests:memcheck_test",
    "//tests:memory_test",
    "//tests:multiprocessing_test",
    "//tests:package_test",
    "//tests:replay_test",
    "//tests:self_test_test",
    "//tests:tuning_test",
    "//tests/distributed:attention_test",
    "//tests/distributed:collectives_on_two_hosts_test",
    "//tests/distributed:context_parallel_test",
    "//tests/distributed:ddp_test",
    "//tests/distributed:dtensor_test",
    "//tests/distributed:elastic_test",
    "//tests/distributed:fsdp_test",
    "//tests/distributed:functional_test",
    "//tests/distributed:machines_test",
    "//tests/distributed:torch_bases_test",
    "//tests/distributed:torch_suite_2_test",
    "//tests/distributed:work_on_two_hosts_test",
    "//tests/distributed:work_test",
    "//tests/sweep:compiled_test",
    "//tests/sweep:sweep_test",
]
