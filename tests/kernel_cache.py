# SPDX-License-Identifier: BSD-3-Clause
"""A fixture that gives a test file its own cache for generated code. An import activates it:

from tests.kernel_cache import own_cache as own_cache
"""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Makes torch store code and measurements in a temporary folder for the module's tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield
