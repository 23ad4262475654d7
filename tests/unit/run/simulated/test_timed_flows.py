"""Flows for a duration are refused where their samples could not say what they carried."""

from types import SimpleNamespace

import pytest

from testbed.base.errors import ScenarioError
from testbed.endpoints.worker.curves import MOST_CHANNELS, MOST_SAMPLES
from testbed.run.programs.timed_flows import SAMPLE_S
from testbed.run.simulated.timed import require_samples, sample_s


def test_a_host_with_more_flows_than_are_sampled_is_refused() -> None:
    flows = [SimpleNamespace(source=SimpleNamespace(node=node)) for node in ("h1", "h2") for _ in range(MOST_CHANNELS)]
    require_samples(flows)
    with pytest.raises(ScenarioError, match="64 flows of a host for a given time, and h2 sends 65") as caught:
        require_samples([*flows, flows[-1]])
    assert caught.value.hint


@pytest.mark.parametrize("seconds", [2, 100, 127, 129, 400, 3600])
def test_no_sample_of_a_long_run_has_to_go(seconds) -> None:
    step_s = sample_s(seconds)
    assert seconds / step_s + 2 <= MOST_SAMPLES
    assert (step_s == SAMPLE_S) == (seconds <= 127)
