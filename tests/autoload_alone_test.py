# SPDX-License-Identifier: BSD-3-Clause
"""If only the autoload package is installed, torch works and warns that there is no backend."""

from pathlib import Path

import pytest

from tests.environment import Environment, wheel

WHEEL = wheel("autoload")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Creates an environment with the autoload package's wheel but without the backend."""
    environment = Environment(tmp_path_factory.mktemp("environment"))
    environment.install(WHEEL)
    return environment


def output(environment: Environment, code: str, *options: str, **variables: str) -> str:
    """Runs ``code`` and returns its output. `import torch` must warn once about the backend."""
    done = environment.run(code, *options, **variables)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("device openreg is not available") == 1
    assert "the package torch_openreg is not installed" in done.stderr
    return done.stdout.strip()


def test_torch_works(environment: Environment) -> None:
    assert output(environment, "import torch; print(torch.ones(2).sum().item())") == "2.0"


def test_warning_points_at_the_import(environment: Environment) -> None:
    done = environment.run("import torch")
    assert "/torch/__init__.py:" in done.stderr.split(": RuntimeWarning", maxsplit=1)[0]


def test_where_warnings_are_errors(environment: Environment) -> None:
    assert output(environment, "import torch; print(1)", "-W", "error::RuntimeWarning") == "1"


def test_switched_off_is_silent(environment: Environment) -> None:
    done = environment.run("import torch", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.returncode == 0, done.stderr
    assert "openreg" not in done.stderr


def test_folder_of_that_name_is_not_a_backend(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "torch_openreg").mkdir()
    code = """
        import torch
        try:
            import torch_openreg
        except ImportError as error:
            print(error.__cause__)
    """
    printed = output(environment, code, PYTHONPATH=str(tmp_path))
    assert printed == (
        "'torch_openreg' is not a package but a folder without __init__.py: "
        f"{tmp_path / 'torch_openreg'}"
    )


def test_package_is_reported_as_absent(environment: Environment) -> None:
    code = """
        import importlib.util, torch
        assert importlib.util.find_spec("torch_openreg") is None
        try:
            import torch_openreg
        except ModuleNotFoundError as error:
            print(error.name)
    """
    assert output(environment, code) == "torch_openreg"


def test_device_raises_the_cause(environment: Environment) -> None:
    code = """
        import torch
        for action in (
            lambda: torch.openreg.is_available(),
            lambda: torch.openreg.current_device(),
            lambda: __import__("torch.openreg"),
            lambda: __import__("torch.openreg.memory"),
        ):
            try:
                action()
            except (RuntimeError, ImportError) as error:
                assert "device openreg is not available" in str(error)
                print(type(error).__name__, type(error.__cause__).__name__)
    """
    assert output(environment, code).splitlines() == [
        "DeviceUnavailableError ModuleNotFoundError",
        "DeviceUnavailableError ModuleNotFoundError",
        "ImportError ModuleNotFoundError",
        "ImportError ModuleNotFoundError",
    ]


def test_torch_ignores_the_placeholder_of_the_device(environment: Environment) -> None:
    # Like some programs, this one enumerates torch's names and its devices.
    code = """
        import copy, doctest, inspect, io, pickle, pydoc, sys
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        assert hasattr(torch, "openreg") and not hasattr(torch.openreg, "is_available")
        assert getattr(torch.openreg, "device_count", None) is None
        assert repr(torch.openreg) == "<module 'torch.openreg'>"
        assert "torch.openreg" not in sys.modules
        assert not torch.accelerator.is_available()
        assert torch.accelerator.current_accelerator() in (None, torch.device("cuda"))
        assert torch._C._get_privateuse1_backend_name() == "privateuseone"
        for name in ("openreg", "openreg:0"):
            try:
                torch.device(name)
            except RuntimeError as error:
                assert "openreg" in str(error)
            else:
                raise AssertionError("a device that does not exist")
        torch.manual_seed(3)
        with torch.random.fork_rng():
            torch.rand(1)
        data = TensorDataset(torch.arange(8.0))
        loader = DataLoader(data, batch_size=4, num_workers=1)
        assert sum(batch.sum().item() for (batch,) in loader) == 28

        class Local:
            pass

        pickle.whichmodule(Local, "Local")
        pickle.loads(pickle.dumps(torch.nn.Linear(2, 2)))
        copy.deepcopy(torch.nn.Linear(2, 2))
        buffer = io.BytesIO()
        torch.save({"x": torch.ones(2)}, buffer)
        buffer.seek(0)
        torch.load(buffer)
        assert inspect.ismodule(torch.openreg)
        dict(inspect.getmembers(torch.openreg))
        inspect.getmodule(inspect.currentframe())
        assert "device openreg is not available" in pydoc.render_doc(torch.openreg)
        doctest.DocTestFinder().find(torch.openreg)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            torch.ones(2).add(1)
        with torch.autocast("cpu"):
            torch.ones(2, 2) @ torch.ones(2, 2)
        x = torch.ones(3, requires_grad=True)
        (x * 2).sum().backward()
        compiled = torch.compile(lambda x: x.sin() + 1, backend="aot_eager")
        torch.testing.assert_close(compiled(torch.ones(3)), torch.ones(3).sin() + 1)
        assert "openreg" not in torch._dynamo.list_backends()
        print("unmoved")
    """
    assert output(environment, code) == "unmoved"


def test_calling_the_entry_point_again_changes_nothing(environment: Environment) -> None:
    code = """
        import torch, torch_openreg_autoload
        before = torch.openreg
        torch_openreg_autoload.load()
        assert torch.openreg is before
    """
    output(environment, code)
