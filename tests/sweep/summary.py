# SPDX-License-Identifier: BSD-3-Clause
"""Summarizes outcomes: scores, causes of failures, a table."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from tests.sweep import known
from tests.sweep.outcome import AGREES, CPU_FAILS, Outcome, cause


def score(outcomes: Iterable[Outcome]) -> tuple[int, int]:
    """The number of cases that agree, and of those that count."""
    counted = [o for o in outcomes if o.counts]
    return sum(o.status == AGREES for o in counted), len(counted)


def percent(agree: int, count: int) -> str:
    """A share as text."""
    return f"{agree / count:.1%}" if count else "nothing to compare"


def summary(outcomes: Sequence[Outcome]) -> str:
    """Failures by cause, excluded cases with reasons, kinds of comparison, and the score."""
    lines = []
    failed: dict[str, list[Outcome]] = defaultdict(list)
    for o in sorted(outcomes, key=lambda o: o.case):
        if known.surprising(o):
            failed[cause(o)].append(o)
    for group in sorted(failed.values(), key=lambda group: -len(group)):
        first = group[0]
        what = "passes unexpectedly" if first.status == AGREES else first.status
        lines.append(f"{len(group)} x {what}: {', '.join(str(o.case) for o in group)}")
        lines += [f"    {line}" for line in first.message.splitlines()[:6]]
    expected = [o for o in outcomes if o.counts and o.status != AGREES and not known.surprising(o)]
    left_out = [o for o in outcomes if not o.counts]
    for title, some in (("expected failures", expected), (f"not counted, {CPU_FAILS}", left_out)):
        if some:
            lines.append(f"{title}: {len(some)}")
            lines += [f"    {o.case}: {first_line(o)}" for o in some]
    for way, title in (
        ("distribution", "random: metadata, and the distribution of 100 draws"),
        ("metadata", "random or uninitialized memory: metadata only"),
    ):
        names = sorted(str(o.case) for o in outcomes if o.counts and o.compared == way)
        if names:
            lines.append(f"{title}: {len(names)}\n    {', '.join(names)}")
    states = Counter(o.status for o in outcomes)
    lines.append(", ".join(f"{n} {status}" for status, n in states.most_common()))
    agree, count = score(outcomes)
    surprises = sum(map(known.surprising, outcomes))
    lines.append(
        f"score: {agree} of {count} cases agree with the CPU: {percent(agree, count)}; "
        f"unexpected: {surprises}"
    )
    return "\n".join(lines)


def table(outcomes: Sequence[Outcome]) -> str:
    """A Markdown table of scores by database, dtype and check, and a list of differences."""
    groups: dict[tuple[str, str, str], list[Outcome]] = defaultdict(list)
    for o in sorted(outcomes, key=lambda o: o.case):
        groups[o.case.database, o.case.dtype, o.case.check].append(o)
    lines = ["| database | dtype | check | agree | of | |", "|---|---|---|---|---|---|"]
    for (database, dtype, check), group in [*groups.items(), (("all", "", ""), list(outcomes))]:
        agree, count = score(group)
        lines.append(
            f"| {database} | {dtype} | {check} | {agree} | {count} | {percent(agree, count)} |"
        )
    differing = [o for o in sorted(outcomes, key=lambda o: o.case) if o.counts]
    differing = [o for o in differing if o.status != AGREES or known.surprising(o)]
    lines += ["", f"Not agreeing, or agreeing against expectation: {len(differing)}", ""]
    for o in differing:
        why = known.reason(known.FAILING, o.case)
        lines.append(f"- `{o.case}` {o.status}: {why or f'UNEXPECTED: {first_line(o)}'}")
    lines += ["", "Unsupported for good, not run:", ""]
    lines += [f"- `{item.cases}`: {item.reason}" for item in known.UNSUPPORTED]
    return "\n".join(lines)


def first_line(outcome: Outcome) -> str:
    """The first line of the message."""
    return outcome.message.partition("\n")[0]
