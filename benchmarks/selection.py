# SPDX-License-Identifier: BSD-3-Clause
"""Parses the flag that selects the cases of a benchmark."""

import argparse
import re
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar


class NamedCase(Protocol):
    """A row in a table of cases."""

    @property
    def group(self) -> str:
        """The name of a group of related cases."""

    @property
    def name(self) -> str:
        """The row's name."""


AnyCase = TypeVar("AnyCase", bound=NamedCase)


def found_by(cases: Sequence[AnyCase]) -> Callable[[str], list[AnyCase]]:
    """Returns the parser of a flag that selects cases whose "group: name" matches a pattern."""

    def find(text: str) -> list[AnyCase]:
        try:
            pattern = re.compile(text)
        except re.error as error:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a regular expression: {error}"
            ) from None
        found = [case for case in cases if pattern.search(f"{case.group}: {case.name}")]
        if not found:
            raise argparse.ArgumentTypeError(f"{text!r} matches none of the {len(cases)} cases")
        return found

    return find
