"""TCP of tenants carried: over IPv6 as over IPv4, and refused where two tenants have the same addresses."""

import pytest
from carried import CALL, ECHO, HostProgram

from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.carrier.carrying import carry
from testbed.run.carrier.endpoint_settings import CarrierRefused

pytestmark = [pytest.mark.netns, pytest.mark.frr]

K = 2000.0
TEXT = """
name: {name}
scale: {{time: 2000}}
fabric:
  design: rail-optimized
  segments: 1
  hosts: 4
  gpus: 2
  spines: 1
  nic: {{rate: 400G}}
  overlay: evpn
tenants:
  red:
    subnets:
      web: {{prefix: 10.1.0.0/24, prefix6: "fd00:1::/64", nics: ["p1-s1-h1:rail1", "p1-s1-h2:rail2"]}}
  blue:
    subnets:
      web: {{prefix: 10.1.0.0/24, nics: ["p1-s1-h3:rail1", "p1-s1-h4:rail2"]}}
"""
PORT = 5300


def tenant(lab: RunningLab, *names: str) -> list[PortPlan]:
    return [nic for host in lab.plan.hosts for nic in host.nics if nic.tenant in names]


@pytest.mark.parametrize("bound", ["::", "own"])
def test_connections_over_ipv6_are_carried(lab: RunningLab, bound: str) -> None:
    near, far = tenant(lab, "red")
    assert near.address6 is not None and far.address6 is not None
    at = str(far.address6.ip)
    with carry(lab, [near, far], "uet") as carrying:
        server = HostProgram(lab, far.node, ECHO, at if bound == "own" else bound, PORT, 1)
        server.hear()
        client = HostProgram(lab, near.node, CALL, at, PORT, 50_000)
        seen, served = client.hear(), server.hear()
        assert seen["right"] and served["size"] == 50_000
        assert seen["peer"] == served["name"] == [at, PORT]
        assert seen["name"] == served["peer"] and seen["name"][0] == str(near.address6.ip)
        assert (client.end(), server.end()) == (0, 0)
        assert carrying.counters()["bytes"] == 100_000


def test_addresses_that_two_tenants_have_are_refused(lab: RunningLab) -> None:
    with pytest.raises(CarrierRefused, match=r"both have 10\.1\.0\.2"), carry(lab, tenant(lab, "red", "blue"), "uet"):
        pass
