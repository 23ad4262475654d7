"""The power of hosts in an InfiniBand back end."""

from types import SimpleNamespace
from typing import Any

import pytest

from testbed.lab.core.deploy.power import NoPower, power_off, power_on
from testbed.lab.core.model import NETNS, NodeKind
from testbed.lab.core.plan.lab_plan import InfinibandPlan


def test_a_host_whose_hcas_would_stay_in_the_subnet_is_not_said_to_be_off() -> None:
    plan = InfinibandPlan(node="infiniband", hcas=(("h1", (("rail1", "H1"),)),))
    lab: Any = SimpleNamespace(
        node=lambda name: SimpleNamespace(name=name, kind=NodeKind.HOST, runtime=NETNS),
        plan=SimpleNamespace(infiniband=plan),
    )
    for switch in (power_off, power_on):
        with pytest.raises(NoPower, match="h1 is in an InfiniBand back end"):
            switch(lab, "h1")
