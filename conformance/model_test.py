# SPDX-License-Identifier: BSD-3-Clause
"""Runs the command that tests a single model, on the CPU and on a pure Python backend."""

from pathlib import Path

import pytest
from torch_device_conformance.__main__ import main
from torch_device_conformance.report.report import load
from torch_device_conformance.verdict.verdict import COMPOSITE, FALLBACK, NATIVE, WRONG

NPY = Path("examples/python_backend/npy.py").absolute()

# The loss creates its target without specifying a device.
MODEL = """
import torch

def model():  # required
    return torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Softsign())

def inputs():  # required: the model's arguments
    return (torch.rand(2, 8),)

def loss(output):  # optional; the default is the sum of the outputs
    return torch.nn.functional.cross_entropy(output, torch.arange(2))

def optimizer(parameters):  # optional; the default is SGD; None means no step
    return torch.optim.AdamW(parameters)
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "small.py"
    path.write_text(MODEL)
    return path


def test_whole_step_and_its_operators_agree(model: Path, tmp_path: Path) -> None:
    assert main(["model", str(model), "--device", "cpu", "--output", str(tmp_path)]) == 0
    report = load(tmp_path / "report.json")
    found = {str(case): verdict.verdict for case, verdict in report.verdicts.items()}
    assert set(found.values()) <= {NATIVE, COMPOSITE}
    assert {case.split("/")[1] for case in found} == {"whole", "forward", "backward", "optimizer"}
    assert "model/whole/float32/small" in found
    assert "model/forward/float32/aten::addmm" in found
    assert "model/optimizer/float32/aten::addcdiv_" in found
    assert "pass 100%" in (tmp_path / "badge.svg").read_text()
    assert "contract" not in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize("place", ["cpu", "meta"])
def test_routes_are_listed_without_the_device(
    place: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    about = ["--import", str(NPY), "--no-autoload", "--device", "npy", "--output", str(tmp_path)]
    main([*about, "--only", "op/eager/float32/abs"])
    capsys.readouterr()
    against = ["--against", str(tmp_path / "report.json"), "--record-on", place]
    assert main(["model", str(model), *against]) == 0
    *rows, on_cpu, _ = capsys.readouterr().out.splitlines()
    assert "| aten::abs | 1 | fallback |" in rows
    assert "would run on the CPU: " in on_cpu
    assert "aten::abs" in on_cpu


def test_fallbacks_of_a_model_are_found(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--import", str(NPY), "--no-autoload", "--device", "npy", "--output", str(tmp_path)]
    main(["model", str(model), *flags])
    report = load(tmp_path / "report.json")
    found = {str(case): verdict.verdict for case, verdict in report.verdicts.items()}
    assert found["model/forward/float32/aten::abs"] == FALLBACK
    # torch considers all tensors of this device contiguous, so aten::t is wrong.
    assert {case.split("/")[-1] for case, v in found.items() if v == WRONG} == {"aten::t"}
    assert "would run on the CPU: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def model(): pass", "does not define inputs()"),
        ("import nowhere", "No module named 'nowhere'"),
        (MODEL.replace("Linear(8, 4)", "Linear(7, 4)"), "shapes cannot be multiplied"),
    ],
)
def test_unusable_models_are_refused(
    text: str, message: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model.write_text(text)
    with pytest.raises(SystemExit) as refused:
        main(["model", str(model)])
    assert refused.value.code == 2
    assert message in capsys.readouterr().err
