# SPDX-License-Identifier: BSD-3-Clause
"""Generated code of one test file: not what some program on this machine left, nor for others.

    from tests.kernel_cache import own_cache as own_cache

is enough.
"""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let torch keep code, and what it has measured, in a folder of this module's tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield
