# SPDX-License-Identifier: BSD-3-Clause
"""Tests bazelw and tools/bazel: what they install, what they run, and their error messages.

A folder represents a machine. bazelw is copied into this folder, and each /usr/ in its text is
prefixed with the folder's path. All programs in the folder are links to real programs, or scripts
that record their calls.
"""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"], "bazelw")
TOOLS = "basename bash cat cut dirname env flock head ln mkdir rm sha256sum touch cp"
PACKAGES = (
    "bazel-bootstrap g++ git googletest libbenchmark-dev nlohmann-json3-dev"
    " python3.11 python3.11-venv python3.11-dev"
)

PYTHON = """
case "$*" in
  "-I -c"*) exit 0 ;;  # can an environment be created from it? yes
  "-m venv --clear "*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" && touch "$4/bin/pip" ;;
  "-m pip"*) [[ ! -e $machine/no-index ]] || [[ $* == *torch && $* != *--index-url* ]] ;;
esac
"""


class Machine:
    """A folder that represents a machine. It has programs and a workspace."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "usr" / "bin"
        self.workspace = root / "workspace"
        self.log = root / "log"
        for folder in (self.bin, self.workspace / "tools"):
            folder.mkdir(parents=True)
        for name in TOOLS.split():
            real = shutil.which(name)
            assert real
            (self.bin / name).symlink_to(real)
        for name in ("requirements.lock", "requirements.torch"):
            (self.workspace / name).write_text(name)
        self.program("timeout", "exit 1")  # PyTorch's index does not respond
        self.write_bazelw(root=True)

    def write_bazelw(self, root: bool) -> None:
        """Writes bazelw. If ``root`` is true, bazelw assumes that root runs it."""
        text = SOURCE.read_text().replace("/usr/", f"{self.root}/usr/")
        assert text.count("EUID") == 1
        script = self.workspace / "bazelw"
        script.write_text(text.replace("EUID", "0" if root else "1000"))
        script.chmod(0o755)

    def program(self, name: str, code: str = "", folder: Path | None = None) -> None:
        """Adds a program that logs its command line and then runs ``code``."""
        path = (folder or self.bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"#!{shutil.which('bash')}\n"
            f'machine={self.root}\necho "${{0##*/}} $*" >>"$machine/log"\n{code}\n'
        )
        path.chmod(0o755)

    def googletest(self) -> None:
        sources = self.root / "usr" / "src" / "googletest" / "googletest" / "src"
        sources.mkdir(parents=True)
        (sources / "gtest-all.cc").touch()

    def benchmark(self) -> None:
        headers = self.root / "usr" / "include" / "benchmark"
        headers.mkdir(parents=True)
        (headers / "benchmark.h").touch()

    def json(self) -> None:
        headers = self.root / "usr" / "include" / "nlohmann"
        headers.mkdir(parents=True)
        (headers / "json.hpp").touch()

    def apt_get(self, works: bool = True) -> None:
        """Adds a fake apt-get that installs packages or, if ``works`` is false, always fails."""
        store = self.root / "store"
        for name in ("bazel", "g++", "git"):
            self.program(name, folder=store)
        self.program("python3.11", PYTHON, folder=store)
        sources = f"{self.root}/usr/src/googletest/googletest/src"
        headers = f"{self.root}/usr/include/benchmark"
        json = f"{self.root}/usr/include/nlohmann"
        self.program(
            "apt-get",
            f'[[ $1 == update ]] || {{ cp {store}/* "$machine/usr/bin" &&'
            f" mkdir -p {sources} {headers} {json} &&"
            f" touch {sources}/gtest-all.cc {headers}/benchmark.h {json}/json.hpp; }}"
            if works
            else "exit 100",
        )

    def complete(self) -> None:
        """Installs everything that bazelw installs, including the environment."""
        self.googletest()
        self.benchmark()
        self.json()
        for name in ("bazel", "g++", "git"):
            self.program(name)
        self.program("python3.11", PYTHON)
        self.program("python", PYTHON, folder=self.environment / "bin")
        self.program("pip", folder=self.environment / "bin")
        (self.workspace / ".venv").symlink_to(self.environment)
        self.state.write_text(self.wanted() + "\n")

    @property
    def environment(self) -> Path:
        """Returns the environment that .venv links to, in the folder that all clones share."""
        return self.root / "home/.cache/torch_openreg" / f"python-{self.wanted()[:16]}"

    @property
    def state(self) -> Path:
        return self.environment / "requirements.sha256"

    def wanted(self) -> str:
        files = ("requirements.lock", "requirements.torch")
        content = b"".join((self.workspace / name).read_bytes() for name in files)
        return hashlib.sha256(content).hexdigest()

    def run(self, *arguments: str, status: int = 0, **environment: str) -> str:
        """Runs bazelw and returns its output."""
        self.log.unlink(missing_ok=True)
        done = subprocess.run(
            [str(self.workspace / "bazelw"), *arguments],
            env={"PATH": str(self.bin), "HOME": str(self.root / "home"), **environment},
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stderr
        return done.stderr

    def calls(self, *programs: str) -> list[str]:
        """Returns the recorded calls of these programs, or of all programs if none is given."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if not programs or line.split()[0] in programs]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_nothing_is_missing(machine: Machine) -> None:
    machine.complete()
    assert machine.run("test", "//...", "--flag=a b") == ""
    assert machine.calls() == ["bazel test //... --flag=a b"]


def test_everything_is_missing(machine: Machine) -> None:
    machine.apt_get()
    said = machine.run("version")
    assert f"bazelw: installing {PACKAGES}" in said
    calls = machine.calls("apt-get", "sudo", "python", "bazel")
    assert calls[:2] == [
        "apt-get update -q",
        f"apt-get install -yq --no-install-recommends {PACKAGES}",
    ]
    everything, torch = (call for call in calls if "pip" in call)
    assert "--require-hashes" in everything
    assert everything.endswith(f"-r {machine.workspace}/requirements.lock")
    assert torch.endswith(f"-r {machine.workspace}/requirements.torch")
    assert "--index-url" not in torch
    assert calls[-1] == "bazel version"
    assert machine.state.read_text().strip() == machine.wanted()
    # The second run has nothing to install.
    assert machine.run("version") == ""
    assert machine.calls() == ["bazel version"]


@pytest.mark.parametrize(
    ("lost", "packages"),
    [
        ("usr/bin/g++", "g++"),
        ("usr/bin/git", "git"),
        ("usr/bin/bazel", "bazel-bootstrap"),
        ("usr/src/googletest/googletest/src/gtest-all.cc", "googletest"),
        ("usr/include/benchmark/benchmark.h", "libbenchmark-dev"),
        ("usr/include/nlohmann/json.hpp", "nlohmann-json3-dev"),
    ],
)
def test_only_what_is_missing_is_installed(machine: Machine, lost: str, packages: str) -> None:
    machine.complete()
    machine.apt_get()
    (machine.root / lost).unlink()
    machine.run("version")
    assert machine.calls("apt-get")[1].endswith(f"--no-install-recommends {packages}")
    assert machine.calls("bazel") == ["bazel version"]


def test_changed_requirements_are_installed(machine: Machine) -> None:
    machine.complete()
    (machine.workspace / "requirements.torch").write_text("torch==3")
    machine.run("version")
    assert len([call for call in machine.calls("python") if "pip" in call]) == 2
    assert machine.state.read_text().strip() == machine.wanted()


def test_without_root(machine: Machine) -> None:
    machine.apt_get()
    machine.write_bazelw(root=False)
    said = machine.run("version", status=1)
    assert f"have root run 'apt-get install {PACKAGES}'" in said
    assert machine.calls() == []
    machine.program("sudo", "exit 1")  # sudo is not permitted
    assert f"have root run 'apt-get install {PACKAGES}'" in machine.run("version", status=1)
    assert machine.calls() == ["sudo -v"]


def test_with_sudo(machine: Machine) -> None:
    machine.apt_get()
    machine.write_bazelw(root=False)
    machine.program("sudo", '[[ $1 == -v ]] || "$@"')
    machine.run("version")
    assert [call.split()[1] for call in machine.calls("sudo")] == ["-v", "apt-get", "env"]
    assert machine.calls()[-1] == "bazel version"


def test_another_distribution(machine: Machine) -> None:
    said = machine.run("version", status=1)
    assert f"missing Debian packages: {PACKAGES}." in said


def test_no_server_of_packages(machine: Machine) -> None:
    machine.apt_get(works=False)
    said = machine.run("version", status=1)
    assert f"apt-get could not install {PACKAGES}: is there a network" in said
    assert machine.calls("bazel", "python3.11") == []


def test_no_python_3_11(machine: Machine) -> None:
    machine.complete()
    shutil.rmtree(machine.environment)
    machine.program("python3.11", "exit 1")  # this simulates a missing venv module
    said = machine.run("version", status=1)
    assert "missing Debian packages: python3.11 python3.11-venv python3.11-dev." in said


def test_clones_share_an_environment(machine: Machine) -> None:
    machine.complete()
    (machine.workspace / ".venv").unlink()
    machine.run("version")
    assert machine.calls("python", "pip", "apt-get") == []
    assert (machine.workspace / ".venv").resolve() == machine.environment


def test_a_folder_of_an_earlier_bazelw_is_replaced(machine: Machine) -> None:
    machine.complete()
    venv = machine.workspace / ".venv"
    venv.unlink()
    (venv / "bin").mkdir(parents=True)
    machine.run("version")
    assert venv.resolve() == machine.environment


def test_no_package_index(machine: Machine) -> None:
    """If an installation was incomplete, the next run continues it."""
    machine.complete()
    machine.state.unlink()
    (machine.root / "no-index").touch()
    said = machine.run("version", status=1)
    assert (
        "pip could not install requirements.lock: check that pip can reach a package index" in said
    )
    assert machine.calls("bazel") == []
    assert not machine.state.exists()
    (machine.root / "no-index").unlink()
    machine.run("version")
    assert machine.calls("bazel") == ["bazel version"]
    assert machine.state.exists()


def test_the_index_of_pytorch(machine: Machine) -> None:
    machine.complete()
    machine.state.unlink()
    machine.program("timeout")
    machine.run("version")
    [torch] = (call for call in machine.calls("python") if call.endswith("requirements.torch"))
    assert "--index-url=https://download.pytorch.org/whl/cpu " in torch


def test_the_index_of_pytorch_is_behind_a_wall(machine: Machine) -> None:
    """If a server accepts connections but sends nothing, PyTorch's other build is installed."""
    machine.complete()
    machine.state.unlink()
    machine.program("timeout")
    machine.program("python", "[[ $* != *--index-url* ]]", folder=machine.environment / "bin")
    machine.run("version")
    tried = [call for call in machine.calls("python") if call.endswith("requirements.torch")]
    assert ["--index-url" in call for call in tried] == [True, False]
    assert machine.calls("bazel") == ["bazel version"]


def test_an_own_interpreter(machine: Machine) -> None:
    machine.complete()
    shutil.rmtree(machine.environment)
    machine.run("version", OPENREG_PYTHON=str(machine.bin / "python3.11"))
    assert machine.calls() == ["bazel version"]
    said = machine.run("version", status=1, OPENREG_PYTHON="/no/python")
    assert "OPENREG_PYTHON=/no/python is not executable" in said


def test_bazelisk(machine: Machine) -> None:
    machine.complete()
    machine.program("bazelisk")
    machine.run("version")
    assert machine.calls() == ["bazelisk --version", "bazelisk version"]


def test_bazelisk_cannot_fetch_bazel(machine: Machine) -> None:
    machine.complete()
    machine.apt_get()
    machine.program("bazelisk", "echo no such host >&2; exit 1")
    said = machine.run("version")
    assert "no such host" in said
    assert f"bazelw: {machine.bin}/bazelisk does not run (USE_BAZEL_VERSION=" in said
    assert machine.calls() == ["bazelisk --version", "bazel version"]
    (machine.bin / "bazel").unlink()
    machine.run("version")
    assert machine.calls("apt-get")[1].endswith(" bazel-bootstrap")
    assert machine.calls("bazel") == ["bazel version"]


def test_a_bazel_without_a_script_is_run_by_ours(machine: Machine) -> None:
    """bazelw itself calls tools/bazel if Bazel is a binary. A script would call it instead."""
    machine.complete()
    (machine.bin / "bazel").unlink()
    binary = shutil.which("true")
    assert binary
    (machine.bin / "bazel").symlink_to(binary)
    machine.program(
        "bazel", 'echo "real $BAZEL_REAL" >>"$machine/log"', machine.workspace / "tools"
    )
    machine.run("version")
    assert machine.calls() == ["bazel version", f"real {machine.bin}/bazel"]


@pytest.mark.parametrize(
    ("version", "options"), [("bazel 4.2.3", 4), ("bazel 6.5.0", 7), ("bazel 7.7.1", 7)]
)
def test_options_of_the_version(machine: Machine, version: str, options: int) -> None:
    machine.program("bazel", f"[[ $1 != --version ]] || echo {version}")
    subprocess.run(
        [SOURCE.parent / "tools" / "bazel", "build", "//..."],
        env={**os.environ, "BAZEL_REAL": str(machine.bin / "bazel")},
        check=True,
    )
    assert f"/tools/bazelrc/bazel{options}.bazelrc build //..." in machine.calls("bazel")[-1]


@pytest.mark.parametrize("version", ["8.0.0", "9.1.0", "10.0.0"])
def test_a_bazel_without_workspaces(machine: Machine, version: str) -> None:
    machine.program("bazel", f"[[ $1 != --version ]] || echo bazel {version}")
    done = subprocess.run(
        [SOURCE.parent / "tools" / "bazel", "build", "//..."],
        env={**os.environ, "BAZEL_REAL": str(machine.bin / "bazel")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "is newer than Bazel 7" in done.stderr
    assert machine.calls("bazel") == ["bazel --version"]
