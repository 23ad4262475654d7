"""Latency: one message to the peer, one back, and half of the time between; an atomic operation and the whole of it.

perftest's rule (`rtt_factor`): what the peer's program answers counts half, what its adapter answers (atomics) whole.
A WRITE tells of its arrival by header data, where perftest looks at the last byte of the memory: packets may arrive in
any order. RUDI has no header data, so the answer to a RUDI WRITE is its response, of which half counts too.
"""

from __future__ import annotations

import time
from dataclasses import asdict

from testbed.agent.perftest.errors import PeerGoneError
from testbed.agent.perftest.options import Verb
from testbed.agent.perftest.results import LatencyResult, latency_result
from testbed.agent.perftest.session import PerftestSession, check
from testbed.transport.uet.atomics import Amo
from testbed.transport.uet.packets.codes import AmoOpcode, AmoType, Mode
from testbed.transport.uet.semantics.operations import OpKind

RECEIVES = 16
"""Posted at a time."""
WARM_UP = 100
"""Round trips before those that count, at most."""
_NEVER = 1 << 63


class PingPong:
    """One size: the client begins, the server answers."""

    def __init__(self, session: PerftestSession, size: int) -> None:
        self._session = session
        self._endpoint = session.endpoint
        options = session.options
        self._verb = options.tool.verb
        self._size = size
        self._data = session.local[:size]
        self._answer = self._answering_kind(options.mode)
        self._left = 0
        self._until_ns = _NEVER
        self._sent_ns = 0
        self._to_post = 0
        """Receives that have met a message, and are to be posted anew."""
        self.times_ns: list[float] = []
        """Of what counts: half of a round trip, or all."""
        self._factor = 1 if self._verb is Verb.ATOMIC else 2

    def _answering_kind(self, mode: Mode) -> OpKind:
        """Which completion ends a round trip."""
        if self._verb is Verb.ATOMIC:
            return OpKind.FETCH_ATOMIC
        if self._verb is Verb.SEND:
            return OpKind.RECV
        return OpKind.WRITE if mode is Mode.RUDI else OpKind.REMOTE_WRITE

    def _send(self) -> None:
        session = self._session
        endpoint = self._endpoint
        mode = session.options.mode
        now = self._sent_ns = time.monotonic_ns()
        match self._verb:
            case Verb.SEND:
                endpoint.send(session.peer, self._data, now, mode=mode)
            case Verb.ATOMIC:
                fetch = session.local[: self._size]
                amo = Amo(AmoOpcode.SUM, AmoType.UINT64, (1).to_bytes(8, "little"))
                endpoint.atomic(session.peer, amo, session.peer_buffer, now, fetch=fetch, mode=mode)
            case _:
                data = None if mode is Mode.RUDI else 1
                endpoint.write(session.peer, self._data, session.peer_buffer, now, mode=mode, header_data=data)
        session.agent.loop.touch()

    def _answered(self) -> int:
        """Return how many answers have come since the last call."""
        completions = self._endpoint.completions
        answers = 0
        while completions:
            operation = completions.popleft()
            check(operation)
            if operation.kind is OpKind.RECV:
                self._to_post += 1
            if operation.kind is self._answer:
                answers += 1
        if self._to_post and (not answers or self._to_post >= RECEIVES // 2):  # else there is something to be answered
            for _ in range(self._to_post):
                self._session.post_receive()
            self._to_post = 0
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
    one_sided = session.options.tool.verb is Verb.ATOMIC or session.options.mode is Mode.RUDI
    theirs = session.ask("end") if one_sided else session.ask("end", run.answer)
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
