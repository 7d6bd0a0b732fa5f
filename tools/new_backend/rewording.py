# SPDX-License-Identifier: BSD-3-Clause
"""Applies rewording.toml: texts of ours that a new backend does not have."""

import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path


class StaleText(ValueError):
    """A file does not have a text that rewording.toml replaces; the message says which."""


@dataclass(frozen=True)
class _Text:
    ours: str
    theirs: str


class Rewording:
    """The texts to replace in a backend.

    Args:
        path: rewording.toml.
        features: the features that the backend has.
    """

    def __init__(self, path: Path, features: Collection[str]) -> None:
        self._texts: dict[str, list[_Text]] = {}
        for entry in tomllib.loads(path.read_text())["texts"]:
            if entry.get("without") not in features:
                text = _Text(entry["ours"], entry["theirs"])
                self._texts.setdefault(entry["file"], []).append(text)

    def apply(self, path: str, text: str) -> str:
        """Returns the text of a file as a new backend has it, still with our names.

        Raises:
            StaleText: the file has changed, so that rewording.toml needs a change too.
        """
        for entry in self._texts.get(path, ()):
            if entry.ours not in text:
                raise StaleText(
                    f"{path} does not have this text, which rewording.toml replaces:\n{entry.ours}"
                )
            text = text.replace(entry.ours, entry.theirs)
        return text
