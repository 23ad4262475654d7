"""The lab that a module's `TEXT` describes, deployed for all of its tests at the time scale `K`, or at 10,000."""

import pytest
from sandbox import Sandbox

from testbed.lab.core.deploy.live import RunningLab


@pytest.fixture(scope="module")
def lab(shared_sandbox: Sandbox, request: pytest.FixtureRequest) -> RunningLab:
    return shared_sandbox.lab(request.module.TEXT, k=getattr(request.module, "K", 10_000.0))
