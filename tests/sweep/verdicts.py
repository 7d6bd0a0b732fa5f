# SPDX-License-Identifier: BSD-3-Clause
"""Selects cases of the conformance kit, including the sweep's modes, and runs them for tests."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from torch_device_conformance.execution.judge import Settings, prepare
from torch_device_conformance.execution.plan import cases
from torch_device_conformance.execution.runner import Limits, run
from torch_device_conformance.report.waivers import load
from torch_device_conformance.subject.subject import Subject
from torch_device_conformance.verdict.verdict import Case, Verdict

MODES = ("tests.sweep.modes",)

# The known exceptions. If an exception names a case, the case must have one of its verdicts.
KNOWN = load(Path(__file__).with_name("known.toml"), strict=True)


def every_case() -> Sequence[Case]:
    """Returns the cases of the tier full, including the sweep's modes."""
    return cases("full", MODES)


def chosen(
    suite: str, modes: Collection[str], dtypes: Collection[str], names: Collection[str]
) -> list[Case]:
    """Returns the cases with these modes, dtypes and names, except those that cannot run."""
    return [
        case
        for case in every_case()
        if case.suite == suite
        and case.mode in modes
        and case.dtype in dtypes
        and case.name in names
        and not KNOWN.leaves_out(case)
    ]


def results(dtypes: Collection[str], names: Collection[str]) -> list[Case]:
    """Returns the operators' cases, with gradients if the CPU has them for the dtype."""
    both = chosen("op", ("eager", "backward"), dtypes, names)
    derived = {(case.dtype, case.name) for case in both if case.mode == "backward"}
    return [c for c in both if c.mode == "backward" or (c.dtype, c.name) not in derived]


def verdicts(todo: Iterable[Case], seconds: float = 60) -> dict[Case, Verdict]:
    """Runs cases on the device in two processes, with all samples. Returns their verdicts."""
    settings = Settings("full", modes=MODES, traced=False)
    ran = run(list(todo), Limits(2, seconds), prepare, Subject("openreg"), settings)
    return {verdict.case: verdict for verdict in ran}
