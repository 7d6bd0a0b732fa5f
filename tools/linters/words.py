# SPDX-License-Identifier: BSD-3-Clause
"""Checks spelling and wording of comments, docs and messages.

codespell finds misspelled words with its own dictionary and with words.txt. It does not support
phrases, so this module searches for the phrases in phrases.txt.
"""

import bisect
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# The text between two words of a phrase: whitespace, and possibly the start of a comment line.
_GAP = r"\s+(?:(?://+|#|\*|\|)\s*)?"
# The text before a sentence: the end of a sentence, or the start of a comment, paragraph or cell.
_SENTENCE = r"(?:(?<=[.:;!?]\s)|(?<=//\s)|(?<=[#*|]\s)|(?<=\"\"\")|^)"


def find_words(root: Path, files: Sequence[str], dictionary: str) -> str:
    """Runs codespell and returns its findings, one per line.

    Args:
        root: the root folder of the tree; its pyproject.toml contains codespell's settings.
        files: the files to check, relative to root.
        dictionary: the dictionary to use in addition to codespell's own, relative to root.
    """
    command = [f"{sys.prefix}/bin/codespell", "-D", "-", "-D", dictionary, "--", *files]
    done = subprocess.run(command, cwd=root, check=False, capture_output=True, text=True)
    found = done.stdout + done.stderr
    return (found or f"codespell: exit status {done.returncode}\n") if done.returncode else ""


def read_phrases(text: str) -> dict[str, str]:
    """Parses the list of phrases and returns a map from each phrase to its replacement.

    Raises:
        ValueError: if a line does not have the form PHRASE->USE.
    """
    phrases = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line and not line.startswith("#"):
            phrase, arrow, use = line.partition("->")
            if not (phrase and arrow and use):
                raise ValueError(f"phrases.txt:{number}: expected PHRASE->USE, but found {line!r}")
            phrases[phrase] = use
    return phrases


def pattern(phrase: str) -> re.Pattern[str]:
    """Returns the regular expression that matches a phrase.

    A phrase that starts with an uppercase letter matches only at the start of a sentence.
    """
    words = _GAP.join(re.escape(word) for word in phrase.split())
    if phrase[0].isupper():
        return re.compile(rf"{_SENTENCE}{words}\b", re.MULTILINE)
    return re.compile(rf"\b{words}\b", re.IGNORECASE)


def find_phrases(root: Path, files: Sequence[str], phrases: dict[str, str]) -> str:
    """Searches files for phrases and returns the findings, one per line.

    Args:
        root: the root folder of the source tree.
        files: the files to check, relative to root; binary files are skipped.
        phrases: maps phrases to their replacements.
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
