# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile for device ``openreg``.

Importing this package loads neither ``torch._dynamo`` nor ``torch._inductor``. torch finds the
backend through the entry point ``openreg`` in group ``torch_dynamo_backends``. Module
``registration`` registers the device with torch's compiler modules when a program imports them.
"""
