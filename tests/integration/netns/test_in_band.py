"""A management network in band: a VNI over the front end's switches, with a server and services, apart from data."""

import subprocess
import time
from collections import Counter
from typing import Any

import pytest
from filters import commit, remove_table

from testbed.base.linux.nftables import NFPROTO_IPV4
from testbed.lab.checks.isolation.check import check_isolation
from testbed.lab.checks.isolation.management import Way, management_shots, shoot
from testbed.lab.core.deploy.watch.check import check_lab
from testbed.lab.core.plan.management_plan import GuardManagement
from testbed.lab.features.management.apply import TABLE, management_messages
from testbed.lab.features.management.services_apply import read_services

pytestmark = [pytest.mark.netns, pytest.mark.frr]

TEXT = """name: {name}
scale: {{time: 1000}}
fabric: {{design: rail-optimized, hosts: 3, gpus: 1, segments: 1, spines: 1}}
networks:
  frontend: {{leaves: 2, spines: 1, mtu: 9050, overlay: evpn}}
  storage: {{design: single-switch, targets: {{flash: {{}}}}}}
  management: {{on: frontend, mtu: 1500, nic: {{rate: 100G}}, services: [ssh, dns, time, bmp]}}
"""
SERVER, HOST, SWITCHES, TARGET = "mgmt1", "p1-s1-h3", ("p1-s1-rail1", "p1-spine1", "st-leaf1"), "flash"


def arrived(lab: Any) -> Counter[Way]:
    shots = management_shots(lab.plan)
    return Counter(shots[index].way for index in shoot(lab.name, shots))


def test_services_answer_over_the_front_ends_switches(lab: Any) -> None:
    """The server is on one leaf, the host on the other; a log-in goes by its namespace, and by name."""
    assert check_lab(lab).exit_code == 0
    statuses = read_services(lab)
    assert {status.state for status in statuses} == {"running"}
    assert {status.service for status in statuses} == {"ssh", "dns", "time", "bmp"}
    assert {status.node for status in statuses} == set(lab.plan.management.addresses)
    assert {*SWITCHES, TARGET, HOST, SERVER} <= set(lab.plan.management.addresses)
    argv = ["ssh", "-F", str(lab.directory / "ssh_config"), HOST, "hostname; getent hosts p1-s1-h1"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False)
    assert done.stdout.splitlines()[0] == HOST, done.stderr
    assert f"{lab.plan.management.addresses['p1-s1-h1'].ip} " in done.stdout


def test_switches_of_other_networks_are_reached_and_route_nothing(lab: Any) -> None:
    """A log-in to each, and their BGP sessions at the station; the carrier's own switches have no port."""
    assert not {node.name for node in lab.model.switches if node.network == "frontend"} & {
        *lab.plan.management.addresses
    }
    for node in (*SWITCHES, TARGET):
        argv = [
            "ssh",
            "-F",
            str(lab.directory / "ssh_config"),
            node,
            "hostname; cat /proc/sys/net/ipv4/conf/mg1/forwarding",
        ]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False)
        assert done.stdout.split() == [node, "0"], done.stderr
    reporting = f"{len(SWITCHES)} of {len(SWITCHES)} switches report"
    until = time.monotonic() + 30
    while (said := next(one.detail for one in read_services(lab) if one.service == "bmp")) != reporting:
        assert time.monotonic() < until, said
        time.sleep(0.2)


def test_data_does_not_reach_it_and_would_without_its_guard(lab: Any) -> None:
    every = Counter(shot.way for shot in management_shots(lab.plan))
    assert {Way.MANAGED, Way.TO_SERVER, Way.TO_NODES, Way.TO_DATA} <= set(every)
    assert arrived(lab) == {Way.MANAGED: every[Way.MANAGED]}
    guards = [item for item in lab.plan.operations if isinstance(item, GuardManagement)]
    for guard in guards:
        remove_table(lab, guard.node, TABLE, NFPROTO_IPV4)
    try:
        found = arrived(lab)
        assert found[Way.TO_NODES] > 0, "Linux takes a packet to any of its addresses from any port"
        assert found[Way.TO_DATA] > 0
        assert found[Way.TO_SERVER] > 0, "a switch that has a port in it would route there"
    finally:
        for guard in guards:
            commit(lab, guard.node, management_messages(guard))
    assert arrived(lab) == {Way.MANAGED: every[Way.MANAGED]}
    results = {result.name: result.status.value for result in check_isolation(lab, "management").results}
    assert {results[way] for way in (Way.MANAGED, Way.TO_SERVER, Way.TO_NODES, Way.TO_DATA)} == {"pass"}
