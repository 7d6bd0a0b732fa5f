# SPDX-License-Identifier: BSD-3-Clause
"""The flag that selects cases of a benchmark."""

import argparse
import re
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar


class NamedCase(Protocol):
    """One row of a table of cases."""

    @property
    def group(self) -> str:
        """Of cases that have something in common."""

    @property
    def name(self) -> str:
        """Of the row."""


AnyCase = TypeVar("AnyCase", bound=NamedCase)


def found_by(cases: Sequence[AnyCase]) -> Callable[[str], list[AnyCase]]:
    """Makes the type of a flag: the cases whose "group: name" a regular expression finds."""

    def find(text: str) -> list[AnyCase]:
        try:
            pattern = re.compile(text)
        except re.error as error:
            raise argparse.ArgumentTypeError(
                f"{text!r} is no regular expression: {error}"
            ) from None
        found = [case for case in cases if pattern.search(f"{case.group}: {case.name}")]
        if not found:
            raise argparse.ArgumentTypeError(f"{text!r} finds none of the {len(cases)} cases")
        return found

    return find
