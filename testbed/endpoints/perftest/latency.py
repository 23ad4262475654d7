"""Latency: one message to the peer, one back, and half of the time between; a READ or an atomic and the whole of it.

perftest's rule (`rtt_factor`): what the peer's program answers counts half, what its adapter answers (READs, atomics)
whole.
A WRITE tells of its arrival by a completion (header data of UET, immediate data of RoCE), where perftest looks at the
last byte of the memory: packets may arrive in any order. RUDI has no header data, so the answer to a RUDI WRITE is its
response, of which half counts too.
"""

from __future__ import annotations

import time
from dataclasses import asdict

from testbed.endpoints.perftest.errors import PeerGoneError
from testbed.endpoints.perftest.results import LatencyResult, latency_result
from testbed.endpoints.perftest.session import PerftestSession
from testbed.endpoints.perftest.tool import Verb
from testbed.endpoints.perftest.transport import RECEIVES

WARM_UP = 100
"""Round trips before those that count, at most."""
_NEVER = 1 << 63


class PingPong:
    """One size: the client begins, the server answers."""

    def __init__(self, session: PerftestSession, size: int) -> None:
        self._session = session
        self._endpoint = session.endpoint
        self._size = size
        self._data = session.memory.local[:size]
        self._left = 0
        self._until_ns = _NEVER
        self._sent_ns = 0
        self._finished_ns: list[int] = []
        """When own operations ended, since it was last asked."""
        self.times_ns: list[float] = []
        """Of what counts: half of a round trip, or all."""
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

    def answer(self) -> bool:
        """The server's turn: send back what has come. Never the last turn."""
        for _ in range(self._answered()):
            self._send()
        return False

    def _turn(self) -> bool:
        if self._answered():
            now = time.monotonic_ns()
            self.times_ns.append((now - self._sent_ns) / self._factor)
            self._left -= 1
            if not self._left or now >= self._until_ns:
                return True
            self._send()
        if self._session.channel.failed:
            self._session.channel.take("end")
        return False

    def _run(self, round_trips: int, until_ns: int) -> None:
        self.times_ns = []
        self._left = round_trips
        self._until_ns = until_ns
        self._send()
        self._session.drive(self._turn)

    def measure(self) -> None:
        """Warm up, and measure; raises `PerftestError`, and what was measured so far is in `result`."""
        options = self._session.options
        self._run(min(WARM_UP, max(options.iterations // 10, 1)), _NEVER)
        self.times_ns = []
        if options.duration_s:
            self._run(_NEVER, time.monotonic_ns() + round(options.duration_s * 1e9))
        else:
            self._run(options.iterations, _NEVER)

    @property
    def result(self) -> LatencyResult | None:
        """Return what was measured; None where nothing was."""
        return latency_result(self._size, self.times_ns) if self.times_ns else None


def serve_latency(session: PerftestSession, size: int) -> LatencyResult:
    """The server's side of one size; the client tells what it found."""
    run = PingPong(session, size)
    theirs = session.ask("end") if session.endpoint.one_sided else session.ask("end", run.answer)
    session.channel.send({"result": None})
    try:
        fields = theirs["end"]
        return LatencyResult(**{name: type(default)(fields[name]) for name, default in asdict(_SHAPE).items()})
    except (KeyError, TypeError, ValueError):
        raise PeerGoneError("the other side sends no result") from None


def measure_latency(session: PerftestSession, run: PingPong) -> LatencyResult:
    """The client's side of one size."""
    run.measure()
    result = run.result
    assert result is not None
    session.channel.send({"end": asdict(result)})
    session.ask("result")
    return result


_SHAPE = latency_result(1, [0.0])
