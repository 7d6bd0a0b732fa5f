# SPDX-License-Identifier: BSD-3-Clause
"""Removes the targets that are not kept from the text of a BUILD file.

The rest of the text, including its comments and its order, does not change.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tools.new_backend.build_file import Package, absolute, driver_branch


@dataclass(frozen=True)
class _Edit:
    """Replaces text[start:end] with ``text``."""

    start: int
    end: int
    text: str = ""


class _Text:
    """A text, with the offsets of the nodes that Python's parser finds in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self.lines:
            self._starts.append(self._starts[-1] + len(line))

    def offset(self, line: int, column: int) -> int:
        """Returns an offset. Lines are counted from 1, and columns are bytes of UTF-8."""
        prefix = self.lines[line - 1].encode()[:column]
        return self._starts[line - 1] + len(prefix.decode())

    def span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        """Returns the offsets of the start and the end of a node."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self.offset(node.lineno, node.col_offset),
            self.offset(node.end_lineno, node.end_col_offset),
        )

    def indentation(self, line: int) -> int:
        """Returns the number of spaces at the start of a line."""
        text = self.lines[line - 1]
        return len(text) - len(text.lstrip(" "))

    def statement(self, node: ast.stmt) -> _Edit:
        """Returns the edit that removes a statement, the comment above and an empty line below.

        The comment at the top of the file is not removed, nor is the empty line below a group of
        statements.
        """
        first, last = node.lineno, node.end_lineno or node.lineno
        while first > 1 and self.lines[first - 2].startswith("#"):
            first -= 1
        if first == 1:
            first = node.lineno
        if (
            last < len(self.lines)
            and not self.lines[last].strip()
            and not (first > 1 and self.lines[first - 2].strip())
        ):
            last += 1
        return _Edit(self._starts[first - 1], self._starts[last])

    def element(self, start: int, end: int) -> _Edit:
        """Returns the edit that removes an element of a list or dictionary, with its comma."""
        comma = re.compile(r"\s*,").match(self.text, end)
        end = comma.end() if comma else end
        while self.text[start - 1] == " ":
            start -= 1
        if self.text[start - 1] == "\n" and self.text[end : end + 1] == "\n":
            end += 1
        elif self.text[start - 1] in "[{":
            end += len(self.text[end:]) - len(self.text[end:].lstrip(" "))
        return _Edit(start, end)

    def apply(self, edits: list[_Edit]) -> str:
        """Returns the text after the given edits, which must not overlap."""
        text = self.text
        for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
            text = text[: edit.start] + edit.text + text[edit.end :]
        return text.rstrip("\n") + "\n"


def shorten(package: Package, targets: set[str], is_kept: Callable[[str], bool]) -> str:
    """Returns the text of a BUILD file with only the given targets.

    Args:
        package: the evaluated BUILD file.
        targets: the labels of the targets to keep.
        is_kept: returns whether a label in a list is the label of a file or target in the tree.

    Returns:
        The text. Each `select` on the driver is replaced with the minimal driver's branch.
    """
    text = _Text(package.text)
    edits: list[_Edit] = []
    for node in ast.parse(package.text).body:
        called = _called(node)
        if called in ("load", "package") or isinstance(node, ast.Assign):
            continue
        defined = {
            target.label for target in package.targets.values() if target.line == node.lineno
        }
        kept = defined & targets
        if called == "exports_files":
            exported = list(_file_names(node))
            if exported and not any(is_kept(absolute(file, package.name)) for file in exported):
                edits.append(text.statement(node))
                continue
        elif not kept:
            if defined or called != "licenses":
                edits.append(text.statement(node))
            continue
        edits.extend(_within(text, node, package.name, defined - kept, is_kept))
    return _without_unused_loads(text.apply(edits))


def shorten_extension(text: str, package: str, is_kept: Callable[[str], bool]) -> str:
    """Returns the text of a .bzl file without the labels that are not kept.

    Args:
        text: the file's text; its dictionaries may have keys such as //a:b_test.py::test_name.
        package: the path of the file's folder.
        is_kept: returns whether to keep a label; must be true for a word that is not a label.

    Returns:
        The text, with the minimal driver's branch for each `select` on the driver, and without
        private constants that it does not use.
    """

    def is_kept_file(label: str) -> bool:
        return is_kept(label.partition("::")[0])

    located = _Text(text)
    edits: list[_Edit] = []
    for node in ast.parse(text).body:
        edits.extend(_within(located, node, package, set(), is_kept_file))
    located = _Text(located.apply(edits))
    parsed = ast.parse(located.text)
    used = {
        node.id
        for node in ast.walk(parsed)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    return located.apply(
        [
            located.statement(node)
            for node in parsed.body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id.startswith("_")
            and node.targets[0].id not in used
        ]
    )


def without(text: str, is_dropped: Callable[[str, str | None], bool]) -> str:
    """Returns the text of a WORKSPACE file without some calls and the loads that only they use.

    Args:
        text: the file's text.
        is_dropped: returns whether to drop a call, given the function's name and argument `name`.
    """
    located = _Text(text)
    edits = []
    for node in ast.parse(text).body:
        called = _called(node)
        if not called or called == "load":
            continue
        assert isinstance(node, ast.Expr)
        assert isinstance(node.value, ast.Call)
        names = [word.value for word in node.value.keywords if word.arg == "name"]
        name = str(names[0].value) if names and isinstance(names[0], ast.Constant) else None
        if is_dropped(called, name):
            edits.append(located.statement(node))
    return _without_unused_loads(located.apply(edits))


def _called(node: ast.stmt) -> str:
    """Returns the name of the function that a statement calls, or ""."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = node.value.func
        return function.id if isinstance(function, ast.Name) else ""
    return ""


def _file_names(node: ast.stmt) -> Iterator[str]:
    """Yields the strings in a call to exports_files, except those in its visibility."""
    for item in ast.walk(node):
        if (
            isinstance(item, ast.Constant)
            and isinstance(item.value, str)
            and not item.value.startswith("//")
        ):
            yield item.value


def _within(
    text: _Text,
    node: ast.stmt,
    package: str,
    dropped: set[str],
    is_kept: Callable[[str], bool],
) -> Iterator[_Edit]:
    """Yields the edits inside a statement that is kept."""
    pending: list[ast.AST] = [node]
    while pending:
        item = pending.pop()
        if isinstance(item, ast.keyword) and item.arg == "name":
            continue
        if isinstance(item, ast.keyword) and _is_empty(_driver_select(item.value, package)):
            yield text.element(*text.span(item))
            continue
        if isinstance(item, ast.BinOp) and (branch := _driver_select(item.right, package)):
            if _is_empty(branch):
                yield _Edit(text.span(item.left)[1], text.span(item.right)[1])
            else:
                yield _replaced(text, item.right, branch)
            pending.append(item.left)
            continue
        if isinstance(item, ast.expr) and (branch := _driver_select(item, package)):
            yield _replaced(text, item, branch)
            continue
        if isinstance(item, ast.List):
            for element in item.elts:
                if isinstance(element, ast.Constant) and isinstance(element.value, str):
                    label = absolute(element.value, package)
                    if label in dropped or not is_kept(label):
                        yield text.element(*text.span(element))
        if isinstance(item, ast.Dict):
            for key, value in zip(item.keys, item.values, strict=True):
                if (
                    isinstance(key, ast.Constant)
                    and isinstance(key.value, str)
                    and not is_kept(absolute(key.value, package))
                ):
                    yield text.element(text.span(key)[0], text.span(value)[1])
            pending.extend(item.values)
            continue
        pending.extend(ast.iter_child_nodes(item))


def _driver_select(node: ast.expr, package: str) -> ast.expr | None:
    """If a node is a `select` on the driver, returns the branch of the minimal driver."""
    if not (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "select"
        and isinstance(node.args[0], ast.Dict)
    ):
        return None
    branches = {
        key.value: value
        for key, value in zip(node.args[0].keys, node.args[0].values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }
    key = driver_branch(branches, package)
    return None if key is None else branches[key]


def _is_empty(branch: ast.expr | None) -> bool:
    return isinstance(branch, ast.List) and not branch.elts


def _replaced(text: _Text, node: ast.expr, branch: ast.expr) -> _Edit:
    """Returns the edit that replaces a `select` with a branch, indented like the `select`."""
    start, end = text.span(branch)
    assert branch.end_lineno is not None
    excess = text.indentation(branch.end_lineno) - text.indentation(node.lineno)
    lines = text.text[start:end].split("\n")
    return _Edit(*text.span(node), "\n".join([lines[0], *(line[excess:] for line in lines[1:])]))


def _without_unused_loads(text: str) -> str:
    """Removes symbols and load statements that the rest of a BUILD file does not use."""
    parsed = ast.parse(text)
    used = {
        node.id
        for statement in parsed.body
        if _called(statement) != "load"
        for node in ast.walk(statement)
        if isinstance(node, ast.Name)
    }
    located = _Text(text)
    edits: list[_Edit] = []
    for node in parsed.body:
        if _called(node) != "load":
            continue
        assert isinstance(node, ast.Expr)
        call = node.value
        assert isinstance(call, ast.Call)
        symbols = [
            (argument.value, argument)
            for argument in call.args[1:]
            if isinstance(argument, ast.Constant)
        ]
        unused = [argument for symbol, argument in symbols if symbol not in used]
        if len(unused) == len(symbols) and not any(word.arg in used for word in call.keywords):
            edits.append(located.statement(node))
            continue
        for argument in unused:
            edits.append(located.element(*located.span(argument)))
    return re.sub(r", *\)$", ")", located.apply(edits), flags=re.MULTILINE)
