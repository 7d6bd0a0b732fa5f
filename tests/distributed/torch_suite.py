# SPDX-License-Identifier: BSD-3-Clause
"""torch's own tests of torch.distributed, translated to the device and its backend.

The tests use the names of CUDA and NCCL. This module reads the source of the installed test
modules, replaces these names, and executes the result as modules with different names. Line numbers
stay the same, so tracebacks point to the right lines of torch's files.

The environment variable WORLD_SIZE sets the number of ranks. The tests read it when they are
loaded. The number of devices equals the number of ranks.
"""

import importlib.util
import multiprocessing
import os
import re
import sys
import types
import unittest
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

WORLD_SIZE = int(os.environ.setdefault("WORLD_SIZE", "2"))
os.environ["BACKEND"] = "occl"
os.environ.setdefault("OPENREG_DEVICE_COUNT", str(WORLD_SIZE))
# Many processes share a few cores and use small tensors, so each process uses only one thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")

_COMMON = "torch.testing._internal.common_distributed"
_TESTS = "torch.testing._internal.distributed.distributed_test"

#: Pairs of a regular expression and its replacement. They are applied to the source in this order.
TRANSLATION = [
    # One module imports the other one, which is also translated.
    (rf"^from {re.escape(_COMMON)} import", "from translated_common_distributed import"),
    # The tests check NCCL's version for features that occl has in every version.
    (r"torch\.cuda\.nccl\.version\(\)", "(99, 0, 0)"),
    (r"^import torch\.cuda\.nccl$", "import torch_openreg"),
    (r"^import torch\.cuda$", "import torch_openreg"),
    # Names of the device: its module, the device name, methods of tensors and modules, and torch's
    # enumerators.
    (r"\btorch\.cuda\b", "torch.openreg"),
    (r'"cuda([":])', r'"openreg\1'),
    (r"\.cuda\(", ".openreg("),
    (r"\bTEST_CUDA\b", "TEST_PRIVATEUSE1"),
    (r"\b(DeviceType|ProfilerActivity)\.CUDA\b", r"\1.PrivateUse1"),
    # Names of the backend: the backend name, torch's enumerators, the function that checks whether
    # it is available, and its class.
    (r'"nccl([":])', r'"occl\1'),
    (r"\bBackend\.NCCL\b", "Backend.OCCL"),
    (r"\bBackendType\.NCCL\b", "BackendType.CUSTOM"),
    (r"\bis_nccl_available\b", "is_available"),
    (r"\bdist\.ProcessGroupNCCL\b", "torch_openreg._C.ProcessGroupOCCL"),
    # The error text for an operation that is late.
    ("caught collective operation timeout", "did not finish within"),
    # Run the tests that torch has disabled because they are flaky on its machines.
    (r"\bskipIf\((\s*)IS_LINUX\b", r"skipIf(\1False"),
    (r'\bskip\((\s*"(https:|Test is failing, see))', r"skipIf(False, \1"),
    # Shrink a network that needs 600 GFLOP per iteration and rank, which is too slow on a CPU.
    (r"\bdim = 1000$", "dim = 30"),
    # Poll more often, because a test spends most of its time on polling for other processes.
    (r"\btime\.sleep\(0\.1\)", "time.sleep(0.01)"),
]


def _load(name: str, translated_name: str) -> Any:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    with open(spec.origin) as file:
        source = file.read()
    for pattern, replacement in TRANSLATION:
        source = re.sub(pattern, replacement, source, flags=re.MULTILINE)
    module = types.ModuleType(translated_name)
    module.__file__ = spec.origin
    sys.modules[translated_name] = module
    exec(compile(source, spec.origin, "exec"), module.__dict__)
    return module


common = _load(_COMMON, "translated_common_distributed")
translated = _load(_TESTS, "translated_distributed_test")
# Timeout of a test in seconds. Some tests override it with up to 500 s, so remove the overrides.
common.TIMEOUT_DEFAULT = 60
common.TIMEOUT_OVERRIDE.clear()

_context = multiprocessing.get_context("forkserver")
# Preload pytest too: every process imports it, because it is the main program of a Bazel test.
_context.set_forkserver_preload([__name__, "pytest"])


def _run_with_environment(
    environment: Mapping[str, str],
    target: Callable[..., None],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    target(*args, **kwargs)


_Processes: Any = translated.TestDistBackend
_Tests: Any = translated.DistributedTest._DistTestBase


class Suite(_Processes, _Tests):  # type: ignore[misc]
    """torch's tests of collectives. Each method runs its ranks in separate processes."""

    def setUp(self) -> None:
        super().setUp()
        self._spawn_processes()

    def _spawn_processes(self) -> None:
        """Forks the ranks from a process that has loaded this module. "spawn" is much slower."""

        def process(target: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            # Pass the environment, because it contains a part of a test's state.
            arguments = (dict(os.environ), target, args, kwargs)
            return _context.Process(target=_run_with_environment, name=name, args=arguments)

        self._start_processes(process)


#: The other test classes of the module. They run in this process.
OTHERS = [
    value
    for value in vars(translated).values()
    if isinstance(value, type)
    and issubclass(value, unittest.TestCase)
    and value.__name__.startswith("Test")
    and value.__module__ == translated.__name__
    and value is not translated.TestDistBackend
]


@dataclass
class Outcome:
    """The result of a test, with details."""

    #: "passed", "skipped", or "failed".
    result: str
    #: The reason for a skip, or the traceback of a failure.
    detail: str = ""


def names(case: type[unittest.TestCase]) -> list[str]:
    """Returns the names of all tests in a class."""
    return list(unittest.TestLoader().getTestCaseNames(case))


def run(case: type[unittest.TestCase], name: str) -> Outcome:
    """Runs one test in a class and returns its outcome."""
    result = unittest.TestResult()
    unittest.TestSuite([case(name)]).run(result)
    assert result.testsRun == 1 or result.skipped
    for _, traceback in [*result.errors, *result.failures]:
        return Outcome("failed", traceback)
    for _, reason in result.skipped:
        return Outcome("skipped", reason)
    return Outcome("passed")
