"""A node is restarted or made anew, and all others stay as they are; a kill at any moment leaves what `apply` finishes.

What "stay" means is read from the kernel and from FRR: interfaces keep index, addresses, queues and counters, and
sessions between others keep their uptime.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from observed import observe
from waiting import until

from testbed.base.linux import namespaces, vty
from testbed.base.linux.namespaces import NETNS_DIRECTORY, identities_of
from testbed.lab.core.deploy.changing import node as node_module
from testbed.lab.core.deploy.changing.apply import ApplyOptions, apply_lab
from testbed.lab.core.deploy.changing.drift.lab_drift import find_drift
from testbed.lab.core.deploy.changing.node import NEW, NodeRefused, recreate_node, restart_node
from testbed.lab.core.deploy.lifecycle import destroy_lab
from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.power import power_off, power_on
from testbed.lab.core.deploy.records.journal import Journal, LabState
from testbed.lab.core.deploy.records.state import UnfinishedChange
from testbed.lab.core.deploy.watch.check import check_lab
from testbed.lab.core.drivers.nodes.netns import NetnsKernel
from testbed.lab.core.schema.load import load_topology_text

pytestmark = [pytest.mark.netns, pytest.mark.frr]

LEAF, SPINE, HOST = "p1-s1-rail1", "p1-spine1", "p1-s1-h1"
LOSSLESS = """name: {name}
fabric: {{design: rail-optimized, segments: 2, hosts: 2, gpus: 2, spines: 2, guards: on}}
qos: {{preset: dcqcn}}
"""
TENANTS = """name: {name}
fabric: {{design: rail-optimized, segments: 2, hosts: 2, gpus: 1, spines: 2, overlay: evpn, mtu: 4200}}
tenants:
  red: {{subnets: {{web: {{prefix: 172.30.0.0/24, nics: ["p1-s1-h1:rail1", "p1-s2-h1:rail1"]}}}}}}
  blue: {{subnets: {{web: {{prefix: 172.30.0.0/24, nics: ["p1-s1-h2:rail1", "p1-s2-h2:rail1"]}}}}}}
"""


def fresh(lab: RunningLab) -> RunningLab:
    return RunningLab.open(lab.name, lab.state)


def sessions_beside(lab: RunningLab, node: str) -> dict[tuple[str, str], tuple[int, int]]:
    """How often each BGP session between other nodes was established and dropped, by node and interface."""
    found = {}
    for speaker in lab.plan.speakers:
        if speaker.node == node:
            continue
        answer = vty.ask_json(lab.run_directory(speaker.node), "bgpd", "show bgp neighbors json")
        for neighbor in speaker.neighbors:
            if neighbor.remote != node:
                own = answer[neighbor.interface]
                found[speaker.node, neighbor.interface] = own["connectionsEstablished"], own["connectionsDropped"]
    return found


def counted(lab: RunningLab, node: str) -> dict[tuple[str, str], tuple[int, int]]:
    """Packets that the ports of other nodes have received and sent."""
    return {
        key: (counters.rx_packets, counters.tx_packets) for key, counters in lab.counters().items() if key[0] != node
    }


def others(lab: RunningLab, node: str) -> Mapping[str, Any]:
    """The namespaces of other nodes, as the kernel has them."""
    return observe(lab.name, [item.name for item in lab.model.nodes if item.name != node])


def identity(lab: RunningLab, node: str) -> int:
    path = str(NETNS_DIRECTORY / lab.namespace(node))
    return identities_of([path])[path]


def require_whole(lab: RunningLab) -> None:
    lab = fresh(lab)
    assert find_drift(lab).rows == ()
    # What BGP withdrew of a node may be on its way to a leaf that still has it when the wait for convergence ends.
    until(lambda: check_lab(lab).exit_code == 0, f"the lab is whole: {check_lab(lab)}")


LONG = [pytest.param(kind, marks=pytest.mark.thorough) for kind in ("lossless", "tenants")]


@pytest.fixture(scope="module", params=["plain", *LONG])
def lab(request: pytest.FixtureRequest, shared_sandbox: Any) -> Iterator[RunningLab]:
    name = shared_sandbox.name(request.param)
    text = {"lossless": LOSSLESS, "tenants": TENANTS}.get(request.param)
    model = (
        shared_sandbox.model(request.param) if text is None else load_topology_text(text.format(name=name), file="x")
    )
    yield shared_sandbox.deploy(model).lab
    destroy_lab(name, shared_sandbox.state)


@pytest.mark.parametrize("node", [LEAF, SPINE, HOST])
def test_a_restarted_node_runs_anew_and_others_notice_nothing_else(lab: RunningLab, node: str) -> None:
    before = {status.name: dict(status.pids) for status in lab.status()}
    sessions, ports, own = sessions_beside(lab, node), others(lab, node), identity(lab, node)
    user = lab.spawn(node, ["sleep", "600"], stdin=subprocess.DEVNULL)
    restart_node(fresh(lab), node, timeout_s=60)
    assert user.wait(10) in (-signal.SIGTERM, -signal.SIGKILL), "what a user started is gone"
    assert identity(lab, node) == own
    after = {status.name: dict(status.pids) for status in lab.status()}
    assert {name for name in before if before[name] != after[name]} == ({node} if before[node] else set())
    assert others(lab, node) == ports
    assert sessions_beside(lab, node) == sessions
    require_whole(lab)
    assert lab.life_cycle is LabState.RUNNING


@pytest.mark.parametrize("node", [LEAF, SPINE, HOST])
def test_a_node_is_made_anew_and_its_neighbours_keep_all_that_is_theirs(lab: RunningLab, node: str) -> None:
    sessions, ports, packets, own = (
        sessions_beside(lab, node),
        others(lab, node),
        counted(lab, node),
        identity(lab, node),
    )
    user = lab.spawn(node, ["sleep", "600"], stdin=subprocess.DEVNULL)
    recreate_node(fresh(lab), node, timeout_s=60)
    assert user.wait(10) in (-signal.SIGTERM, -signal.SIGKILL)
    assert identity(lab, node) != own
    assert others(lab, node) == ports
    assert sessions_beside(lab, node) == sessions
    now = counted(lab, node)
    assert all(now[key] >= count for key, count in packets.items()), "counters go on"
    assert not list(NETNS_DIRECTORY.glob(f"{lab.name}-*{NEW}"))
    require_whole(lab)


def test_the_namespace_that_a_node_had_is_gone(lab: RunningLab) -> None:
    """Sockets of agents that look into nodes would keep it, and with it its devices."""
    own = identity(lab, LEAF)
    recreate_node(fresh(lab), LEAF, timeout_s=60)

    def is_gone() -> bool:
        found = identities_of(str(path) for path in Path("/proc").glob("[0-9]*/ns/net"))
        return own not in found.values()

    until(is_gone, "no process is in it any more")


def test_changed_links_stay_changed(lab: RunningLab) -> None:
    port = next(port for port in lab.plan.ports if port.node == LEAF and port.name.startswith("uplink"))
    key = f"{port.node}:{port.name}"
    try:
        with LinkControl(fresh(lab)) as links:
            links.set(key, LinkChange(rate_share=0.5))
            rate = links.rate_bps(key)
        recreate_node(fresh(lab), LEAF, timeout_s=60)
        with LinkControl(fresh(lab)) as links:
            assert links.rate_bps(key) == rate
        assert find_drift(fresh(lab)).rows == ()
    finally:
        with LinkControl(fresh(lab)) as links:
            links.reset_all()
    assert find_drift(fresh(lab)).rows == ()


def test_a_node_without_power_is_made_anew_without(lab: RunningLab) -> None:
    power_off(fresh(lab), LEAF)
    with pytest.raises(NodeRefused, match="is off"):
        restart_node(fresh(lab), LEAF, timeout_s=60)
    recreate_node(fresh(lab), LEAF, timeout_s=60)
    state = next(status for status in fresh(lab).status() if status.name == LEAF)
    assert (state.state, dict(state.pids)) == ("off", {})
    assert find_drift(fresh(lab)).rows == (), "as somebody wants it"
    power_on(fresh(lab), LEAF)
    until(lambda: check_lab(fresh(lab)).exit_code == 0, "the lab is whole again")


KILLED_AT: dict[str, tuple[Any, str, int]] = {
    "before anything is made": (NetnsKernel, "create_nodes", 0),
    "before the new namespace has a name": (NetnsKernel, "publish", 0),
    "before the links move": (NetnsKernel, "take_links", 0),
    "between two links": (NetnsKernel, "take_links", 1),
    "before the ports are up": (NetnsKernel, "apply", 3),
    "before the old one loses its name": (namespaces, "unpublish", 0),
    "before the new one has it": (namespaces, "publish", 1),
    "before it loses the other name": (namespaces, "unpublish", 1),
    "before anything runs there": (node_module, "_start", 0),
}
"""The function that the process does not live to call, and how often it has called it before."""
ALWAYS = ("before the links move", "between two links", "before the new one has it", "before anything runs there")
"""The moments of every run; the others are much like one of these."""


def killed_while(work: Callable[[], None], place: Any, name: str, after: int) -> None:
    """Do something in a process of its own, which ends by SIGKILL when it calls a function once more than `after`."""
    pid = os.fork()
    if not pid:
        calls = 0
        original = getattr(place, name)

        def killing(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            if calls == after:
                os.kill(os.getpid(), signal.SIGKILL)
            calls += 1
            return original(*arguments, **options)

        setattr(place, name, killing)
        try:
            work()
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, "it never came there"


@pytest.mark.parametrize(
    "moment", [one if one in ALWAYS else pytest.param(one, marks=pytest.mark.thorough) for one in KILLED_AT]
)
def test_what_was_killed_is_finished(lab: RunningLab, moment: str) -> None:
    place, name, after = KILLED_AT[moment]
    sessions = sessions_beside(lab, LEAF)
    killed_while(lambda: recreate_node(fresh(lab), LEAF, timeout_s=60), place, name, after)
    assert lab.life_cycle is LabState.CHANGING
    assert Journal(lab.state_directory).read().work == {LEAF: "recreate"}
    with pytest.raises(UnfinishedChange):
        restart_node(fresh(lab), HOST, timeout_s=60)
    apply_lab(lab.model, lab.state, ApplyOptions())
    assert not lab.state.is_changing(lab.name)
    assert sessions_beside(lab, LEAF) == sessions, "of others"
    assert not list(NETNS_DIRECTORY.glob(f"{lab.name}-*{NEW}"))
    until(lambda: check_lab(fresh(lab)).exit_code == 0, "the lab is whole again")
    require_whole(lab)


@pytest.mark.parametrize(
    "moment", [pytest.param(one, marks=[pytest.mark.thorough] * (at % 3 != 2)) for at, one in enumerate(KILLED_AT)]
)
def test_what_was_killed_is_destroyed(sandbox: Any, moment: str) -> None:
    place, name, after = KILLED_AT[moment]
    lab = sandbox.deploy(sandbox.tiny()).lab
    killed_while(lambda: recreate_node(fresh(lab), LEAF, timeout_s=60), place, name, after)
    sandbox.destroy()
    assert sandbox.leftovers() == []
