"""The one way in which golden tests compare: the fixture `golden` gives the reviewed file of a name."""

import pytest
from golden_files import OPTION, Golden, golden_file


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden("plan/ibgp.txt").check(text)`: paths are relative to tests/golden, or absolute."""
    regenerate = bool(request.config.getoption(OPTION))
    return lambda name: golden_file(name, regenerate=regenerate)
