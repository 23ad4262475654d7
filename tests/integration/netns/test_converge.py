"""Waiting for routing on the real kernel: it has converged when tables and sessions are right at the same time."""

import threading
from contextlib import closing
from typing import Any

import pytest

from testbed.lab.core.deploy.steps import ignore_steps
from testbed.lab.core.deploy.watch import converge
from testbed.lab.core.deploy.watch.changes import ChangeWatch
from testbed.lab.core.schema.load import load_topology_text

pytestmark = [pytest.mark.netns, pytest.mark.frr]

TEXT = """name: {name}
scale: {{time: 1000}}
fabric: {{design: rail-optimized, hosts: 2, gpus: 2}}
"""


def test_a_route_that_goes_while_sessions_are_asked_for_is_waited_for(
    shared_sandbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does whose session is made anew after the tables were right."""
    text = TEXT.format(name=shared_sandbox.name())
    lab = shared_sandbox.deploy(load_topology_text(text, file="converge.yml")).lab
    switch = next(node for node in lab.plan.expected_routes if node.endswith("rail1"))
    prefix = str(next(iter(lab.plan.expected_routes[switch])).prefix)
    show = ["ip", "-4", "route", "show", prefix, "proto", "bgp"]
    words = lab.run(switch, show).stdout.replace("\n", " ").split()
    assert words, "the route is there"
    gone = threading.Event()
    back: list[threading.Timer] = []

    def bring_back() -> None:
        lab.run(switch, ["ip", "-4", "route", "add", *(word for word in words if word != "linkdown")])

    def sessions(*_: Any) -> None:
        if gone.is_set():
            return
        lab.run(switch, ["ip", "-4", "route", "del", prefix, "proto", "bgp"])
        gone.set()
        back.append(threading.Timer(0.3, bring_back))
        back[0].start()

    monkeypatch.setattr(converge, "wait_sessions", sessions)
    with closing(converge.ConvergenceWatch(lab.plan, lab.run_directory(switch).parent)) as watch:
        watch.wait(30.0, ignore_steps)
    there = lab.run(switch, show).stdout
    back[0].join()
    assert there.replace("\n", " ").split() == words, "it was waited for"


def test_what_changes_by_itself_in_a_lab_is_heard_of(shared_sandbox: Any) -> None:
    """A neighbour that answers, a route and a link."""
    text = TEXT.format(name=shared_sandbox.name())
    lab = shared_sandbox.deploy(load_topology_text(text, file="converge.yml")).lab
    first, second = lab.plan.hosts[0].nics[0], lab.plan.hosts[1].nics[0]
    assert second.address is not None
    changes = (
        ["ip", "neigh", "replace", "198.51.100.9", "lladdr", "02:00:00:00:00:09", "dev", first.name],
        ["ip", "route", "add", "198.51.100.0/24", "dev", first.name],
        ["ip", "link", "set", first.name, "mtu", "1500"],
    )
    with closing(ChangeWatch(lab)) as watch:
        while watch.wait(0.5):  # what the deploy has left under way
            pass
        for words in changes:
            assert lab.run(first.node, words).returncode == 0
            assert watch.wait(30.0), words
            assert not watch.wait(0.2), "and nothing else"
