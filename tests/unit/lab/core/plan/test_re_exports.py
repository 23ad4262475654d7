"""What `testbed.lab.core.plan` re-exports is found where it is looked for, and nothing else is."""

from __future__ import annotations

import pytest

import testbed.lab.core.plan


@pytest.mark.parametrize("name", testbed.lab.core.plan.__all__)
def test_every_name_is_found(name: str) -> None:
    assert getattr(testbed.lab.core.plan, name) is not None


def test_another_name_is_none_of_it() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'plan_lap'"):
        _ = testbed.lab.core.plan.plan_lap
