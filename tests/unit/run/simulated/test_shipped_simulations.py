"""Which shipped scenarios are simulated: all but those about real programs, each of which is refused by name."""

from pathlib import Path

import pytest
from scenario_runs import NOT_SIMULATED, SCENARIOS

from testbed.base.errors import ScenarioError
from testbed.run.simulated.support import check_supported
from testbed.run.sweeps import read_sweep

pytestmark = pytest.mark.process


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yml")), ids=lambda path: path.stem)
def test_it_is_simulated_or_refused_by_name(path: Path) -> None:
    sweep = read_sweep(path)
    if path.stem not in NOT_SIMULATED:
        check_supported(sweep)
        return
    with pytest.raises(ScenarioError) as caught:
        check_supported(sweep)
    assert NOT_SIMULATED[path.stem] in caught.value.message and caught.value.hint
