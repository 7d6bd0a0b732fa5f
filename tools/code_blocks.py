# SPDX-License-Identifier: BSD-3-Clause
"""Finds the code blocks of a Markdown page, and the marks that say how each of them is tested.

A mark is an HTML comment above the block, so a reader does not see it. CONTRIBUTING.md lists the
kinds of marks.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_MARK = re.compile(r"<!-- (\w+)(?::\s+([\s\S]*?))?\s*-->\s*\Z")


@dataclass(frozen=True)
class CodeBlock:
    """A code block of a page."""

    # The number of the block's first line.
    line: int
    # The mark's kind, for example "run", and the text after the colon. Both are empty if the block
    # has no mark.
    mark: str
    argument: str
    # The number of the mark's first line, or 0.
    mark_line: int
    # The language of a fenced block.
    language: str
    # The code without fences and common indentation.
    text: str


def code_lines(lines: Sequence[str]) -> list[bool]:
    """Returns for each line whether it is code: fenced, or indented after an empty line."""
    result = []
    fenced = False
    indented = False
    in_list = False
    comment = False
    blank = True
    for line in lines:
        # A mark may contain code, which is not part of a block.
        if comment or (line.startswith("<!--") and not fenced):
            comment = "-->" not in line
            in_list = False
            result.append(False)
            blank = False
            continue
        if line.lstrip().startswith("```"):
            fenced = not fenced
            result.append(True)
            blank = False
            continue
        if not line.strip():
            result.append(fenced)
            blank = True
            continue
        depth = len(line) - len(line.lstrip())
        if depth == 0:
            in_list = re.match(r"([-*]|\d+\.) ", line) is not None
        indented = depth >= (6 if in_list else 4) and (blank or indented)
        result.append(fenced or indented)
        blank = False
    return result


def code_blocks(page: str) -> Iterator[CodeBlock]:
    """Yields the code blocks of a page in order.

    Indented blocks that only empty lines separate are one block.
    """
    lines = page.split("\n")
    code = code_lines(lines)
    end = 0
    while end < len(lines):
        start = end
        end += 1
        if not code[start]:
            continue
        fenced = lines[start].lstrip().startswith("```")
        if fenced:
            while end < len(lines) and not lines[end].lstrip().startswith("```"):
                end += 1
            text = lines[start + 1 : end]
            end += 1
        else:
            while end < len(lines) and (code[end] or not lines[end].strip()):
                if lines[end].lstrip().startswith("```"):
                    break
                end += 1
            text = lines[start:end]
        first = _comment(lines[:start])
        mark = _MARK.search("\n".join(lines[first:start]).rstrip())
        yield CodeBlock(
            line=start + 1,
            mark=mark[1] if mark else "",
            argument=(mark[2] or "") if mark else "",
            mark_line=first + 1 if mark else 0,
            language=lines[start].strip().removeprefix("```") if fenced else "",
            text=textwrap.dedent("\n".join(text)).strip("\n") + "\n",
        )


def _comment(lines: Sequence[str]) -> int:
    """Returns the index of the first line of the comment at the end of the lines.

    Returns the number of lines if they end with something else.
    """
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    if not end or not lines[end - 1].rstrip().endswith("-->"):
        return len(lines)
    start = end - 1
    while start and "<!--" not in lines[start]:
        start -= 1
    return start
