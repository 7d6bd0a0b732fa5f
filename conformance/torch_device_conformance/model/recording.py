# SPDX-License-Identifier: BSD-3-Clause
"""Records the operators that a user's model calls in one training step.

The model is a Python file that defines these functions:

- ``model()`` returns a module on the CPU.
- ``inputs()`` returns a tuple with the arguments of the forward call, on the CPU.
- ``loss(output)`` returns a 0-dim tensor. The default is the sum of all outputs. During this call,
  the device is torch's default device, so that the function creates targets there.
- ``optimizer(parameters)`` returns an optimizer, or None to skip the step. The default is SGD.

The model is recorded on the CPU or on the device "meta", which needs no memory but has no values.
Neither of them needs the device under test.
"""

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

PHASES = ("forward", "backward", "optimizer")

# The values of larger integer tensors are not recorded.
MOST_VALUES = 1 << 16


class BadModel(Exception):
    """Raised if a file defines no model that can be recorded. The message contains the reason."""


@dataclass(frozen=True)
class Argument:
    """A tensor argument of a call.

    Attributes:
        dtype: dtype of the tensor.
        shape: shape of the tensor.
        strides: strides of the tensor.
        values: values of an integer or bool tensor, which may be an index, or None if not recorded.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    values: Tensor | None = None

    def key(self) -> tuple[Any, ...]:
        """Returns the fields that decide whether two arguments are alike: all except the values."""
        return self.dtype, self.shape, self.strides

    def __str__(self) -> str:
        return f"{str(self.dtype)[6:]}{list(self.shape)}"


@dataclass
class Signature:
    """An operator call: its arguments, with an Argument in place of each tensor."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    calls: int = 1

    def tensors(self) -> list[Argument]:
        """Returns the tensor arguments."""
        return [
            leaf for leaf in tree_leaves((self.args, self.kwargs)) if isinstance(leaf, Argument)
        ]

    def __str__(self) -> str:
        return ", ".join(map(str, self.tensors()))


@dataclass
class Recording:
    """The operator calls of a model, by phase, overload and dtype.

    Attributes:
        name: name of the model's file, without its suffix.
        calls: signatures by phase, overload such as "aten::mm", and dtype of the first tensor.
    """

    name: str
    calls: dict[tuple[str, str, str], list[Signature]] = field(default_factory=dict)

    def add(self, phase: str, name: str, args: Any, kwargs: Any) -> None:
        """Adds a call. If only tensor values differ from an earlier call, increases its count."""
        taken: dict[int, Argument] = {}

        def abstract(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            if id(value) not in taken:
                taken[id(value)] = argument(value)
            return taken[id(value)]

        made = Signature(*tree_map(abstract, (tuple(args), dict(kwargs))))
        first = next((t for t in made.tensors()), None)
        dtype = str(first.dtype if first else kwargs.get("dtype") or torch.float32)[6:]
        found = self.calls.setdefault((phase, name, dtype), [])
        for other in found:
            if like(other, made):
                other.calls += 1
                return
        found.append(made)

    def overloads(self) -> dict[str, int]:
        """Returns the number of calls to each overload, with the most frequent overload first."""
        total: dict[str, int] = {}
        for (_, name, _), signatures in self.calls.items():
            total[name] = total.get(name, 0) + sum(s.calls for s in signatures)
        return dict(sorted(total.items(), key=lambda item: -item[1]))


def argument(x: Tensor) -> Argument:
    """Returns a description of a tensor argument."""
    kept = x.dtype in INTEGERS and x.device.type != "meta" and x.numel() <= MOST_VALUES
    values = x.detach().clone() if kept else None
    return Argument(x.dtype, tuple(x.shape), tuple(x.stride()), values)


INTEGERS = frozenset({torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})


def like(a: Signature, b: Signature) -> bool:
    """Returns whether two calls are the same except for tensor values."""

    def key(signature: Signature) -> str:
        return repr(
            tree_map(
                lambda x: x.key() if isinstance(x, Argument) else repr(x),
                (signature.args, signature.kwargs),
            )
        )

    return key(a) == key(b)


class Recorder(TorchDispatchMode):
    """Adds all operator calls to a recording while active. `phase` is the current phase."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.recording = recording
        self.phase = PHASES[0]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "aten":
            self.recording.add(self.phase, func.name(), args, kwargs)
        return func(*args, **kwargs)


@dataclass(frozen=True)
class Model:
    """The imported Python file that defines a user's model."""

    path: Path
    module: ModuleType

    def function(self, name: str) -> Callable[..., Any] | None:
        """Returns a function of the file, or None if the file does not define it."""
        found = getattr(self.module, name, None)
        return found if callable(found) else None


def load(path: Path) -> Model:
    """Loads a model's file.

    Raises:
        BadModel: the file cannot be imported, or lacks a function.
    """
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise BadModel(f"cannot load {path} as Python code; its name must end with .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise BadModel(f"loading {path} raised {type(error).__name__}: {error}") from error
    model = Model(path, module)
    for name in ("model", "inputs"):
        if model.function(name) is None:
            raise BadModel(f"{path} does not define {name}()")
    return model


def step(
    model: Model, device: torch.device, phase: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Runs a training step on a device: forward, backward and the optimizer.

    Args:
        model: the model to run.
        device: the device to use.
        phase: called with the name of each phase when it starts.

    Returns:
        The outputs, the loss, and the parameters after the step, by name.
    """
    make: Any = model.function("model")
    inputs: Any = model.function("inputs")
    module: nn.Module = make().to(device)
    arguments = tree_map(lambda x: x.to(device) if isinstance(x, Tensor) else x, tuple(inputs()))
    optimizer = optimizer_of(model, module)
    phase("forward")
    output = module(*arguments)
    outputs = [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]
    found: dict[str, Any] = {f"output {n}": leaf.detach() for n, leaf in enumerate(outputs)}
    own_loss = model.function("loss")
    differentiable = [leaf for leaf in outputs if leaf.requires_grad]
    if own_loss is None and not differentiable:
        return found
    sums = [leaf.float().sum() for leaf in differentiable]
    with device:
        loss: Tensor = own_loss(output) if own_loss else torch.stack(sums).sum()
    phase("backward")
    loss.backward()
    if optimizer is not None:
        phase("optimizer")
        optimizer.step()
    found["loss"] = loss.detach()
    found |= {f"parameter {name}": leaf.detach() for name, leaf in module.named_parameters()}
    return found


def optimizer_of(model: Model, module: nn.Module) -> torch.optim.Optimizer | None:
    """Returns a model's optimizer, or None if there are no parameters or the file returns None."""
    parameters = [leaf for leaf in module.parameters() if leaf.requires_grad]
    if not parameters:
        return None
    make = model.function("optimizer")
    if make is None:
        return torch.optim.SGD(parameters, lr=0.01)
    made: torch.optim.Optimizer | None = make(parameters)
    return made


def record(model: Model, place: str = "cpu") -> Recording:
    """Records a model on the CPU or on "meta".

    Raises:
        BadModel: the model does not run on `place`.
    """
    recording = Recording(model.path.stem)
    recorder = Recorder(recording)

    def phase(name: str) -> None:
        recorder.phase = name

    torch.manual_seed(0)
    try:
        with recorder, moved_quietly(recorder):
            step(model, torch.device(place), phase)
    except Exception as error:
        hint = "; record it on the CPU" if place == "meta" else ""
        raise BadModel(
            f"running {model.path} raised {type(error).__name__}: {error}{hint}"
        ) from error
    return recording


@contextmanager
def moved_quietly(recorder: Recorder) -> Iterator[None]:
    """Removes the calls of the `with` block before the first phase, which create the model."""
    recorder.phase = "setup"
    try:
        yield
    finally:
        for key in [key for key in recorder.recording.calls if key[0] == "setup"]:
            del recorder.recording.calls[key]


def routes(recording: Recording, known: Mapping[str, str]) -> Sequence[tuple[str, int, str]]:
    """Returns each overload with its number of calls and its route to the device.

    Args:
        recording: the recording of a model.
        known: the route of each overload, from a report.
    """
    return [
        (name, calls, known.get(name, known.get(f"{name}.default", "unknown")))
        for name, calls in recording.overloads().items()
    ]
