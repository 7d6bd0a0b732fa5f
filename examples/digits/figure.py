# SPDX-License-Identifier: BSD-3-Clause
"""Draws a figure that compares the results of two runs."""

from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from examples.digits.model import CLASSES
from examples.digits.training import Digits, Record
from examples.digits.verdict import COMPARED_STEPS, LOSS_DIFFERENCE, loss_differences, named


def draw(run: Record, reference: Record, digits: Digits, path: Path) -> None:
    """Draws a figure: loss curves, their difference, confusion matrix, misclassified images.

    Args:
        run: the run on the device.
        reference: the run on the CPU.
        digits: the images of both runs.
        path: the output file; its suffix is the format.
    """
    figure = Figure(figsize=(11, 8), layout="constrained")
    figure.suptitle(f"Handwritten digits on {run.name}, compared with {reference.name}")
    grid = figure.add_gridspec(2, 2, height_ratios=(1, 1.25))
    draw_losses(figure.add_subplot(grid[0, 0]), run, reference)
    draw_differences(figure.add_subplot(grid[0, 1]), run, reference)
    draw_confusion(figure.add_subplot(grid[1, 0]), run, digits)
    draw_mistakes(figure.add_subplot(grid[1, 1]), run, digits)
    figure.savefig(path, dpi=120)


def draw_losses(axes: Axes, run: Record, reference: Record) -> None:
    """Draws both losses by step. Where they agree, the dashed curve covers the other one."""
    for (name, record), style, width in zip(
        named(run, reference), ("-", "--"), (2.2, 1.0), strict=True
    ):
        axes.plot(record.losses, style, linewidth=width, label=f"{name} ({record.seconds:.1f} s)")
    axes.set(title="Training loss", xlabel="step", ylabel="cross entropy", yscale="log")
    axes.legend()


def draw_differences(axes: Axes, run: Record, reference: Record) -> None:
    """Draws the difference between the losses, and its bound."""
    differences = loss_differences(run, reference)
    axes.plot(differences, ".", markersize=3, color="tab:purple")
    compared = min(COMPARED_STEPS, len(differences))
    if run.mode in LOSS_DIFFERENCE:
        bound = LOSS_DIFFERENCE[run.mode]
        axes.hlines(bound, 0, compared, color="tab:red", label="promise")
        axes.legend()
    # The scale is linear near zero. Most differences in a good run are in this range, and a
    # logarithm of zero is undefined.
    axes.set_yscale("symlog", linthresh=1e-7)
    axes.set_ylim(bottom=0)
    axes.set(title="Difference of the losses", xlabel="step", ylabel="absolute difference")


def draw_confusion(axes: Axes, run: Record, digits: Digits) -> None:
    """Draws the confusion matrix of the test images."""
    labels = digits.test.tensors[1]
    counts = torch.bincount(labels * CLASSES + run.predictions, minlength=CLASSES**2)
    matrix = counts.view(CLASSES, CLASSES)
    axes.imshow(matrix.numpy(), cmap="Blues")
    for row in range(CLASSES):
        for column in range(CLASSES):
            count = int(matrix[row, column])
            if count:
                color = "white" if 2 * count > matrix.max() else "black"
                axes.text(column, row, str(count), ha="center", va="center", color=color)
    axes.set(
        title=f"Test images on {run.name}: {run.accuracy:.1%} correct",
        xlabel="classified as",
        ylabel="digit",
        xticks=range(CLASSES),
        yticks=range(CLASSES),
    )


def draw_mistakes(axes: Axes, run: Record, digits: Digits) -> None:
    """Draws the first of the misclassified test images."""
    images, labels = digits.test.tensors
    wrong = (labels != run.predictions).nonzero().flatten().tolist()
    axes.set_axis_off()
    axes.set_title(f"Misclassified: {len(wrong)} of {len(labels)}")
    columns, rows = 4, 3
    for place, index in enumerate(wrong[: columns * rows]):
        row, column = divmod(place, columns)
        inset = axes.inset_axes((column / columns, 1 - (row + 1) / rows, 0.8 / columns, 0.8 / rows))
        inset.imshow(images[index, 0].numpy(), cmap="gray_r")
        inset.set_axis_off()
        inset.set_title(f"{labels[index]}, classified as {run.predictions[index]}", fontsize=8)
