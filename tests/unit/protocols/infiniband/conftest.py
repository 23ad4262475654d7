"""What tests of the C of the data path need: a compiler, and that what they make is closed."""

import shutil
from collections.abc import Iterator

import pytest
from virtual_domain import Closing


@pytest.fixture
def closing() -> Iterator[Closing]:
    """Close, after a test, what is handed to this."""
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed")
    made = Closing()
    yield made
    made.close()
