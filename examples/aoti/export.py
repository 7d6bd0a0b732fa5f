# SPDX-License-Identifier: BSD-3-Clause
"""Compiles a model ahead of time for device openreg, so that a C++ program can run it.

This script writes a package that contains the model and its weights. It also writes a file that
contains a sample input and the CPU's output for it. The C++ program compares its result with this
output.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Classifier(nn.Module):
    """An image classifier: a convolution, a mean, a matrix product and pointwise operations."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(1, 8, 3, padding=1)
        self.classes = nn.Linear(8, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Maps images of shape (N, 1, height, width) to log-probabilities (N, 10)."""
        features = F.gelu(self.features(images)).mean((2, 3))
        return F.log_softmax(self.classes(features), dim=-1)


def export(model: nn.Module, inputs: Tensor, package: Path, tensors: Path) -> None:
    """Writes a compiled model and the data that the C++ program needs to run it.

    Args:
        model: a model on the CPU with one tensor argument.
        inputs: an input on the CPU; the package accepts inputs of the same shape.
        package: the package file to write, ``.pt2``.
        tensors: the tensor file to write.
    """
    with torch.no_grad():
        expected = model(inputs)
        torch.save({"input": inputs, "expected": expected}, tensors)
        program = torch.export.export(model.to("openreg"), (inputs.to("openreg"),))
        torch._inductor.aoti_compile_and_package(program, package_path=str(package))


def main(argv: Sequence[str] | None = None) -> int:
    """Compiles the model defined in this file."""
    parser = argparse.ArgumentParser(prog="export", description=__doc__)
    parser.add_argument("folder", type=Path, help="output folder for model.pt2 and tensors.pt")
    folder: Path = parser.parse_args(argv).folder
    torch.manual_seed(0)
    images = torch.rand(4, 1, 8, 8)
    export(Classifier().eval(), images, folder / "model.pt2", folder / "tensors.pt")
    print(f"written: {folder / 'model.pt2'}, {folder / 'tensors.pt'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
