"""Routers outside, as they are planned: nodes, sessions, what is believed, and what is refused."""

from __future__ import annotations

import pytest

from testbed.base.errors import PlanError
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.lab import check_addresses, plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.schema.load import load_topology_text

TEXT = """name: dc
fabric: {{design: rail-optimized, hosts: 6, gpus: 2, segments: 1, spines: 1, overlay: evpn, guards: on}}
networks:
  frontend: {{leaves: 2, spines: 1, prefix: 192.168.0.0/20}}
tenants:
  red:
    external: {{leaf: p1-s1-rail1, asn: {asn}, prefixes: [{prefix}, 203.0.113.6/31], rate: 10G}}
    talks_to: [hub]
    subnets:
      web: {{prefix: 10.201.0.0/24, nics: ["p1-s1-h1:rail2"]}}
      db: {{prefix: 10.202.0.0/24, nics: ["p1-s1-h2:rail2"]}}
      empty: {{prefix: 10.203.0.0/24}}
  hub: {{subnets: {{web: {{prefix: 10.204.0.0/24, nics: ["p1-s1-h3:rail2"]}}}}}}
"""


def load(asn: int = 64999, prefix: str = "198.51.100.0/24") -> Lab:
    return load_topology_text(TEXT.format(asn=asn, prefix=prefix), file="dc.yml")


@pytest.fixture(scope="module")
def lab() -> Lab:
    return load()


@pytest.fixture(scope="module")
def plan(lab: Lab) -> LabPlan:
    return plan_lab(lab, k=100)


@pytest.mark.parametrize(
    "prefix",
    ["10.7.0.0/24", "172.18.0.0/24", "100.64.1.0/24", "192.168.4.0/24", "224.0.0.0/8", "169.254.0.0/24"],
)
def test_prefixes_of_the_lab_are_refused(prefix: str) -> None:
    with pytest.raises(PlanError, match="overlaps") as raised:
        check_addresses(load(prefix=prefix))
    assert (raised.value.code, raised.value.field) == ("overlap", "tenants.red.external.prefixes")


def test_as_numbers_of_switches_are_refused(plan: LabPlan) -> None:
    taken = next(switch.asn for switch in plan.switches)
    for asn in (taken, 4_294_967_294):
        with pytest.raises(PlanError, match=f"the AS {asn} is") as raised:
            check_addresses(load(asn=asn))
        assert (raised.value.code, raised.value.field) == ("same-asn", "tenants.red.external.asn")
