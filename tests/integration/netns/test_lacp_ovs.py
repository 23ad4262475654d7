"""A host's link group where the switch is Open vSwitch, another implementation of LACP.

`test_link_groups.py` has Open vSwitch at two leaves of ours.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from open_vswitch import BRIDGE, OpenVSwitch
from waiting import until

from testbed.base.linux.namespaces import identities_of
from testbed.base.linux.processes import kill_processes, package_environment, processes_in
from testbed.daemons.kit.configuration import write
from testbed.daemons.lag.configuration import PROCESS_NAME, HostAggregate, HostGroups, LagConfiguration, MemberPort
from testbed.daemons.lag.node import read_status

pytestmark = [pytest.mark.netns, pytest.mark.ovs]
SYSTEM = "02:00:00:00:00:07"
HOST, SWITCH = f"tb{os.getpid()}xlacp-host", f"tb{os.getpid()}xlacp-switch"
MEMBERS = ("e1", "e2")


def _ip(*argv: str) -> str:
    return subprocess.run(["ip", *argv], check=True, capture_output=True, text=True).stdout


def _ifindex(namespace: str, name: str) -> int:
    return int(_ip("-n", namespace, "-o", "link", "show", name).partition(":")[0])


def _until_it_pings(namespace: str, *argv: str) -> None:
    command = ["ip", "netns", "exec", namespace, "ping", "-c", "1", "-W", "1", *argv]
    answered = partial(subprocess.run, command, capture_output=True, check=False)
    until(lambda: answered().returncode == 0, f"{namespace} reaches {argv[-1]}")


def _end_link_groups(namespace: str) -> int:
    """How many processes of link groups there were."""
    found = processes_in(set(identities_of([f"/run/netns/{namespace}"]).values()))
    ours = [process for process in found if process.command == PROCESS_NAME]
    kill_processes(ours)
    return len(ours)


@contextmanager
def _two_nodes() -> Iterator[None]:
    """A host with an aggregate, and a node for a switch, with two links between them."""
    try:
        for name in (HOST, SWITCH):
            _ip("netns", "add", name)
        for member in MEMBERS:
            _ip("link", "add", member, "netns", HOST, "type", "veth", "peer", "name", member, "netns", SWITCH)
        _ip("link", "add", "nic", "netns", HOST, "type", "veth", "peer", "name", "inner", "netns", HOST)
        for name in ("nic", *MEMBERS):
            _ip("-n", HOST, "link", "set", name, "up")
        for name in MEMBERS:
            _ip("-n", SWITCH, "link", "set", name, "up")
        _ip("-n", HOST, "addr", "add", "10.1.0.2/24", "dev", "nic")
        yield
    finally:
        _end_link_groups(HOST)
        for name in (HOST, SWITCH):
            subprocess.run(["ip", "netns", "del", name], check=False)


def test_a_host_of_ours_and_a_bond_of_open_vswitch(tmp_path: Path) -> None:
    """They negotiate, frames pass both ways, each notices that a link is down, and it that we are silent."""
    with _two_nodes():
        members = tuple(
            MemberPort(name=name, ifindex=_ifindex(HOST, name), number=number) for number, name in enumerate(MEMBERS, 1)
        )
        aggregate = HostAggregate(
            nic="nic", inner=_ifindex(HOST, "inner"), system=SYSTEM, key=7, seed=1, members=members
        )
        host = HostGroups(namespace=HOST, node="host", aggregates=(aggregate,))
        write(tmp_path / "groups.json", LagConfiguration(directory=tmp_path, leaves=(), hosts=(host,)))
        command = [sys.executable, "-m", "testbed.daemons.lag", str(tmp_path / "groups.json")]
        subprocess.run(command, check=True, env=package_environment(), cwd="/")

        def in_sync() -> list[str]:
            status = read_status(tmp_path, "host")
            assert status is not None
            return [member.name for member in status.groups[0].members if member.in_sync]

        with OpenVSwitch(SWITCH, tmp_path / "ovs", MEMBERS) as switch:
            until(lambda: switch.attached() == in_sync() == list(MEMBERS), "both links are in the group at both ends")
            partners = {(one["partner sys_id"], one["partner key"]) for one in switch.members().values()}
            assert partners == {(SYSTEM, "7")}
            # Open vSwitch forwards in user space, and the kernel would answer ARP by the members themselves.
            quiet = ["ip", "netns", "exec", SWITCH, "sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=1"]
            subprocess.run(quiet, check=True)
            _ip("-n", SWITCH, "link", "set", BRIDGE, "up")
            _ip("-n", SWITCH, "addr", "add", "10.1.0.1/24", "dev", BRIDGE)
            _until_it_pings(HOST, "10.1.0.1")
            _until_it_pings(SWITCH, "10.1.0.2")

            _ip("-n", SWITCH, "link", "set", "e1", "down")
            until(lambda: switch.attached() == in_sync() == ["e2"], "one link is left at both ends")
            _until_it_pings(HOST, "10.1.0.1")
            _ip("-n", SWITCH, "link", "set", "e1", "up")
            until(lambda: switch.attached() == in_sync() == list(MEMBERS), "both links are back")

            assert _end_link_groups(HOST) == 1
            until(lambda: not switch.attached(), "it gives up a partner that is silent")
