"""How likely a run is to be valid."""

import pytest

from testbed.lab.core.deploy.scale import ScaleResolution
from testbed.lab.core.plan.scale import MachineLoad
from testbed.run.sweep.outlook import Likelihood, expect_busy


def scale(load: float, *, bound: bool = False, busy: float = 0.0, steal: float = 0.0) -> ScaleResolution:
    return ScaleResolution(k=1000, reason="", load=load, bound=bound, others=MachineLoad(busy=busy, steal=steal))


@pytest.mark.parametrize(
    ("found", "valid"),
    [
        (scale(0.5), Likelihood.LIKELY),
        (scale(0.5, busy=0.2), Likelihood.UNCERTAIN),
        (scale(0.5, busy=0.3, steal=0.1), Likelihood.UNLIKELY),
        (scale(1.8, bound=True), Likelihood.UNCERTAIN),
        (scale(0.3, bound=True), Likelihood.LIKELY),
    ],
)
def test_traffic_runner_and_others_add_up(found: ScaleResolution, valid: Likelihood) -> None:
    assert expect_busy(found, cores=2).valid is valid


def test_the_sentence_says_what_it_is_made_of() -> None:
    said = expect_busy(scale(0.5, busy=0.1, steal=0.02), cores=2)
    assert said.busy == pytest.approx(0.77)
    assert said.sentence == (
        "77% of the CPUs are expected to be busy (50% the traffic, 15% the runner, 12% others now),"
        " and 90% are allowed, so a run may be invalid"
    )
    assert expect_busy(scale(0.2, bound=True), cores=2).sentence.startswith("at most 35% of the CPUs")
    assert said.as_json()["valid"] == "uncertain"
