"""How often a probe is sent before it counts as lost, where links lose packets because their file says so."""

import pytest

from testbed.lab.core.deploy.watch.probe import FALSE_LOSS, MOST_ROUNDS, PATH_LINKS, ROUNDS, rounds_for


@pytest.mark.parametrize("loss", [0.001, 0.01, 0.05])
@pytest.mark.parametrize("probes", [1, 480, 100_000])
def test_what_links_may_lose_is_no_black_hole(loss: float, probes: int) -> None:
    lost = 1 - (1 - loss) ** PATH_LINKS
    rounds = rounds_for(loss, probes)
    assert probes * lost**rounds <= FALSE_LOSS
    assert rounds == ROUNDS or probes * lost ** (rounds - 1) > FALSE_LOSS, "no more than that takes"


def test_links_that_lose_nothing_are_asked_as_before() -> None:
    assert rounds_for(0.0, 480) == rounds_for(1.0, 480) == rounds_for(0.01, 0) == ROUNDS
    assert rounds_for(0.5, 480) == MOST_ROUNDS
