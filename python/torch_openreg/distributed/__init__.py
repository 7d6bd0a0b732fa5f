# SPDX-License-Identifier: BSD-3-Clause
"""The device in torch.distributed: the collective backend ``occl``."""

from torch_openreg import _C

__all__ = ["dump_flight_recorder"]


def dump_flight_recorder(stacks: bool = True, only_active: bool = False) -> bytes:
    """Return the last collectives of this process, in the format of torch's flight recorder.

    ``TORCH_FR_BUFFER_SIZE`` of them are kept (2000 unless set; 0: none). Written to one file per
    rank, ``python -m torch.distributed.flight_recorder.fr_trace FOLDER`` compares them. With
    ``TORCH_FR_DUMP_ON_TIMEOUT=1`` the first failure writes the file by itself, to
    ``TORCH_FR_DUMP_TEMP_FILE`` followed by the rank.

    Args:
        stacks: whether the Python stack of each call is included.
        only_active: whether operations that are done are left out.

    Returns:
        A pickled dict: entries, pg_config, pg_status, version.
    """
    return _C.dump_flight_recorder(stacks, only_active)
