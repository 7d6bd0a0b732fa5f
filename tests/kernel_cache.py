# SPDX-License-Identifier: BSD-3-Clause
"""A fixture that gives a test file a separate cache for generated code. To activate it, write:

from tests.kernel_cache import own_cache as own_cache
"""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Makes torch store code and measurements of this module's tests in a temporary folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield
