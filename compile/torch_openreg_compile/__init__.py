# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile for device ``openreg``.

Nothing here is imported before it is needed: importing this package loads neither ``torch._dynamo``
nor ``torch._inductor``. torch finds the backend by the entry point ``openreg`` of group
``torch_dynamo_backends``; what else it needs registers when it is imported (``registration``).
"""
