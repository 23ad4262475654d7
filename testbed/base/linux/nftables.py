"""nftables over netlink: the messages of a transaction as bytes, and a socket that sends it whole or not at all.

Numbers are those of linux/netfilter/nf_tables.h. All integers in attributes are big-endian. What is written here is
what `nft list ruleset` shows; the program itself is not needed.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence

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
NEWTABLE, NEWCHAIN, NEWRULE, NEWSET, NEWSETELEM, NEWOBJ, GETOBJ = 0, 3, 6, 9, 12, 18, 19
NFPROTO_IPV4, NFPROTO_NETDEV, NFPROTO_BRIDGE = 2, 5, 7
COUNTER, LIMIT = 1, 4
"""Kinds of objects."""
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


class Table:
    """The messages that make a table, in order: of family netdev, ip or bridge."""

    def __init__(self, name: str, family: int = NFPROTO_NETDEV) -> None:
        self.name = name
        self._family = family
        self.messages = [self._message(NEWTABLE, text(1, self.name), NLM_F_CREATE | NLM_F_EXCL)]

    def _message(self, kind: int, attributes_: bytes, flags: int = NLM_F_CREATE) -> bytes:
        return message(SUBSYSTEM | kind, flags, struct.pack("!BBH", self._family, 0, 0) + attributes_)

    def _add(self, kind: int, attributes_: bytes, flags: int = NLM_F_CREATE) -> None:
        self.messages.append(self._message(kind, text(1, self.name) + attributes_, flags))

    def chain(self, name: str) -> None:
        self._add(NEWCHAIN, text(3, name))

    def hook(self, name: str, devices: Sequence[str]) -> None:
        """A chain that what these interfaces receive goes through before anything else of the stack but tc sees it."""
        names = b"".join(text(1, device) for device in devices)
        hook = _u32(1, 0) + attribute(2, struct.pack("!i", 0)) + _nest(4, names)
        self._add(NEWCHAIN, text(3, name) + _nest(4, hook) + _u32(5, ACCEPT) + text(7, "filter"))

    def hook_arrivals(self, name: str, priority: int) -> None:
        """A chain that what the namespace receives goes through before it is routed; of family ip."""
        hook = _u32(1, 0) + attribute(2, struct.pack("!i", priority))
        self._add(NEWCHAIN, text(3, name) + _nest(4, hook) + _u32(5, ACCEPT) + text(7, "filter"))

    def hook_forwarded(self, name: str) -> None:
        """A chain that each frame goes through which a bridge of the namespace forwards; of family bridge."""
        hook = _u32(1, _FORWARD) + attribute(2, struct.pack("!i", 0))
        self._add(NEWCHAIN, text(3, name) + _nest(4, hook) + _u32(5, ACCEPT) + text(7, "filter"))

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
        kind, number = 0, len(self.messages)
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
        self._add(NEWOBJ, text(2, name) + _u32(3, COUNTER) + _nest(4, _u64(1, 0) + _u64(2, 0)))

    def excess(self, name: str, pps: int, burst: int) -> None:
        """A limit that ends the rule of a packet until there are more than `pps` a second."""
        self._add(NEWOBJ, text(2, name) + _u32(3, LIMIT) + _nest(4, _limit(pps, burst, over=True)))


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
