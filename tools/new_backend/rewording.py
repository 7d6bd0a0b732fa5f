# SPDX-License-Identifier: BSD-3-Clause
"""Applies rewording.toml, which lists our texts that a new backend must not contain."""

import re
import tomllib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

_INCLUDE = re.compile(r'^#include "([^"]+)"\n', re.MULTILINE)


class StaleText(ValueError):
    """Raised if a file lacks a text that rewording.toml replaces. The message names both."""


@dataclass(frozen=True)
class _Text:
    ours: str
    theirs: str
    # Whether `ours` is a whole line. If true, the text before it must end with a newline.
    is_line: bool = False


class Rewording:
    """The texts to replace in a backend's files.

    Args:
        path: the path of rewording.toml.
        features: the features that the backend has.
        is_absent: returns whether the backend lacks a file, given its path.
    """

    def __init__(
        self, path: Path, features: Collection[str], is_absent: Callable[[str], bool]
    ) -> None:
        self._is_absent = is_absent
        self._texts: dict[str, list[_Text]] = {}
        for entry in tomllib.loads(path.read_text())["texts"]:
            if entry.get("without") not in features:
                texts = self._texts.setdefault(entry["file"], [])
                texts += [_Text(line + "\n", "", True) for line in entry.get("lines", ())]
                if "ours" in entry:
                    texts.append(_Text(entry["ours"], entry.get("theirs", "")))

    def apply(self, path: str, text: str) -> str:
        """Returns the text of a file in a new backend, before names are replaced.

        Raises:
            StaleText: if the file has changed and rewording.toml no longer matches it.
        """
        for entry in self._texts.get(path, ()):
            ours = re.escape(entry.ours)
            pattern = re.compile(rf"^{ours}" if entry.is_line else ours, re.MULTILINE)
            if not pattern.search(text):
                raise StaleText(
                    f"{path} does not have this text, which rewording.toml replaces:\n{entry.ours}"
                )
            text = pattern.sub(entry.theirs.replace("\\", r"\\"), text)
        return _INCLUDE.sub(lambda match: "" if self._is_absent(match[1]) else match[0], text)
