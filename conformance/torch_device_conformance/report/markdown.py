# SPDX-License-Identifier: BSD-3-Clause
"""A report as Markdown, for a README or the summary of a CI job."""

from collections.abc import Callable, Iterable

from torch_device_conformance.contract.rows import rows
from torch_device_conformance.report.report import Report, percent
from torch_device_conformance.report.waivers import Waivers, failure
from torch_device_conformance.verdict.verdict import (
    COMPOSITE,
    FALLBACK,
    MISSING,
    NATIVE,
    Verdict,
)

SUITES = {
    "op": "operators",
    "module": "modules",
    "optim": "optimizers",
    "contract": "runtime contract",
    "model": "model",
}


def table(header: Iterable[str], lines: Iterable[Iterable[object]]) -> str:
    """Returns a Markdown table."""
    names = list(header)
    rows_ = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    rows_ += [f"| {' | '.join(map(str, line))} |" for line in lines]
    return "\n".join(rows_)


def cells(verdicts: list[Verdict]) -> list[object]:
    """Returns a row's cells under HEADER: counts by verdict, their total, and the native share."""

    def count(test: Callable[[Verdict], bool]) -> int:
        return sum(map(test, verdicts))

    own = count(lambda v: v.verdict in (NATIVE, COMPOSITE))
    return [
        count(lambda v: v.verdict == NATIVE),
        count(lambda v: v.verdict == COMPOSITE),
        count(lambda v: v.verdict == FALLBACK),
        count(lambda v: v.verdict == MISSING),
        count(lambda v: v.accuses),
        count(lambda v: v.verdict == "not-run"),
        len(verdicts),
        percent(own, len(verdicts)),
    ]


HEADER = (
    "native",
    "composite",
    "fallback",
    "missing",
    "wrong",
    "not run",
    "total",
    "native + composite",
)


def works(report: Report) -> str:
    """Returns the table "what works": one row per suite and mode, and two rows for the contract."""
    lines: list[list[object]] = []
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in report.counted():
        groups.setdefault((verdict.case.suite, verdict.case.mode), []).append(verdict)
    for (suite, mode), verdicts in groups.items():
        if suite != "contract":
            title = f"{SUITES.get(suite, suite)}: {mode.replace('_', ' ')}"
            lines.append([title, *cells(verdicts)])
    contract = [v for v in report.counted() if v.case.suite == "contract"]
    for title, chosen in (
        ("runtime contract: required", [v for v in contract if v.required]),
        ("runtime contract: recommended", [v for v in contract if not v.required]),
    ):
        if chosen:
            lines.append([title, *cells(chosen)])
    return table(("suite", *HEADER), lines)


def contract(report: Report) -> str:
    """Returns a table of the contract with the verdict, requirement and example of each row."""
    known = rows()
    lines = []
    for verdict in report.verdicts.values():
        row = known.get(verdict.case)
        if row:
            need = "required" if row.required else "recommended"
            lines.append(
                [row.area, row.name, verdict.verdict, need, row.requires, f"`{row.shown_by}`"]
            )
    source = "shown by (file in the sources of torch_openreg)"
    return table(("area", "row", "verdict", "need", "torch requires", source), lines)


def markdown(report: Report, waivers: Waivers, most: int = 50) -> str:
    """Returns the whole report. Each list of cases has at most `most` entries."""
    heading = report.heading
    provenance = heading.get("description", {}).get("provenance", {})
    torch_version = provenance.get("torch", {}).get("version", "?")
    backend = provenance.get("backend", {})
    passed, of = report.required()
    parts = [
        f"# Conformance of `{heading['device']}`",
        f"torch {torch_version}, backend {backend.get('module', '?')} "
        f"{backend.get('version', '?')}, tier {report.scope}, seed {heading['seed']}"
        + (f": {passed} of {of} required rows of the runtime contract." if of else "."),
        works(report),
    ]
    if any(case.suite == "contract" for case in report.verdicts):
        parts += ["## Runtime contract", contract(report)]
    everything = report.verdicts.values()
    for title, listed in (
        ("What fails", [(v, failure(v)) for v in waivers.failures(everything)]),
        ("Waived", [(v, reason) for v in everything if (reason := waivers.reason(v))]),
    ):
        if listed:
            parts.append(f"## {title}: {len(listed)}")
            lines = [f"- `{v.case}` {v.verdict}: {text[:200]}" for v, text in listed[:most]]
            parts.append("\n".join(lines))
        if len(listed) > most:
            parts.append(f"and {len(listed) - most} more; report.json lists all of them")
    return "\n\n".join(parts) + "\n"
