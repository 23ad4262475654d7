"""One side of a measurement: its agent, its endpoint and memory, and the channel to the other side."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from testbed.endpoints.agent import CLOSE_PATIENCE_NS
from testbed.endpoints.perftest.errors import Interrupted, PeerGoneError, PerftestError
from testbed.endpoints.perftest.exchange import LOOPBACK, ToolConnection, check_hello, hello, source_address
from testbed.endpoints.perftest.json_results import own_json_file
from testbed.endpoints.perftest.options import Options
from testbed.endpoints.perftest.transport import MeasuredEndpoint, MeasuringAgent, ToolMemory


@dataclass(slots=True, eq=False)
class PerftestSession:
    """Both sides are alike once they have said hello. Everything raises `PerftestError` where it cannot go on."""

    options: Options
    agent: MeasuringAgent
    channel: ToolConnection
    endpoint: MeasuredEndpoint
    memory: ToolMemory
    json_file: Path | None = None
    """The file into which this side writes its results, if the other side writes none."""
    interrupted: bool = False

    # --- meeting -----------------------------------------------------------------------------------------

    @staticmethod
    @contextmanager
    def open(options: Options, announce: Callable[[str], None]) -> Iterator[PerftestSession]:
        """Meet the other side; `announce` is called with this side's address before the server begins to wait."""
        agent = options.tool.transport.open_agent(options)
        channel: ToolConnection | None = None
        try:
            channel = _accept(options, announce) if options.host is None else _connect(options, options.host, announce)
            channel.watch(agent.loop)
            session = _meet(options, agent, channel)
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
        while not self.agent.drive(lambda: self.interrupted or until(), self.options.timeout_ns):
            before, received = received, self.agent.received(self.endpoint.address)
            if received == before:
                raise PerftestError(f"nothing has arrived for {self.options.timeout_ns / 1e9:g} s")
        if self.interrupted:
            raise Interrupted("interrupted")

    def ask(self, name: str, until: Callable[[], bool] = lambda: False) -> dict[str, Any]:
        """Wait for the message `name`; `until` is called at every turn, for what is to be done meanwhile."""
        channel = self.channel
        self.drive(lambda: until() or channel.stirred)
        return channel.take(name)

    def finish(self) -> None:
        """End the connection while both sides still answer."""
        self.endpoint.begin_closing(time.monotonic_ns())
        self.agent.drive(lambda: self.endpoint.closed, CLOSE_PATIENCE_NS)
        self.channel.send({"closed": True})
        self.ask("closed")


def _connect(options: Options, host: str, announce: Callable[[str], None]) -> ToolConnection:
    address = options.address or source_address(host, options.port)[0]
    announce(address)
    return ToolConnection.connect(host, options.port, address, options.timeout_ns)


def _accept(options: Options, announce: Callable[[str], None]) -> ToolConnection:
    address = options.address or LOOPBACK
    with ToolConnection.listen(address, options.port) as listener:
        announce(address)
        accepted, _ = listener.accept()
        return ToolConnection(accepted)


def _meet(options: Options, agent: MeasuringAgent, channel: ToolConnection) -> PerftestSession:
    """Say hello. The server answers what the client says."""

    def heard() -> dict[str, Any]:
        if not agent.drive(lambda: channel.stirred, options.timeout_ns):
            raise PerftestError("the other side does not say anything")
        message = channel.take("hello")
        check_hello(message, options)
        return message

    transport = options.tool.transport
    theirs = heard() if options.server else None
    transport.check_link(options, *channel.link_mtu)
    longest = max(options.sizes)
    memory = ToolMemory(memoryview(bytearray(longest)), memoryview(bytearray(longest)))
    address = channel.local_address
    endpoint = transport.open(options, agent, address, memory, None if theirs is None else theirs["endpoint"])
    if theirs is not None:
        endpoint.connect(str(theirs["address"]), theirs["endpoint"])
    channel.send(hello(options, address, endpoint.introduction))
    if theirs is None:
        theirs = heard()
        endpoint.connect(channel.peer_address, theirs["endpoint"])
    json_file = own_json_file(options, theirs.get("json_file"))
    return PerftestSession(options, agent, channel, endpoint, memory, json_file=json_file)
