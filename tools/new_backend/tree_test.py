# SPDX-License-Identifier: BSD-3-Clause
"""Trees that are generated from this workspace: names, origin, features and builds."""

import ast
import json
import re
import subprocess
from pathlib import Path

import pytest

from tools.new_backend import parts
from tools.new_backend.layout import laid_out
from tools.new_backend.names import Names
from tools.new_backend.new_backend import main
from tools.new_backend.tree import Choice, Tree, make, write

# Bazel creates a link to each file of the test. The generator reads the whole source tree, so the
# test follows such a link to the tree. The test is tagged to run again even if none of its files
# changed.
ROOT = (Path(__file__).resolve().parent / "names.py").resolve().parents[2]

ALL = tuple(sorted(parts.FEATURES))


def tree(device: str, features: tuple[str, ...], build: str = "bazel") -> Tree:
    return make(ROOT, Choice(Names.of(device), features, build))


def test_the_workspace_is_found() -> None:
    assert (ROOT / "WORKSPACE").exists()


@pytest.mark.parametrize("device", ["acme", "my_npu"])
@pytest.mark.parametrize("features", [(), *((name,) for name in ALL), ALL])
@pytest.mark.parametrize("build", parts.BUILDS)
def test_only_the_license_has_our_name(device: str, features: tuple[str, ...], build: str) -> None:
    made = tree(device, features, build)
    named = {
        path
        for path, file in made.items()
        if re.search(rb"openreg", file.content, re.IGNORECASE) or "openreg" in path.lower()
    }
    assert named == {"LICENSE"}
    driver = re.compile(rb"(?<!\w)or(?:Malloc|Stream_t|Success)\b|\boccl|\bOCCL")
    assert not [path for path, file in made.items() if driver.search(file.content)]


def test_a_name_with_an_underscore_is_an_identifier_everywhere() -> None:
    made = tree("my_npu", ALL)
    assert "python/torch_my_npu/my_npu/__init__.py" in made
    assert b"myNpuMalloc(" in made["runtime/device/my_npu.h"].content
    assert b"MY_NPU_API" in made["runtime/device/my_npu.h"].content
    for path, file in made.items():
        if path.endswith((".py", ".pyi", "BUILD.bazel", ".bzl")):
            ast.parse(file.content, path)


def test_a_prefix_renames_the_driver_and_nothing_else() -> None:
    made = make(ROOT, Choice(Names.of("acme", "drv"), ALL, "bazel"))
    text = b"\n".join(file.content for file in made.values())
    assert b"drvMalloc(" in text
    assert not re.search(rb"\bacme[A-Z]", text)
    assert b'torch.device("acme' in text
    assert b"ACME_API" in text


def test_layout() -> None:
    made = tree("acme", ())
    result = laid_out(made)
    assert result.keys() == made.keys()
    registration = result["python/torch_acme/registration.py"].content
    assert b"from torch_acme import _C, acme, backends" in registration
    for path, file in result.items():
        if path.endswith(".cc"):
            assert all(len(line) <= 100 for line in file.content.decode().splitlines()), path
        assert file.executable == made[path].executable


@pytest.mark.parametrize(("mark", "build"), [("diff", "bazel"), ("cmake diff", "cmake")])
def test_the_changes_in_porting_are_at_the_lines_that_they_name(
    mark: str, build: str, tmp_path: Path
) -> None:
    page = (ROOT / "docs/porting.md").read_text()
    changes = re.findall(rf"<!-- porting: {mark} -->\n\n```diff\n([\s\S]*?)```", page)
    changed = re.findall(r"^\+\+\+ b/(.+)$", "".join(changes), re.M)
    assert changed
    made = tree("acme", parts.DEFAULT_FEATURES, build)
    # Formatting all files takes long, so the test formats only those that change.
    settings = (".clang-format", "pyproject.toml")
    write(laid_out({path: made[path] for path in (*settings, *changed)}), tmp_path)
    for change in changes:
        done = subprocess.run(
            ["git", "apply", "--verbose", "-"],
            cwd=tmp_path,
            input=change,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Applied patch" in done.stderr, done.stderr
        assert done.returncode == 0, done.stderr
        assert "offset" not in done.stderr, done.stderr


def test_the_same_sources_give_the_same_tree() -> None:
    assert tree("acme", ALL) == tree("acme", ALL)


@pytest.mark.parametrize("feature", ALL)
def test_a_feature_adds_its_paths_and_nothing_else_loses_any(feature: str) -> None:
    without, having = tree("acme", ()), tree("acme", (feature,))
    assert without.keys() < having.keys()
    names = Names.of("acme")
    paths = tuple(names.rename(path) for path in parts.FEATURES[feature].paths)
    assert any(path.startswith(paths) for path in having)
    assert not any(path.startswith(paths) for path in without)


def test_the_emulated_device_is_left_out() -> None:
    made = tree("acme", ALL)
    assert not [path for path in made if path.startswith(("aten/kernels/", "runtime/emulation/"))]
    assert "runtime/device/stream.cc" not in made
    assert "runtime/minimal/stream.cc" in made


def test_the_files_that_the_conformance_report_names_are_in_the_tree() -> None:
    made = tree("acme", ALL)
    named = {
        name
        for path, file in made.items()
        if path.startswith("conformance/torch_device_conformance/contract/")
        for name in re.findall(r'"(\w+/[\w/]+\.(?:cc|h|py))"', file.content.decode())
    }
    assert "runtime/minimal/stream.cc" in named
    assert not named - made.keys()


def test_every_source_of_a_build_file_is_in_the_tree() -> None:
    made = tree("acme", ALL)
    for path, file in made.items():
        if not path.endswith("BUILD.bazel") or path.startswith("third_party/"):
            continue
        folder = path.removesuffix("BUILD.bazel")
        for word in re.findall(r'^ {8}"([\w/]+\.(?:cc|h|py))",$', file.content.decode(), re.M):
            assert folder + word in made, f"{path}: {word}"


def test_a_library_keeps_the_libraries_that_it_needs() -> None:
    text = tree("acme", ALL)["distributed/BUILD.bazel"].content.decode()
    assert '"//distributed/acmeccl",' in text
    assert '"//runtime/c10",' in text


def test_the_readme_has_the_report_of_the_features() -> None:
    row = re.compile(rb"^\| runtime contract: recommended \| (\d+) ", re.M)
    with_compile, without = (
        row.search(tree("acme", features)["README.md"].content) for features in (ALL, ())
    )
    assert with_compile is not None
    assert without is not None
    assert int(without[1]) < int(with_compile[1])


@pytest.mark.parametrize("features", [(), ALL])
def test_the_readme_lists_the_folders(features: tuple[str, ...]) -> None:
    made = tree("acme", features)
    rows = re.findall(r"^\| (`.*?) \| ", made["README.md"].content.decode(), re.M)
    listed = {name.partition("/")[0] for row in rows for name in re.findall(r"`(.*?)`", row)}
    folders = {path.partition("/")[0] for path in made if "/" in path}
    assert listed == folders - {".ci", "third_party", "tools"}  # these belong to the build


def test_the_program_writes_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILD_WORKSPACE_DIRECTORY", str(ROOT))
    out = tmp_path / "acme"
    names = ["--prefix", "drv", "--package", "torch_acme2"]
    assert main(["acme", *names, "--build", "cmake", "--out", str(out)]) == 0
    assert (out / "python/torch_acme2/__init__.py").exists()
    assert (out / "CMakeLists.txt").exists()
    assert not (out / "WORKSPACE").exists()
    record = (out / "tools/generated.toml").read_text()
    assert 'prefix = "drv"' in record
    assert 'package = "torch_acme2"' in record
    assert 'build = "cmake"' in record
    assert main(["acme", "--build", "cmake", "--out", str(out)]) == 2  # the folder is not empty


@pytest.mark.parametrize("features", [(), ("compile",), ALL])
def test_cmake(features: tuple[str, ...]) -> None:
    made = tree("acme", features, "cmake")
    assert not [path for path in made if "bazel" in path.lower() or path.endswith(".bzl")]
    for name in ("targets", "tests"):
        text = made[f"cmake/{name}.cmake"].content.decode()
        sources = re.findall(r"^    ([\w/]+\.(?:cc|h|py))\)?$", text, re.M)
        assert sources
        assert not [path for path in sources if path not in made]
    assert "-Wl,--wrap=acmeGetKernel" in made["cmake/tests.cmake"].content.decode()


def test_cmake_skips_what_the_minimal_driver_cannot_pass() -> None:
    left_out = json.loads(tree("acme", ALL, "cmake")["tests/left_out.json"].content)
    assert left_out["tests/amp_test.py::test_graph"] == "captures a graph"
    without_compile = tree("acme", (), "cmake")
    assert "tests/amp_test.py" not in without_compile
    left_out = json.loads(without_compile["tests/left_out.json"].content)
    assert {test.partition("::")[0] for test in left_out} <= without_compile.keys()


def test_no_test_needs_more_than_the_minimal_driver() -> None:
    # CMake does not know what Bazel leaves out for such a need.
    assert b"\nNEEDS = {\n}\n" in tree("acme", ALL)["tools/minimal_driver.bzl"].content
