"""NICs of the back end with a link group to the two switches of their rail: what a link or a switch takes along."""

from pathlib import Path
from typing import Any

import pytest
from outages import ports_down, short_outage, switch_gone
from waiting import until

from testbed.base.linux.processes import kill_processes
from testbed.lab.core.deploy.routing import running_daemons, start_routing
from testbed.lab.core.deploy.watch.check import CheckStatus, check_lab
from testbed.lab.core.deploy.watch.sessions import missing_sessions
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.mlag.apply import missing_members, read_link_groups

pytestmark = [pytest.mark.netns, pytest.mark.frr]
TOPOLOGY = Path(__file__).parents[3] / "topologies" / "mlag-rails.yml"
LIMIT_S = 0.3
"""Of the time without service by link state."""


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> Any:
    text = TOPOLOGY.read_text().replace("name: mlag-rails", f"name: {shared_sandbox.name()}")
    return shared_sandbox.deploy(load_topology_text(text, file="mlag.yml")).lab


def _address(lab: Any, host: str, nic: str) -> str:
    found = next(one for each in lab.plan.hosts for one in each.nics if (one.node, one.name) == (host, nic))
    return str(found.address.ip)


def _active(lab: Any, host: str) -> dict[str, list[str]]:
    status = next(status for status in read_link_groups(lab) if status.node == host)
    return {group.name: [member.name for member in group.members if member.in_sync] for group in status.groups}


def _whole(lab: Any) -> bool:
    run = lab.run_directory("p1-s1-rail1a").parent
    return not missing_members(lab.plan, run) and not missing_sessions(lab.plan.switches, run)


def _pairs(lab: Any) -> tuple[tuple[tuple[str, str], tuple[str, str]], ...]:
    near, far = (("p1-s1-h1", _address(lab, "p1-s1-h1", "rail1")), ("p1-s2-h1", _address(lab, "p1-s2-h1", "rail1")))
    return (near, far), (far, near)


def test_each_nic_is_one_link_group_of_its_two_switches(lab: Any) -> None:
    assert {(result.name, result.status) for result in check_lab(lab).results if result.status != "pass"} == set()
    assert {result.status for result in check_lab(lab).results} == {CheckStatus.PASS}
    assert _active(lab, "p1-s1-h1") == {"rail1": ["rail1a", "rail1b"], "rail2": ["rail2a", "rail2b"]}
    routes = lab.run("p1-spine1", ["ip", "-4", "route", "show", "10.0.1.0/24"]).stdout
    assert routes.count("nexthop") == 2, "both switches of rail 1 announce its subnet"


def test_a_gateway_that_was_taken_down_by_a_process_that_was_killed_is_there_again(lab: Any) -> None:
    """In a split brain the secondary takes its bridge down, and may be killed before it has taken it up again."""
    leaf, route = "p1-s1-rail1b", "10.0.1.0/24 dev br-lag proto kernel"
    kill_processes(running_daemons(lab, leaf))
    lab.run(leaf, ["ip", "link", "set", "br-lag", "down"])
    assert route not in lab.run(leaf, ["ip", "-4", "route"]).stdout
    start_routing(lab, leaf)
    until(lambda: _whole(lab), "the leaf is there again")
    assert route in lab.run(leaf, ["ip", "-4", "route"]).stdout


@pytest.mark.timed
def test_a_link_of_one_nic_takes_no_flow_along(lab: Any) -> None:
    with short_outage(lab, _pairs(lab), _whole, "link", LIMIT_S) as flows, ports_down(lab, "p1-s1-rail1a:down1"):
        until(lambda: _active(lab, "p1-s1-h1")["rail1"] == ["rail1b"], "the NIC has one member left")
        assert _active(lab, "p1-s1-h1")["rail2"] == ["rail2a", "rail2b"], "the other NIC has both"
        flows.well()


@pytest.mark.timed
def test_a_switch_of_a_rail_takes_no_flow_along(lab: Any) -> None:
    with short_outage(lab, _pairs(lab), _whole, "switch", 1) as flows, switch_gone(lab, "p1-s1-rail1b"):
        until(lambda: _active(lab, "p1-s1-h1")["rail1"] == ["rail1a"], "the NIC has one member left")
        flows.well()
