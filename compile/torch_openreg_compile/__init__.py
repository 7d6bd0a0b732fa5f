# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile for device ``openreg``.

Importing this package loads neither ``torch._dynamo`` nor ``torch._inductor``. torch finds the
backend through the entry point ``openreg`` in group ``torch_dynamo_backends``. Extensions of
torch's modules are registered when those modules are imported (``registration``).
"""
