"""Hosts with a link group to two leaves (MLAG): what is lost when a link, a leaf or the peer link goes."""

import json
import socket
from collections import Counter
from contextlib import ExitStack, closing, suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from open_vswitch import BRIDGE, OpenVSwitch
from outages import ports_down, short_outage, switch_gone
from waiting import until

from testbed.base.datapath.flow_hash import FiveTuple, port_hash
from testbed.base.linux.namespaces import in_namespace
from testbed.base.linux.processes import kill_processes
from testbed.base.names import namespace_name
from testbed.daemons.lag.kernel import Kernel
from testbed.daemons.lag.node import LagNodeStatus
from testbed.lab.core.deploy.hash_seeds import DEPLOYED, set_hash_seeds
from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl
from testbed.lab.core.deploy.routing import running_daemons, start_routing
from testbed.lab.core.deploy.watch.check import CheckStatus, check_lab
from testbed.lab.core.deploy.watch.sessions import missing_sessions
from testbed.lab.core.plan.sysctls import hash_seed
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.mlag.apply import missing_members, read_link_groups, start_link_groups

pytestmark = [pytest.mark.netns, pytest.mark.frr]
TOPOLOGY = Path(__file__).parents[3] / "topologies" / "mlag-hosts.yml"
HOST = ("p1-s1-h1", "192.168.1.2")
BESIDE = ("p1-s1-h2", "192.168.1.3")
FAR = ("p1-s1-h3", "192.168.3.2")
PRIMARY, SECONDARY = "fe-leaf1", "fe-leaf2"
ETH_P_ALL = 3
LIMIT_S = 0.3
"""Of the time without service by link state."""


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> Any:
    text = TOPOLOGY.read_text().replace("name: mlag-hosts", f"name: {shared_sandbox.name()}")
    return shared_sandbox.deploy(load_topology_text(text, file="mlag.yml")).lab


def _status(lab: Any, node: str) -> LagNodeStatus:
    return next(status for status in read_link_groups(lab) if status.node == node)


def _active(lab: Any, node: str) -> list[str]:
    return [member.name for group in _status(lab, node).groups for member in group.members if member.in_sync]


def _reason(lab: Any, leaf: str) -> str:
    """Why a leaf has left its groups."""
    pair = _status(lab, leaf).pair
    return pair.reason


def _whole(lab: Any) -> bool:
    run = lab.run_directory(PRIMARY).parent
    return not missing_members(lab.plan, run) and not missing_sessions(lab.plan.switches, run)


# Of the host, to and from a far one and one of its own leaves.
PAIRS = ((HOST, FAR), (FAR, HOST), (HOST, BESIDE), (BESIDE, HOST))


def test_two_leaves_are_one_partner_of_each_host(lab: Any) -> None:
    assert {result.status for result in check_lab(lab).results} == {CheckStatus.PASS}
    partners = {member.partner for group in _status(lab, HOST[0]).groups for member in group.members}
    assert len(partners) == 1
    assert _active(lab, HOST[0]) == ["fe1", "fe2"]
    routes = lab.run("fe-spine1", ["ip", "-4", "route", "show", "192.168.1.0/24"]).stdout
    assert routes.count("nexthop") == 2


def test_of_ports_and_bridges_that_are_gone_the_kernel_is_told_nothing(lab: Any) -> None:
    """A leaf hears of it later: its process must outlive that."""
    gone = 4_000_000
    (uplink, *_) = next(switch for switch in lab.plan.switches if switch.node == PRIMARY).neighbors
    apart = next(port for port in lab.plan.ports if (port.node, port.name) == (PRIMARY, uplink.interface)).ifindex
    with closing(in_namespace(namespace_name(lab.name, PRIMARY), lambda: Kernel(bridging=True))) as kernel:
        assert not kernel.set_station("02:00:00:00:00:01", gone)
        assert not kernel.set_station("02:00:00:00:00:01", apart), "it is in no bridge"
        assert not kernel.set_neighbour(gone, IPv4Address("192.168.1.99"), "02:00:00:00:00:01", announced=False)
        kernel.set_link(gone, up=False)


def _received(lab: Any, host: str) -> int:
    (link,) = json.loads(lab.run(host, ["ip", "-s", "-j", "link", "show", "fe0"]).stdout)
    return int(link["stats64"]["rx"]["packets"])


def test_a_broadcast_arrives_once_and_never_comes_back(lab: Any) -> None:
    """Both leaves flood, and the peer link joins them: split horizon keeps a host from hearing twice."""
    before = {host: _received(lab, host) for host in (HOST[0], BESIDE[0])}
    asked = 20
    lab.run(HOST[0], ["ping", "-b", "-q", "-c", str(asked), "-i", "0.01", "-W", "0.1", "192.168.1.255"])
    got = {host: _received(lab, host) - before[host] for host in before}
    assert asked <= got[BESIDE[0]] < 2 * asked
    assert got[HOST[0]] < asked


def hash_of(source: str, destination: str, source_port: int, run: int) -> int:
    """The hash of a TCP flow to the port 9 at the first host, in the run of a seed."""
    five = FiveTuple(
        source=IPv4Address(source),
        destination=IPv4Address(destination),
        protocol=socket.IPPROTO_TCP,
        source_port=source_port,
        destination_port=9,
    )
    return port_hash(five, hash_seed(HOST[0], run=run))


@pytest.mark.parametrize(("run", "tries"), [(DEPLOYED, 3), (2, 1)], ids=["deployed", "run 2"])
def test_a_connection_keeps_its_member_after_a_time_out(lab: Any, run: int, tries: int) -> None:
    """The kernel gives the packets of a TCP socket another hash each time one was not answered (sk_rethink_txhash).

    Which member that is follows from the addresses, the ports, the host and the run's seed: it is the same in the next
    deploy.
    """
    nowhere, connections = "192.168.3.250", 16
    members: dict[int, set[str]] = {}
    seen: Counter[int] = Counter()
    with ExitStack() as stack:
        set_hash_seeds(lab, run)
        stack.callback(set_hash_seeds, lab, DEPLOYED)
        for leaf in (PRIMARY, SECONDARY):
            lab.run(leaf, ["ip", "route", "add", "blackhole", nowhere])
            stack.callback(lab.run, leaf, ["ip", "route", "del", "blackhole", nowhere])

        def socket_of(*kind: int) -> socket.socket:
            return stack.enter_context(in_namespace(namespace_name(lab.name, HOST[0]), lambda: socket.socket(*kind)))

        taps = {}
        for member in ("fe1", "fe2"):
            taps[member] = socket_of(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.htons(ETH_P_ALL))
            taps[member].bind((member, ETH_P_ALL))
        for _ in range(connections):
            socket_of(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK).connect_ex((nowhere, 9))

        def all_tried() -> bool:
            for member, tap in taps.items():
                with suppress(BlockingIOError):
                    while frame := tap.recv(2048):
                        if frame[30:34] == socket.inet_aton(nowhere):
                            source = int.from_bytes(frame[34:36])
                            members.setdefault(source, set()).add(member)
                            seen[source] += 1
            return len(seen) == connections and min(seen.values()) >= tries

        until(all_tried, "each connection was tried three times")
    chosen = {port: ["fe1", "fe2"][hash_of(HOST[1], nowhere, port, run) % 2] for port in members}
    assert members == {port: {member} for port, member in chosen.items()}
    assert [hash_of(HOST[1], nowhere, port, 1) % 2 for port in range(64)] != [
        hash_of(HOST[1], nowhere, port, 2) % 2 for port in range(64)
    ]
    assert set.union(*members.values()) == {"fe1", "fe2"}


@pytest.mark.timed
@pytest.mark.parametrize("leaf", [PRIMARY, SECONDARY])
def test_a_link_that_goes_down_costs_what_the_kernel_needs_to_notice(lab: Any, leaf: str) -> None:
    with short_outage(lab, PAIRS, _whole, "link", LIMIT_S) as flows, ports_down(lab, f"{leaf}:down1"):
        until(lambda: len(_active(lab, HOST[0])) == 1, "the host has one member left")
        flows.well()


@pytest.mark.timed
def test_a_leaf_without_uplinks_leaves_the_group_and_comes_back_with_its_routes(lab: Any) -> None:
    uplinks = [f"{PRIMARY}:uplink1", f"{PRIMARY}:uplink2"]
    with short_outage(lab, PAIRS, _whole, "uplinks", LIMIT_S) as flows, ports_down(lab, *uplinks):
        until(lambda: _active(lab, HOST[0]) == ["fe2"], "the leaf holds its member back")
        until(lambda: _reason(lab, PRIMARY) == "no way to the fabric", "the leaf says why")
        flows.well()


def test_without_the_peer_link_the_secondary_leaves(lab: Any) -> None:
    """Split brain: both leaves live, and would both serve hosts that they no longer know together."""
    with short_outage(lab, PAIRS, _whole, "peer link", LIMIT_S) as flows, ports_down(lab, f"{PRIMARY}:peer2"):
        until(lambda: _active(lab, HOST[0]) == ["fe1"], "the secondary holds its member back")
        until(lambda: _reason(lab, SECONDARY) == "the peer link is dead and the primary lives", "it says why")
        flows.well()


def test_a_leaf_that_loses_power_costs_less_than_a_second(lab: Any) -> None:
    """The primary, so that the secondary must find out that nobody lives at the other end of the dead peer link."""
    with short_outage(lab, PAIRS, _whole, "leaf", 1) as flows, switch_gone(lab, PRIMARY):
        until(lambda: _active(lab, HOST[0]) == ["fe2"], "the host has one member left")
        flows.well()
        assert not _reason(lab, SECONDARY)


def test_a_leaf_whose_processes_end_is_given_up_and_comes_back(lab: Any) -> None:
    """The links stay up, and the leaf forwards what it gets: BGP takes it out of the fabric, and LACP off the hosts."""
    with short_outage(lab, PAIRS, _whole, "processes", 1) as flows:
        kill_processes(running_daemons(lab, SECONDARY))
        until(lambda: _active(lab, HOST[0]) == ["fe1"], "the host gives the member up after three seconds")
        flows.well()
        start_routing(lab, SECONDARY)


@pytest.mark.ovs
def test_two_leaves_are_one_partner_of_open_vswitch(lab: Any, tmp_path: Path) -> None:
    """A host's group is left to another implementation of LACP: both leaves are in it, and it loses one of them."""
    host, members = BESIDE[0], ["fe1", "fe2"]
    (system,) = {member.partner for group in _status(lab, host).groups for member in group.members}

    def partners() -> set[str]:
        groups = [group for leaf in (PRIMARY, SECONDARY) for group in _status(lab, leaf).groups if group.name == host]
        return {member.partner for group in groups for member in group.members if member.in_sync}

    def answered() -> bool:
        return bool(lab.run(host, ["ping", "-c", "1", "-W", "1", "-I", BRIDGE, HOST[1]]).returncode == 0)

    own = partners()
    kill_processes(running_daemons(lab, host))
    with OpenVSwitch(namespace_name(lab.name, host), tmp_path / "ovs", members) as switch:
        until(lambda: switch.attached() == members, "both leaves are in its group")
        assert {member["partner sys_id"] for member in switch.members().values()} == {system}
        until(lambda: len(partners()) == 1 and partners() != own, "it is the partner of both leaves")
        lab.run(host, ["ip", "link", "set", BRIDGE, "up"])
        lab.run(host, ["ip", "addr", "add", "192.168.1.77/24", "dev", BRIDGE])
        until(answered, "the host beside it is reached by the leaves' bridges")
        with LinkControl(lab) as control:
            control.set(f"{PRIMARY}:down2", LinkChange(up=False))
            until(lambda: switch.attached() == ["fe2"], "one leaf is left")
            until(answered, "and it serves")
            control.reset(f"{PRIMARY}:down2")
        until(lambda: switch.attached() == members, "both leaves are back")
    start_link_groups(lab.plan, lab.run_directory(PRIMARY).parent, only=(host,))
    until(lambda: _whole(lab) and partners() == own, "the host's own group is whole again")
