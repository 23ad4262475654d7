"""One side of a measurement: its agent, its fabric endpoint and memory, and the channel to the other side."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from secrets import randbelow
from types import FrameType
from typing import Any

from testbed.agent.agent import CLOSE_PATIENCE_NS, Agent
from testbed.agent.perftest.errors import Interrupted, MismatchError, PeerGoneError, PerftestError
from testbed.agent.perftest.exchange import LOOPBACK, Channel, check_hello, hello, source_address
from testbed.agent.perftest.options import Options
from testbed.transport.errors import UsageError
from testbed.transport.uet.addressing import JOB_LIMIT, FepAddress
from testbed.transport.uet.config import UetConfig
from testbed.transport.uet.fep import Fep
from testbed.transport.uet.memory import Access, RemoteBuffer
from testbed.transport.uet.security.tss import SecureDomain, SecurityMode, first_counter
from testbed.transport.uet.security.tss_header import Tsc
from testbed.transport.uet.semantics.endpoint import Endpoint
from testbed.transport.uet.semantics.operations import Operation

SPIN_NS = 200_000
"""How long the latency tools look for work before they sleep (perftest: for ever)."""
_SDI = 1
_RESOURCE_INDEX = 1
_REMOTE = Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC


def uet_config(options: Options) -> UetConfig:
    """Raises `PerftestError` for what cannot work."""
    try:
        return UetConfig(
            link_rate_bps=options.link_rate_bps,
            base_rtt_ns=options.base_rtt_ns,
            payload_bytes=options.payload_bytes,
            trimming=options.trimming,
            cc=options.cc,
            paths=options.paths,
            pdcs_per_peer=options.pdcs,
        )
    except UsageError as error:
        raise PerftestError(str(error)) from None


def check(operation: Operation) -> None:
    """Raises `PerftestError` for an operation that failed."""
    if not operation.ok:
        status = "" if operation.status is None else f" with {operation.status.name}"
        raise PerftestError(f"a {operation.kind} failed{status}: {operation.error}".removesuffix(": "))


class PerftestSession:
    """Both sides are alike once they have said hello. Everything raises `PerftestError` where it cannot go on."""

    def __init__(self, options: Options, agent: Agent, channel: Channel, fep: Fep, job_id: int, peer: str) -> None:
        self.options = options
        self.agent = agent
        self.channel = channel
        self.fep = fep
        self.job_id = job_id
        self.interrupted = False
        self.endpoint: Endpoint = fep.endpoint(job_id=job_id, resource_index=_RESOURCE_INDEX)
        longest = max(options.sizes)
        self.local = memoryview(bytearray(longest))
        """What is sent, and read into."""
        self.remote = memoryview(bytearray(longest))
        """What the peer writes, reads and sends into."""
        self.region = fep.register(self.remote, _REMOTE, job_id)
        self.peer = FepAddress(peer, 0, _RESOURCE_INDEX, job_id)
        self.peer_buffer = RemoteBuffer(0)

    # --- meeting -----------------------------------------------------------------------------------------

    @staticmethod
    @contextmanager
    def open(options: Options, announce: Callable[[str], None]) -> Iterator[PerftestSession]:
        """Meet the other side; `announce` is called with this side's address before the server begins to wait."""
        config = uet_config(options)
        agent = Agent(spin_ns=SPIN_NS if options.tool.latency and not options.events else 0)
        channel: Channel | None = None
        try:
            channel = _accept(options, announce) if options.host is None else _connect(options, options.host, announce)
            channel.watch(agent.loop)
            session = _meet(options, config, agent, channel)
            with session.interruptible():
                yield session
        except PerftestError as error:
            if channel is not None and not isinstance(error, PeerGoneError):
                channel.give_up("it was interrupted" if isinstance(error, Interrupted) else str(error))
            raise
        finally:
            if channel is not None:
                channel.close()
            agent.close(patience_ns=0)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """SIGINT ends `drive` between two turns, so that nothing is left half done; a second one is Python's own."""

        def interrupt(number: int, frame: FrameType | None) -> None:
            self.interrupted = True
            self.agent.loop.wake()
            signal.signal(signal.SIGINT, signal.default_int_handler)

        before = signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    # --- going on ----------------------------------------------------------------------------------------

    def drive(self, until: Callable[[], bool]) -> None:
        """Run until the condition holds, as long as anything arrives at all."""
        received = -1
        counters = self.agent.sockets(self.fep.address).counters
        while not self.agent.drive(lambda: self.interrupted or until(), self.options.timeout_ns):
            if counters.received == received:
                raise PerftestError(f"nothing has arrived for {self.options.timeout_ns / 1e9:g} s")
            received = counters.received
        if self.interrupted:
            raise Interrupted("interrupted")

    def ask(self, name: str, until: Callable[[], bool] = lambda: False) -> dict[str, Any]:
        """Wait for the message `name`; `until` is called at every turn, for what is to be done meanwhile."""
        channel = self.channel
        self.drive(lambda: until() or channel.stirred)
        return channel.take(name)

    def post_receive(self) -> None:
        """Post a receive for a SEND of any of the sizes. All receives share their memory."""
        self.endpoint.recv(self.remote, time.monotonic_ns())

    def finish(self) -> None:
        """Close the PDCs of both sides while both still answer."""
        self.fep.close(time.monotonic_ns())
        self.agent.drive(lambda: not any(pdc.initiator for pdc in self.fep.pdcs), CLOSE_PATIENCE_NS)
        self.channel.send({"closed": True})
        self.ask("closed")


def _connect(options: Options, host: str, announce: Callable[[str], None]) -> Channel:
    address = options.address or source_address(host, options.port)[0]
    announce(address)
    return Channel.connect(host, options.port, address, options.timeout_ns)


def _accept(options: Options, announce: Callable[[str], None]) -> Channel:
    address = options.address or LOOPBACK
    with Channel.listen(address, options.port) as listener:
        announce(address)
        accepted, _ = listener.accept()
        return Channel(accepted)


def _meet(options: Options, config: UetConfig, agent: Agent, channel: Channel) -> PerftestSession:
    """Say hello. The client chooses the job."""

    def heard() -> dict[str, Any]:
        if not agent.drive(lambda: channel.stirred, options.timeout_ns):
            raise PerftestError("the other side does not say anything")
        return channel.take("hello")

    theirs: dict[str, Any] = {}
    if options.server:
        theirs = heard()
        check_hello(theirs, options)
    address = channel.local_address
    security = None
    if options.tss is not None:
        first_tsc = Tsc(counter=first_counter(time.time_ns()))
        security = SecureDomain(_SDI, options.tss, first_tsc=first_tsc, mode=SecurityMode.CLUSTER)
    try:
        fep = agent.open(address, config, security=security)
    except (OSError, ValueError, ImportError) as error:
        raise PerftestError(f"cannot open the fabric endpoint {address}: {error}") from None
    job_id = int(theirs["job"]) if theirs else 1 + randbelow(JOB_LIMIT - 1)
    peer = str(theirs["address"]) if theirs else channel.peer_address
    try:
        session = PerftestSession(options, agent, channel, fep, job_id, peer)
    except UsageError as error:
        raise MismatchError(str(error)) from None
    channel.send(hello(options, address, job_id, session.region.key))
    if not theirs:
        theirs = heard()
        check_hello(theirs, options)
    session.peer_buffer = RemoteBuffer(int(theirs["key"], 16))
    return session
