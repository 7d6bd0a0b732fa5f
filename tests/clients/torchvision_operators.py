# SPDX-License-Identifier: BSD-3-Clause
"""Lets torchvision be imported beside a torch without CUDA: to be imported before it.

PyPI's torchvision is built for CUDA. Beside a torch without CUDA its C++ operators do not load, and
its Python code, which does not need them, asks for two of them without looking. Declared, they
still have no kernel.
"""

import torch

# They are declared as long as this lives.
LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
if torch.version.cuda is None:
    for operator in ("nms", "qnms"):
        LIBRARY.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
