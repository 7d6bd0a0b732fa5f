# SPDX-License-Identifier: BSD-3-Clause
"""The tests that do not apply to the minimal driver: ./bazelw test --config=minimal //tests/..."""

# The feature of a driver (//runtime:driver_with_...) that the tests of a target or of a package
# need. Bazel skips these targets in that configuration.
NEEDS = {
    "//tests/distributed": "shared_memory",
    "//tests/hta": "activity_records",
    "//tests:cpp_wrapper_test": "generated_kernels",
    "//tests:graph_error_test": "graphs",
    "//tests:graph_generator_test": "graphs",
    "//tests:graph_memory_test": "graphs",
    "//tests:graph_operator_test": "graphs",
    "//tests:graph_test": "graphs",
    "//tests:graph_training_test": "graphs",
    "//tests:inductor_test": "generated_kernels",
    "//tests:ipc_event_test": "shared_memory",
    "//tests:multiprocessing_test": "shared_memory",
    "//tests:profiler_test": "activity_records",
    "//tests:replay_refusal_test": "graphs",
    "//tests:replay_stream_test": "graphs",
    "//tests:replay_test": "graphs",
    "//tests:trace_test": "activity_records",
    "//tests:tuning_test": "generated_kernels",
}

# Single tests of other targets: a pytest id, or the beginning of one, and the reason.
LEFT_OUT = {
    "tests/copy_test.py::test_an_earlier_error_is_not_lost_by_a_copy": "the host fallback raises the error at the call",
    "tests/storage_test.py::test_messages_to_other_processes_have_values_only": "no memory is shared between processes",
    "tests/storage_test.py::test_the_address_of_a_lazy_clone_while_another_device_is_current[pickle for another process]": "no memory is shared between processes",
}
