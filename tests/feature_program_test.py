# SPDX-License-Identifier: BSD-3-Clause
"""Runs random programs that mix the device's features. Their rules are in tests/feature_program/.

The programs run in a separate process. Crashes and hangs therefore count as failures, and
hypothesis shrinks the programs that cause them. ``OPENREG_FEATURE_PROGRAMS`` sets the number of
programs (default: 300).
"""

import faulthandler
import gc
import itertools
import multiprocessing
import os
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from tests.feature_program.features import RULES, RULES_OF_PROCESSES, Step, run

PROGRAMS = int(os.environ.get("OPENREG_FEATURE_PROGRAMS", "300"))
PATIENCE = 30.0  # seconds after which a program counts as hung


def serve(connection: Connection) -> None:
    """Runs programs until the connection is closed. If a program hangs, the process exits."""
    gc.freeze()  # the garbage collector then skips torch's many objects
    while True:
        try:
            steps = connection.recv()
        except EOFError:
            return
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        try:
            run(steps)
        except Exception:
            connection.send(traceback.format_exc())
        else:
            connection.send(None)
        faulthandler.cancel_dump_traceback_later()


class Runner:
    """Owns the process that runs programs, and replaces it after a program fails.

    A failed program is shrunk in a new process, which lacks the state of earlier programs. If the
    program failed only because of that state, hypothesis reports it as flaky.
    """

    def __init__(self) -> None:
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["tests.feature_program_test"])
        self.process: ForkServerProcess | None = None

    def run(self, steps: list[Step]) -> None:
        """Runs a program in the process and reports its failure."""
        if self.process is None:
            self.connection, theirs = self.context.Pipe()
            self.process = self.context.Process(target=serve, args=(theirs,))
            self.process.start()
            theirs.close()
        try:
            self.connection.send(steps)
            failure = self.connection.recv()
        except (EOFError, ConnectionError):
            failure = "the process ended during the program"
        if failure:
            raise AssertionError(f"{failure} (exit code {self.end()})")

    def end(self) -> int | None:
        """Ends the process and returns its exit code."""
        if self.process is None:
            return 0
        self.connection.close()
        self.process.join(PATIENCE)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        code = self.process.exitcode
        self.process = None
        return code


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    it = Runner()
    yield it
    assert it.end() == 0


def steps_of(rules: dict[str, st.SearchStrategy[Step]]) -> st.SearchStrategy[list[Step]]:
    """Generates programs from rules. A single list strategy averages only six steps per program."""
    part = st.lists(st.one_of(*rules.values()), max_size=8)
    begin: st.SearchStrategy[list[Step]] = st.just([("begin", {})])
    first = st.lists(st.one_of(*rules.values()), max_size=2)
    return st.tuples(first, begin, *[part] * 5).map(lambda parts: list(itertools.chain(*parts)))


def programs(number: int, rules: dict[str, st.SearchStrategy[Step]]) -> Callable[..., Any]:
    """Returns a decorator that makes hypothesis call a test with `number` programs."""
    quick = settings(max_examples=number, deadline=None, suppress_health_check=list(HealthCheck))
    return lambda test: quick(given(program=steps_of(rules))(test))


@programs(PROGRAMS, RULES)
def test_programs(runner: Runner, program: list[Step]) -> None:
    runner.run(program)


@programs(PROGRAMS // 20, RULES)
def test_first_programs_of_a_process(program: list[Step]) -> None:
    runner = Runner()
    runner.run(program)
    assert runner.end() == 0


@programs(PROGRAMS // 5, RULES | RULES_OF_PROCESSES)
def test_programs_of_two_processes(runner: Runner, program: list[Step]) -> None:
    runner.run(program)
