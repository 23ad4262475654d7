"""The transaction of a switch's guards: what is in it, and that it does not grow with rules for each port."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address

import pytest

from testbed.drivers.netlink import nftables as nft
from testbed.drivers.netlink.guards import guard_messages
from testbed.drivers.netlink.rtnetlink import attributes, messages
from testbed.model import Guard, Guards
from testbed.plan.operations import GuardedPort, GuardSwitch


def operation(guards: Guards, ports: int = 2) -> GuardSwitch:
    return GuardSwitch(
        node="leaf1",
        guards=guards,
        ports=tuple(
            GuardedPort(
                name=f"down{number}",
                ifindex=100 + number,
                mac=f"02:00:00:00:01:{number % 256:02x}",
                addresses=(IPv4Address(f"192.168.1.{number % 256}"),),
                gateway=IPv4Address("192.168.1.254"),
            )
            for number in range(1, ports + 1)
        ),
        switches=(IPv4Address("192.168.0.1"),),
        stations=("02:00:00:00:01:01",),
    )


def kinds(batch: list[bytes]) -> list[int]:
    return [kind & 0xFF for data in batch for kind, _, _, _ in messages(data)]


def names(batch: list[bytes], kind: int) -> list[str]:
    """The second attribute, a name, of messages of one kind."""
    found = []
    for data in batch:
        for what, _, _, body in messages(data):
            if what & 0xFF == kind:
                fields = {key: bytes(value) for key, value in attributes(body, 4)}
                found.append(fields[2].rstrip(b"\0").decode())
    return found


def test_the_table_comes_first_and_ports_are_hooked_up_last() -> None:
    found = kinds(guard_messages(operation(Guards.all())))
    assert found[0] == nft.NEWTABLE
    assert found[-2:] == [nft.NEWCHAIN, nft.NEWRULE]


def test_every_guard_has_a_counter_for_each_port() -> None:
    counters = [name for name in names(guard_messages(operation(Guards.all())), nft.NEWOBJ) if "flooded" not in name]
    assert sorted(counters) == sorted(f"{guard}_down{number}" for guard in Guard for number in (1, 2))


@pytest.mark.parametrize("guard", list(Guard))
def test_one_guard_alone_is_nothing_but_itself(guard: Guard) -> None:
    batch = guard_messages(operation(Guards(kinds=(guard,))))
    assert {name.partition("_")[0] for name in names(batch, nft.NEWOBJ)} - {"flooded"} == {guard}
    assert kinds(batch).count(nft.NEWRULE) >= 2


def test_rules_do_not_grow_with_ports() -> None:
    few, many = (kinds(guard_messages(operation(Guards.all(), ports))).count(nft.NEWRULE) for ports in (2, 190))
    assert few == many


def test_more_ports_than_a_chain_takes_have_several() -> None:
    batch = guard_messages(operation(Guards.all(), 450))
    chains = [
        {key: bytes(value) for key, value in attributes(body, 4)}
        for data in batch
        for kind, _, _, body in messages(data)
        if kind & 0xFF == nft.NEWCHAIN
    ]
    hooked = [chain for chain in chains if 4 in chain]
    assert len(hooked) == 3
    assert sum(chain[4].count(b"down") for chain in hooked) == 450


def test_numbers_are_big_endian_as_netfilter_has_them() -> None:
    """nf_tables_api.c reads each with nla_get_be32."""
    data = nft.load_field(nft.NETWORK, 12, 4)
    fields = {key: bytes(value) for key, value in attributes(data)}
    inner = {key: bytes(value) for key, value in attributes(fields[2])}
    assert fields[1] == b"payload\0"
    assert inner[3] == struct.pack("!I", 12) and inner[1] == struct.pack("!I", nft.REGISTER)
