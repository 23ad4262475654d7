"""A switch: its input ports, the memory that its queues share, and the choice among ports of equal cost.

The hash is that of the emulated switches' ingress program, so that the oracles which follow every flow through an
emulated lab follow it here as well.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from testbed.base.datapath.abi import BALANCING_CODES, CLASSES, FIVE_TUPLE, HashField
from testbed.base.datapath.traffic_class import ClassPlan
from testbed.protocols.simulation.errors import ConfigurationError
from testbed.protocols.simulation.events import Actor, Events
from testbed.protocols.simulation.frame import Frame
from testbed.protocols.simulation.port import OutputPort
from testbed.protocols.simulation.seeded import SeededRandom
from testbed.protocols.simulation.settings import FabricPortSettings, SwitchSettings

if TYPE_CHECKING:
    from mypy_extensions import i64

WORD: Final = (1 << 64) - 1
HALF: Final = (1 << 32) - 1
UDP: Final = 17
TCP: Final = 6
ROCE_PORT: Final = 4791
"""The UDP destination port of RoCEv2 (InfiniBand volume 1, annex A17.9)."""
QP_AT: Final = 5
"""The place of the destination queue pair in a base transport header, 24 bits (InfiniBand volume 1, section 9.2)."""
SPRAY_STEP: Final = 0x9E3779B1
"""Multiples of the golden ratio fill any number of equal paths evenly."""
REMEMBERED: Final = 1 << 20
"""Flows whose hash a switch keeps."""
FLOWLET: Final = 1
SPRAY: Final = 2
ADAPTIVE: Final = 3
STATIC: Final = 4
"""Some of `BALANCING_CODES`, as numbers that a compiler knows."""


def mix(value: int) -> int:
    """The finaliser of MurmurHash3 (public domain, A. Appleby)."""
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & WORD
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & WORD
    return value ^ value >> 33


def flow_hash(
    source: bytes, destination: bytes, source_port: int, destination_port: int, seed: int, protocol: int = UDP
) -> int:
    """Return the 64-bit hash of a flow between two IPv4 addresses, as the emulated switches compute it."""
    order = sys.byteorder
    addresses = int.from_bytes(source, order) << 32 | int.from_bytes(destination, order)
    both = source_port.to_bytes(2, "big") + destination_port.to_bytes(2, "big")
    flow = mix(addresses ^ seed << 17)
    return mix((flow + (int.from_bytes(both, order) << 8 | protocol) + seed) & WORD)


class FlowHash:
    """The hash of flows at a switch that does not heed all of the five-tuple, or heeds RoCE's queue pair.

    It is that of `testbed.base.datapath.flow_hash`, over packets of the simulator: UDP to one port, or TCP, whose
    entropy has the source port and, above it, that of the destination.
    """

    def __init__(self, fields: tuple[HashField, ...], seed: int, destination_port: int) -> None:
        self._source = HashField.SOURCE in fields
        self._destination = HashField.DESTINATION in fields
        self._source_port = HashField.SOURCE_PORT in fields
        self._heeds_destination_port = HashField.DESTINATION_PORT in fields
        self._destination_port = destination_port
        self._protocol = HashField.PROTOCOL in fields
        self.queue_pair = HashField.ROCE_QP in fields and destination_port == ROCE_PORT
        """It heeds what a packet carries, too."""
        self._seed = seed

    def of(self, source: bytes, destination: bytes, entropy: int, header: bytes) -> int:
        """Return the 64-bit hash of a packet between two IPv4 addresses whose payload begins with this header."""
        order = sys.byteorder
        is_tcp = entropy > 0xFFFF
        near = int.from_bytes(source, order) if self._source else 0
        far = int.from_bytes(destination, order) if self._destination else 0
        source_port = entropy & 0xFFFF if self._source_port else 0
        destination_port = 0
        if self._heeds_destination_port:
            destination_port = entropy >> 16 if is_tcp else self._destination_port
        protocol = (TCP if is_tcp else UDP) if self._protocol else 0
        ports = source_port.to_bytes(2, "big") + destination_port.to_bytes(2, "big")
        flow = mix((near << 32 | far) ^ self._seed << 17)
        flow = mix((flow + (int.from_bytes(ports, order) << 8 | protocol) + self._seed) & WORD)
        heeds_pair = self.queue_pair and not is_tcp
        queue_pair = int.from_bytes(header[QP_AT : QP_AT + 3], "big") if heeds_pair else 0
        return mix(flow ^ queue_pair << 32) if queue_pair else flow


class FlowPlace:
    """The port that a flow takes at a switch which adapts, and when its last packet came."""

    def __init__(self, port: OutputPort) -> None:
        self.port = port
        self.last_ns: i64 = 0


class SwitchMemory:
    """The packet memory of a switch."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes: i64 = size_bytes
        self.used_bytes: i64 = 0
        self.max_bytes: i64 = 0


class HeldAccount:
    """The packets of one priority that a switch holds of an input port, and the pauses that it asks for."""

    def __init__(self, settings: ClassPlan, events: Events) -> None:
        self.priority: i64 = settings.priority
        self.xoff_bytes: i64 = settings.xoff_bytes
        self.xon_bytes: i64 = settings.xon_bytes
        self.hold_bytes: i64 = settings.hold_bytes
        self.bytes: i64 = 0
        self.max_bytes: i64 = 0
        self.xoff = False
        self.xoff_sent: i64 = 0
        self.xon_sent: i64 = 0
        self._events = events
        self._upstream: OutputPort | None = None
        self._delay_ns: i64 = 0

    def pauses(self, upstream: OutputPort, delay_ns: int) -> None:
        """Have pauses take effect at the port that sends here, `delay_ns` after they were asked for."""
        self._upstream = upstream
        self._delay_ns = delay_ns

    def charge(self, now: i64, size: i64) -> None:
        """A packet waits in the switch."""
        self.bytes = held = self.bytes + size
        self.max_bytes = max(self.max_bytes, held)
        if self.xoff_bytes and held > self.xoff_bytes and not self.xoff:
            self.xoff = True
            self.xoff_sent += 1
            if self._upstream is not None:
                self._events.schedule(now + self._delay_ns, self._pause)

    def discharge(self, now: i64, size: i64) -> None:
        """A packet has left the switch."""
        self.bytes = held = self.bytes - size
        if self.xoff and held <= self.xon_bytes:
            self.xoff = False
            self.xon_sent += 1
            if self._upstream is not None:
                self._events.schedule(now + self._delay_ns, self._resume)

    def _pause(self, now: int, _: object) -> None:
        if self._upstream is not None:
            self._upstream.pause(now, self.priority)

    def _resume(self, now: int, _: object) -> None:
        if self._upstream is not None:
            self._upstream.resume(now, self.priority)


class ArrivalCount:
    """Packets of one priority that came in at a port."""

    def __init__(self) -> None:
        self.packets: i64 = 0
        self.bytes: i64 = 0
        self.ce_packets: i64 = 0


class PortArrivals:
    """Counts the packets that came in at a port, by priority."""

    def __init__(self, settings: FabricPortSettings) -> None:
        self.by_priority = {item.priority: ArrivalCount() for item in settings.classes}
        self._of_kind = tuple(self.by_priority[priority] for priority in settings.priority_of)

    def count(self, frame: Frame) -> None:
        counted = self._of_kind[frame.kind]
        counted.packets += 1
        counted.bytes += frame.wire_bytes
        if frame.ce:
            counted.ce_packets += 1


class FabricSwitch:
    """Forwards by destination. `addresses` are those of all hosts by their number, `groups` is how many groups they are
    in whose members have the same routes: with as many as hosts, each is one of its own."""

    def __init__(
        self,
        name: str,
        settings: SwitchSettings,
        addresses: list[bytes],
        destination_port: int,
        random: SeededRandom,
        groups: int | None = None,
    ) -> None:
        self.name = name
        self.balancing: i64 = BALANCING_CODES[settings.balancing.name]
        self.seed = settings.seed
        self.spray_seed: i64 = settings.seed & HALF
        self.buffer = SwitchMemory(settings.buffer_bytes)
        self.routes: list[tuple[OutputPort, ...]] = [()] * (len(addresses) if groups is None else groups)
        """By the number of the destination's group; nothing for a group that it delivers to itself."""
        self.delivered: dict[int, tuple[OutputPort, ...]] = {}
        """By the number of the destination host, for groups of several that it delivers to."""
        self.homes: set[int] = set()
        """The numbers of these groups."""
        self._gap_ns = settings.gap_ns
        self._addresses = addresses
        self._destination_port = destination_port
        self._hashes: dict[int, int] = {}
        self._flowlets: dict[int, tuple[int, int]] = {}
        """By flow: when its last packet came, and the salt of its hash."""
        self._random = random
        self._hash: FlowHash | None = None
        if settings.hash_fields != FIVE_TUPLE:
            self._hash = FlowHash(settings.hash_fields, settings.seed, destination_port)
        self._by_flowlets = settings.flowlets
        self._hysteresis_bytes: i64 = settings.hysteresis_bytes
        self._remembers = settings.flowlets or settings.hysteresis_bytes > 0
        self._places: dict[int, FlowPlace] = {}
        self.pins: list[int] = []
        """By the number of the destination host: where it is pinned to a path, which, modulo the number of paths."""
        self.reroutes = False
        """Its routes may go while it runs; else there is one to every host."""
        self.no_route_packets: i64 = 0
        self.no_route_bytes: i64 = 0
        self.diverted: dict[int, tuple[OutputPort, ...]] = {}
        """By the number of the destination host: ports that its packets take whatever routing says, as static routes
        to it would have them."""
        self.expired_packets: i64 = 0
        """Packets whose time to live was over here."""
        self.expired_bytes: i64 = 0

    def expire(self, frame: Frame) -> None:
        """Drop a packet that may pass no more routers."""
        self.expired_packets += 1
        self.expired_bytes += frame.wire_bytes

    def discard(self, frame: Frame) -> None:
        """Drop a packet that has no route."""
        if not self.reroutes:
            raise ConfigurationError(f"{self.name} has no route to host {frame.destination}")
        self.no_route_packets += 1
        self.no_route_bytes += frame.wire_bytes

    def ports_to(self, frame: Frame) -> tuple[OutputPort, ...]:
        """Return the ports of equal cost towards a packet's destination; none without a route."""
        if self.diverted and frame.destination in self.diverted:
            return self.diverted[frame.destination]
        ports = self.routes[frame.group]
        return ports if len(ports) else self.delivered.get(frame.destination, ports)

    def choose_adaptive(self, now: i64, frame: Frame, ports: tuple[OutputPort, ...], first: i64) -> OutputPort:
        """Return the port with the least bytes queued, where several have as few the one that comes next after `first`.

        By flowlets, a flow may move only after a gap; it does so where another port has more than the hysteresis fewer.
        """
        place = self._places.get(frame.flow) if self._remembers else None
        if place is not None:
            pause = now - place.last_ns
            place.last_ns = now
            if self._by_flowlets and pause <= self._gap_ns and place.port in ports:
                return place.port
        count = len(ports)
        best = ports[first]
        least = best.load_bytes(now)
        for step in range(1, count):
            if not least:
                break
            number = first + step
            port = ports[number - count if number >= count else number]
            load = port.load_bytes(now)
            if load < least:
                best, least = port, load
        if not self._remembers:
            return best
        if place is None:
            if len(self._places) >= REMEMBERED:
                self._places.clear()
            place = self._places[frame.flow] = FlowPlace(best)
            place.last_ns = now
        elif place.port not in ports or place.port.load_bytes(now) > least + self._hysteresis_bytes:
            place.port = best
        return place.port

    def choose(self, frame: Frame, ports: int) -> int:
        """Return which of so many ports the flow of a packet takes: Linux' hash-threshold (RFC 2992)."""
        if self._hash is not None and self._hash.queue_pair:
            return ((self._full_hash(frame) >> 32) * ports) >> 32
        found = self._hashes.get(frame.flow)
        if found is None:
            found = self._remember(frame)
        return (found * ports) >> 32

    def choose_flowlet(self, now: int, frame: Frame, ports: int) -> int:
        """Return the same for a flow that takes another way after a gap."""
        last, salt = self._flowlets.get(frame.flow, (now, 0))
        if now - last > self._gap_ns:
            salt = self._random.source.getrandbits(32)
        self._flowlets[frame.flow] = (now, salt)
        full = self._full_hash(frame)
        return ((mix(full ^ salt) >> 32) * ports) >> 32

    def _remember(self, frame: Frame) -> int:
        if len(self._hashes) >= REMEMBERED:
            self._hashes.clear()
        found = self._hashes[frame.flow] = self._full_hash(frame) >> 32
        return found

    def _full_hash(self, frame: Frame) -> int:
        addresses = self._addresses
        source, destination = addresses[frame.source], addresses[frame.destination]
        ports: int = frame.entropy
        if self._hash is not None:
            return self._hash.of(source, destination, ports, frame.header)
        if ports > 0xFFFF:
            return flow_hash(source, destination, ports & 0xFFFF, ports >> 16, self.seed, TCP)
        return flow_hash(source, destination, frame.entropy, self._destination_port, self.seed)


class InputPort(Actor):
    """An ingress of a switch, which counts packets and hands them to an output port."""

    def __init__(self, name: str, switch: FabricSwitch, settings: FabricPortSettings, events: Events) -> None:
        self.name = name
        self._switch = switch
        self._sprayed: i64 = 0
        self.arrivals = PortArrivals(settings)
        self.accounts = [HeldAccount(item, events) for item in settings.classes if item.xoff_bytes]
        """The accounts of priorities for which pauses are asked."""
        self.pauses = bool(self.accounts)
        self._settings = settings
        self._events = events
        self._account_of: list[HeldAccount | None] = [None] * CLASSES
        for account in self.accounts:
            self._account_of[account.priority] = account

    def account_of(self, priority: i64) -> HeldAccount:
        """Return the account of the packets that wait in queues of a priority."""
        found = self._account_of[priority]
        if found is None:
            plans = [item for item in self._settings.classes if item.priority == priority]
            plan = plans[0] if plans else ClassPlan(priority=int(priority))
            found = self._account_of[priority] = HeldAccount(plan, self._events)
        return found

    def act(self, now: i64, frame: Frame | None) -> None:
        """A packet has come in whole."""
        assert frame is not None
        self.arrivals.count(frame)
        switch = self._switch
        if frame.ttl <= 1:
            switch.expire(frame)
            return
        frame.ttl -= 1
        ports = switch.ports_to(frame)
        count = len(ports)
        if count == 1:
            ports[0].offer(now, frame, self)
        elif not count:
            switch.discard(frame)
        elif switch.balancing == SPRAY:
            number = self._sprayed
            self._sprayed = number + 1
            place = (number * SPRAY_STEP + switch.spray_seed) & HALF
            ports[(place * count) >> 32].offer(now, frame, self)
        elif switch.balancing == ADAPTIVE:
            turn = self._sprayed
            self._sprayed = turn + 1
            first = (((turn * SPRAY_STEP + switch.spray_seed) & HALF) * count) >> 32
            switch.choose_adaptive(now, frame, ports, first).offer(now, frame, self)
        elif switch.balancing == STATIC:
            ports[switch.pins[frame.destination] % count].offer(now, frame, self)
        elif switch.balancing == FLOWLET:
            ports[switch.choose_flowlet(now, frame, count)].offer(now, frame, self)
        else:
            ports[switch.choose(frame, count)].offer(now, frame, self)
