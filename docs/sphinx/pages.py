# SPDX-License-Identifier: BSD-3-Clause
"""Prepares the pages of the tree for Sphinx: links between pages, and a table of contents."""

import os
import re
from collections.abc import Sequence
from pathlib import PurePosixPath

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
FRONT = "README.md"
INDEX = "docs/README.md"
# The pages whose names in the site differ from their names in the tree.
NAMES = {FRONT: "index.md", INDEX: "docs/index.md"}


def stage(page: str, text: str, pages: Sequence[str]) -> str:
    """Returns a page for the site. Links to files that are not pages become code.

    Args:
        page: the path of the page in the tree.
        text: the contents of the page.
        pages: the paths of all pages of the site.
    """
    folder = PurePosixPath(page).parent

    def replace(match: re.Match[str]) -> str:
        target, mark, anchor = match[2].partition("#")
        if "://" in target or not target:
            return match[0]
        path = os.path.normpath(folder / target)
        path = f"{path}/README.md" if f"{path}/README.md" in pages else path
        if path in pages:
            here = os.path.dirname(page) or "."
            return f"[{match[1]}]({os.path.relpath(NAMES.get(path, path), here)}{mark}{anchor})"
        return match[1] if match[1].startswith("`") else f"`{match[1]}`"

    return _LINK.sub(replace, text)


def contents(index: str, pages: Sequence[str]) -> str:
    """Returns the table of contents: the sections of docs/README.md, and their links in order.

    Args:
        index: the text of docs/README.md.
        pages: the paths of all pages of the site.
    """
    parts = []
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        entries = [
            os.path.normpath(PurePosixPath("docs") / match[2].partition("#")[0])
            for match in _LINK.finditer(body)
        ]
        names = [NAMES.get(entry, entry).removesuffix(".md") for entry in entries if entry in pages]
        lines = ["```{toctree}", ":hidden:", f":caption: {title}", "", *names, "```"]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"
