"""The lab that a module's `TEXT` describes, and its plan at the time scale `K` of the module, or at 1000."""

import pytest

from testbed.lab.core.model import Lab
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.schema.load import load_topology_text


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest) -> Lab:
    return load_topology_text(request.module.TEXT, file="lab.yml")


@pytest.fixture(scope="module")
def plan(lab: Lab, request: pytest.FixtureRequest) -> LabPlan:
    return plan_lab(lab, k=getattr(request.module, "K", 1000))
