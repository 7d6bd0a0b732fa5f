# SPDX-License-Identifier: BSD-3-Clause
"""Planted words and phrases are found with their lines, and similar text is not found."""

from pathlib import Path

import pytest

from tools.linters.words import find_phrases, find_words, read_phrases

LINTERS = Path(__file__).parent
PHRASES = {"can not": "cannot", "Who": "The caller"}


def phrases_in(tmp_path: Path, text: str) -> str:
    (tmp_path / "a.cc").write_text(text)
    return find_phrases(tmp_path, ["a.cc"], PHRASES)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("int a;\n// This can not be.\n", 2),
        ('const char* text = "Can not open";\n', 1),
        ("// A sentence that can\n  // not end.\n", 1),
        ("# A sentence that can\n# not end.\n", 1),
        ("It ends. Who opens it waits.\n", 1),
        ("\n// Who opens it waits.\n", 2),
        ("| Who | waits |\n", 1),
    ],
)
def test_planted_phrases(tmp_path: Path, text: str, line: int) -> None:
    assert phrases_in(tmp_path, text).startswith(f"a.cc:{line}: '")


@pytest.mark.parametrize(
    "text",
    [
        "It cannot.\n",
        "can_not = 1\n",
        "Those who wait.\n",
        "the one who waits\n",
        "It scan notes.\n",
    ],
)
def test_what_only_looks_like_a_phrase(tmp_path: Path, text: str) -> None:
    assert phrases_in(tmp_path, text) == ""


def test_a_finding_says_what_to_write(tmp_path: Path) -> None:
    assert phrases_in(tmp_path, "It can not.\n") == "a.cc:1: 'can not': write 'cannot'\n"


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\xff\xfe can not")
    assert find_phrases(tmp_path, ["a.bin"], PHRASES) == ""


@pytest.mark.parametrize("text", ["can not", "->cannot", "can not->"])
def test_a_wrong_list(text: str) -> None:
    with pytest.raises(ValueError, match="expected PHRASE->USE"):
        read_phrases(text)


@pytest.mark.parametrize("phrase", read_phrases((LINTERS / "phrases.txt").read_text()))
def test_each_phrase_of_the_list(tmp_path: Path, phrase: str) -> None:
    (tmp_path / "a.md").write_text(f"Nothing here. {phrase} is here.\n")
    listed = read_phrases((LINTERS / "phrases.txt").read_text())
    assert f"a.md:1: '{phrase}'" in find_phrases(tmp_path, ["a.md"], listed)


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("What tools can mend.\n", "mend ==> fix"),
        ("What tools can recieve.\n", "recieve ==> receive"),
    ],
)
def test_words(tmp_path: Path, text: str, finding: str) -> None:
    (tmp_path / "words.txt").write_text((LINTERS / "words.txt").read_text())
    (tmp_path / "a.md").write_text(text)
    found = find_words(tmp_path, ["a.md"], "words.txt")
    assert found.startswith("a.md:1: ")
    assert finding in found


def test_good_words(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text((LINTERS / "words.txt").read_text())
    (tmp_path / "a.md").write_text("What tools can fix.\n")
    assert find_words(tmp_path, ["a.md"], "words.txt") == ""
