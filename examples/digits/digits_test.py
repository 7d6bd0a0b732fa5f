# SPDX-License-Identifier: BSD-3-Clause
"""Tests the digits example: flags, batches, promises, and the whole program on the device."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch_openreg.trace import events, validation

from examples.digits import digits as program
from examples.digits.quantization import Int8Linear
from examples.digits.training import BATCH, Digits, Mode, Record, can_pin, train, training_batches
from examples.digits.verdict import promises, promises_of_amp, promises_of_quantization

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def images() -> Digits:
    return Digits.load()


@pytest.fixture
def typed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sets the variable in which `bazel run` passes the user's working directory."""
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--device", "nonsense"], "there is no device 'nonsense', only cpu (1), openreg ("),
        (["--epochs", "0"], "'0' is not an integer of at least 1"),
        (["--epochs", "many"], "'many' is not an integer"),
        (["--seed", "-1"], "'-1' is not an integer"),
        (["--quantize", "int3"], "invalid choice: 'int3' (choose from"),
        (["--amp", "--quantize", "int8"], "--quantize: not allowed with argument --amp"),
        (["--amp", "--compile"], "argument --compile: not allowed with argument --amp"),
        (["--plot", "digits.docx"], "'digits.docx' must end in one of"),
        (["--plot", "missing/digits.png"], "missing/digits.png cannot be written"),
    ],
)
def test_wrong_flag_is_one_line(
    argv: list[str], message: str, typed_in: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        program.main(argv)
    assert exit_.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("digits: ")
    assert err.count("\n") == 1
    assert message in err


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        program.main(["--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    flags = ("amp", "compile", "device", "epochs", "seed", "plot", "profile", "quantize")
    assert all(f"--{flag}" in text for flag in flags)


def test_epochs_are_printed_without_a_terminal(
    images: Digits, capsys: pytest.CaptureFixture[str]
) -> None:
    record = program.run(images, CPU, epochs=2, seed=0)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("training on cpu: epoch 1 of 2, loss ")
    batches = len(record.losses) // 2
    mean = sum(record.losses[batches:]) / batches
    assert second == f"training on cpu: epoch 2 of 2, loss {mean:.4f}"


def test_batches_depend_on_the_seed_alone(images: Digits) -> None:
    def labels(seed: int) -> torch.Tensor:
        return torch.cat([batch[1] for batch in training_batches(images, seed)])

    assert torch.equal(labels(3), labels(3))
    assert not torch.equal(labels(3), labels(4))


def test_a_driver_without_pinned_memory_can_train(monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_pin()

    def refuse(*_: object, **__: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(torch, "empty", refuse)
    assert not can_pin()


def test_images_are_split_without_overlap(images: Digits) -> None:
    assert len(images.train) + len(images.test) == 1797
    assert images.train.tensors[0].shape[1:] == (1, 8, 8)
    assert images.train.tensors[0].min() == 0
    assert images.train.tensors[0].max() == 1
    # Each digit must have its share of the test images.
    assert images.test.tensors[1].bincount().min() >= 34


def record(losses: list[float], accuracy: float) -> Record:
    return Record(CPU, losses=losses, accuracy=accuracy)


def test_verdict() -> None:
    good = record([1.0] * 200, 0.97)
    assert all(promise.kept for promise in promises(good, good))
    late = record([1.0] * 100 + [2.0] * 100, 0.97)
    assert all(promise.kept for promise in promises(late, good))
    for bad in (
        record([1.0] * 200, 0.969),
        record([1.0] * 99 + [1.0011] + [1.0] * 100, 0.97),
        record([float("nan")] * 200, 0.97),
    ):
        assert sum(not promise.kept for promise in promises(bad, good)) == 1


def test_verdict_of_mixed_precision() -> None:
    def kept(accuracies: list[float]) -> bool:
        runs = [record([1.0], accuracy) for accuracy in accuracies]
        (promise,) = promises_of_amp(runs, [record([1.0], 0.98)] * 3)
        return promise.kept

    assert kept([0.98, 0.98, 0.98])
    # The mean may be lower by 1%, regardless of the individual accuracies.
    assert kept([0.96, 0.97, 0.99])
    assert kept([1.0, 1.0, 1.0])
    assert not kept([0.96, 0.97, 0.97])
    assert not kept([0.98, 0.98, float("nan")])


def test_verdict_of_quantization() -> None:
    exact = record([1.0], 0.98)
    (good,) = promises_of_quantization(record([1.0], 0.975), exact)
    (bad,) = promises_of_quantization(record([1.0], 0.96), exact)
    assert good.kept
    assert not bad.kept


def test_verdict_of_compiled_training() -> None:
    eager = record([1.0] * 200, 0.97)

    def broken(graphs: int | None, loss: float) -> list[str]:
        run = Record(CPU, Mode.COMPILED, losses=[loss] * 200, accuracy=0.97, graphs=graphs)
        return [promise.text for promise in promises(run, eager) if not promise.kept]

    assert broken(3, 1.00009) == []
    assert broken(3, 1.0002) == ["loss of the first 100 steps agrees to 0.0001"]
    # The promise is broken if the optimizer was not compiled, or if nothing was compiled.
    for graphs in (2, 0, None):
        (text,) = broken(graphs, 1.0)
        assert text.startswith("a step runs 3 compiled graphs")


def test_short_run_breaks_the_promise_of_accuracy(
    typed_in: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["--device", "cpu", "--epochs", "1", "--plot", "none"]) == 1
    out = capsys.readouterr().out
    assert "BROKEN test accuracy on cpu" in out
    assert "kept   loss of the first 22 steps" in out
    assert list(typed_in.iterdir()) == []


def test_training_on_the_device_is_reproducible(images: Digits) -> None:
    device = torch.device("openreg", 1)
    first = train(images, device, epochs=2, seed=5)
    second = train(images, device, epochs=2, seed=5)
    assert first.losses == second.losses
    assert first.losses[0] > first.losses[-1]
    # The peak must be larger than the size of the weights (about 53,000 floats).
    assert first.peak_bytes is not None
    assert first.peak_bytes > 200_000


def test_whole_job(typed_in: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = program.main([])
    out = capsys.readouterr().out
    assert status == 0, out
    for expected in (
        "openreg:",
        "cpu:",
        "memory peak",
        "fallbacks",
        "kept   loss of the first 100",
    ):
        assert expected in out
    assert (typed_in / "digits.png").read_bytes().startswith(b"\x89PNG")


def test_mixed_precision_has_the_same_accuracy(
    typed_in: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = program.main(["--amp", "--epochs", "1", "--seed", "4"])
    out = capsys.readouterr().out
    assert status == 0, out
    assert out.count("openreg with autocast:\n") == 3
    assert out.count("openreg:\n") == 3
    assert "kept   mean test accuracy of 3 seeds with autocast" in out
    assert (typed_in / "digits.png").read_bytes().startswith(b"\x89PNG")


def test_int8_has_the_same_accuracy(typed_in: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = program.main(["--quantize", "int8", "--epochs", "4"])
    out = capsys.readouterr().out
    assert status == 0, out
    assert "openreg, int8:\n" in out
    assert "kept   test accuracy with int8 >= float32's - 1%" in out


@pytest.mark.parametrize("device", ["cpu", "openreg"])
def test_int8_layers_round_and_are_saved(device: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(40, 30)
    x = torch.randn(2, 20, 40)
    expected = layer(x)
    quantized = Int8Linear(layer.to(device))
    out = quantized(x.to(device))
    # The rounding error of each factor is at most 1/254 of its largest magnitude.
    assert (out.cpu() - expected).norm() < 0.02 * expected.norm()
    assert not torch.equal(out.cpu(), expected)
    torch.save(quantized.state_dict(), tmp_path / "layer.pt")
    other = Int8Linear(nn.Linear(40, 30).to(device))
    other.load_state_dict(torch.load(tmp_path / "layer.pt"))
    assert torch.equal(other(x.to(device)), out)


def test_profile_of_an_epoch(
    images: Digits, typed_in: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = program.parse(["--profile", "trace.json", "--epochs", "1"])
    program.write_trace(images, flags)
    assert (typed_in / "trace.png").read_bytes().startswith(b"\x89PNG")
    trace = events.read(typed_in / "trace.json")
    assert not list(validation.faults(trace))
    steps = len(images.train) // BATCH
    # The warm-up adds one step.
    assert sum(work.name == "aten::nll_loss_forward" for work in trace.work) == steps + 1
    assert "aten::addmm" in capsys.readouterr().out


def test_mixed_precision_scales_its_losses(images: Digits) -> None:
    exact, mixed = (
        train(images, torch.device("openreg"), epochs=1, seed=0, mode=mode)
        for mode in (Mode.PLAIN, Mode.AMP)
    )
    # The network and the batches are the same, but the precision is 11 bits instead of 24.
    assert mixed.losses != exact.losses
    assert mixed.losses[:10] == pytest.approx(exact.losses[:10], rel=0.05)
    assert mixed.fallbacks == {}


@pytest.mark.parametrize("device", ["openreg", "openreg:1"])
def test_compiled_training_agrees(
    device: str, typed_in: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.compiler.reset()
    program.main(["--compile", "--epochs", "1", "--plot", "none", "--device", device])
    out = capsys.readouterr().out
    assert f"{device}, compiled:\n" in out
    assert f"{device}:\n" in out
    assert "kept   loss of the first 22 steps agrees to 0.0001" in out
    assert "kept   a step runs 3 compiled graphs" in out


def test_compiled_training_breaks_its_promise_if_nothing_was_compiled(
    typed_in: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with torch.compiler.set_stance("force_eager"):
        status = program.main(["--compile", "--epochs", "1", "--plot", "none"])
    assert status == 1
    assert "BROKEN a step runs 3 compiled graphs: forward, backward, optimizer: 0" in (
        capsys.readouterr().out
    )
