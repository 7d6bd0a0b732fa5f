# SPDX-License-Identifier: BSD-3-Clause
"""Errors that are planted in a small tree are found, and a correct tree has no findings."""

from pathlib import Path

import pytest

from tools.linters import documentation

SOUND = {
    "README.md": """# Top

See [a page](docs/page.md#the-second-part), `runtime/device/stream.h`, `stream.h` and
`//runtime/device`.

<!-- tested: //runtime/device:stream_test, .ci/run asan -->

    ./bazelw test //runtime/device:stream_test    # and https://example.org/x
""",
    "docs/README.md": "[page](page.md) [settings](settings.md) [internals](torch_internals.md)\n",
    "docs/page.md": """# Page

## The `second` part

<!-- from: runtime/device/stream.h -->

    int begin();
    ...
    int end();
""",
    "docs/settings.md": "| `OPENREG_COUNT` | 2 |\n",
    "docs/torch_internals.md": "| `at::Thing` | `stream.h` | `//runtime/device:stream_test` |\n",
    ".ci/run": "case\n    lint) step ;;\n    slow)\n      step ;;\n    asan | tsan) step ;;\n",
    "runtime/device/BUILD.bazel": 'cc_test(name = "stream_test")\n',
    "runtime/device/stream.h": """  int begin();
  int middle();  // at::Thing, "OPENREG_COUNT"

  int end();
""",
}


def check(tmp_path: Path, **changes: str) -> str:
    """Writes the correct tree with changes to some files, and returns all findings."""
    tree = dict(SOUND)
    for key, text in changes.items():
        name = {
            "readme": "README.md",
            "page": "docs/page.md",
            "settings": "docs/settings.md",
            "internals": "docs/torch_internals.md",
            "stream": "runtime/device/stream.h",
        }[key]
        tree[name] = text
    for name, text in tree.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return documentation.check(tmp_path, sorted(tree))


def test_a_sound_tree(tmp_path: Path) -> None:
    assert check(tmp_path) == ""


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("x" * 121, "README.md:1: 121 characters, at most 120"),
        ("[a](docs/none.md)", "README.md:1: link to docs/none.md: file does not exist"),
        (
            "[a](docs/page.md#none)",
            "README.md:1: link to docs/page.md#none: heading does not exist",
        ),
        ("[a](#none)", "link to #none: heading does not exist"),
        ("`runtime/device/none.h`", "`runtime/device/none.h`: file or folder does not exist"),
        ("`runtime/none/`", "`runtime/none/`: file or folder does not exist"),
        ("`none.cc`", "`none.cc`: file or folder does not exist"),
        ("`//runtime/none`", "README.md:1: //runtime/none: target does not exist"),
        ("`//runtime/device:none`", "//runtime/device:none: target does not exist"),
        (
            "Run:\n\n    ./bazelw test //none/...\n",
            "README.md:3: //none/...: target does not exist",
        ),
        ("```\n./bazelw run //runtime/device\n```\n", "//runtime/device: target does not exist"),
        ("Code:\n\n    x\n", "README.md:3: no mark says how the code is tested"),
        ("<!-- run -->\n\n    x\n\nText:\n\n    y\n", "README.md:7: no mark"),
        ("<!-- none -->\n\n    x\n", "README.md:3: unknown mark 'none'; kinds: figure, from"),
        ("<!-- tested: //none:a_test -->\n\n    x\n", "README.md:1: //none:a_test: target does"),
        ("<!-- tested: .ci/run none -->\n\n    x\n", "tested: .ci/run has no step none"),
        ("<!-- tested: by hand -->\n\n    x\n", "tested: expected //TEST or .ci/run STEP"),
        ("<!-- figure -->\n\n    a.cc -> stream.h\n", "figure: a.cc: file does not exist"),
    ],
)
def test_planted_in_a_page(tmp_path: Path, text: str, finding: str) -> None:
    assert finding in check(tmp_path, readme=text)


@pytest.mark.parametrize(
    "text",
    [
        "x" * 120,
        "`torch/nn/none.py` `ATen/none.h` `x.none` `a none.cc`",
        "<!-- run -->\n\n    [a](none.md) `none.cc`\n",
        "<!-- run:\n\n    a\n-->\n\n    b\n",
        "<!-- figure -->\n\n    stream.h -> asan\n",
        "<!-- tested: .ci/run lint, .ci/run slow, .ci/run tsan -->\n\n```\nx\n```\n",
        "`./bazelw test //runtime/...`, `./bazelw test //...`",
        "`--filter=//none`",
        '<!-- run -->\n\n    c(\n        name = "new",\n    )\n\n`./bazelw test //runtime:new`\n',
    ],
)
def test_what_is_no_finding(tmp_path: Path, text: str) -> None:
    assert check(tmp_path, readme=text) == ""


@pytest.mark.parametrize(
    ("block", "finding"),
    [
        ("    int begin();\n    int end();\n", "docs/page.md:3: not in runtime/device/stream.h"),
        ("    int none();\n", "not in runtime/device/stream.h: int none();"),
        ("    int end();\n    ...\n    int begin();\n", "not in runtime/device/stream.h"),
        ("no code\n", "docs/page.md:1: no code block follows"),
    ],
)
def test_code_that_is_not_in_its_source(tmp_path: Path, block: str, finding: str) -> None:
    page = f"<!-- from: runtime/device/stream.h -->\n\n{block}"
    assert finding in check(tmp_path, page=page + "\n## The second part\n")


def test_code_of_no_file(tmp_path: Path) -> None:
    page = "<!-- from: none.h -->\n\n    int a;\n\n## The second part\n"
    assert "docs/page.md:3: none.h: no such file" in check(tmp_path, page=page)


def test_settings(tmp_path: Path) -> None:
    found = check(tmp_path, settings="| `OPENREG_NONE` | 1 |\n")
    assert "no row for OPENREG_COUNT, which runtime/device/stream.h reads" in found
    assert "OPENREG_NONE: no source reads it" in found


@pytest.mark.parametrize(
    ("row", "finding"),
    [
        ("| `at::None` | `stream.h` | `//runtime/device:stream_test` |", "at::None is not in"),
        ("| `at::Thing` | `none.h` | `//runtime/device:stream_test` |", "none.h: no such file"),
        ("| `at::Thing` | `stream.h` | `none_test.cc` |", "none_test.cc: test does not exist"),
        ("| `at::Thing` | `stream.h` | the build |", "does not name a test"),
        ("| `at::Thing` | `stream.h` | `//runtime/device:none` |", "target does not exist"),
    ],
)
def test_internals(tmp_path: Path, row: str, finding: str) -> None:
    assert finding in check(tmp_path, internals=row + "\n")


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("import torch._none\n", "no row for torch._none, which python/a.py uses"),
        ("from torch._none.part import x\n", "no row for torch._none.part"),
        ("x = torch._C._none(1)\n", "no row for torch._C._none"),
        ("import torch._named.part\nimport torch.nn\n", ""),
    ],
)
def test_private_modules_without_a_row(tmp_path: Path, text: str, finding: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "python").mkdir()
    page = "| `torch._named` | `a.py` | `a_test.py` |\n"
    (tmp_path / "docs" / "torch_internals.md").write_text(page)
    (tmp_path / "python" / "a.py").write_text(text + "torch._named\n")
    (tmp_path / "python" / "a_test.py").write_text("import torch._other\n")
    files = ["docs/torch_internals.md", "python/a.py", "python/a_test.py"]
    found = documentation.internals(tmp_path, files)
    assert any(finding in line for line in found) if finding else found == []


def test_private_headers_without_a_row(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "aten").mkdir()
    (tmp_path / "docs" / "torch_internals.md").write_text("\n")
    includes = "#include <ATen/native/None.h>\n#include <ATen/ops/add.h>\n"
    (tmp_path / "aten" / "a.cc").write_text(includes)
    assert documentation.internals(tmp_path, ["docs/torch_internals.md", "aten/a.cc"]) == [
        "docs/torch_internals.md: no row for ATen/native/None.h, which aten/a.cc uses"
    ]


def test_a_page_that_the_index_lacks(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir(parents=True)
    (tmp_path / "docs" / "README.md").write_text("\n")
    (tmp_path / "docs" / "new.md").write_text("\n")
    found = documentation.broken_links(tmp_path, ["docs/README.md", "docs/new.md"])
    assert found == ["docs/README.md: does not list new.md"]


def test_anchors_as_github_makes_them() -> None:
    page = "# `a.b` -- and c!\n\n## [x](y) z\n\n## x z\n\n    # code\n"
    assert documentation.anchors(page) == {"ab----and-c", "x-z", "x-z-1"}
