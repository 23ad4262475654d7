"""Runs of one size of message: bandwidth, with many under way, and latency, with one there and one back."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import asdict

from testbed.endpoints.perftest.results import (
    BandwidthResult,
    LatencyResult,
    Result,
    bandwidth_result,
    latency_result,
    read_result,
)
from testbed.endpoints.perftest.session import PerftestSession
from testbed.endpoints.perftest.tool import Verb
from testbed.endpoints.perftest.transport import RECEIVES

WARM_UP_BYTES = 4 << 20
WARM_UP_ROUND_TRIPS = 100
"""Before those that count, at most."""
_NEVER = 1 << 63


class SizeRun(ABC):
    """One size, as one side sees it. Everything raises `PerftestError`; what was measured so far is in `result`."""

    def __init__(self, session: PerftestSession, size: int) -> None:
        self._session = session
        self._endpoint = session.endpoint
        self._size = size
        self._data = session.memory.local[:size]
        self._left = 0
        self._until_ns = _NEVER
        self._finished_ns: list[int] = []

    @property
    @abstractmethod
    def result(self) -> Result | None:
        """Return what was measured; None where nothing was."""

    @abstractmethod
    def measure_as_client(self) -> Result:
        """Measure, and return what both sides found."""

    @abstractmethod
    def serve(self) -> Result:
        """Do the server's part, and return what both sides found."""

    @property
    @abstractmethod
    def _most_warm_up(self) -> int:
        """Operations before those that count, at most."""

    @abstractmethod
    def _run(self, operations: int, until_ns: int) -> None:
        """Do so many operations, or those of so long a time."""

    def _measure(self) -> None:
        """Warm up, and measure."""
        options = self._session.options
        self._run(min(self._most_warm_up, max(options.iterations // 10, 1)), _NEVER)
        if options.duration_s:
            self._run(_NEVER, time.monotonic_ns() + round(options.duration_s * 1e9))
        else:
            self._run(options.iterations, _NEVER)

    def _check_peer(self) -> None:
        if self._session.channel.failed:
            self._session.channel.take("end")


class BandwidthRun(SizeRun):
    """One direction: messages one after another, as many under way as the tx depth allows, each timed when it is
    completed. Receives for the peer's SENDs are posted anew for as long as it is polled."""

    def __init__(self, session: PerftestSession, size: int) -> None:
        super().__init__(session, size)
        self._depth = session.endpoint.depth
        self._under_way = 0
        self._begun_ns = 0

    @property
    def _most_warm_up(self) -> int:
        return min(self._depth, max(WARM_UP_BYTES // self._size, 1))

    def _poll(self) -> None:
        """Take completions and post what may follow: to be called at every turn."""
        endpoint = self._endpoint
        finished_ns = self._finished_ns
        before = len(finished_ns)
        now = time.monotonic_ns()
        if endpoint.take(finished_ns):
            endpoint.replenish()
        self._under_way -= len(finished_ns) - before
        if now >= self._until_ns:
            self._left = 0
        if self._left and self._under_way < self._depth:
            while self._left and self._under_way < self._depth:
                endpoint.post(self._data, now)
                self._left -= 1
                self._under_way += 1
            self._session.agent.loop.touch()
        self._check_peer()

    def _turn(self) -> bool:
        self._poll()
        return not self._under_way and not self._left

    def _turn_while_waiting(self) -> bool:
        self._poll()
        return False

    def _run(self, operations: int, until_ns: int) -> None:
        self._left = operations
        self._until_ns = until_ns
        self._finished_ns = []
        self._begun_ns = time.monotonic_ns()
        self._session.drive(self._turn)

    def measure_as_client(self) -> BandwidthResult:
        self._measure()
        own = self.result
        assert own is not None
        self._session.channel.send({"end": asdict(own)})
        theirs = self._session.ask("result", self._turn_while_waiting)["result"]
        return own if theirs is None else own.plus(read_result(BandwidthResult, theirs))

    def serve(self) -> BandwidthResult:
        """Measure, too, if both directions are measured."""
        own: BandwidthResult | None = None
        if self._session.options.bidirectional:
            self._measure()
            own = self.result
        theirs = read_result(BandwidthResult, self._session.ask("end", self._turn_while_waiting)["end"])
        self._session.channel.send({"result": None if own is None else asdict(own)})
        return theirs if own is None else own.plus(theirs)

    @property
    def result(self) -> BandwidthResult | None:
        if not self._finished_ns:
            return None
        peak = not self._session.options.duration_s
        return bandwidth_result(self._size, self._begun_ns, self._finished_ns, self._depth, peak=peak)


class PingPong(SizeRun):
    """One message to the peer, one back, and half of the time between; a READ or an atomic and the whole of it.

    perftest's rule (`rtt_factor`): what the peer's program answers counts half, what its adapter answers (READs,
    atomics) whole. A WRITE tells of its arrival by a completion (header data of UET, immediate data of RoCE), where
    perftest looks at the last byte of the memory: packets may arrive in any order. RUDI has no header data, so the
    answer to a RUDI WRITE is its response, of which half counts too.
    """

    _most_warm_up = WARM_UP_ROUND_TRIPS

    def __init__(self, session: PerftestSession, size: int) -> None:
        super().__init__(session, size)
        self._sent_ns = 0
        self._times_ns: list[float] = []
        """The part of each round trip that counts."""
        self._factor = 1 if session.options.tool.verb in (Verb.ATOMIC, Verb.READ) else 2

    def _send(self) -> None:
        now = self._sent_ns = time.monotonic_ns()
        self._endpoint.post(self._data, now)
        self._session.agent.loop.touch()

    def _answered(self) -> int:
        """Return how many answers have come since the last call."""
        endpoint = self._endpoint
        finished_ns = self._finished_ns
        finished_ns.clear()
        arrived = endpoint.take(finished_ns)
        answers = len(finished_ns) if endpoint.one_sided else arrived
        endpoint.replenish(RECEIVES // 2 if answers else 1)  # what is to be answered is answered first
        return answers

    def _answer(self) -> bool:
        """Send back what has come. Never the last turn."""
        for _ in range(self._answered()):
            self._send()
        return False

    def _turn(self) -> bool:
        if self._answered():
            now = time.monotonic_ns()
            self._times_ns.append((now - self._sent_ns) / self._factor)
            self._left -= 1
            if not self._left or now >= self._until_ns:
                return True
            self._send()
        self._check_peer()
        return False

    def _run(self, operations: int, until_ns: int) -> None:
        self._times_ns = []
        self._left = operations
        self._until_ns = until_ns
        self._send()
        self._session.drive(self._turn)

    def measure_as_client(self) -> LatencyResult:
        self._measure()
        result = self.result
        assert result is not None
        self._session.channel.send({"end": asdict(result)})
        self._session.ask("result")
        return result

    def serve(self) -> LatencyResult:
        """Answer; the client tells what it found."""
        session = self._session
        theirs = session.ask("end") if session.endpoint.one_sided else session.ask("end", self._answer)
        session.channel.send({"result": None})
        return read_result(LatencyResult, theirs["end"])

    @property
    def result(self) -> LatencyResult | None:
        return latency_result(self._size, self._times_ns) if self._times_ns else None
