# SPDX-License-Identifier: BSD-3-Clause
"""The kit reports each planted defect, and reports no defect for a correct backend."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from broken.defects import DEFECTS, Defect
from torch_device_conformance.__main__ import main
from torch_device_conformance.execution.judge import Settings, prepare
from torch_device_conformance.execution.runner import Limits, run
from torch_device_conformance.subject.subject import Subject
from torch_device_conformance.verdict.verdict import FALLBACK, Case, Verdict, parse_case

# Uses the number of samples of the standard tier.
SETTINGS = Settings("standard")


def judged(cases: list[Case], subject: Subject, jobs: int = 1) -> Iterator[Verdict]:
    """Runs cases in worker processes and yields their verdicts."""
    return run(cases, Limits(jobs), prepare, subject, SETTINGS)


def test_there_are_enough_defects() -> None:
    assert len(DEFECTS) >= 25


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=list(DEFECTS))
def test_defect_is_found(defect: Defect) -> None:
    subject = Subject(
        "openreg",
        ("broken.planted",),
        environment={"BROKEN_BACKEND": defect.name},
    )
    (verdict,) = judged([parse_case(defect.case)], subject)
    assert verdict.verdict == defect.verdict, f"{verdict.message}\n{verdict.stack}"


def test_command_reports_a_planted_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BROKEN_BACKEND", "seed_ignored")
    flags = ["--device", "openreg", "--import", "broken.planted", "--only", "contract/generator/*"]
    assert main([*flags, "--output", str(tmp_path)]) == 1
    defect = DEFECTS["seed_ignored"]
    assert f"{defect.verdict:<16} {defect.case}  " in capsys.readouterr().out


def test_correct_backend_is_not_accused() -> None:
    cases = [parse_case(name) for name in dict.fromkeys(d.case for d in DEFECTS.values())]
    for verdict in judged(cases, Subject("openreg"), jobs=2):
        assert verdict.passes, f"{verdict.case} {verdict.verdict} {verdict.message}"
        assert verdict.verdict != FALLBACK, verdict.case
