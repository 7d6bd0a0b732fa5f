# SPDX-License-Identifier: BSD-3-Clause
"""Tests the DDP example: flags, the checks of its results, the plot, and the whole program."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch_openreg.trace import events, validation

from examples.ddp import ddp as program
from examples.ddp import replica
from examples.ddp.replica import Replica, Task
from examples.ddp.timeline import Ranges, Span, bandwidth, draw, hidden_share, typical_step
from examples.digits.training import BATCH, Digits

REDUCTION = "occl::AllReduce"


@pytest.fixture
def typed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sets the variable in which `bazel run` passes the user's working directory."""
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--processes", "0"], "'0' is not an integer of at least 1"),
        (
            ["--processes", "3"],
            "'3' processes cannot share a batch equally; choose one of 1, 2, 4, 8",
        ),
        (["--epochs", "many"], "'many' is not an integer"),
        (["--bucket", "0"], "'0' is not an integer of at least 1"),
        (["--plot", "ddp.docx"], "'ddp.docx' must end in one of"),
        (["--trace", "missing/ddp.json"], "missing/ddp.json cannot be written"),
    ],
)
def test_wrong_flag_is_one_line(
    argv: list[str], message: str, typed_in: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        program.main(argv)
    assert exit_.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("ddp: ")
    assert err.count("\n") == 1
    assert message in err


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        program.main(["--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    flags = ("--processes", "--epochs", "--seed", "--bucket", "--plot", "--trace", "torchrun")
    assert all(flag in text for flag in flags)


@pytest.mark.parametrize("shards", program.COUNTS)
def test_shards_make_the_same_batches(shards: int) -> None:
    digits = Digits.load()

    def labels(shards: int) -> list[list[int]]:
        task = Task(shards, epochs=1, seed=3, bucket_kib=1)
        loaders = [replica.loader(digits, task, shard) for shard in range(shards)]
        return [
            sorted(int(label) for _, labels in batch for label in labels)
            for batch in replica.batches(loaders, epoch=1)
        ]

    assert labels(shards) == labels(1)
    assert [len(batch) for batch in labels(shards)] == [BATCH] * 22


def run_of(*losses: float, accuracy: float = 0.98, digest: str = "a") -> Replica:
    return Replica(list(losses), [1.0], accuracy, digest)


def test_verdict() -> None:
    def broken(*replicas: Replica) -> list[str]:
        runs = {1: [run_of(*[1.0] * 200)], 2: list(replicas)}
        return [promise.text for promise in program.promises(runs) if not promise.kept]

    good = run_of(*[1.0] * 200)
    assert broken(good, good) == []
    assert broken(run_of(*[1.0] * 100, *[2.0] * 100), good) == []
    (text,) = broken(run_of(*[1.0] * 99, 1.002, *[1.0] * 100), good)
    assert text == "loss of the first 100 steps agrees with 1 process to 0.001"
    (text,) = broken(run_of(*[float("nan")] * 200), good)
    assert text.startswith("loss")
    (text,) = broken(good, run_of(*[1.0] * 200, digest="b"))
    assert text == "the parameters of 2 processes are bitwise equal"
    assert len(broken(run_of(*[1.0] * 200, accuracy=0.96), good)) == 2
    assert len(broken(run_of(*[1.0] * 200, accuracy=0.9701), good)) == 0


def span(rank: int, phase: str, name: str, begin: float, end: float, number: int = 0) -> Span:
    return Span(rank, 0, phase, name, begin, end, number, 4000 if number else 0)


#: Rank 1 arrives late at both reductions.
STEP = [
    span(0, "forward", "aten::addmm", 0, 10),
    span(0, "backward", "aten::mm", 10, 20),
    span(0, "backward", REDUCTION, 12, 17, 1),
    span(0, "backward", REDUCTION, 18, 26, 2),
    span(0, "optimizer", "aten::_foreach_add", 26, 30),
    span(1, "backward", "aten::mm", 11, 24),
    span(1, "backward", REDUCTION, 15, 17, 1),
    span(1, "backward", REDUCTION, 24, 26, 2),
]


def test_share_behind_backward() -> None:
    # The parts behind backward are 5 of 5 us and 2 of 8 us on rank 0, and 2 of 2 us and 0 of 2 us
    # on rank 1.
    assert hidden_share(STEP) == pytest.approx(9 / 17)
    assert hidden_share(STEP[:2]) is None


def test_bandwidth_is_that_of_the_last_rank() -> None:
    assert bandwidth(STEP) == pytest.approx(8000 / 4e-6)
    assert bandwidth(STEP[:2]) is None


def test_typical_step_is_of_median_length() -> None:
    spans = [
        Span(0, step, "", "x", 100 * step, 100 * step + length)
        for step, length in enumerate((7.0, 90.0, 20.0))
    ]
    assert [each.step for each in typical_step(spans)] == [2]


def test_time_is_within_a_range_or_between() -> None:
    ranges = Ranges([(10.0, 20.0, "b"), (0.0, 5.0, "a")])
    assert [ranges.at(time) for time in (-1.0, 3.0, 7.0, 10.0, 21.0)] == [
        None,
        (0, "a"),
        None,
        (1, "b"),
        None,
    ]


def test_picture(tmp_path: Path) -> None:
    draw(STEP, tmp_path / "step.svg")
    text = (tmp_path / "step.svg").read_text()
    assert "<svg" in text
    draw(STEP[:2], tmp_path / "one.png")
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")


KEPT = (
    "kept   loss of the first 22 steps agrees with 1 process to 0.001",
    "kept   the parameters of 2 processes are bitwise equal: 1 version",
)


def test_one_command_starts_its_processes(
    typed_in: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = program.main(["--processes", "2", "--epochs", "1", "--trace", "trace.json"])
    out = capsys.readouterr().out
    # After one epoch, the network has not yet reached the required accuracy.
    assert status == 1, out
    assert "BROKEN test accuracy of 2 processes >= 97%" in out
    assert all(line in out for line in KEPT), out
    one, two = out.splitlines()[2:4]
    assert one.split()[0] == "1"
    assert one.split()[-2:] == ["-", "-"]
    assert two.split()[0] == "2"
    assert float(two.split()[3]) >= 0
    assert 0 <= int(two.split()[-1].removesuffix("%")) <= 100
    assert (typed_in / "ddp.png").read_bytes().startswith(b"\x89PNG")
    trace = events.read(typed_in / "trace.json")
    assert not list(validation.faults(trace))
    reductions = [work for work in trace.work if work.name == REDUCTION]
    # Each step must reduce several buckets, on a separate stream.
    assert len(reductions) > 2 * replica.PROFILED_STEPS
    assert {work.stream for work in reductions}.isdisjoint(
        work.stream for work in trace.work if not work.name.startswith("occl::")
    )


def test_torchrun_starts_it(typed_in: Path) -> None:
    program_file = program.__file__
    assert program_file is not None
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", program_file]
    result = subprocess.run(
        [*command, "--epochs", "1", "--plot", "none"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    # Only the first rank prints the results.
    assert all(result.stdout.count(line) == 1 for line in KEPT), result.stdout + result.stderr
    assert result.returncode == 1
    assert list(typed_in.iterdir()) == []
