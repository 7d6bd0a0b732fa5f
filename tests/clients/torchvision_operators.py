# SPDX-License-Identifier: BSD-3-Clause
"""Makes torchvision importable if torch was built without CUDA. Import this module first.

PyPI's torchvision is built for CUDA. If torch lacks CUDA, the C++ operators of torchvision cannot
be loaded, but its Python code looks up two of them on import. This module declares these two
without kernels.
"""

import torch

# The declarations exist as long as this object.
LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
if torch.version.cuda is None:
    for operator in ("nms", "qnms"):
        LIBRARY.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
