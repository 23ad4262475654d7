"""Which TCP is led to the carrier, and that it is led there no more."""

import socket
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_interface, ip_network
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.base.errors import DriverError
from testbed.base.linux import rtnetlink
from testbed.lab.core.deploy.records.journal import Journal
from testbed.lab.core.drivers.netlink.tcp_steering import steer_tcp
from testbed.lab.core.drivers.nodes import netns
from testbed.lab.core.drivers.nodes.changing import undo
from testbed.lab.core.plan.operations import STEERING_PRIORITIES, SteerTcp
from testbed.run.carrier import steered
from testbed.run.carrier.steered import carried_prefixes, unsteer

STEERED = SteerTcp(node="h1", prefixes=(IPv4Network("10.0.1.2/31"), IPv6Network("fd00::2/128")))


def nic(address: str, address6: str = "") -> Any:
    return SimpleNamespace(addresses=[ip_interface(text).ip for text in (address, address6) if text])


def test_prefixes_have_the_addresses_of_nics_and_no_others() -> None:
    nics = [nic(f"10.0.1.{number}/24", f"fd00::{number:x}/64") for number in range(2, 9)]
    prefixes = carried_prefixes(nics)
    assert prefixes == tuple(
        map(ip_network, ("10.0.1.2/31", "10.0.1.4/30", "10.0.1.8/32", "fd00::2/127", "fd00::4/126", "fd00::8/128"))
    )


def test_rules_of_bgp_and_of_who_has_no_address_yet_lead_past_all_others() -> None:
    rules = []
    for data in steer_tcp(STEERED):
        for kind, _, _, body in rtnetlink.messages(data):
            if kind == rtnetlink.RTM_NEWRULE:
                found = rtnetlink.fields(body, rtnetlink.RTMSG.size)
                priority = int.from_bytes(found[rtnetlink.FRA_PRIORITY], "little")
                rules.append((body[0], priority, body[7], found.get(rtnetlink.FRA_DST), found.get(rtnetlink.FRA_SRC)))
    first, second, third, last = STEERING_PRIORITIES
    goto, table, nop = 2, 1, 3
    expected = []
    for family, to in ((socket.AF_INET, "10.0.1.2"), (socket.AF_INET6, "fd00::2")):
        packed = socket.inet_pton(family, to)
        expected += [
            (family, last, nop, None, None),
            *([(family, first, goto, None, bytes(4))] if family == socket.AF_INET else []),
            (family, first, goto, None, None),
            (family, second, goto, None, None),
            (family, third, table, packed, None),
        ]
    assert rules == expected


def test_what_is_steered_is_taken_back_in_the_reverse_order() -> None:
    (messages,) = undo(STEERED, steer_tcp)  # type: ignore[arg-type]
    assert messages.place == "h1"
    done = list(steer_tcp(STEERED))
    assert [item[16:] for item in messages.batch] == [item[16:] for item in reversed(done)]


def test_the_journal_says_what_is_steered(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert journal.read().steered == {}
    journal.steering({"h1": ["10.0.1.2/31"]})
    assert journal.read().steered == {"h1": ["10.0.1.2/31"]}
    unsteer("a-lab-that-is-gone", tmp_path)  # and its hosts with it
    content = journal.read()
    assert content.steered == {} and content.unknown == []
    unsteer("a-lab-that-is-gone", tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_the_journal_keeps_what_the_kernel_refuses_to_take_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class RefusingKernel:
        def __init__(self, lab: str, nodes: Sequence[str], *, again: bool) -> None:
            self._node = nodes[0]

        def undo(self, operations: Iterable[object]) -> None:
            if self._node != "h3":
                raise DriverError(f"{self._node}: refused", operation="undo")

        def close(self) -> None:
            pass

    monkeypatch.setattr(netns, "NetnsKernel", RefusingKernel)
    monkeypatch.setattr(steered, "NETNS_DIRECTORY", tmp_path)
    for node in ("h1", "h3"):  # h2 has gone
        (tmp_path / f"lab-{node}").touch()
    journal = Journal(tmp_path)
    journal.steering({"h1": ["10.0.1.2/31"], "h2": ["10.0.1.2/31"], "h3": ["10.0.1.2/31"]})
    with pytest.raises(DriverError, match="h1: refused"):
        unsteer("lab", tmp_path)
    assert journal.read().steered == {"h1": ["10.0.1.2/31"]}
