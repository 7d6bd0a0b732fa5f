# SPDX-License-Identifier: BSD-3-Clause
"""The log of compiled graphs: artifact ``openreg_graph`` of torch's logging.

``TORCH_LOGS=openreg_graph``, or ``torch._logging.set_logs(modules={"openreg_graph": True})``, shows
the Python source of each graph that backend ``openreg`` takes.

torch reads TORCH_LOGS while it is imported, before any backend, and refuses a name that is neither
one of its own nor a module that could be imported. So the artifact is a module, with the artifact's
name, at the top level; torch does not import it. When the backend does, the setting is already
there: torch has taken it for one about a module.
"""

import logging

from torch import fx
from torch._logging import _internal as torch_logging
from torch_openreg_compile.name import MODULE

_NAME = "openreg_graph"


def _register() -> logging.Logger:
    torch_logging.register_artifact(
        _NAME,
        "Python source of the graphs that backend openreg takes.",
        visible=True,
        off_by_default=True,
    )
    if _NAME in torch_logging.log_state.log_qname_to_level:
        torch_logging.log_state.enable_artifact(_NAME)
    # Below "torch", where torch's handlers are.
    return torch_logging.getArtifactLogger(MODULE, _NAME)


#: Messages of level DEBUG reach torch's handlers when the artifact is named, none do otherwise.
log: logging.Logger = _register()


def log_source(title: str, gm: fx.GraphModule) -> None:
    """Log the source of a graph, with shapes, strides and devices, where anyone listens."""
    if log.isEnabledFor(logging.DEBUG):
        source = gm.print_readable(print_output=False, include_stride=True, include_device=True)
        log.debug("%s:%s", title, source)
