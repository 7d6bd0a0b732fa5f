# SPDX-License-Identifier: BSD-3-Clause
"""Trains a small network on device npy: ./bazelw run //examples/python_backend."""

import sys

import torch

from examples.python_backend import npy


def train(device: str, steps: int) -> list[float]:
    """Fits a network to points of a sine curve without noise; returns the loss of each step.

    Args:
        device: the device of the network and the points.
        steps: the number of optimizer steps.
    """
    torch.manual_seed(0)
    x = torch.linspace(-3, 3, 64).reshape(-1, 1)
    y = torch.sin(x).to(device)
    network = torch.nn.Sequential(
        torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 32), torch.nn.ReLU()
    ).append(torch.nn.Linear(32, 1))
    network.to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(network(x.to(device)), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> int:
    """Trains on both devices and prints the losses. Returns 1 if they differ or do not fall."""
    ours, host = train(npy.NAME, 200), train("cpu", 200)
    for step in range(0, 200, 40):
        print(f"step {step:3}  {npy.NAME} {ours[step]:.6f}  cpu {host[step]:.6f}")
    print(f"at the end  {npy.NAME} {ours[-1]:.6f}  cpu {host[-1]:.6f}")
    agree = max(abs(a - b) for a, b in zip(ours, host, strict=True)) < 1e-3
    return 0 if agree and ours[-1] < ours[0] / 10 else 1


if __name__ == "__main__":
    sys.exit(main())
