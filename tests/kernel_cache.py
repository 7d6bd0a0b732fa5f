# SPDX-License-Identifier: BSD-3-Clause
"""A separate cache of generated code for one test file.

    from tests.kernel_cache import own_cache as own_cache

is sufficient to use it.
"""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Makes torch store code and measurements in a temporary folder of this module's tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield
