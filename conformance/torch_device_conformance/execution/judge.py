# SPDX-License-Identifier: BSD-3-Clause
"""Computes the verdict of a case. The code runs in a worker."""

import re
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch_device_conformance.comparison.comparison import Depth, judge
from torch_device_conformance.comparison.entry import (
    CPU,
    Entry,
    ReferenceError_,
    samples,
    settle,
    synchronize,
)
from torch_device_conformance.comparison.evidence import (
    ACCEPTS,
    AGREES,
    CPU_FAILS,
    LATE,
    RAISES,
    Evidence,
)
from torch_device_conformance.contract.row import Backend, Finding, Row
from torch_device_conformance.contract.rows import rows
from torch_device_conformance.execution.plan import TIERS
from torch_device_conformance.mode.eager import Forward
from torch_device_conformance.mode.modes import ACCELERATOR_DTYPES, entries, load
from torch_device_conformance.subject.delay import delay_kernel
from torch_device_conformance.subject.provenance import provenance
from torch_device_conformance.subject.routes import (
    Observer,
    dispatch_key,
    is_traceable,
    overloads,
    route,
)
from torch_device_conformance.subject.subject import Subject
from torch_device_conformance.verdict.verdict import (
    ACCEPTS_WRONGLY,
    FALLBACK,
    LATE_ERROR,
    MISSING,
    NATIVE,
    NO_REFERENCE,
    RAISES_WRONGLY,
    WRONG,
    Case,
    Verdict,
)

# Matches messages in which torch or its kernels report that a kernel or a dtype is missing.
NOT_IMPLEMENTED = re.compile(
    r"NotImplementedError|Could not run '|not implemented for|is not (currently )?implemented"
    r"|Backend doesn't support|You should register|device_allocator INTERNAL ASSERT FAILED"
    r"|Graph is not supported on|Unknown device type \w+ for Dlpack|Got unsupported ScalarType"
)

# `call_time` ends a measurement after this many seconds.
TIMED = 0.003

# Calls in these modes must raise an error. They are not traced, because they have no route.
REFUSALS = frozenset({"errors", "mixed_devices"})


@dataclass(frozen=True)
class Settings:
    """The settings with which a worker runs cases.

    Attributes:
        tier: name of the tier, which determines the number of samples.
        seed: seed for samples and random operators.
        threads: number of CPU threads in each worker.
        timed: whether to measure the eager operators that pass, on the device and on the CPU.
        modes: modules that add modes.
        traced: whether to trace operators in order to determine their routes.
    """

    tier: str = "quick"
    seed: int = 0
    threads: int = 1
    timed: bool = False
    modes: tuple[str, ...] = ()
    traced: bool = True


class Judge:
    """Computes verdicts about a subject.

    Args:
        subject: the subject, which is loaded into this process.
        settings: settings of the run.
    """

    def __init__(self, subject: Subject, settings: Settings) -> None:
        warnings.simplefilter("ignore")
        torch.set_num_threads(settings.threads)
        self.subject = subject
        self.device = subject.load()
        self.depth: Depth = TIERS[settings.tier].depth(settings.seed)
        self._timed, self._traced = settings.timed, settings.traced
        load(settings.modes)
        self._observer = Observer(subject, self.device)

    def __call__(self, case: Case) -> Iterator[Verdict]:
        """Yields the verdict about a case, as `entry` does."""
        if case.suite == "contract":
            yield self.contract(case, rows()[case])
        else:
            yield from self.entry(case, entries(case.suite, case.mode)[case.name])

    def entry(self, case: Case, entry: Entry) -> Iterator[Verdict]:
        """Compares the results of a database entry with those on the CPU and yields the verdict.

        If the entry's operators are traced, yields the verdict twice: before the trace, in case it
        crashes, and after it, with the routes of the operators. If torch cannot trace the sample,
        only the backend's counter shows whether the entry falls back.
        """
        dtype = getattr(torch, case.dtype)
        expected_by = "cuda" if case.mode == ACCELERATOR_DTYPES else "cpu"
        if expected_by == "cuda" and self.subject.is_cpu:
            yield Verdict(
                case, NO_REFERENCE, "the CPU does not support the dtype", expected_by="cuda"
            )
            return
        try:
            made = samples(entry, dtype, self.device, self.depth.seed)
        except ReferenceError_ as error:
            yield Verdict(case, NO_REFERENCE, str(error), expected_by=expected_by)
            return
        evidence = judge(entry, dtype, self.device, self.depth, made)
        agrees = evidence.status == AGREES
        verdict = Verdict(
            case,
            NATIVE if agrees else verdict_of(evidence, expected_by),
            evidence.message,
            sample=evidence.sample,
            largest=evidence.largest,
            compared=evidence.compared if agrees else "",
            samples=evidence.samples,
            expected_by=expected_by,
            seconds=evidence.seconds,
        )
        if self._traced and case.mode not in REFUSALS and evidence.status != CPU_FAILS:
            unknown = f"{verdict.message} (its routes are unknown)".strip()
            yield replace(verdict, message=unknown)
            # With a large sample, a copy to the host is a clear sign of a fallback.
            sample = max(made, key=elements)
            run = self._run(entry, sample)
            arguments = [getattr(sample, name, None) for name in ("input", "args", "kwargs")]
            if not is_traceable(arguments):
                fallbacks = self._observer.fallbacks(run)
                if agrees and fallbacks:
                    routes = dict.fromkeys(fallbacks, FALLBACK)
                    verdict = replace(verdict, verdict=FALLBACK, routes=routes)
                else:
                    verdict = replace(verdict, message=unknown)
            elif agrees:
                observed, routes = self._observer.routes(run)
                verdict = replace(verdict, verdict=observed, routes=routes)
            else:
                # A failure counts against the requested operator, not against those that it calls.
                verdict = replace(verdict, routes=self._observer.outermost(run))
        settle(self.device)
        if self._timed and agrees and isinstance(entry, Forward):
            sample = max(made, key=elements)
            device_us, cpu_us = (call_time(entry, sample, d) for d in (self.device, CPU))
            verdict = replace(verdict, device_us=device_us, cpu_us=cpu_us)
        yield verdict

    def _run(self, entry: Entry, sample: Any) -> Callable[[], Any]:
        """Returns a function that runs a sample on the device and waits for it."""

        def run() -> None:
            with suppress(ReferenceError_):
                entry.run(sample, self.device, self.depth.seed)
            synchronize(self.device)

        return run

    def contract(self, case: Case, row: Row) -> Verdict:
        """Runs a row of the contract and returns its verdict."""
        start = time.perf_counter()
        verdict, message, stack = NATIVE, "", ""
        try:
            if self.subject.is_cpu and case.mode not in OF_THE_CPU:
                raise Finding(
                    NO_REFERENCE, "this row applies only to accelerators, and the CPU is not one"
                )
            row.check(Backend(self.subject, self.device))
            synchronize(self.device)
        except Finding as finding:
            verdict, message = finding.verdict, str(finding)
        except (NotImplementedError, AttributeError) as error:
            verdict, message = MISSING, f"{type(error).__name__}: {error}"
            stack = traceback.format_exc()
        except Exception as error:
            text = " ".join(f"{type(error).__name__}: {error}".split())[:1000]
            verdict = MISSING if NOT_IMPLEMENTED.search(text) else RAISES_WRONGLY
            message, stack = text, traceback.format_exc()
        settle(self.device)
        return Verdict(
            case,
            verdict,
            message,
            stack,
            required=row.required,
            seconds=time.perf_counter() - start,
        )


# Areas of the contract that also apply to the CPU.
OF_THE_CPU = frozenset({"tensors", "errors", "compiler", "serialization"})


def call_time(entry: Forward, sample: Any, device: torch.device) -> float:
    """Returns the mean time of an operator call in microseconds.

    Each of three measurements covers many calls and one synchronization. The best one counts.
    """
    arguments = entry.copy(sample, device)
    with torch.no_grad():
        best = float("inf")
        for _ in range(3):
            calls, start = 0, time.perf_counter()
            while calls < 3 or (calls < 1000 and time.perf_counter() - start < TIMED):
                entry.apply(entry.op, arguments)
                calls += 1
            synchronize(device)
            best = min(best, (time.perf_counter() - start) / calls)
    return round(best * 1e6, 2)


def elements(sample: Any) -> int:
    """Returns the number of elements in a sample's first tensor, or 0 if it is not strided."""
    first = next(
        (x for x in tree_leaves(getattr(sample, "input", ())) if isinstance(x, Tensor)), None
    )
    return 0 if first is None or first.layout != torch.strided else first.numel()


def verdict_of(evidence: Evidence, expected_by: str) -> str:
    """Returns the verdict for a comparison that did not find agreement.

    Args:
        evidence: the result of the comparison.
        expected_by: the device for which OpInfo lists the dtype. If this is not the CPU, the
            operator may refuse the dtype with any error, because there is no text to compare with.
    """
    if evidence.status == CPU_FAILS:
        return NO_REFERENCE
    if evidence.kind == ACCEPTS:
        return ACCEPTS_WRONGLY
    if evidence.kind == LATE:
        return LATE_ERROR
    if evidence.kind == RAISES:
        refuses_dtype = expected_by != "cpu" or NOT_IMPLEMENTED.search(evidence.message)
        return MISSING if refuses_dtype else RAISES_WRONGLY
    return WRONG


def prepare(subject: Subject, settings: Settings) -> Callable[[Case], Iterator[Verdict]]:
    """Returns the function that judges cases in a worker."""
    return Judge(subject, settings)


def prepare_description(subject: Subject) -> Callable[[None], Iterator[dict[str, Any]]]:
    """Returns a function that yields the subject's description. Runs in a worker."""
    device = subject.load()

    def describe(_: None) -> Iterator[dict[str, Any]]:
        yield {
            "provenance": provenance(subject, device),
            "dispatch": {name: route(name, dispatch_key(device)) for name in overloads()},
            "devices": Backend(subject, device).count(),
            "delay_kernel": delay_kernel(device) is not None,
        }

    return describe
