# SPDX-License-Identifier: BSD-3-Clause
"""The soak's activities work, and the soak detects leaks."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks import soak
from benchmarks.importer import Importer
from benchmarks.soak import ACTIVITIES, Sample, faults

CALM = Sample(seconds=10, rounds=5, allocated=0, resident=1000, threads=4, descriptors=9, shared=3)


@pytest.mark.parametrize("activity", ACTIVITIES, ids=lambda activity: activity.__name__)
def test_activities_do_their_work(activity: Callable[[], None]) -> None:
    activity()
    assert soak.sample(0.0, 0).allocated == 0


def test_another_process_imports_and_is_killed_or_exits() -> None:
    before = soak.sample(0.0, 0).allocated
    with Importer(lifetime=2) as importer:
        importer.share()
        warm = soak.sample(0.0, 0)
        for _ in range(3):
            importer.share()
        last = soak.sample(0.0, 0)
        assert importer.started == 3
    assert last.allocated == before
    assert replace(last, resident=0) == replace(warm, resident=0, seconds=last.seconds)


def test_death_of_the_importer_is_an_error() -> None:
    with Importer() as importer:
        importer.share()
        importer._process.kill()
        importer._process.join()
        with pytest.raises(RuntimeError, match="ended: status -9"):
            importer.share()
        importer._process = None


def test_shared_files_are_counted_once() -> None:
    maps = """\
7f0000000000-7f0000001000 rw-s 00000000 00:01 7     /memfd:device (deleted)
7f0000001000-7f0000002000 r--s 00001000 00:01 7     /memfd:device (deleted)
7f0000002000-7f0000003000 rw-s 00000000 00:01 8     /dev/shm/sem.mp-1
7f0000003000-7f0000004000 r-xp 00000000 08:01 9     /usr/lib/libc.so.6
7f0000004000-7f0000005000 rw-p 00000000 00:00 0
"""
    assert soak.shared_files(maps) == 2


def test_short_run_writes_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures, plot = tmp_path / "soak.json", tmp_path / "soak.png"
    status = soak.main(["--minutes", "0.001", "--json", str(figures), "--plot", str(plot)])
    written = json.loads(figures.read_text())
    # The run is too short to judge memory, but the exit status must match the reported faults.
    assert status == int(bool(written["faults"]))
    assert len(written["samples"]) >= 4
    assert [one["rounds"] for one in written["samples"]] == list(range(len(written["samples"])))
    assert {one["allocated"] for one in written["samples"]} == {0}
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "descriptors" in capsys.readouterr().out


def test_leaks_are_found() -> None:
    assert faults(CALM, CALM, CALM) == []
    assert faults(CALM, CALM, replace(CALM, resident=1020, threads=3, descriptors=8)) == []
    assert faults(CALM, CALM, replace(CALM, allocated=4096)) == [
        "4,096 bytes of device memory leaked in tensors"
    ]
    assert faults(CALM, CALM, replace(CALM, resident=1021)) == [
        "resident memory grew by 2.1%, beyond 2%"
    ]
    assert faults(CALM, CALM, replace(CALM, threads=6, descriptors=10, shared=7)) == [
        "2 more threads than after the warm-up",
        "1 more file descriptors than after the warm-up",
        "4 more shared memory files than after the warm-up",
    ]


def test_leaked_tensor_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[torch.Tensor] = []
    monkeypatch.setattr(
        soak, "ACTIVITIES", (lambda: kept.append(torch.ones(1024, device="openreg")),)
    )
    for activity in soak.ACTIVITIES:
        activity.__name__ = "keep"
    assert soak.main(["--minutes", "0.0001"]) == 1


def test_wrong_result_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        soak.require(False, "the sum is wrong")

    monkeypatch.setattr(soak, "ACTIVITIES", (fail,))
    assert soak.main(["--minutes", "0.0001"]) == 1
    assert capsys.readouterr().err == "soak: failed: the sum is wrong\n"


@pytest.mark.parametrize("text", ["0", "-1", "nan", "ten"])
def test_wrong_minutes(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        soak.main(["--minutes", text])
    assert exit_.value.code == 2
    assert "is not a positive number of minutes" in capsys.readouterr().err
