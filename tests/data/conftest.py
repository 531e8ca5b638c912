"""Each test reads its data anew."""

import pytest

from mtlib.data import sources


@pytest.fixture(autouse=True)
def nothing_read_before():
    sources._read.cache_clear()
