# SPDX-License-Identifier: BSD-3-Clause
"""`import torch` works and warns once, whichever part of the installed backend is broken."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.environment import Environment, wheel

WHEEL = wheel("python")

# This program imports torch. It exits with 0 if torch works, and if every access to the device
# raises an error with the same cause.
PROGRAM = """
import torch
assert torch.ones(2).sum().item() == 2

def cause(action):
    try:
        action()
    except (RuntimeError, ImportError) as error:
        assert "device openreg is not available" in str(error)
        return error.__cause__
    raise AssertionError("no error")

def import_package():
    import torch_openreg

def import_module():
    from torch.openreg import Stream

causes = [
    cause(lambda: torch.openreg.is_available()),
    cause(lambda: torch.openreg.Stream),
    cause(import_package),
    cause(import_package),
    cause(import_module),
]
assert causes[0] is not None
assert all(cause is causes[0] for cause in causes), causes
print(type(causes[0]).__name__, causes[0])
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("environment"))
    environment.install(WHEEL)
    return environment


@pytest.fixture
def environment(installed: Environment, tmp_path: Path) -> Iterator[Environment]:
    """Yields an environment with a package that a test may modify, and restores it afterwards."""
    package = installed.site / "torch_openreg"
    shutil.copytree(package, tmp_path / "intact", symlinks=True)
    yield installed
    shutil.rmtree(package)
    shutil.copytree(tmp_path / "intact", package, symlinks=True)


def warning(environment: Environment) -> str:
    """Runs PROGRAM, which must succeed, and returns the only warning of `import torch`."""
    done = environment.run(PROGRAM)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if "device openreg is not available" in line]
    assert len(lines) == 1, done.stderr
    assert "pip install --force-reinstall torch_openreg" in lines[0]
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in lines[0]
    return lines[0]


def library(path: Path, body: str) -> None:
    """Replaces a library with one that runs `body` (C++) when it is loaded."""
    source = path.with_suffix(".cc")
    source.write_text(
        "#include <cstdlib>\n#include <csignal>\n#include <stdexcept>\n#include <unistd.h>\n"
        f"__attribute__((constructor)) static void start() {{ {body} }}\n"
    )
    path.unlink()
    subprocess.run(["g++", "-shared", "-fPIC", "-o", str(path), str(source)], check=True)
    source.unlink()


def test_intact_files_are_imported_without_a_trial(environment: Environment) -> None:
    # A trial import needs a new process, which cannot start with this sys.executable.
    done = environment.run(
        """
        import subprocess, sys
        sys.executable = "/no/python"
        import torch
        print(torch.ones(2, device="openreg").sum().item())
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2.0\n"
    assert not done.stderr


@pytest.mark.parametrize(
    ("body", "ending"),
    [
        ("abort();", "SIGABRT"),
        ("*(volatile int*)nullptr = 1;", "SIGSEGV"),
        ('throw std::runtime_error("no such thing");', "SIGABRT"),
        ("__builtin_trap();", "SIGILL"),
        ("_exit(0);", "exit status 0"),
    ],
)
def test_library_that_ends_the_process(environment: Environment, body: str, ending: str) -> None:
    library(environment.site / "torch_openreg/lib/libopenreg_amp.so", body)
    text = warning(environment)
    assert f"loading it ends the process ({ending})" in text
    assert "torch_openreg/lib/libopenreg_amp.so has" in text
    if "throw" in body:
        assert "no such thing" in text


def test_package_that_ends_the_process(environment: Environment) -> None:
    (environment.site / "torch_openreg/registration.py").write_text("import os; os.abort()\n")
    assert "loading it ends the process (SIGABRT)" in warning(environment)


def test_library_that_is_cut_off(environment: Environment) -> None:
    path = environment.site / "torch_openreg/lib/libopenreg_aten.so"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[: size // 2])
    assert f"libopenreg_aten.so has {size // 2} bytes, {size} were installed" in warning(
        environment
    )


@pytest.mark.parametrize(
    "file",
    [
        "lib/libopenreg.so",
        "lib/libopenreg_aten.so",
        "_C.cpython-311-x86_64-linux-gnu.so",
        "version.py",
        "openreg/streams.py",
    ],
)
def test_missing_file(environment: Environment, file: str) -> None:
    (environment.site / "torch_openreg" / file).unlink()
    assert f"torch_openreg/{file}: No such file or directory" in warning(environment)


def test_all_files_are_missing_but_the_folder(environment: Environment) -> None:
    package = environment.site / "torch_openreg"
    shutil.rmtree(package)
    package.mkdir()
    assert f"is not a package but a folder without __init__.py: {package}" in warning(environment)


def test_damaged_file_for_which_the_versions_differ(environment: Environment) -> None:
    path = environment.site / "torch_openreg/version.py"
    path.write_text(path.read_text().replace('"2.13.0"', '"2.12.10"'))
    text = warning(environment)
    assert "was built for torch 2.12.10" in text
    assert "torch_openreg/version.py has" in text


def test_unreadable_file(environment: Environment) -> None:
    # Replace the file with a folder, because the superuser could read any file.
    path = environment.site / "torch_openreg/openreg/streams.py"
    path.unlink()
    path.mkdir()
    assert "torch_openreg/openreg/streams.py has" in warning(environment)


def test_file_with_a_syntax_error(environment: Environment) -> None:
    path = environment.site / "torch_openreg/openreg/devices.py"
    path.write_bytes(bytes(path.stat().st_size))
    assert "null bytes" in warning(environment)


def test_library_without_a_symbol(environment: Environment) -> None:
    library(environment.site / "torch_openreg/lib/libopenreg_c10.so", "")
    text = warning(environment)
    assert "ImportError" in text
    assert "undefined symbol" in text


def test_exit_at_import(environment: Environment) -> None:
    (environment.site / "torch_openreg/registration.py").write_text("raise SystemExit(7)\n")
    assert "SystemExit: 7" in warning(environment)


def test_interrupt_passes(environment: Environment) -> None:
    (environment.site / "torch_openreg/registration.py").write_text("raise KeyboardInterrupt\n")
    done = environment.run(
        """
        try:
            import torch
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    assert done.stdout == "interrupted\n", done.stderr


def test_package_that_was_not_installed(environment: Environment, tmp_path: Path) -> None:
    # In sys.path, this folder precedes the package that pip installed.
    package = tmp_path / "elsewhere" / "torch_openreg"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import os; os.kill(os.getpid(), 11)\n")
    done = environment.run(PROGRAM, PYTHONPATH=str(package.parent))
    assert done.returncode == 0, done.stderr
    assert "loading it ends the process (SIGSEGV)" in done.stderr
    assert f"{package.parent} has the package torch_openreg, but pip did not" in done.stderr


def test_working_package_that_was_not_installed_is_used(environment: Environment) -> None:
    copy = environment.root / "copied"
    for name in ("torch_openreg", "torch_openreg_compile"):
        shutil.copytree(environment.site / name, copy / name)
    code = "import torch; print(torch.openreg.is_available(), torch.openreg.__file__)"
    done = environment.run(code, PYTHONPATH=str(copy))
    assert done.stdout.startswith(f"True {copy}"), done.stderr
    assert not done.stderr


def test_both_distributions_warn_once(environment: Environment) -> None:
    environment.install(wheel("autoload"))
    (environment.site / "torch_openreg/version.py").unlink()
    assert "version.py" in warning(environment)
