"""The opcodes of packets, and what each says: service, operation, place in the message, and the headers it brings.

Source: InfiniBand Architecture Specification, volume 1, release 1.4, section 9.2 (table 38, "OpCode field"), and annex
A17 for the congestion notification packet of RoCEv2.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

UDP_PORT: Final = 4791
"""The destination port of every RoCEv2 packet (annex A17.3.1)."""


class Opcode(IntEnum):
    """The opcodes of the services RC, UC and UD, and the congestion notification packet of RoCEv2.

    The three upper bits are the service, the five lower ones the operation.
    """

    RC_SEND_FIRST = 0x00
    RC_SEND_MIDDLE = 0x01
    RC_SEND_LAST = 0x02
    RC_SEND_LAST_IMMEDIATE = 0x03
    RC_SEND_ONLY = 0x04
    RC_SEND_ONLY_IMMEDIATE = 0x05
    RC_WRITE_FIRST = 0x06
    RC_WRITE_MIDDLE = 0x07
    RC_WRITE_LAST = 0x08
    RC_WRITE_LAST_IMMEDIATE = 0x09
    RC_WRITE_ONLY = 0x0A
    RC_WRITE_ONLY_IMMEDIATE = 0x0B
    RC_READ_REQUEST = 0x0C
    RC_READ_RESPONSE_FIRST = 0x0D
    RC_READ_RESPONSE_MIDDLE = 0x0E
    RC_READ_RESPONSE_LAST = 0x0F
    RC_READ_RESPONSE_ONLY = 0x10
    RC_ACKNOWLEDGE = 0x11
    RC_ATOMIC_ACKNOWLEDGE = 0x12
    RC_COMPARE_SWAP = 0x13
    RC_FETCH_ADD = 0x14
    RC_SEND_LAST_INVALIDATE = 0x16
    RC_SEND_ONLY_INVALIDATE = 0x17
    UC_SEND_FIRST = 0x20
    UC_SEND_MIDDLE = 0x21
    UC_SEND_LAST = 0x22
    UC_SEND_LAST_IMMEDIATE = 0x23
    UC_SEND_ONLY = 0x24
    UC_SEND_ONLY_IMMEDIATE = 0x25
    UC_WRITE_FIRST = 0x26
    UC_WRITE_MIDDLE = 0x27
    UC_WRITE_LAST = 0x28
    UC_WRITE_LAST_IMMEDIATE = 0x29
    UC_WRITE_ONLY = 0x2A
    UC_WRITE_ONLY_IMMEDIATE = 0x2B
    UD_SEND_ONLY = 0x64
    UD_SEND_ONLY_IMMEDIATE = 0x65
    CNP = 0x81
    SELECTIVE_ACKNOWLEDGE = 0xC0
    """Ours, among the opcodes left to manufacturers: an acknowledgement with a bitmap of the packets after its PSN (the
    first bit is that of the next one), as selective recovery needs it."""
    DC_CONNECT = 0xC1
    """Ours, as the wire format of dynamic connections is not public: an initiator attaches to a target (`dynamic`)."""
    DC_DISCONNECT = 0xC2
    """An initiator has detached from a target."""
    DC_UNATTACHED = 0xC3
    """A target has no state for the packet of this PSN: nothing has connected, or it has been forgotten."""


class Service(IntEnum):
    """The transport services of a queue pair, as the three upper bits of the opcode name them."""

    RC = 0x00
    """Reliable connection."""
    UC = 0x20
    """Unreliable connection."""
    UD = 0x60
    """Unreliable datagram."""


class Operation(IntEnum):
    """The operation that a packet belongs to."""

    SEND = 0
    WRITE = 1
    READ_REQUEST = 2
    READ_RESPONSE = 3
    ACKNOWLEDGE = 4
    ATOMIC_ACKNOWLEDGE = 5
    COMPARE_SWAP = 6
    FETCH_ADD = 7
    CNP = 8
    SELECTIVE_ACKNOWLEDGE = 9
    CONNECT = 10
    DISCONNECT = 11
    UNATTACHED = 12


class Layout(NamedTuple):
    """The meaning of an opcode for the packet that carries it. Headers stand in the order of the fields here."""

    operation: Operation
    first: bool
    """It begins a message."""
    last: bool
    """It ends a message."""
    deth: bool
    """The datagram extended transport header follows."""
    reth: bool
    """The RDMA extended transport header follows."""
    atomic: bool
    """The atomic extended transport header follows."""
    aeth: bool
    """The ACK extended transport header follows."""
    atomic_ack: bool
    """The atomic ACK extended transport header follows."""
    immediate: bool
    """Immediate data follow."""
    ieth: bool
    """The invalidate extended transport header follows."""
    payload: bool
    """Data may follow the headers."""


REQUESTS: Final = frozenset(
    {Operation.SEND, Operation.WRITE, Operation.READ_REQUEST, Operation.COMPARE_SWAP, Operation.FETCH_ADD}
)
"""The operations that a responder executes."""
_DYNAMIC: Final = frozenset({Operation.CONNECT, Operation.DISCONNECT, Operation.UNATTACHED})
_WITH_DATA: Final = frozenset(
    {Operation.SEND, Operation.WRITE, Operation.READ_RESPONSE, Operation.CNP, Operation.SELECTIVE_ACKNOWLEDGE}
    | {Operation.CONNECT, Operation.DISCONNECT}
)


def _layout(opcode: Opcode) -> Layout:
    words = opcode.name.split("_")
    operation = max((item for item in Operation if item.name in opcode.name), key=lambda item: len(item.name))
    whole = not {"FIRST", "MIDDLE", "LAST"} & set(words)
    first = whole or "FIRST" in words
    last = whole or "LAST" in words
    atomic = operation in (Operation.COMPARE_SWAP, Operation.FETCH_ADD)
    return Layout(
        operation=operation,
        first=first,
        last=last,
        deth="UD" in words or operation in _DYNAMIC,
        reth=operation is Operation.READ_REQUEST or (operation is Operation.WRITE and first),
        atomic=atomic,
        aeth=operation in (Operation.ACKNOWLEDGE, Operation.ATOMIC_ACKNOWLEDGE, Operation.SELECTIVE_ACKNOWLEDGE)
        or (operation is Operation.READ_RESPONSE and (first or last)),
        atomic_ack=operation is Operation.ATOMIC_ACKNOWLEDGE,
        immediate="IMMEDIATE" in words,
        ieth="INVALIDATE" in words,
        payload=operation in _WITH_DATA,
    )


LAYOUTS: Final[tuple[Layout | None, ...]] = tuple(
    _layout(Opcode(number)) if number in set(Opcode) else None for number in range(256)
)
"""By opcode; None: reserved, or of a service that is not known here (RD, XRC)."""
