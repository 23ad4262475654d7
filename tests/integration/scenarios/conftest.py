"""Runs of shipped scenarios that the tests of this folder share."""

import pytest
from scenario_runs import ScenarioRuns


@pytest.fixture(scope="session")
def scenario_runs(tmp_path_factory: pytest.TempPathFactory) -> ScenarioRuns:
    return ScenarioRuns(tmp_path_factory.mktemp("scenarios"))
