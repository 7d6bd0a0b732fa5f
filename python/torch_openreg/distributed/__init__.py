# SPDX-License-Identifier: BSD-3-Clause
"""The device's part of torch.distributed: the collective backend ``occl``."""

from torch_openreg import _C

__all__ = ["dump_flight_recorder"]


def dump_flight_recorder(stacks: bool = True, only_active: bool = False) -> bytes:
    """Return this process's last collectives, in the format of torch's flight recorder.

    The recorder keeps the last ``TORCH_FR_BUFFER_SIZE`` collectives (default 2000; 0 disables the
    recorder). If each rank writes its records to a file, ``python -m
    torch.distributed.flight_recorder.fr_trace FOLDER`` compares them. With
    ``TORCH_FR_DUMP_ON_TIMEOUT=1`` the first failure writes this file automatically. Its name is
    ``TORCH_FR_DUMP_TEMP_FILE`` followed by the rank.

    Args:
        stacks: whether each call's Python stack is included.
        only_active: whether completed operations are omitted.

    Returns:
        A pickled dict with the keys entries, pg_config, pg_status and version.
    """
    return _C.dump_flight_recorder(stacks, only_active)
