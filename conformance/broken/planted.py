# SPDX-License-Identifier: BSD-3-Clause
"""Plants a defect in the backend of this process on import. BROKEN_BACKEND names the defect.

BROKEN_BACKEND=seed_ignored python -m torch_device_conformance --device openreg \\
      --import broken.planted
"""

import os

from broken.defects import DEFECTS

DEFECTS[os.environ["BROKEN_BACKEND"]].plant()
