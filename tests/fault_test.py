# SPDX-License-Identifier: BSD-3-Clause
"""If the host accesses device memory, the process dies and reports the address."""

import re
import signal

import pytest

from tests import child


def die(code: str) -> str:
    done = child.run("import ctypes, torch\n" + code)
    assert done.returncode == -signal.SIGSEGV, (done.returncode, done.stdout, done.stderr)
    assert "survived" not in done.stdout
    return done.stderr


def test_read_names_device_offset_allocation_and_size() -> None:
    report = die(
        "torch.openreg.set_device(1)\n"
        "x = torch.zeros(1000, device='openreg')\n"
        "print(hex(x.data_ptr()), flush=True)\n"
        "ctypes.string_at(x.data_ptr() + 100, 4)\n"
        "print('survived')"
    )
    assert "device 1" in report
    assert re.search(r"offset 0x[0-9a-f]*64\b", report), report  # 0x64 is byte 100
    assert re.search(r"allocation 0x[0-9a-f]+ of [0-9]+ bytes, byte 100 in it", report), report
    assert "of 4000 bytes in it, which is in use" in report  # the tensor x has 4000 bytes


def test_write() -> None:
    report = die(
        "x = torch.zeros(10, device='openreg')\n"
        "ctypes.memset(x.data_ptr(), 1, 4)\n"
        "print('survived')"
    )
    assert "device 0" in report
    assert "of 40 bytes in it, which is in use" in report


def test_read_of_freed_memory_is_reported() -> None:
    report = die(
        "x = torch.zeros(1 << 20, device='openreg')\n"
        "pointer = x.data_ptr()\n"
        "del x\n"
        "ctypes.string_at(pointer, 4)\n"
        "print('survived')"
    )
    assert "device 0" in report
    assert "which is free (use after free?)" in report


@pytest.mark.parametrize("when", ["before", "after"])
def test_faulthandler_lives_beside_it(when: str) -> None:
    use = "x = torch.zeros(1000, device='openreg')\n"
    enable = "import faulthandler; faulthandler.enable()\n"
    report = die((enable + use if when == "before" else use + enable) + "ctypes.string_at(8, 1)")
    assert "Segmentation fault" in report  # address 8 does not belong to a device
    assert "device memory" not in report
