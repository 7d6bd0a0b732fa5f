# SPDX-License-Identifier: BSD-3-Clause
"""Tests python -m torch_openreg.trace, which checks, summarizes and converts traces."""

import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch_openreg.trace import __main__ as program
from torch_openreg.trace import cuda_names, summary, validation
from torch_openreg.trace.events import Trace, read

Document = dict[str, Any]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the path of a trace of one training step."""
    model = torch.nn.Linear(16, 4).to("openreg")
    host = torch.randn(8, 16).pin_memory()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiler:
        x = host.to("openreg", non_blocking=True)
        model(x).square().mean().backward()
        with torch.openreg.stream(torch.openreg.Stream()):
            x.mul(2)
    path = tmp_path_factory.mktemp("trace") / "step.json"
    profiler.export_chrome_trace(str(path))
    return path


def test_a_good_trace_has_no_fault(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["check", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "on 2 streams" in printed
    assert printed.endswith("no faults\n")


def _work(document: Document) -> list[Document]:
    return [e for e in document["traceEvents"] if e.get("cat") == "kernel" and e["ph"] == "X"]


def overlapping(document: Document) -> None:
    first, second = _work(document)[:2]
    second.update(ts=first["ts"], tid=first["tid"])
    first["dur"] = 1000.0


def backwards(document: Document) -> None:
    _work(document)[0]["dur"] = -1.0


def without_call(document: Document) -> None:
    _work(document)[0]["args"]["correlation"] = 999_999


def without_operator(document: Document) -> None:
    _work(document)[0]["args"]["External id"] = 999_999


def without_arrow(document: Document) -> None:
    document["traceEvents"] = [e for e in document["traceEvents"] if e.get("ph") != "s"]


def doubled_call(document: Document) -> None:
    events = document["traceEvents"]
    events.append(next(e for e in events if e.get("cat") == "privateuse1_runtime"))


def empty(document: Document) -> None:
    document["traceEvents"] = []


def incomplete(document: Document) -> None:
    document["openreg_dropped_records"] = 7


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (overlapping, "begins on device 0"),
        (backwards, "ends before it begins"),
        (without_call, "has no call with correlation 999999"),
        (without_operator, "is linked to operator 999999, which does not exist"),
        (without_arrow, "no arrow begins"),
        (doubled_call, "2 calls have the correlation"),
        (empty, "the trace contains no device work"),
        (incomplete, "7 records are missing"),
    ],
)
def test_faults_are_found(
    fault: Callable[[Document], None],
    text: str,
    path: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = json.loads(path.read_text())
    fault(document)
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps(document))
    assert any(text in found for found in validation.faults(read(broken)))
    assert program.main(["check", str(broken)]) == 1
    assert "FAULT  " in capsys.readouterr().out


def _event(category: str, stream: int, begin: float, duration: float, name: str) -> Document:
    arguments = {"correlation": 1}
    return {
        "ph": "X", "cat": category, "name": name, "pid": 0, "tid": stream,
        "ts": begin, "dur": duration, "args": arguments,
    }  # fmt: skip


def test_a_summary_counts(tmp_path: Path) -> None:
    events = [
        _event("kernel", 1, 0, 10, "add"),
        _event("kernel", 1, 20, 10, "add"),
        _event("kernel", 1, 40, 40, "mm"),
        _event("gpu_memcpy", 2, 5, 10, "Memcpy HtoD (Pinned -> Device)"),
    ]
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"traceEvents": events}))
    found = summary.summarize(read(file))
    assert [(kind.name, kind.count, kind.total, kind.longest) for kind in found.kinds] == [
        ("mm", 1, 40, 40),
        ("add", 2, 20, 10),
        ("Memcpy HtoD (Pinned -> Device)", 1, 10, 10),
    ]
    assert [(row.stream, row.busy, row.idle) for row in found.rows] == [(1, 60, 20), (2, 10, 0)]
    assert (found.span, found.overlap, found.copies) == (80, 5, 10)
    lines = found.lines(top=1)
    assert any(line.startswith("(2 more)") for line in lines)
    assert "50.0% at the same time as kernels" in lines[-1]


def test_summary_is_drawn(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "summary.png"
    assert program.main(["summary", str(path), "--plot", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "aten::addmm" in printed
    assert f"picture: {picture}" in printed
    assert program.main(["summary", str(path), "--plot", "none", "--top", "3"]) == 0
    assert "more)" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_picture_has_the_name_of_the_trace(path: Path, tmp_path: Path, name: str) -> None:
    trace = tmp_path / name
    trace.write_bytes(
        gzip.compress(path.read_bytes()) if trace.suffix == ".gz" else path.read_bytes()
    )
    assert program.main(["summary", str(trace)]) == 0
    assert (tmp_path / "trace.png").read_bytes().startswith(b"\x89PNG")


def test_names_of_cuda(path: Path, tmp_path: Path) -> None:
    written = tmp_path / "cuda.json.gz"
    assert program.main(["cuda", str(path), "--output", str(written)]) == 0
    converted = read(written)
    calls = [e for e in converted.document["traceEvents"] if e.get("cat") == "cuda_runtime"]
    names = {call["name"] for call in calls}
    assert {"cudaLaunchKernel", "cudaMemcpyAsync"} <= names
    assert not any("stream" in call["args"] for call in calls)  # otherwise HTA counts them as work
    assert not converted.calls
    original = read(path)
    assert len(converted.work) == len(original.work)


def test_the_original_stays(path: Path) -> None:
    document = json.loads(path.read_text())
    before = copy.deepcopy(document)
    cuda_names.rewritten(document)
    assert document == before


def test_files_that_are_not_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("[]", "{}", "not json"):
        file = tmp_path / "file.json"
        file.write_text(text)
        assert program.main(["check", str(file)]) == 1
        assert str(file) in capsys.readouterr().err
    assert program.main(["check", str(tmp_path / "absent.json")]) == 1
    for events in ([1], [{"ph": "X", "cat": "kernel", "name": "add"}]):
        file.write_text(json.dumps({"traceEvents": events}))
        assert program.main(["check", str(file)]) == 1
        assert "malformed" in capsys.readouterr().err
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(gzip.compress(b'{"traceEvents": []}')[:-9])
    assert program.main(["check", str(cut)]) == 1


def test_wrong_flags_have_a_message(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = str(tmp_path / "absent" / "x")
    for arguments in (
        ["summary", str(path), "--plot", absent + ".png"],
        ["summary", str(path), "--plot", str(tmp_path / "x.unknown")],
        ["cuda", str(path), "--output", absent],
        ["cuda", str(path), "--output", str(path)],
    ):
        assert program.main(arguments) == 1
        assert capsys.readouterr().err
    for top in ("0", "-2"):
        with pytest.raises(SystemExit):
            program.main(["summary", str(path), "--top", top])
    assert program.main(["summary", str(path), "--plot", str(tmp_path / "picture")]) == 0
    assert (tmp_path / "picture.png").exists()


def test_streams_are_in_order(path: Path) -> None:
    trace: Trace = read(path)
    for row in trace.streams().values():
        assert row == sorted(row, key=lambda work: work.begin)
