"""nftables over netlink: the messages of a transaction as bytes, and a socket that sends it whole or not at all.

Numbers are those of linux/netfilter/nf_tables.h. All integers in attributes are big-endian. What is written here is
what `nft list ruleset` shows; the program itself is not needed.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.base.errors import DriverError
from testbed.base.linux.rtnetlink import (
    NLM_F_ACK,
    NLM_F_CREATE,
    NLM_F_EXCL,
    NLMSG_ERROR,
    RouteSocket,
    attribute,
    attributes,
    fields,
    message,
    messages,
    text,
)

NETLINK_NETFILTER = 12
SUBSYSTEM = 10 << 8
BATCH_BEGIN, BATCH_END = 0x10, 0x11
NEWTABLE, DELTABLE, NEWCHAIN, NEWRULE, GETRULE, NEWSET, GETSET = 0, 2, 3, 6, 7, 9, 10
NEWSETELEM, GETSETELEM, NEWOBJ, GETOBJ = 12, 13, 18, 19
NFPROTO_IPV4, NFPROTO_NETDEV, NFPROTO_BRIDGE = 2, 5, 7
COUNTER, LIMIT = 1, 4
"""Kinds of stateful objects of nf_tables (NFT_OBJECT_COUNTER, NFT_OBJECT_LIMIT)."""
_FORWARD = 2
"""The hook (NF_BR_FORWARD)."""
_APPEND = 0x800
_NESTED = 0x8000
_OBJECTS = 0x40
_ELEMENTS_AT_ONCE = 256
DEVICES_AT_ONCE = 200
"""In one chain: the kernel takes at most 256."""

ACCEPT, DROP = 1, 0
_JUMP = -3 & 0xFFFFFFFF
_VERDICT = 0
REGISTER = 8
"""The first of sixteen registers of four bytes."""
LINK, NETWORK, TRANSPORT = 0, 1, 2
"""The header that the offset of a field counts from."""
META_PROTOCOL, META_IIF, META_OIF, META_L4PROTO = 1, 4, 5, 16
IPV4_ADDRESS, IPV6_ADDRESS, MAC_ADDRESS, SERVICE_PORT, INTERFACE = 7, 8, 9, 13, 20
"""Types of a set's keys, as the program nft numbers them: it shows elements by them. The kernel takes any."""
_BITS_OF_A_TYPE = 6
_BYTES_OF_A_TYPE = {MAC_ADDRESS: 8, IPV6_ADDRESS: 16}
"""In registers, where it is not one of them."""


def _u32(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("!I", value))


def _u64(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("!Q", value))


def _nest(kind: int, payload: bytes) -> bytes:
    return attribute(kind | _NESTED, payload)


def _list(items: Iterable[bytes]) -> bytes:
    return b"".join(_nest(1, item) for item in items)


# ------------------------------------------------------------------ expressions


def _expression(name: str, data: bytes) -> bytes:
    return text(1, name) + _nest(2, data)


def load_meta(key: int, register: int = REGISTER) -> bytes:
    return _expression("meta", _u32(1, register) + _u32(2, key))


def load_field(base: int, offset: int, length: int, register: int = REGISTER) -> bytes:
    return _expression("payload", _u32(1, register) + _u32(2, base) + _u32(3, offset) + _u32(4, length))


def mask(value: bytes) -> bytes:
    """The first register and `value`, bit by bit."""
    zero = bytes(len(value))
    data = _u32(1, REGISTER) + _u32(2, REGISTER) + _u32(3, len(value))
    return _expression("bitwise", data + _nest(4, attribute(1, value)) + _nest(5, attribute(1, zero)))


def equal(value: bytes) -> bytes:
    """Go on with the rule if the first register is `value`."""
    return _expression("cmp", _u32(1, REGISTER) + _u32(2, 0) + _nest(3, attribute(1, value)))


def unequal(value: bytes) -> bytes:
    """Go on with the rule if the first register is not `value`."""
    return _expression("cmp", _u32(1, REGISTER) + _u32(2, 1) + _nest(3, attribute(1, value)))


def is_in(name: str, *, inverted: bool = False) -> bytes:
    """Go on with the rule if what begins in the first register is an element of the set, or is none."""
    return _expression("lookup", text(1, name) + _u32(2, REGISTER) + _u32(5, int(inverted)))


def by_object(name: str) -> bytes:
    """The object that the map has for the first register: a counter counts, a limit may end the rule."""
    return _expression("objref", _u32(3, REGISTER) + text(4, name))


def count(name: str) -> bytes:
    """Count the packet with the counter of this name."""
    return _expression("objref", _u32(1, COUNTER) + text(2, name))


def _limit(pps: int, burst: int, *, over: bool) -> bytes:
    return _u64(1, pps) + _u64(2, 1) + _u32(3, burst) + _u32(4, 0) + _u32(5, int(over))


def under_limit(pps: int, burst: int) -> bytes:
    """Go on with the rule for so many packets a second, and a burst of so many."""
    return _expression("limit", _limit(pps, burst, over=False))


def verdict(code: int) -> bytes:
    return _expression("immediate", _u32(1, _VERDICT) + _nest(2, _nest(2, _u32(1, code))))


def jump(chain: str) -> bytes:
    return _expression("immediate", _u32(1, _VERDICT) + _nest(2, _nest(2, _u32(1, _JUMP) + text(2, chain))))


# ------------------------------------------------------------------ transaction

_OF = "_"
"""Between the name of a table and that of a tenant, which has none."""


def table_name(name: str, tenant: str) -> str:
    """The name of a table in a namespace that VRFs of several tenants share; "" for the tenant of one that has its
    own."""
    return f"{name}{_OF}{tenant}" if tenant else name


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hook:
    """A chain at a hook of the stack, which lets pass what it does not drop."""

    name: str
    point: int = 0
    priority: int = 0
    devices: tuple[str, ...] = ()

    def attributes(self, priority: int) -> bytes:
        """Return the attributes of its message, at a priority by so much greater than its own."""
        hook = _u32(1, self.point) + attribute(2, struct.pack("!i", self.priority + priority))
        if self.devices:
            hook += _nest(4, b"".join(text(1, device) for device in self.devices))
        return text(3, self.name) + _nest(4, hook) + _u32(5, ACCEPT) + text(7, "filter")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counter:
    """An object that counts packets and bytes."""

    name: str

    def attributes(self, packets: int, size: int) -> bytes:
        """Return the attributes of its message, from these numbers on."""
        return text(2, self.name) + _u32(3, COUNTER) + _nest(4, _u64(1, size) + _u64(2, packets))


class Table(Sequence[bytes]):
    """The messages that make a table where there is none of its name, in order: of family netdev, ip or bridge."""

    def __init__(self, name: str, family: int = NFPROTO_NETDEV) -> None:
        self.name = name
        self.family = family
        self._parts: list[bytes | _Hook | _Counter] = []

    def __iter__(self) -> Iterator[bytes]:
        yield self._new(NLM_F_EXCL)
        yield from self._made(0, {})

    def __len__(self) -> int:
        return 1 + len(self._parts)

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def replacement(self, priority: int, counted: Mapping[str, tuple[int, int]]) -> list[bytes]:
        """Return the messages that put it in the place of the one of its name, if there is one.

        No packet comes in between: until the transaction is in force the old chains decide, and a packet that passes
        them while it becomes so meets the new ones, for these follow. That is what `priority` is for, which must be
        greater than that of the old chains; the kernel puts the later of two that are equal first. Counters go on from
        `counted`, packets and bytes by their names.
        """
        return [*self.removal, self._new(NLM_F_EXCL), *self._made(priority, counted)]

    @property
    def removal(self) -> list[bytes]:
        """Return the messages that remove the table of its name, if there is one."""
        return [self._new(0), self._message(DELTABLE, text(1, self.name), 0)]

    def _new(self, flags: int) -> bytes:
        return self._message(NEWTABLE, text(1, self.name), NLM_F_CREATE | flags)

    def _made(self, priority: int, counted: Mapping[str, tuple[int, int]]) -> Iterator[bytes]:
        for part in self._parts:
            match part:
                case _Hook():
                    yield self._of_table(NEWCHAIN, part.attributes(priority))
                case _Counter():
                    yield self._of_table(NEWOBJ, part.attributes(*counted.get(part.name, (0, 0))))
                case _:
                    yield part

    def _message(self, kind: int, attributes_: bytes, flags: int = NLM_F_CREATE) -> bytes:
        return message(SUBSYSTEM | kind, flags, struct.pack("!BBH", self.family, 0, 0) + attributes_)

    def _of_table(self, kind: int, attributes_: bytes, flags: int = NLM_F_CREATE) -> bytes:
        return self._message(kind, text(1, self.name) + attributes_, flags)

    def _add(self, kind: int, attributes_: bytes, flags: int = NLM_F_CREATE) -> None:
        self._parts.append(self._of_table(kind, attributes_, flags))

    def chain(self, name: str) -> None:
        self._add(NEWCHAIN, text(3, name))

    def hook(self, name: str, devices: Sequence[str]) -> None:
        """A chain that what these interfaces receive goes through before anything else of the stack but tc sees it."""
        self._parts.append(_Hook(name=name, devices=tuple(devices)))

    def hook_arrivals(self, name: str, priority: int) -> None:
        """A chain that what the namespace receives goes through before it is routed; of family ip."""
        self._parts.append(_Hook(name=name, priority=priority))

    def hook_forwarded(self, name: str) -> None:
        """A chain that each frame goes through which a bridge of the namespace forwards; of family bridge."""
        self._parts.append(_Hook(name=name, point=_FORWARD))

    def rule(self, chain: str, *expressions: bytes) -> None:
        self._add(NEWRULE, text(2, chain) + _nest(4, _list(expressions)), NLM_F_CREATE | _APPEND)

    def set(self, name: str, types: Sequence[int], elements: Sequence[bytes]) -> None:
        """A set of keys that are made of these types, each in whole registers."""
        self._new_set(name, types, b"", 0)
        self._fill(name, [_nest(1, attribute(1, element)) for element in elements])

    def objects(self, name: str, kind: int, by_key: Sequence[tuple[bytes, str]]) -> None:
        """A map from interface indexes to objects of one kind."""
        self._new_set(name, (INTERFACE,), _u32(15, kind), _OBJECTS)
        self._fill(name, [_nest(1, attribute(1, key)) + text(9, of) for key, of in by_key])

    def _new_set(self, name: str, types: Sequence[int], more: bytes, flags: int) -> None:
        kind, number = 0, len(self)
        for item in types:
            kind = kind << _BITS_OF_A_TYPE | item
        # A MAC address takes two registers where it is a part, and its own six bytes where it is all.
        length = 6 if types == (MAC_ADDRESS,) else sum(_BYTES_OF_A_TYPE.get(item, 4) for item in types)
        key = _u32(3, flags) + _u32(4, kind) + _u32(5, length)
        self._add(NEWSET, text(2, name) + key + more + _u32(10, number))

    def _fill(self, name: str, elements: Sequence[bytes]) -> None:
        for start in range(0, len(elements), _ELEMENTS_AT_ONCE):
            chunk = elements[start : start + _ELEMENTS_AT_ONCE]
            self._add(NEWSETELEM, text(2, name) + _nest(3, _list(chunk)))

    def counter(self, name: str) -> None:
        self._parts.append(_Counter(name=name))

    def excess(self, name: str, pps: int, burst: int) -> None:
        """A limit that ends the rule of a packet until there are more than `pps` a second."""
        self._add(NEWOBJ, text(2, name) + _u32(3, LIMIT) + _nest(4, _limit(pps, burst, over=True)))


def new_rules(transaction: Iterable[bytes]) -> Iterator[tuple[int, str]]:
    """Family and table of each rule that the messages of a transaction make."""
    for data in transaction:
        for kind, _, _, body in messages(data):
            if kind == SUBSYSTEM | NEWRULE:
                yield _table_of(body)


@dataclass(frozen=True, slots=True)
class SetElement:
    """A key of a set, or of a map, of a table."""

    family: int
    table: str
    set: str
    key: bytes


def new_elements(transaction: Iterable[bytes]) -> Iterator[SetElement]:
    """The keys of each set that the messages of a transaction make."""
    for data in transaction:
        for kind, _, _, body in messages(data):
            if kind == SUBSYSTEM | NEWSETELEM:
                yield from _elements_of(body)


def _elements_of(body: memoryview) -> Iterator[SetElement]:
    found = fields(body, 4)
    table, name = (found.get(kind, b"").rstrip(b"\0").decode() for kind in (1, 2))
    for _, element in attributes(found.get(3, b"")):
        yield SetElement(body[0], table, name, fields(fields(element).get(1, b"")).get(1, b""))


def delete_table(family: int, name: str) -> bytes:
    """`nft delete table FAMILY NAME`: with all that is in it."""
    return message(SUBSYSTEM | DELTABLE, 0, struct.pack("!BBH", family, 0, 0) + text(1, name))


def _table_of(rule: memoryview) -> tuple[int, str]:
    """Family and table of a rule, which the body of a message is about."""
    return rule[0], fields(rule, 4).get(1, b"").rstrip(b"\0").decode()


class NetfilterSocket(RouteSocket):
    """A netfilter socket of the network namespace that the creating thread was in."""

    def __init__(self) -> None:
        super().__init__(protocol=NETLINK_NETFILTER)

    def commit(self, batch: Sequence[bytes], what: str) -> None:
        """Have the kernel do all of `batch`, or nothing of it. Raises `DriverError`, whose operation is `what`."""
        body = struct.pack("!BBH", 0, 0, SUBSYSTEM >> 8)
        framed = [message(BATCH_BEGIN, 0, body), *batch, message(BATCH_END, 0, body)]
        buffer = bytearray()
        for number, item in enumerate(framed):
            start = len(buffer)
            buffer += item
            struct.pack_into("=I", buffer, start + 8, number)
            if number == len(batch):
                flags = int.from_bytes(item[6:8], "little") | NLM_F_ACK
                struct.pack_into("=H", buffer, start + 6, flags)
            buffer += b"\0" * (-len(buffer) % 4)
        os.write(self.fileno(), buffer)
        while True:
            for kind, _, sequence, answer in messages(self.receive()):
                if kind != NLMSG_ERROR:
                    continue
                if code := -int.from_bytes(answer[:4], "little", signed=True):
                    raise DriverError(
                        f"{what}: nf_tables message {sequence} of {len(batch)}: {os.strerror(code)}",
                        operation=what,
                        errno=code,
                    )
                if sequence == len(batch):
                    return

    def counters(self, table: str, family: int = NFPROTO_NETDEV) -> Iterator[tuple[str, str, int, int]]:
        """Tenant, name, packets and bytes of each counter of a table, as `table_name` calls it.

        Nothing where there is no such table.
        """
        request = struct.pack("!BBH", family, 0, 0) + _u32(3, COUNTER)
        for body in self.dump(SUBSYSTEM | GETOBJ, request):
            found = fields(body, 4)
            name, _, tenant = found.get(1, b"").rstrip(b"\0").decode().partition(_OF)
            if name != table or 4 not in found:
                continue
            values = {kind: int.from_bytes(value, "big") for kind, value in attributes(found[4])}
            yield tenant, found[2].rstrip(b"\0").decode(), values.get(2, 0), values.get(1, 0)

    def counted(self, table: Table) -> dict[str, tuple[int, int]]:
        """Packets and bytes of each counter of the table of that name in this namespace; none where there is none."""
        name, _, tenant = table.name.partition(_OF)
        return {
            counter: (packets, size)
            for whose, counter, packets, size in self.counters(name, table.family)
            if whose == tenant
        }

    def rules(self) -> Iterator[tuple[int, str]]:
        """Family and table of each rule in the namespace, of all families."""
        for body in self.dump(SUBSYSTEM | GETRULE, struct.pack("!BBH", 0, 0, 0)):
            yield _table_of(body)

    def elements(self) -> Iterator[SetElement]:
        """The keys of each set in the namespace, of all families."""
        sets = [
            (body[0], found[1], found[2])
            for body in self.dump(SUBSYSTEM | GETSET, struct.pack("!BBH", 0, 0, 0))
            if {1, 2} <= (found := fields(body, 4)).keys()
        ]
        for family, table, name in sets:
            request = struct.pack("!BBH", family, 0, 0) + attribute(1, table) + attribute(2, name)
            for body in self.dump(SUBSYSTEM | GETSETELEM, request):
                yield from _elements_of(body)
