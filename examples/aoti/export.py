# SPDX-License-Identifier: BSD-3-Clause
"""Compiles a model for device openreg ahead of time, for a program without Python.

Writes the package, weights included, and beside it what the program needs to check itself: an
input, and the output that the CPU computes.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Classifier(nn.Module):
    """A convolution, a mean and a matrix product, with what is between them fused."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(1, 8, 3, padding=1)
        self.classes = nn.Linear(8, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Turn images of shape (N, 1, height, width) into log-probabilities (N, 10)."""
        features = F.gelu(self.features(images)).mean((2, 3))
        return F.log_softmax(self.classes(features), dim=-1)


def export(model: nn.Module, inputs: Tensor, package: Path, tensors: Path) -> None:
    """Write a compiled model and what a program needs to run it.

    Args:
        model: on the CPU, of one tensor.
        inputs: an input, on the CPU; the package takes inputs of its shape.
        package: file to write, ``.pt2``.
        tensors: file to write.
    """
    with torch.no_grad():
        expected = model(inputs)
        torch.save({"input": inputs, "expected": expected}, tensors)
        program = torch.export.export(model.to("openreg"), (inputs.to("openreg"),))
        torch._inductor.aoti_compile_and_package(program, package_path=str(package))


def main(argv: Sequence[str] | None = None) -> int:
    """Compile the model of this file."""
    parser = argparse.ArgumentParser(prog="export", description=__doc__)
    parser.add_argument("folder", type=Path, help="where model.pt2 and tensors.pt go")
    folder: Path = parser.parse_args(argv).folder
    torch.manual_seed(0)
    images = torch.rand(4, 1, 8, 8)
    export(Classifier().eval(), images, folder / "model.pt2", folder / "tensors.pt")
    print(f"written: {folder / 'model.pt2'}, {folder / 'tensors.pt'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
