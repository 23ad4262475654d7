"""The transaction of a switch's guards: what is in it, and that it does not grow with rules for each port."""

import struct
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address

import pytest

from testbed.base.linux import nftables as nft
from testbed.base.linux.rtnetlink import attributes, link_local_address, messages
from testbed.lab.core.model import Guard, Guards
from testbed.lab.core.plan.management_plan import FormCommunity, GuardManagement
from testbed.lab.core.plan.operations import GuardedPort, GuardSwitch
from testbed.lab.features.guards.apply import guard_messages
from testbed.lab.features.management.apply import management_messages
from testbed.lab.features.management.community import community_messages


def operation(guards: Guards, ports: int = 2, *, grouped: bool = False) -> GuardSwitch:
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
                member_mac=f"02:00:00:00:02:{number % 256:02x}" if grouped else "",
            )
            for number in range(1, ports + 1)
        ),
        switches=(IPv4Address("192.168.0.1"),),
        stations=("02:00:00:00:01:01",),
    )


def kinds(batch: Sequence[bytes]) -> list[int]:
    return [kind & 0xFF for data in batch for kind, _, _, _ in messages(data)]


def names(batch: Sequence[bytes], kind: int) -> list[str]:
    """The second attribute, a name, of messages of one kind."""
    found = []
    for data in batch:
        for what, _, _, body in messages(data):
            if what & 0xFF == kind:
                fields = {key: bytes(value) for key, value in attributes(body, 4)}
                found.append(fields[2].rstrip(b"\0").decode())
    return found


def elements(batch: Sequence[bytes]) -> dict[str, list[bytes]]:
    """The keys of each set."""
    found: dict[str, list[bytes]] = {}
    for data in batch:
        for what, _, _, body in messages(data):
            if what & 0xFF == nft.NEWSETELEM:
                fields = dict(attributes(body, 4))
                for _, element in attributes(bytes(fields[3])):
                    key = dict(attributes(bytes(dict(attributes(bytes(element)))[1])))[1]
                    found.setdefault(bytes(fields[2]).rstrip(b"\0").decode(), []).append(bytes(key))
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


def test_addresses_of_ipv6_are_in_sets_beside_the_link_local_ones() -> None:
    plain = operation(Guards.all())
    address, gateway = IPv6Address("fd00:1::2"), IPv6Address("fd00:1::1")
    first = replace(plain.ports[0], addresses=(*plain.ports[0].addresses, address), gateway6=gateway)
    dual = replace(plain, ports=(first, *plain.ports[1:]), switches=(*plain.switches, gateway), routers=(first.mac,))
    assert set(names(guard_messages(dual), nft.NEWSET)) - set(names(guard_messages(plain), nft.NEWSET)) == {
        "switches6",
        "gateways6",
    }
    index, local = struct.pack("=I", first.ifindex), link_local_address(first.mac)
    filled = elements(guard_messages(dual))
    assert {index + bytes(16), index + local, index + address.packed} <= set(filled["addresses6"])
    assert filled["switches6"] == [gateway.packed, local]
    assert filled["gateways6"] == [index + gateway.packed]
    assert filled["addresses"] == elements(guard_messages(plain))["addresses"]


def test_rules_do_not_grow_with_ports() -> None:
    few, many = (kinds(guard_messages(operation(Guards.all(), ports))).count(nft.NEWRULE) for ports in (2, 190))
    assert few == many


@pytest.mark.parametrize("guard", list(Guard))
def test_lacp_is_let_in_before_any_guard_and_limited_by_that_of_control(guard: Guard) -> None:
    plain, grouped = (guard_messages(operation(Guards(kinds=(guard,)), grouped=grouped)) for grouped in (False, True))
    assert set(names(grouped, nft.NEWSET)) - set(names(plain, nft.NEWSET)) == (
        {"members", "slow"} if guard is Guard.CONTROL else {"members"}
    )
    limits = [name for name in names(grouped, nft.NEWOBJ) if name.startswith("slow")]
    assert limits == (["slow_down1", "slow_down2"] if guard is Guard.CONTROL else [])
    rules = [data for data in grouped if kinds([data]) == [nft.NEWRULE]]
    accepts = [number for number, data in enumerate(rules) if nft.verdict(nft.ACCEPT) in data]
    assert accepts[0] == (1 if guard is Guard.CONTROL else 0)


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


def test_management_is_guarded_by_a_table_of_family_ip_before_routing() -> None:
    prefix = IPv4Network("192.168.128.0/18")
    batch = management_messages(GuardManagement(node="leaf1", name="mgmt0", ifindex=300, prefix=prefix))
    bodies = [(kind & 0xFF, bytes(body)) for data in batch for kind, _, _, body in messages(data)]
    assert {body[0] for _, body in bodies} == {nft.NFPROTO_IPV4}
    assert names(batch, nft.NEWOBJ) == ["from-data", "from-management"]
    chains = [dict(attributes(body, 4)) for kind, body in bodies if kind == nft.NEWCHAIN]
    hooks = [dict(attributes(bytes(chain[4]))) for chain in chains if 4 in chain]
    # linux/netfilter.h: NF_INET_PRE_ROUTING is 0; NF_IP_PRI_RAW is -300
    assert [(bytes(hook[1]), bytes(hook[2])) for hook in hooks] == [(bytes(4), struct.pack("!i", -300))]
    assert sum(prefix.network_address.packed in body for _, body in bodies) == 3 + 2


def test_a_community_is_filtered_by_a_table_of_family_bridge_where_frames_are_forwarded() -> None:
    batch = community_messages(
        FormCommunity(node="sw", nodes=(3, 4, 5), hosts=(4, 5), tcp=(range(22, 23), range(0xEC00, 0xEE00)))
    )
    bodies = [(kind & 0xFF, bytes(body)) for data in batch for kind, _, _, body in messages(data)]
    assert {body[0] for _, body in bodies} == {nft.NFPROTO_BRIDGE}
    chains = [dict(attributes(body, 4)) for kind, body in bodies if kind == nft.NEWCHAIN]
    hooks = [dict(attributes(bytes(chain[4]))) for chain in chains if 4 in chain]
    # linux/netfilter_bridge.h: NF_BR_FORWARD is 2
    assert [bytes(hook[1]) for hook in hooks] == [struct.pack("!I", 2)]
    assert elements(batch) == {
        name: [struct.pack("=I", port) for port in ports] for name, ports in (("nodes", (3, 4, 5)), ("hosts", (4, 5)))
    }
    rules = [body for kind, body in bodies if kind == nft.NEWRULE]
    assert sum(nft.verdict(nft.ACCEPT) in rule for rule in rules) == 1 + 2 * 2, "ARP, and both ways of both ranges"
    assert nft.verdict(nft.DROP) in rules[-2] and nft.equal(struct.pack("!H", 0xEC00)) in b"".join(rules)


def test_ports_of_a_community_are_all_under_one_mask() -> None:
    for ports in (range(100, 103), range(1, 3), range(0)):
        with pytest.raises(ValueError, match="under one mask"):
            community_messages(FormCommunity(node="sw", nodes=(1,), hosts=(1,), tcp=(ports,)))


def priorities(batch: Sequence[bytes]) -> list[int]:
    """The priority of each chain that is at a hook."""
    found = []
    for data in batch:
        for what, _, _, body in messages(data):
            fields = {key: bytes(value) for key, value in attributes(body, 4)}
            if what & 0xFF == nft.NEWCHAIN and 4 in fields:
                found.append(struct.unpack("!i", dict(attributes(fields[4]))[2])[0])
    return found


def test_a_table_takes_the_place_of_another_in_one_transaction() -> None:
    """It is removed, whether it is there or not, and made anew with chains that follow the old ones."""
    table = guard_messages(operation(Guards.all()))
    batch = table.replacement(7, {})
    assert kinds(batch)[:3] == [nft.NEWTABLE, nft.DELTABLE, nft.NEWTABLE]
    assert kinds(batch)[3:] == kinds(table)[1:]
    assert set(priorities(table)) == {0}
    assert set(priorities(batch)) == {7}


def test_counters_of_a_table_that_takes_the_place_of_another_go_on() -> None:
    table = guard_messages(operation(Guards(kinds=(Guard.MAC,))))
    batch = table.replacement(7, {"mac_down1": (5, 640)})
    numbers = {}
    for data in batch:
        for what, _, _, body in messages(data):
            if what & 0xFF == nft.NEWOBJ:
                found = {key: bytes(value) for key, value in attributes(body, 4)}
                counted = {key: int.from_bytes(value, "big") for key, value in attributes(found[4])}
                numbers[found[2].rstrip(b"\0").decode()] = counted[2], counted[1]
    assert numbers == {"mac_down1": (5, 640), "mac_down2": (0, 0)}


def test_a_table_that_may_not_be_there_is_removed() -> None:
    assert kinds(guard_messages(operation(Guards.all())).removal) == [nft.NEWTABLE, nft.DELTABLE]
