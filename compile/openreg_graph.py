# SPDX-License-Identifier: BSD-3-Clause
"""Defines ``openreg_graph``, a log of torch's logging system that shows compiled graphs.

``TORCH_LOGS=openreg_graph``, or ``torch._logging.set_logs(modules={"openreg_graph": True})``, shows
the Python source of each graph that backend ``openreg`` receives.

torch reads TORCH_LOGS when torch is imported, before any backend is imported. It rejects names that
are neither its own artifacts nor importable modules. Therefore this is a top-level module with the
name of the artifact. torch does not import this module: it stores the setting, as for any module.
The setting takes effect when the backend imports this module.
"""

import logging

from torch import fx
from torch._logging import _internal as torch_logging
from torch_openreg_compile.name import MODULE

_NAME = "openreg_graph"


def _register() -> logging.Logger:
    torch_logging.register_artifact(
        _NAME,
        "Python source of the graphs that backend openreg receives.",
        visible=True,
        off_by_default=True,
    )
    if _NAME in torch_logging.log_state.log_qname_to_level:
        torch_logging.log_state.enable_artifact(_NAME)
    # This logger is a child of logger "torch" and uses its handlers.
    return torch_logging.getArtifactLogger(MODULE, _NAME)


#: DEBUG messages reach torch's handlers only if the artifact is enabled.
log: logging.Logger = _register()


def log_source(title: str, gm: fx.GraphModule) -> None:
    """Log a graph's source, with shapes, strides and devices, if the log is enabled."""
    if log.isEnabledFor(logging.DEBUG):
        source = gm.print_readable(print_output=False, include_stride=True, include_device=True)
        log.debug("%s:%s", title, source)
