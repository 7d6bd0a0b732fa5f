# SPDX-License-Identifier: BSD-3-Clause
"""If openreg is loaded, importing npy fails and does not change openreg."""

import pytest
import torch


def test_one_backend_of_this_kind_a_process() -> None:
    with pytest.raises(RuntimeError, match="openreg"):
        from examples.python_backend import npy  # noqa: F401
    x = torch.arange(6.0, device="openreg").reshape(2, 3)
    assert (x.relu() @ x.t()).cpu().tolist() == [[5.0, 14.0], [14.0, 50.0]]
    assert not hasattr(torch, "npy")
