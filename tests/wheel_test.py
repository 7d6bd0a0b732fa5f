# SPDX-License-Identifier: BSD-3-Clause
"""The wheel has the right contents, and installs, autoloads and computes in a new environment."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from torch.utils.cpp_extension import include_paths

from tests.environment import Environment, wheel
from tools.wheel import archive

NAME = "torch_openreg-0.1.0"
WHEEL = wheel("python")
TAG = WHEEL.name.removeprefix(f"{NAME}-").removesuffix(".whl")

# Symbols that a library may export although no other library in the wheel uses them: C interfaces,
# the entry points of Python modules, and class members. A class is always exported as a whole.
INTERFACES = re.compile(r"(or[A-Z]|occl|aoti_torch_openreg_|openreg_kernel_|PyInit_)\w+")
OF_A_CLASS = re.compile(r"((typeinfo( name)?|vtable) for )?openreg::(\w+::)*[A-Z]\w*(::|$)")


@pytest.fixture(scope="module")
def members() -> dict[str, bytes]:
    with zipfile.ZipFile(WHEEL) as wheel:
        return {name: wheel.read(name) for name in wheel.namelist()}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Creates an environment and installs the wheel in it."""
    environment = Environment(tmp_path_factory.mktemp("environment"))
    environment.install(WHEEL)
    return environment


def run(environment: Environment, code: str) -> str:
    done = environment.run(code)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    return done.stdout


def test_members(members: dict[str, bytes]) -> None:
    python_files = {
        name
        for name in members
        if re.fullmatch(r"torch_openreg(_autoload|_compile)?/.*\.pyi?", name)
    }
    assert "torch_openreg/_C.pyi" in python_files
    assert set(members) - python_files == {
        "openreg_graph.py",
        "torch_openreg/_C.cpython-311-x86_64-linux-gnu.so",
        "torch_openreg/include/aten/aoti/c_shim.h",
        "torch_openreg/include/runtime/device/launch.h",
        "torch_openreg/include/runtime/device/openreg.h",
        "torch_openreg/include/runtime/device/openreg_emulation.h",
        "torch_openreg/lib/libopenreg.so",
        "torch_openreg/lib/libopenreg_allocator.so",
        "torch_openreg/lib/libopenreg_amp.so",
        "torch_openreg/lib/libopenreg_aoti.so",
        "torch_openreg/lib/libopenreg_aten.so",
        "torch_openreg/lib/libopenreg_c10.so",
        "torch_openreg/lib/libopenreg_diagnostics.so",
        "torch_openreg/lib/libopenreg_distributed.so",
        "torch_openreg/lib/libopenreg_occl.so",
        "torch_openreg/lib/libopenreg_profiler.so",
        "torch_openreg/py.typed",
        "torch_openreg_autoload/py.typed",
        "torch_openreg_compile/kernel.h",
        "torch_openreg_compile/kernel_call.h",
        "torch_openreg_compile/kernel_launch.h",
        "torch_openreg_compile/model_constants.h",
        "torch_openreg_compile/py.typed",
        f"{NAME}.dist-info/METADATA",
        f"{NAME}.dist-info/RECORD",
        f"{NAME}.dist-info/WHEEL",
        f"{NAME}.dist-info/entry_points.txt",
        f"{NAME}.dist-info/licenses/LICENSE",
    }


def test_metadata(members: dict[str, bytes]) -> None:
    text = members[f"{NAME}.dist-info/METADATA"]
    metadata = Metadata.from_email(text)  # raises an error if the metadata is invalid
    assert [str(requirement) for requirement in metadata.requires_dist or []] == ["torch==2.13.0"]
    assert metadata.license_expression == "BSD-3-Clause"
    assert metadata.description_content_type == "text/markdown"
    assert (metadata.description or "").startswith("# torch_openreg\n")
    assert "Programming Language :: Python :: 3.11" in (metadata.classifiers or [])
    assert metadata.keywords
    entry_points = members[f"{NAME}.dist-info/entry_points.txt"].decode()
    assert "[torch.backends]\ntorch_openreg = torch_openreg_autoload:load\n" in entry_points
    compiler = "[torch_dynamo_backends]\nopenreg = torch_openreg_compile.backend:openreg\n"
    assert compiler in entry_points


def test_the_tag_names_the_required_glibc(members: dict[str, bytes], tmp_path: Path) -> None:
    interpreter, abi, platform = TAG.split("-")
    assert interpreter == abi == "cp311"
    found = re.fullmatch(r"manylinux_2_(\d+)_\w+", platform)
    assert found is not None
    needed = [
        int(minor)
        for library in libraries(members, tmp_path)
        for minor in re.findall(r"\bGLIBC_2\.(\d+)", tool("objdump", "-T", library))
    ]
    assert max(needed) <= int(found[1])


def libraries(members: dict[str, bytes], folder: Path) -> list[Path]:
    """Writes the wheel's shared libraries to a folder and returns their paths."""
    paths = []
    for name, data in members.items():
        if name.endswith(".so"):
            paths.append(folder / Path(name).name)
            paths[-1].write_bytes(data)
    return paths


def tool(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_libraries_are_stripped(members: dict[str, bytes], tmp_path: Path) -> None:
    for library in libraries(members, tmp_path):
        sections = tool("readelf", "--section-headers", "--wide", library)
        assert ".dynsym" in sections
        assert ".symtab" not in sections, library.name
        assert ".debug" not in sections, library.name


def symbols(library: Path, which: str) -> set[str]:
    """Returns the demangled symbols that a library exports or imports. `which` is a flag of nm."""
    lines = tool("nm", "--dynamic", "--extern-only", "--demangle", which, library).splitlines()
    return {re.split(r" [A-Za-z] ", line, maxsplit=1)[1].partition("@")[0] for line in lines}


def test_libraries_export_what_others_use(members: dict[str, bytes], tmp_path: Path) -> None:
    paths = libraries(members, tmp_path)
    exported = {path.name: symbols(path, "--defined-only") for path in paths}
    used = set[str]().union(*(symbols(path, "--undefined-only") for path in paths))
    unused = {
        (name, symbol)
        for name, of_library in exported.items()
        for symbol in of_library - used
        if not INTERFACES.fullmatch(symbol) and not OF_A_CLASS.match(symbol)
    }
    # The inline function block_of() in device_allocator.h compares a pointer with the address of
    # free_block().
    assert unused <= {("libopenreg_c10.so", "openreg::free_block(void*)")}
    assert exported["libopenreg_amp.so"] == set()


def test_no_path_of_the_build_is_in_it(members: dict[str, bytes]) -> None:
    root = Path(os.environ["TEST_SRCDIR"]).resolve()
    here = {str(root), str(Path.home()), str(Path(sys.prefix).resolve()), "/sandbox/", "/execroot/"}
    places = [place.encode() for place in here if len(place) > len("/")]
    found = [(name, place) for name, data in members.items() for place in places if place in data]
    if Path.home() == Path("/root"):
        found = [(name, place) for name, place in found if place != b"/root"]
    assert not found


def test_packing_twice_gives_the_same_bytes(members: dict[str, bytes], tmp_path: Path) -> None:
    info = f"{NAME}.dist-info"
    made = {f"{info}/WHEEL", f"{info}/RECORD"}
    contents = {name: data for name, data in members.items() if name not in made}
    again = tmp_path / WHEEL.name
    archive.pack(again, contents, info, TAG)
    assert again.read_bytes() == WHEEL.read_bytes()


def test_import_torch_loads_it(environment: Environment) -> None:
    code = "import torch; print(torch.openreg.is_available(), torch.openreg.__file__)"
    available, path = run(environment, code).split()
    assert available == "True"
    assert Path(path).is_relative_to(environment.root)


def test_it_trains(environment: Environment) -> None:
    code = (
        "import torch; x=torch.randn(3,4,device='openreg',requires_grad=True); "
        "(x@x.t()).sum().backward(); print(x.grad)"
    )
    assert "device='openreg:0'" in run(environment, code)


# The headers of runtime/ must compile on their own. Those of aten/ also need torch's headers.
@pytest.mark.parametrize(("folder", "others"), [("runtime", []), ("aten", include_paths())])
def test_the_headers_compile_alone(
    environment: Environment, tmp_path: Path, folder: str, others: list[str]
) -> None:
    include = environment.site / "torch_openreg" / "include"
    headers = sorted(str(path.relative_to(include)) for path in (include / folder).rglob("*.h"))
    assert headers
    source = tmp_path / "all.cc"
    source.write_text("".join(f'#include "{header}"\n' for header in headers))
    compiler = ["g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    torchs = [flag for path in others for flag in ("-isystem", path)]
    subprocess.run([*compiler, f"-I{include}", *torchs, str(source)], check=True)


def test_uninstalling_leaves_a_working_torch(environment: Environment) -> None:
    # This test uninstalls the device, so it must be the last one in the file.
    environment.pip("uninstall", "--yes", "torch_openreg")
    assert run(environment, "import torch; print(hasattr(torch, 'openreg'))") == "False\n"
    assert not list(environment.site.glob("torch_openreg*"))
