# SPDX-License-Identifier: BSD-3-Clause
"""Test files for torch's device-generic framework run on the device without changes."""

import re
from pathlib import Path

import pytest

from tests import child

# A test file as it may exist outside this repository. It refers to the backend only by its name.
FILE = """
import torch
from torch.testing._internal.common_device_type import (
    OpDTypes,
    deviceCountAtLeast,
    dtypes,
    instantiate_device_type_tests,
    onlyAccelerator,
    onlyCPU,
    onlyCUDA,
    onlyNativeDeviceTypes,
    onlyOn,
    onlyPRIVATEUSE1,
    ops,
    skipCPUIf,
    skipPRIVATEUSE1,
    skipPRIVATEUSE1If,
)
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase, parametrize, run_tests

chosen = [op for op in op_db if op.name in ("add", "mm", "softmax")]


class TestGeneric(TestCase):
    def test_device(self, device):
        self.assertEqual(torch.ones(2, device=device).device, torch.device(device))

    def test_wrong(self, device):
        self.assertEqual(torch.ones(2, device=device), torch.zeros(2, device=device))

    @dtypes(torch.float32, torch.int64)
    def test_dtypes(self, device, dtype):
        x = torch.arange(4, device=device, dtype=dtype)
        self.assertEqual(x.dtype, dtype)
        self.assertEqual(x.sum(), 6, exact_dtype=False)

    @parametrize("size", [1, 3])
    def test_parametrize(self, device, size):
        self.assertEqual(torch.zeros(size, device=device).numel(), size)

    @deviceCountAtLeast(2)
    def test_devices(self, devices):
        x = torch.ones(3, device=devices[0])
        y = x.to(devices[1]) + 1
        self.assertEqual([x.device, y.device], [torch.device(d) for d in devices[:2]])
        self.assertEqual(y.cpu(), torch.full((3,), 2.0))

    @ops(chosen, allowed_dtypes=(torch.float32, torch.int64))
    def test_ops(self, device, dtype, op):
        for sample in op.sample_inputs(device, dtype):
            on_cpu = sample.transform(lambda x: x.cpu() if isinstance(x, torch.Tensor) else x)
            found = op(sample.input, *sample.args, **sample.kwargs)
            self.assertEqual(found.device, torch.device(device))
            self.assertEqual(found.cpu(), op(on_cpu.input, *on_cpu.args, **on_cpu.kwargs))

    @ops(chosen, dtypes=OpDTypes.any_one)
    def test_gradients(self, device, dtype, op):
        sample = next(iter(op.sample_inputs(device, dtype, requires_grad=True)))
        op(sample.input, *sample.args, **sample.kwargs).sum().backward()
        self.assertEqual(sample.input.grad.device, torch.device(device))

    @onlyPRIVATEUSE1
    def test_only_privateuse1(self, device):
        pass

    @onlyOn("openreg")
    def test_only_on_name(self, device):
        pass

    @onlyAccelerator
    @onlyNativeDeviceTypes
    @skipCPUIf(True, "not on the CPU")
    @skipPRIVATEUSE1If(False, "never")
    def test_for_accelerators(self, device):
        pass

    @onlyCPU
    def test_only_cpu(self, device):
        self.fail("this is not the CPU")

    @onlyCUDA
    def test_only_cuda(self, device):
        self.fail("this is not CUDA")

    @skipPRIVATEUSE1
    def test_skipped(self, device):
        self.fail("this is to be skipped")

    @skipPRIVATEUSE1If(True, "not here")
    def test_skipped_if(self, device):
        self.fail("this is to be skipped")


instantiate_device_type_tests(TestGeneric, globals(), only_for=(NAME,))

if __name__ == "__main__":
    run_tests()
"""

PASS = {
    "test_device_openreg",
    "test_devices_openreg",
    "test_dtypes_openreg_float32",
    "test_dtypes_openreg_int64",
    "test_for_accelerators_openreg",
    "test_gradients_add_openreg_float32",
    "test_gradients_mm_openreg_float32",
    "test_gradients_softmax_openreg_float32",
    "test_gradients_softmax_with_dtype_openreg_float32",
    "test_only_on_name_openreg",
    "test_only_privateuse1_openreg",
    "test_ops_add_openreg_float32",
    "test_ops_add_openreg_int64",
    "test_ops_mm_openreg_float32",
    "test_ops_mm_openreg_int64",
    "test_ops_softmax_openreg_float32",
    "test_ops_softmax_with_dtype_openreg_float32",
    "test_ops_softmax_with_dtype_openreg_int64",
    "test_parametrize_size_1_openreg",
    "test_parametrize_size_3_openreg",
}
SKIP = {
    "test_only_cpu_openreg",
    "test_only_cuda_openreg",
    "test_skipped_if_openreg",
    "test_skipped_openreg",
}
FAIL = {"test_wrong_openreg"}


def run(folder: Path, name: str, **environment: str) -> dict[str, set[str]]:
    """Runs FILE with a backend's name.

    Returns:
        The names of the tests that passed ("ok"), failed ("FAIL"), or were skipped ("skipped").
    """
    file = folder / "generic_test.py"
    file.write_text(FILE.replace("NAME", repr(name)))
    done = child.script(file, "--verbose", **environment)
    assert done.returncode == 1, done.stderr  # one test fails on purpose
    found: dict[str, set[str]] = {"ok": set(), "FAIL": set(), "skipped": set()}
    lines = re.findall(r"^(test_\w+) \(__main__\.(\w+)\.\w+\).* \.\.\. (\w+)", done.stderr, re.M)
    for test, case, result in lines:
        assert case == "TestGenericPRIVATEUSE1"
        found.setdefault(result, set()).add(test)
    assert f"Ran {len(lines)} tests" in done.stderr
    return found


@pytest.mark.parametrize("name", ["privateuse1", "openreg"])
def test_a_generic_file_runs_on_the_device(name: str, tmp_path: Path) -> None:
    assert run(tmp_path, name) == {"ok": PASS, "FAIL": FAIL, "skipped": SKIP}


def test_a_test_for_two_devices_is_skipped_with_one(tmp_path: Path) -> None:
    found = run(tmp_path, "openreg", OPENREG_DEVICE_COUNT="1")
    assert found["ok"] == PASS - {"test_devices_openreg"}
    assert found["skipped"] == SKIP | {"test_devices_openreg"}


def test_a_file_without_only_for_runs_on_the_cpu_and_the_device(tmp_path: Path) -> None:
    file = tmp_path / "generic_test.py"
    file.write_text(FILE.replace("only_for=(NAME,)", ""))
    done = child.script(file, "--verbose", "-k", "test_device_")
    assert done.returncode == 0, done.stderr
    cases = re.findall(r"^(test_\w+) \(__main__\.(\w+)\.", done.stderr, re.M)
    assert ("test_device_cpu", "TestGenericCPU") in cases
    assert ("test_device_openreg", "TestGenericPRIVATEUSE1") in cases
