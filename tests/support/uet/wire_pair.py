"""Two endpoints and the wire between them, in the hands of a test: datagrams can be looked at, held or lost."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from encoded import encoded

from testbed.protocols.datagram import Incoming, Outgoing
from testbed.protocols.uet.addressing import FepAddress
from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.fep import Fep
from testbed.protocols.uet.packets.codes import NextHeader
from testbed.protocols.uet.packets.packet import decode_packet
from testbed.protocols.uet.packets.pds import decode_pds
from testbed.protocols.uet.security.tss import SecureDomain
from testbed.protocols.uet.semantics.endpoint import Endpoint
from testbed.protocols.uet.semantics.operations import Operation
from testbed.protocols.uet.trace import Trace

MS = 1_000_000
JOB = 7


class WirePair:
    """`a` at 10.0.0.1 and `b` at 10.0.0.2, each with one endpoint; time stands still unless a test moves it."""

    def __init__(
        self,
        seed: int = 1,
        trace: bool = False,
        security: tuple[SecureDomain, SecureDomain] | None = None,
        **settings: Any,
    ) -> None:
        config = UetConfig(**settings)
        domain_a, domain_b = security or (None, None)
        self.now = 0
        random = Random(seed)
        self.traces = {"a": Trace(), "b": Trace()} if trace else {}
        self.a = Fep("10.0.0.1", config, Random(random.random()), 0, trace=self.traces.get("a"), security=domain_a)
        self.b = Fep("10.0.0.2", config, Random(random.random()), 0, trace=self.traces.get("b"), security=domain_b)
        self.ea: Endpoint = self.a.endpoint(job_id=JOB)
        self.eb: Endpoint = self.b.endpoint(job_id=JOB)
        self.to_a = FepAddress("10.0.0.1", job_id=JOB)
        self.to_b = FepAddress("10.0.0.2", job_id=JOB)

    def peer(self, fep: Fep) -> Fep:
        return self.b if fep is self.a else self.a

    def take(self, fep: Fep, limit: int = 10_000) -> list[Outgoing]:
        """Return the datagrams that it sends now, not yet delivered."""
        return fep.transmit(self.now, limit)

    def give(self, datagram: Outgoing, *, ce: bool = False, trim: int = 0, last_hop: bool = False) -> None:
        """Deliver a datagram to the one it is for."""
        to, source = (self.a, self.b) if datagram.remote == self.a.address else (self.b, self.a)
        data = datagram.to_bytes()
        kept = data[:trim] if trim else data
        arrived = Incoming(source.address, datagram.entropy, kept, ce=ce, length=len(data), last_hop=last_hop)
        to.receive([arrived], self.now)

    def settle(
        self, deliver: Callable[[Outgoing], bool] = lambda _: True, step_ns: int = 0, rounds: int = 10_000
    ) -> None:
        """Carry datagrams to and fro until neither has any more to send at this time; `deliver` says which arrive."""
        for _ in range(rounds):
            datagrams = self.take(self.a) + self.take(self.b)
            if not datagrams:
                return
            self.now += step_ns
            for datagram in datagrams:
                if deliver(datagram):
                    self.give(datagram)
        raise AssertionError("they never stop talking")

    def pass_time(self, nanoseconds: int, deliver: Callable[[Outgoing], bool] = lambda _: True) -> None:
        """Let time pass, from timer to timer, and everything happen that comes of it."""
        end = self.now + nanoseconds
        self.settle(deliver)
        while True:
            timers = [timer for timer in (self.a.next_timer(), self.b.next_timer()) if timer is not None]
            if not timers or min(timers) > end:
                break
            self.now = max(self.now, min(timers))
            self.a.handle_timer(self.now)
            self.b.handle_timer(self.now)
            self.settle(deliver)
        self.now = end

    def run(self, *operations: Operation, limit_ns: int = 60_000 * MS) -> None:
        """Until these operations are done."""
        end = self.now + limit_ns
        while not all(operation.done for operation in operations):
            assert self.now < end, operations
            self.pass_time(MS)


def run_together(feps: Sequence[Fep], operation: Operation, now: int, *, step_ns: int = MS, rounds: int = 1000) -> int:
    """Carry datagrams among several endpoints until an operation is done, or nothing more is expected of it; the time
    then. What goes to nobody of them is lost."""
    by_address = {fep.address: fep for fep in feps}
    for _ in range(rounds):
        for fep in feps:
            fep.handle_timer(now)
            for item in fep.transmit(now, 10_000):
                if item.remote in by_address:
                    by_address[item.remote].receive([Incoming(fep.address, item.entropy, item.to_bytes())], now)
        now += step_ns
        if operation.done:
            break
    return now


def header(datagram: Outgoing) -> Any:
    """The PDS header of a datagram."""
    return decode_pds(datagram.to_bytes())[0]


def carrying(datagram: Outgoing, next_header: NextHeader, ses: bytes, payload: bytes = b"") -> Outgoing:
    """The packet with another SES header and payload behind its PDS header."""
    pds = header(datagram)._replace(next_header=next_header)
    return datagram._replace(header=encoded(pds) + ses, payload=payload)


def ses_header(datagram: Outgoing) -> Any:
    """The SES header of a datagram; None if it has none."""
    return decode_packet(datagram.to_bytes()).ses
