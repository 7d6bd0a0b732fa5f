# SPDX-License-Identifier: BSD-3-Clause
"""Works around a bug in torch 2.13: a process group gets the wrong default backend.

torch requests the name, sequence numbers and hooks of a group from its default backend. For a group
with several backends (``"cpu:gloo,openreg:occl"``, or no backend specified),
``_new_process_group_helper`` searches for the plugin's upper-case name among lower-case names. It
does not find the name, and the default backend remains GLOO or UNDEFINED. As a result,
``dist.destroy_process_group`` warns, and ``_get_sequence_number_for_group`` raises.
"""

import functools
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from torch_openreg import _C
from torch_openreg.name import DEVICE_TYPE

_DEFECTIVE = "2.13."


def install() -> None:
    """Wrap the torch function that creates all process groups, in versions with the bug."""
    original = c10d._new_process_group_helper
    if not torch.__version__.startswith(_DEFECTIVE):
        return

    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        group = made[0]
        if isinstance(group, dist.ProcessGroup) and _has_our_backend(group):
            group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
        return made

    c10d._new_process_group_helper = make


def _has_our_backend(group: dist.ProcessGroup) -> bool:
    device = torch.device(DEVICE_TYPE)
    return device in group._device_types and isinstance(
        group._get_backend(device), _C.ProcessGroupOCCL
    )
