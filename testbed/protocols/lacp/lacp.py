"""LACP (IEEE 802.1AX-2020, clause 6) without I/O: PDUs as bytes, and the members of one aggregator.

A system has one or more members, the ports of a link aggregation group. Each learns its partner from the PDUs that
arrive and tells it what it knows:

* receive machine (6.4.12): CURRENT while PDUs come, EXPIRED for three seconds after they stop, then DEFAULTED; a port
  without carrier is DISABLED.
* selection (6.4.14): members whose partner is one system with one key can be in one group. The group is that of the
  member that has had a partner for longest, so that a second partner never takes over a group that works.
* mux machine (6.4.15): a selected member says that it is in sync, and collects and distributes once its partner says
  so, too. A member that is held back (by a leaf that leaves the group) is not selected.

Time-outs are short (a PDU each second, 6.4.4), and a PDU goes out at once whenever what it says has changed. The
standard's limit of three PDUs a second is kept for what changes more often.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntFlag, StrEnum

SLOW_PROTOCOLS_ADDRESS = bytes.fromhex("0180c2000002")
"""The destination of every PDU (802.3, annex 57A)."""
SLOW_PROTOCOLS_TYPE = 0x8809
FAST_PERIOD_S = 1.0
SHORT_TIMEOUT_S = 3.0
MOST_PDUS = 3
"""In one fast period, beside the periodic one (6.4.16)."""
PDU_BYTES = 110
_SUBTYPE, _VERSION = 1, 1
_INFORMATION = struct.Struct("!H6sHHHB3x")
_ACTOR, _PARTNER, _COLLECTOR = 1, 2, 3
_INFORMATION_LENGTH, _COLLECTOR_LENGTH = 20, 16
NO_SYSTEM = "00:00:00:00:00:00"


class State(IntFlag):
    """The state octet of an actor or partner (6.4.2.3)."""

    ACTIVITY = 0x01
    TIMEOUT = 0x02
    AGGREGATION = 0x04
    SYNCHRONIZATION = 0x08
    COLLECTING = 0x10
    DISTRIBUTING = 0x20
    DEFAULTED = 0x40
    EXPIRED = 0x80


_NOTHING = State(0)


class Receive(StrEnum):
    """The state of a member's receive machine."""

    DISABLED = "disabled"
    CURRENT = "current"
    EXPIRED = "expired"
    DEFAULTED = "defaulted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PortInformation:
    """An actor or a partner, as a PDU tells of it. `system` is a MAC as text."""

    system: str = NO_SYSTEM
    key: int = 0
    port: int = 0
    state: State = _NOTHING
    system_priority: int = 0x8000
    port_priority: int = 0xFF

    @property
    def group(self) -> tuple[int, str, int]:
        """The values that members of one group have in common."""
        return self.system_priority, self.system, self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacpdu:
    """A PDU: its sender, and whom the sender takes its partner for."""

    actor: PortInformation
    partner: PortInformation


def encode_lacpdu(pdu: Lacpdu) -> bytes:
    """The 110 bytes that follow the Ethernet header."""
    return b"".join(
        (
            bytes((_SUBTYPE, _VERSION)),
            bytes((_ACTOR, _INFORMATION_LENGTH)),
            _encode(pdu.actor),
            bytes((_PARTNER, _INFORMATION_LENGTH)),
            _encode(pdu.partner),
            bytes((_COLLECTOR, _COLLECTOR_LENGTH)),
            bytes(PDU_BYTES - 2 - 2 * _INFORMATION_LENGTH - 2),  # the collector's delay, a terminator, reserved
        )
    )


def decode_lacpdu(data: bytes) -> Lacpdu | None:
    """The PDU after the Ethernet header; None for anything else. Newer versions are read as ours (6.4.2.4)."""
    if len(data) < 2 + 2 * _INFORMATION_LENGTH or data[0] != _SUBTYPE or data[1] < _VERSION:
        return None
    if data[2:4] != bytes((_ACTOR, _INFORMATION_LENGTH)) or data[22:24] != bytes((_PARTNER, _INFORMATION_LENGTH)):
        return None
    return Lacpdu(actor=_decode(data[4:22]), partner=_decode(data[24:42]))


def _encode(information: PortInformation) -> bytes:
    return _INFORMATION.pack(
        information.system_priority,
        bytes.fromhex(information.system.replace(":", "")),
        information.key,
        information.port_priority,
        information.port,
        information.state,
    )


def _decode(data: bytes) -> PortInformation:
    system_priority, system, key, port_priority, port, state = _INFORMATION.unpack(data)
    return PortInformation(
        system=system.hex(":"),
        key=key,
        port=port,
        state=State(state),
        system_priority=system_priority,
        port_priority=port_priority,
    )


@dataclass(slots=True, kw_only=True)
class _Member:
    """A port of the group. `since` is when its partner was first heard of after a silence."""

    name: str
    number: int
    receive: Receive = Receive.DISABLED
    partner: PortInformation = PortInformation()
    believed: bool = False
    """The partner's last PDU named this port, as it is, as its own partner."""
    deadline: float = 0.0
    since: float = 0.0
    held: bool = False
    selected: bool = False
    said: tuple[PortInformation, PortInformation] | None = None
    sent: tuple[float, ...] = ()
    """When the last PDUs went out."""

    @property
    def in_sync(self) -> bool:
        """Tell whether both ends are in sync: frames may be collected and distributed."""
        return self.selected and self.believed and bool(self.partner.state & State.SYNCHRONIZATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatus:
    """A member as it stands. `partner` is the partner's system, "" for none; `partner_port` is 0 where nobody says."""

    name: str
    receive: Receive
    in_sync: bool
    partner: str
    partner_port: int


class Aggregator:
    """One link aggregation group of a system. Every call takes the time (seconds, any origin, never backwards)."""

    def __init__(self, *, system: str, key: int, members: Mapping[str, int]) -> None:
        """`members` gives each port's name its number, which is unique in the system."""
        self._system = system
        self._key = key
        self._members = {name: _Member(name=name, number=number) for name, number in members.items()}

    # ------------------------------------------------------------------ what happens

    def carrier(self, name: str, up: bool, now: float) -> None:
        """Take note of a member's link. One that has it already keeps its partner."""
        member = self._members[name]
        if not up:
            member.receive, member.partner, member.believed = Receive.DISABLED, PortInformation(), False
            member.said, member.sent = None, ()
        elif member.receive is Receive.DISABLED:
            # EXPIRED first: the partner may be there, and has three seconds to say so.
            member.receive, member.deadline = Receive.EXPIRED, now + SHORT_TIMEOUT_S
        self._select()

    def received(self, name: str, pdu: Lacpdu, now: float) -> None:
        """Take a PDU that arrived at a member. One of our own, looped back, is not heard."""
        member = self._members[name]
        if member.receive is Receive.DISABLED or pdu.actor.system == self._system:
            return
        if member.receive is not Receive.CURRENT or pdu.actor.group != member.partner.group:
            member.since = now
        member.receive, member.deadline = Receive.CURRENT, now + SHORT_TIMEOUT_S
        member.partner = pdu.actor
        ours = self._actor(member)
        member.believed = (pdu.partner.group, pdu.partner.port) == (ours.group, ours.port)
        self._select()

    def hold(self, names: Sequence[str]) -> None:
        """Have these members, and no others, not selected, whatever their partner says."""
        for member in self._members.values():
            member.held = member.name in names
        self._select()

    def time_out(self, now: float) -> None:
        """Do what has become due."""
        for member in self._members.values():
            if member.deadline > now:
                continue
            if member.receive is Receive.CURRENT:
                member.receive, member.deadline = Receive.EXPIRED, now + SHORT_TIMEOUT_S
                member.partner = replace(member.partner, state=member.partner.state & ~State.SYNCHRONIZATION)
            elif member.receive is Receive.EXPIRED:
                member.receive, member.partner, member.believed = Receive.DEFAULTED, PortInformation(), False
        self._select()

    # ------------------------------------------------------------------ what follows from it

    def pdus(self, now: float) -> list[tuple[str, bytes]]:
        """The PDUs that are to be sent now, with the member that each leaves by."""
        found = []
        for member in self._members.values():
            if self._due(member) <= now:
                actor = self._actor(member)
                member.said = (actor, member.partner)
                member.sent = (*[at for at in member.sent if at > now - FAST_PERIOD_S], now)
                found.append((member.name, encode_lacpdu(Lacpdu(actor=actor, partner=member.partner))))
        return found

    def next_due(self) -> float:
        """When `time_out` and `pdus` have something to do; infinity for never."""
        times = [self._due(member) for member in self._members.values()]
        times += [
            member.deadline for member in self._members.values() if member.receive in (Receive.CURRENT, Receive.EXPIRED)
        ]
        return min(times, default=float("inf"))

    @property
    def active(self) -> tuple[str, ...]:
        """The members that collect and distribute, in their order."""
        return tuple(member.name for member in self._members.values() if member.in_sync)

    @property
    def heard(self) -> tuple[str, ...]:
        """The active members whose partner has said that it collects: what is sent earlier may be lost."""
        return tuple(
            member.name
            for member in self._members.values()
            if member.in_sync and member.partner.state & State.COLLECTING
        )

    def status(self) -> list[MemberStatus]:
        return [
            MemberStatus(
                name=member.name,
                receive=member.receive,
                in_sync=member.in_sync,
                partner="" if member.partner.system == NO_SYSTEM else member.partner.system,
                partner_port=member.partner.port,
            )
            for member in self._members.values()
        ]

    def _due(self, member: _Member) -> float:
        if member.receive is Receive.DISABLED:
            return float("inf")
        if member.said is None:
            return float("-inf")
        if (self._actor(member), member.partner) == member.said:
            return member.sent[-1] + FAST_PERIOD_S
        return member.sent[0] + FAST_PERIOD_S if len(member.sent) > MOST_PDUS else float("-inf")

    def _actor(self, member: _Member) -> PortInformation:
        state = State.ACTIVITY | State.TIMEOUT | State.AGGREGATION
        if member.selected:
            state |= State.SYNCHRONIZATION
        if member.in_sync:
            state |= State.COLLECTING | State.DISTRIBUTING
        if member.receive is Receive.DEFAULTED:
            state |= State.DEFAULTED
        if member.receive is Receive.EXPIRED:
            state |= State.EXPIRED
        return PortInformation(system=self._system, key=self._key, port=member.number, state=state)

    def _select(self) -> None:
        candidates = [
            member
            for member in self._members.values()
            if member.receive is Receive.CURRENT and not member.held and member.partner.state & State.AGGREGATION
        ]
        first = min(candidates, key=lambda member: member.since, default=None)
        for member in self._members.values():
            member.selected = first is not None and member in candidates and member.partner.group == first.partner.group
