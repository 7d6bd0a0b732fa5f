# SPDX-License-Identifier: BSD-3-Clause
"""What torch.compile finds of the backend, for the metadata of a distribution that ships it."""

ENTRY_POINTS = {
    "torch_dynamo_backends": ["openreg = torch_openreg_compile.backend:openreg"],
}
