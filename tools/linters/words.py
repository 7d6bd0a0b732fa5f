# SPDX-License-Identifier: BSD-3-Clause
"""Spelling and wording of comments, docs and messages.

codespell finds misspelled words, by its own dictionary and by words.txt. What takes more than a
word is in phrases.txt, which this module searches for itself: codespell knows no phrases.
"""

import bisect
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# Between two words of a phrase: the end of a line and the beginning of the next comment, too.
_GAP = r"\s+(?:(?://+|#|\*|\|)\s*)?"
# What stands before a sentence: its predecessor, or the beginning of a comment, paragraph, cell.
_SENTENCE = r"(?:(?<=[.:;!?]\s)|(?<=//\s)|(?<=[#*|]\s)|(?<=\"\"\")|^)"


def find_words(root: Path, files: Sequence[str], dictionary: str) -> str:
    """The places of misspelled and unwanted words, one a line, as codespell reports them.

    Args:
        root: the top of the source tree, whose pyproject.toml has the settings of codespell.
        files: what to read, relative to root.
        dictionary: our words, relative to root; codespell has its own ones besides.
    """
    command = [f"{sys.prefix}/bin/codespell", "-D", "-", "-D", dictionary, "--", *files]
    done = subprocess.run(command, cwd=root, check=False, capture_output=True, text=True)
    found = done.stdout + done.stderr
    return (found or f"codespell: exit status {done.returncode}\n") if done.returncode else ""


def read_phrases(text: str) -> dict[str, str]:
    """Phrases and what to write instead.

    Raises:
        ValueError: a line is not of the form PHRASE->USE.
    """
    phrases = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            phrase, arrow, use = line.partition("->")
            if not (phrase and arrow and use):
                raise ValueError(f"expected PHRASE->USE, found {line!r}")
            phrases[phrase] = use
    return phrases


def pattern(phrase: str) -> re.Pattern[str]:
    """The regular expression that finds a phrase."""
    words = _GAP.join(re.escape(word) for word in phrase.split())
    if phrase[0].isupper():
        return re.compile(rf"{_SENTENCE}{words}\b", re.MULTILINE)
    return re.compile(rf"\b{words}\b", re.IGNORECASE)


def find_phrases(root: Path, files: Sequence[str], phrases: dict[str, str]) -> str:
    """The places of phrases, one a line.

    Args:
        root: the top of the source tree.
        files: what to read, relative to root; files that are not text have no phrases.
        phrases: what to find, and what to write instead.
    """
    patterns = [(pattern(phrase), phrase, use) for phrase, use in phrases.items()]
    found = []
    for name in files:
        try:
            text = (root / name).read_text()
        except UnicodeDecodeError:
            continue
        line_starts = [0, *(end.end() for end in re.finditer("\n", text))]
        for expression, phrase, use in patterns:
            for match in expression.finditer(text):
                line = bisect.bisect_right(line_starts, match.start())
                found.append(f"{name}:{line}: '{phrase}': write '{use}'\n")
    return "".join(sorted(found))
