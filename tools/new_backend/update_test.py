# SPDX-License-Identifier: BSD-3-Clause
"""Updates of a generated repository: which changes are kept, and which are reported."""

import subprocess
from pathlib import Path

import pytest

from tools.new_backend import origin
from tools.new_backend.origin import NotGenerated, Origin
from tools.new_backend.tree import File, Tree, write
from tools.new_backend.update import uncommitted, update

LINES = "".join(f"line {number}\n" for number in range(9))


def tree(**contents: str) -> Tree:
    """Return a tree with a file NAME.txt for each keyword argument; its value is the content."""
    return {f"{name}.txt": File(text.encode(), False) for name, text in contents.items()}


def test_only_the_sources_changed(tmp_path: Path) -> None:
    base, new = tree(same="a", old="b", gone="c"), tree(same="a", old="B", fresh="d")
    write(base, tmp_path)
    changes = update(tmp_path, base, new)
    assert changes.lines() == ["changed   old.txt", "added     fresh.txt", "removed   gone.txt"]
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "same.txt": "a",
        "old.txt": "B",
        "fresh.txt": "d",
    }


def test_only_the_vendor_changed(tmp_path: Path) -> None:
    base = tree(edited="a", deleted="b")
    write(base, tmp_path)
    (tmp_path / "edited.txt").write_text("mine")
    (tmp_path / "deleted.txt").unlink()
    (tmp_path / "own.txt").write_text("own")
    assert update(tmp_path, base, base).lines() == []
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "edited.txt": "mine",
        "own.txt": "own",
    }


def test_both_changed_different_lines(tmp_path: Path) -> None:
    base, new = tree(a=LINES), tree(a=LINES.replace("line 8", "generated"))
    write(base, tmp_path)
    (tmp_path / "a.txt").write_text(LINES.replace("line 0", "mine"))
    assert update(tmp_path, base, new).lines() == ["merged    a.txt"]
    merged = (tmp_path / "a.txt").read_text().splitlines()
    assert (merged[0], merged[8], len(merged)) == ("mine", "generated", 9)


def test_both_changed_the_same_line(tmp_path: Path) -> None:
    base, new = tree(a=LINES), tree(a=LINES.replace("line 4", "generated"))
    write(base, tmp_path)
    (tmp_path / "a.txt").write_text(LINES.replace("line 4", "mine"))
    assert update(tmp_path, base, new).lines() == ["conflicts a.txt"]
    text = (tmp_path / "a.txt").read_text()
    assert "<<<<<<< yours\nmine\n||||||| before\nline 4\n=======\ngenerated\n>>>>>>>" in text


def test_both_changed_in_the_same_way(tmp_path: Path) -> None:
    base, new = tree(a="a"), tree(a="b")
    write(new, tmp_path)
    assert update(tmp_path, base, new).lines() == []


@pytest.mark.parametrize("removed_by", ["vendor", "sources"])
def test_one_removes_what_the_other_changed(tmp_path: Path, removed_by: str) -> None:
    base, new = tree(a="a"), tree(a="b") if removed_by == "vendor" else tree()
    write(base, tmp_path)
    if removed_by == "vendor":
        (tmp_path / "a.txt").unlink()
    else:
        (tmp_path / "a.txt").write_text("mine")
    assert update(tmp_path, base, new).lines() == ["conflicts a.txt"]
    left = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert left == ({} if removed_by == "vendor" else {"a.txt": "mine"})


def test_a_vendor_and_the_sources_add_the_same_path(tmp_path: Path) -> None:
    write(tree(a="mine\n"), tmp_path)
    assert update(tmp_path, {}, tree(a="generated\n")).lines() == ["conflicts a.txt"]
    assert "mine" in (tmp_path / "a.txt").read_text()


def test_the_executable_bit(tmp_path: Path) -> None:
    base = {"run": File(b"a", False)}
    write(base, tmp_path)
    assert update(tmp_path, base, {"run": File(b"a", True)}).lines() == ["changed   run"]
    assert (tmp_path / "run").stat().st_mode & 0o100


def test_the_origin_is_read_back(tmp_path: Path) -> None:
    made_of = Origin("my_npu", "npu2", "torch_npu2", "bazel", ("compile",), "0123456789ab")
    made = {"a/b": File(b"\x00\xff", True), "c": File(b"", False)}
    files = origin.files(made_of, made)
    assert files == origin.files(made_of, made)
    write(files, tmp_path)
    assert origin.read(tmp_path) == (made_of, made)


def test_a_folder_of_another_origin(tmp_path: Path) -> None:
    with pytest.raises(NotGenerated, match="was not written by new_backend"):
        origin.read(tmp_path)


def test_changes_that_are_not_committed(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=me", "-c", "user.email=me@example.com")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True)

    assert uncommitted(tmp_path) == []  # not a repository
    git("init", "-q")
    (tmp_path / "kept.txt").write_text("kept")
    git("add", "--all")
    git("commit", "-q", "-m", "all")
    (tmp_path / "untracked.txt").write_text("a result of a build")
    assert uncommitted(tmp_path) == []
    (tmp_path / "kept.txt").write_text("changed")
    assert uncommitted(tmp_path) == ["kept.txt"]
