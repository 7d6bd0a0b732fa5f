# SPDX-License-Identifier: BSD-3-Clause
"""Creates a Markdown page from a C header in the style of runtime/device/openreg.h.

Empty lines separate the blocks of the header. A block is a comment of // lines, which becomes
prose, and the declarations below it, which become code. A line `// ---- name` begins a section.
"""

import re

_SECTION = re.compile(r"// -{8,} *(.+)")
# Lines that a compiler needs but a reader does not.
_SCAFFOLD = re.compile(
    r'#(ifndef|ifdef|endif|if|else|include|define OPENREG_API|define \w+_H_)\b|extern "C"|}'
)
# A function, type or constant of the interface, or a header.
_NAME = re.compile(r"(?<!`)\b(?:or[A-Z]\w*(?:\(\))?|OPENREG_\w+|\w+\.h\b)(?!`)")
# A row of an error list: `//   orErrorInvalidCopy   what it means`.
_ERROR_ROW = re.compile(r" {2,}(\S+) {2,}(\S.*)")


def markdown(title: str, header: str) -> str:
    """Returns the Markdown page.

    Args:
        title: the title of the page.
        header: the text of the header.
    """
    parts = [f"# {title}"]
    for block in header.split("\n\n"):
        lines = [line for line in block.split("\n") if "SPDX-License-Identifier" not in line]
        section = _SECTION.match(lines[0]) if lines else None
        if section is not None:
            parts.append(f"## {section[1].capitalize()}")
            lines = lines[1:]
        length = 0
        while length < len(lines) and lines[length].startswith("//"):
            length += 1
        parts += _prose(lines[:length])
        code = [line for line in lines[length:] if not _SCAFFOLD.match(line) or _ends_type(line)]
        if any(line.strip() for line in code):
            parts.append("\n".join(["```c", *code, "```"]))
    return "\n\n".join(part for part in parts if part) + "\n"


def _ends_type(line: str) -> bool:
    """Returns whether a line closes a struct or an enum, but not the block of extern "C"."""
    return re.match(r"} \w+;", line) is not None


def _prose(comment: list[str]) -> list[str]:
    """Returns the paragraphs of a comment. Rows of errors become lists."""
    paragraphs: list[str] = []
    for line in comment:
        text = line.removeprefix("//")
        if not text.strip():
            paragraphs.append("")
            continue
        row = _ERROR_ROW.fullmatch(text)
        if row is not None:
            paragraphs.append(f"- `{row[1]}`: {row[2]}")
        elif paragraphs and paragraphs[-1]:
            paragraphs[-1] += " " + text.strip()
        else:
            paragraphs.append(text.strip())
    return ["\n".join(group) for group in _grouped([_marked_up(text) for text in paragraphs])]


def _marked_up(text: str) -> str:
    """Formats names of the interface as code, and escapes Markdown's markup characters."""
    parts = re.split(r"(`[^`]*`)", _NAME.sub(r"`\g<0>`", text))
    return "".join(
        part if part.startswith("`") else re.sub(r"[*_<>\[]", r"\\\g<0>", part) for part in parts
    )


def _grouped(paragraphs: list[str]) -> list[list[str]]:
    """Groups the items of a list, so that no empty lines separate them."""
    groups: list[list[str]] = []
    for text in paragraphs:
        if text.startswith("- ") and groups and groups[-1][-1].startswith("- "):
            groups[-1].append(text)
        elif text:
            groups.append([text])
    return groups
