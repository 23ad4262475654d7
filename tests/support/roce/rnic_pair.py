"""Two RNICs and the wire between them under a fake clock: it loses, delays, doubles and marks what it is told to."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from testbed.protocols.datagram import Incoming, Outgoing
from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.memory import ALL_ACCESS
from testbed.protocols.roce.packets.headers import decode_bth
from testbed.protocols.roce.packets.icrc import compute_icrc, encode_icrc
from testbed.protocols.roce.packets.opcodes import Opcode, Service
from testbed.protocols.roce.qp import QueuePair
from testbed.protocols.roce.rnic import Rnic
from testbed.protocols.roce.work import RemoteBuffer, WorkRequest

FIRST = "10.0.0.1"
SECOND = "10.0.0.2"
DELAY_NS = 5_000
LONGEST_DETOUR_NS = 200_000
PULL = 64


def opcode_of(datagram: Outgoing) -> Opcode:
    return Opcode(decode_bth(datagram.header).opcode)


def sealed(header: bytes, payload: bytes = b"", source: str = FIRST) -> Incoming:
    """A datagram to `SECOND` whose ICRC is right."""
    icrc = compute_icrc(source, SECOND, 50_000, header, payload)
    return Incoming(source, 50_000, header + payload + encode_icrc(icrc))


@dataclass(frozen=True, kw_only=True)
class Wire:
    """Probabilities of what happens to a datagram."""

    loss: float = 0.0
    detour: float = 0.0
    """It arrives later than those that were sent after it."""
    double: float = 0.0
    mark: float = 0.0


class RnicPair:
    """`run` moves datagrams and time until a condition holds."""

    def __init__(self, config: RoceConfig | None = None, wire: Wire | None = None, seed: int = 1) -> None:
        self.config = config or RoceConfig()
        self.wire = wire or Wire()
        self.first = Rnic(FIRST, self.config, Random(seed), 0)
        self.second = Rnic(SECOND, self.config, Random(seed + 1), 0)
        self.now = 0
        self.sent: list[tuple[str, Outgoing]] = []
        """Every datagram, with the address that it came from."""
        self.drop: Callable[[str, Outgoing], bool] = lambda source, datagram: False
        """Tells whether a datagram of an address is lost, whatever `wire` says."""
        self._random = Random(seed)
        self._alarm = 0
        self._nics = {FIRST: self.first, SECOND: self.second}
        self._under_way: list[tuple[int, int, str, Incoming]] = []

    def add(self, address: str, config: RoceConfig | None = None) -> Rnic:
        """One more RNIC on the wire, or another one in the place of what was there (a restart)."""
        nic = self._nics[address] = Rnic(address, config or self.config, Random(len(self.sent)), self.now)
        return nic

    def connect(
        self, service: Service = Service.RC, *, first_psn: int = 0, second_psn: int = 0, mtu: int | None = None
    ) -> tuple[QueuePair, QueuePair]:
        """A queue pair on each side, in RTS."""
        here, there = self.first.create_qp(service), self.second.create_qp(service)
        here.connect(SECOND, there.number, send_psn=first_psn, receive_psn=second_psn, mtu=mtu)
        there.connect(FIRST, here.number, send_psn=second_psn, receive_psn=first_psn, mtu=mtu)
        return here, there

    def register(self, memory: int | bytearray) -> RemoteBuffer:
        """Memory of the second RNIC, or so many zeros, with every access."""
        region = self.second.register(bytearray(memory) if isinstance(memory, int) else memory, ALL_ACCESS)
        return RemoteBuffer(region.base, region.rkey)

    def opcodes(self, source: str) -> list[Opcode]:
        """Those of every datagram that came from an address."""
        return [opcode_of(datagram) for address, datagram in self.sent if address == source]

    def finish(self, *requests: WorkRequest, longest_ns: int = 10**12) -> None:
        """Run until these have ended, well or not."""
        self.run(lambda: all(request.status is not None for request in requests), longest_ns=longest_ns)

    def pass_time(self, duration_ns: int) -> None:
        """Let time go by, with whatever happens meanwhile."""
        self._alarm = self.now + duration_ns
        self.run(lambda: self.now >= self._alarm)

    def run(self, until: Callable[[], bool], *, longest_ns: int = 10**12) -> None:
        """Fails if nothing is left that could happen, or the time is over."""
        while not until():
            self._send()
            if until():
                return
            times = [timer for nic in self._nics.values() if (timer := nic.next_timer()) is not None]
            if self._under_way:
                times.append(self._under_way[0][0])
            if self._alarm > self.now:
                times.append(self._alarm)
            assert times, f"nothing is left to happen: {self.first.counters}, {self.second.counters}"
            self.now = max(self.now, min(times))
            assert self.now < longest_ns, f"it takes too long: {self.first.counters}, {self.second.counters}"
            while self._under_way and self._under_way[0][0] <= self.now:
                _, _, destination, incoming = heapq.heappop(self._under_way)
                self._nics[destination].receive([incoming], self.now)
            for nic in self._nics.values():
                timer = nic.next_timer()
                if timer is not None and timer <= self.now:
                    nic.handle_timer(self.now)

    def _send(self) -> None:
        for address, nic in self._nics.items():
            while True:
                datagrams = nic.transmit(self.now, PULL)
                for datagram in datagrams:
                    self._carry(address, datagram)
                if len(datagrams) < PULL:
                    break

    def _carry(self, source: str, datagram: Outgoing) -> None:
        self.sent.append((source, datagram))
        chance = self._random.random
        for _ in range(2 if chance() < self.wire.double else 1):
            if self.drop(source, datagram) or chance() < self.wire.loss:
                continue
            delay = DELAY_NS + (self._random.randrange(LONGEST_DETOUR_NS) if chance() < self.wire.detour else 0)
            incoming = Incoming(source, datagram.entropy, datagram.to_bytes(), chance() < self.wire.mark)
            heapq.heappush(self._under_way, (self.now + delay, len(self.sent), datagram.remote, incoming))
