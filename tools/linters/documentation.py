# SPDX-License-Identifier: BSD-3-Clause
"""Checks that the documentation pages match the tree.

- Lines have at most 120 characters.
- Links to files and headings have a target. docs/README.md lists all pages of docs/.
- Files, folders and targets in backticks exist. A file without a folder may be anywhere.
- ./bazelw commands name targets of a BUILD file, or targets that the page tells the reader to add.
- Each code block has a mark that says how it is tested. CONTRIBUTING.md lists the marks. The linter
  checks three kinds. Code below `<!-- from: FILE -->` is in that file, except for indentation and
  empty lines, and a line `...` represents omitted lines. `<!-- tested: NAME -->` names a test or a
  step of .ci/run. The files in a `<!-- figure -->` exist.
- docs/settings.md has a row for each variable OPENREG_* that the sources read, and no other rows.
- docs/torch_internals.md names tests that exist, and files that contain the row's symbol.

The argument `files` of a check lists all files of the tree, relative to root. A check returns its
findings.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from tools.code_blocks import CodeBlock, code_blocks, code_lines

LINE_LENGTH = 120
INDEX = "docs/README.md"
SETTINGS = "docs/settings.md"
INTERNALS = "docs/torch_internals.md"

_CODE_SUFFIXES = (".cc", ".h", ".py", ".pyi", ".bzl", ".sh", ".yaml", ".md")
_CODE_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_LABEL = re.compile(r"(?<![\w/@=])//([\w/.\-]*)(?::([\w.\-/]+))?(?:/?\.\.\.)?")
# Marks of code that a test executes.
EXECUTED = ("run", "shell", "output", "porting")
_KINDS = ", ".join(sorted((*EXECUTED, "from", "tested", "figure")))
_MARK = re.compile(rf"^\s*<!-- (?:{_KINDS.replace(', ', '|')})\b", re.MULTILINE)
_TESTED = re.compile(r"<!-- tested: .*?(//.*) -->")
_VARIABLE = re.compile(r"(?:[\"'`]|\$\{?)(OPENREG_[A-Z0-9_]*[A-Z0-9])\b")


def pages(files: Iterable[str]) -> list[str]:
    """Returns the pages among the given files."""
    return [name for name in files if name.endswith(".md")]


def slug(heading: str) -> str:
    """Returns the anchor that GitHub generates for a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """Returns the anchors of a page. As on GitHub, repeated headings have numbered anchors."""
    found: dict[str, int] = {}
    result = set()
    for heading in re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE):
        name = slug(heading)
        result.add(f"{name}-{found[name]}" if name in found else name)
        found[name] = found.get(name, 0) + 1
    return result


def prose(text: str) -> str:
    """Returns a page in which code lines are empty. The line numbers do not change."""
    lines = text.split("\n")
    return "\n".join(
        "" if code else line for line, code in zip(lines, code_lines(lines), strict=True)
    )


def matches(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, re.Match[str]]]:
    """Yields all matches in a text with their line numbers."""
    for number, line in enumerate(text.split("\n"), 1):
        for match in pattern.finditer(line):
            yield number, match


def long_lines(root: Path, files: Sequence[str]) -> list[str]:
    """Finds lines of pages that are too long."""
    return [
        f"{page}:{number}: {len(line)} characters, at most {LINE_LENGTH}"
        for page in pages(files)
        for number, line in enumerate((root / page).read_text().split("\n"), 1)
        if len(line) > LINE_LENGTH
    ]


def broken_links(root: Path, files: Sequence[str]) -> list[str]:
    """Finds relative links without a target, and pages of docs/ that the index does not list."""
    found = []
    for page in pages(files):
        text = (root / page).read_text()
        for number, match in matches(prose(text), _LINK):
            target, _, anchor = match[1].partition("#")
            if "://" in target or target.startswith("mailto:"):
                continue
            path = (root / page).parent / target if target else root / page
            if not path.exists():
                found.append(f"{page}:{number}: link to {target}: file does not exist")
            elif anchor and anchor not in anchors(path.read_text()):
                found.append(f"{page}:{number}: link to {match[1]}: heading does not exist")
    if INDEX in files:
        listed = {match[1] for match in _LINK.finditer((root / INDEX).read_text())}
        for page in pages(files):
            folder, _, name = page.rpartition("/")
            if folder == "docs" and page != INDEX and name not in listed:
                found.append(f"{INDEX}: does not list {name}")
    return found


def missing_paths(root: Path, files: Sequence[str]) -> list[str]:
    """Finds files and folders that pages name in backticks but that do not exist."""
    top = {name.partition("/")[0] for name in files if "/" in name}
    names = {PurePosixPath(name).name for name in files}
    suffixes = {suffix for name in files for suffix in _tails(name)}
    folders = {str(parent) for name in files for parent in PurePosixPath(name).parents}
    found = []
    for page in pages(files):
        for number, match in matches(prose((root / page).read_text()), _CODE_SPAN):
            text = match[1].rstrip("/")
            if not re.fullmatch(r"[\w.\-]+(/[\w.\-]+)*", text):
                continue
            in_tree = "/" in text and text.partition("/")[0] in top
            is_source = text.endswith(_CODE_SUFFIXES) and not text.startswith(".")
            if not in_tree and not (is_source and "/" not in text):
                continue
            here = str(PurePosixPath(page).parent / text)
            if text in suffixes or text in folders or here in folders or text in names:
                continue
            found.append(f"{page}:{number}: `{match[1]}`: file or folder does not exist")
    return found


def _tails(name: str) -> Iterator[str]:
    """Yields a file's path, and the rest of the path below each of its folders."""
    parts = name.split("/")
    for start in range(len(parts)):
        yield "/".join(parts[start:])


def missing_targets(root: Path, files: Sequence[str]) -> list[str]:
    """Finds labels in backticks and in commands that no BUILD file defines.

    The function searches for target names in the text of BUILD files, because a list in a BUILD
    file may contain them. A page may also define a target, in code that its reader adds to a BUILD
    file.
    """
    builds = {
        str(PurePosixPath(name).parent): (root / name).read_text()
        for name in files
        if PurePosixPath(name).name == "BUILD.bazel"
    }
    found = []
    for page in pages(files):
        text = (root / page).read_text()
        lines = text.split("\n")
        code = code_lines(lines)
        added = set(re.findall(r'^ +name = "([\w.\-]+)",$', text, re.MULTILINE))
        for number, line in enumerate(lines, 1):
            spans = [line] if code[number - 1] else _CODE_SPAN.findall(line)
            spans += _TESTED.findall(line)
            for span in spans:
                if "://" in span or not ("bazelw" in span or span.startswith("//")):
                    continue
                # Outside a command, a label may also mean a package that has no target with the
                # package's name.
                command = "bazelw" in span
                for match in _LABEL.finditer(span.partition(" #")[0]):
                    if not (
                        match[2] in added
                        or _target_exists(match, builds)
                        or (not command and match[2] is None and match[1].rstrip("/") in builds)
                    ):
                        found.append(f"{page}:{number}: {match[0]}: target does not exist")
    return found


def _target_exists(match: re.Match[str], builds: dict[str, str]) -> bool:
    package, target = match[1].rstrip("/.") or ".", match[2]
    if match[0].endswith("..."):
        return package == "." or any(
            name == package or name.startswith(package + "/") for name in builds
        )
    if package not in builds:
        return False
    name = target or PurePosixPath(package).name
    if name == "all":
        return True
    # In a name such as first_launches_in_%s_test, %s represents an element of a list.
    candidates = re.findall(r'"([\w.%\-/]+)"', builds[package])
    return any(
        name == found or ("%s" in found and re.fullmatch(found.replace("%s", r"\w+"), name))
        for found in candidates
    ) or any(name.startswith(found) for found in re.findall(r'name = "(\w+)"', builds[package]))


def untested_code(root: Path, files: Sequence[str]) -> list[str]:
    """Finds code blocks that no test executes or compares with its source."""
    steps = set(re.findall(r"^ {4}([a-z][\w |]*)\)(?: |$)", _text(root, ".ci/run"), re.MULTILINE))
    steps = {name.strip() for step in steps for name in step.split("|")}
    names = {PurePosixPath(name).name for name in files}
    found = []
    for page in pages(files):
        if "/templates/" in page:
            continue
        text = (root / page).read_text()
        blocks = list(code_blocks(text))
        found += [
            f"{page}:{number}: no code block follows the mark"
            for number, _ in matches(prose(text), _MARK)
            if number not in {block.mark_line for block in blocks}
        ]
        for block in blocks:
            check = {
                "": lambda block: [f"no mark says how the code is tested; kinds: {_KINDS}"],
                "from": lambda block: _changes(root, files, block),
                "tested": lambda block: _missing_tests(block, steps),
                "figure": lambda block: _missing_names(block, names),
            }.get(block.mark)
            if check is not None:
                found += [f"{page}:{block.line}: {finding}" for finding in check(block)]
            elif block.mark not in EXECUTED:
                found.append(f"{page}:{block.line}: unknown mark {block.mark!r}; kinds: {_KINDS}")
    return found


def _text(root: Path, name: str) -> str:
    return (root / name).read_text() if (root / name).exists() else ""


def _changes(root: Path, files: Sequence[str], block: CodeBlock) -> list[str]:
    """Returns what a block quotes wrongly from a file."""
    if block.argument not in files:
        return [f"{block.argument}: no such file"]
    source = [line.strip() for line in (root / block.argument).read_text().split("\n")]
    quoted = [line.strip() for line in block.text.split("\n")]
    lost = _lost([line for line in quoted if line], [line for line in source if line])
    return [f"not in {block.argument}: {lost}"] if lost else []


def _missing_tests(block: CodeBlock, steps: set[str]) -> list[str]:
    """Returns what a mark `tested` names that is no test or CI step.

    Another check finds targets that do not exist.
    """
    found = []
    for name in re.split(r",\s*", block.argument):
        step = re.fullmatch(r"\.ci/run (\w+)", name)
        if step is None and not re.fullmatch(r"//[\w/]+(:\w+)?", name):
            found.append(f"tested: expected //TEST or .ci/run STEP, but found {name!r}")
        elif step is not None and step[1] not in steps:
            found.append(f"tested: .ci/run has no step {step[1]}")
    return found


def _missing_names(block: CodeBlock, names: set[str]) -> list[str]:
    """Returns the files in a figure that do not exist."""
    return [
        f"figure: {name}: file does not exist"
        for name in re.findall(r"[\w.\-]+", block.text)
        if name.endswith(_CODE_SUFFIXES) and not name.startswith(".") and name not in names
    ]


def _lost(block: Sequence[str], source: Sequence[str]) -> str:
    """Returns a line of the first part that is not in the source, or "" if all parts are in it.

    Lines `...` divide the block into parts. These must be in the source in the same order.
    """
    position = 0
    parts: list[list[str]] = [[]]
    for line in block:
        if line == "...":
            parts.append([])
        else:
            parts[-1].append(line)
    for part in parts:
        starts = range(position, len(source) - len(part) + 1)
        at = next((s for s in starts if list(source[s : s + len(part)]) == part), None)
        if at is None:
            return next((line for line in part if line not in source), part[0])
        position = at + len(part)
    return ""


def settings(root: Path, files: Sequence[str]) -> list[str]:
    """Finds variables that sources read but docs/settings.md does not list, and the reverse."""
    if SETTINGS not in files:
        return [f"{SETTINGS}: missing"]
    read: dict[str, str] = {}
    for name in files:
        folders = PurePosixPath(name).parts
        if "testdata" in folders or folders[:2] == ("tools", "linters"):
            continue
        if name.endswith((".md", ".lock", "/BUILD.bazel")):
            continue
        try:
            text = (root / name).read_text()
        except UnicodeDecodeError:
            continue
        for match in _VARIABLE.finditer(text):
            read.setdefault(match[1], name)
    table = set(re.findall(r"^\| `(OPENREG_\w+)`", (root / SETTINGS).read_text(), re.MULTILINE))
    return [
        f"{SETTINGS}: no row for {name}, which {read[name]} reads"
        for name in sorted(read.keys() - table)
    ] + [f"{SETTINGS}: {name}: no source reads it" for name in sorted(table - read.keys())]


def internals(root: Path, files: Sequence[str]) -> list[str]:
    """Finds rows of docs/torch_internals.md (| symbol | files | test |) that do not match the tree.

    Each code span in the first cell must occur in a file of the second cell. torch modules and
    headers must occur with their full name, other symbols with their last component. The last cell
    must name a test file or target. Each private torch module or header that a component uses must
    have a row.
    """
    if INTERNALS not in files:
        return [f"{INTERNALS}: missing"]
    found = []
    named: set[str] = set()
    by_tail: dict[str, list[str]] = {}
    for name in files:
        for tail in _tails(name):
            by_tail.setdefault(tail, []).append(name)
    for number, line in enumerate((root / INTERNALS).read_text().split("\n"), 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if not line.startswith("| `") or len(cells) < 3:
            continue
        symbols, sources = (_CODE_SPAN.findall(cell) for cell in cells[:2])
        named.update(symbols)
        unknown = [name for name in sources if name not in by_tail]
        found += [f"{INTERNALS}:{number}: {name}: no such file" for name in unknown]
        texts = [(root / name).read_text() for tail in sources for name in by_tail.get(tail, [])]
        for symbol in symbols:
            whole, _, last = symbol.rpartition(".")
            needle = symbol if "/" in symbol else re.split(r"\.|::", symbol)[-1]
            imports = f"from {whole} import {last}"
            if _PRIVATE_MODULE.fullmatch(symbol):
                present = any(symbol in text or imports in text for text in texts)
            else:
                present = any(needle in text for text in texts)
            if not present:
                found.append(f"{INTERNALS}:{number}: {symbol} is not in {', '.join(sources)}")
        tests = _CODE_SPAN.findall(cells[-1])
        found += [
            f"{INTERNALS}:{number}: {test}: test does not exist"
            for test in tests
            if not test.startswith("//") and test not in by_tail
        ]
        if not tests:
            found.append(f"{INTERNALS}:{number}: does not name a test")
    return found + _unnamed(root, files, named)


# The components whose use of private parts of torch must be listed in docs/torch_internals.md.
_COMPONENTS = re.compile(
    r"(amp|aten|autoload|compile|distributed|profiler|python|runtime)/(?!.*_(test|benchmark)\.)"
)
_PRIVATE_MODULE = re.compile(r"torch(?:\.[a-z]\w*)*\._\w+(?:\.\w+)*")
_IMPORT = re.compile(r"^\s*(?:from|import) (torch(?:\.[a-z]\w*)*\._\w+(?:\.\w+)*)", re.MULTILINE)
_ATTRIBUTE = re.compile(r"\b(torch\._C\._[A-Za-z]\w+|torch\._[a-z]\w+)(?:\(|\.)")
_PRIVATE_HEADER = re.compile(
    r"#include <((?:torch/csrc/(?!api)|ATen/(?:native|detail)/|c10/core/impl/)[^>]+)>"
)


def _unnamed(root: Path, files: Sequence[str], named: set[str]) -> list[str]:
    """Finds private modules and headers of torch that components use but no row names."""
    used: dict[str, str] = {}
    for name in files:
        if not _COMPONENTS.match(name) or not name.endswith((".py", ".cc", ".h", ".cc.jinja")):
            continue
        text = (root / name).read_text()
        for pattern in (_IMPORT, _ATTRIBUTE) if name.endswith(".py") else (_PRIVATE_HEADER,):
            for match in pattern.finditer(text):
                used.setdefault(match[1], name)
    return [
        f"{INTERNALS}: no row for {symbol}, which {name} uses"
        for symbol, name in sorted(used.items())
        if not any(
            f"{symbol}.".startswith(f"{row}.") or row.startswith(f"{symbol}.") for row in named
        )
    ]


def check(root: Path, files: Sequence[str]) -> str:
    """Runs all checks.

    Args:
        root: the root folder of the source tree.
        files: all files of the tree, relative to root.

    Returns:
        The findings, one per line. The text is empty if there are none.
    """
    checks = (
        long_lines,
        broken_links,
        missing_paths,
        missing_targets,
        untested_code,
        settings,
        internals,
    )
    return "".join(f"{finding}\n" for run in checks for finding in run(root, files))
