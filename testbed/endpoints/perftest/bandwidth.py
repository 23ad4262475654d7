"""Bandwidth: messages one after another, as many under way as the tx depth allows, each timed when it is completed."""

from __future__ import annotations

import time
from dataclasses import asdict

from testbed.endpoints.perftest.errors import PeerGoneError
from testbed.endpoints.perftest.results import BandwidthResult, bandwidth_result
from testbed.endpoints.perftest.session import PerftestSession

WARM_UP_BYTES = 4 << 20
_NEVER = 1 << 63


class BandwidthRun:
    """One direction of one size. Receives for the peer's SENDs are posted anew for as long as it is polled."""

    def __init__(self, session: PerftestSession, size: int) -> None:
        self._session = session
        self._endpoint = session.endpoint
        self._size = size
        self._data = session.memory.local[:size]
        self._depth = session.endpoint.depth
        self._left = 0
        self._under_way = 0
        self._until_ns = _NEVER
        self._begun_ns = 0
        self._finished_ns: list[int] = []

    @property
    def done(self) -> bool:
        return not self._under_way and not self._left

    def poll(self) -> None:
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
        if self._session.channel.failed:
            self._session.channel.take("end")

    def _run(self, messages: int, until_ns: int) -> None:
        self._left = messages
        self._until_ns = until_ns
        self._finished_ns = []
        self._begun_ns = time.monotonic_ns()

        def turn() -> bool:
            self.poll()
            return self.done

        self._session.drive(turn)

    def measure(self) -> None:
        """Warm up, and measure; raises `PerftestError`, and what was measured so far is in `result`."""
        options = self._session.options
        warm_up = min(self._depth, max(options.iterations // 10, 1), max(WARM_UP_BYTES // self._size, 1))
        self._run(warm_up, _NEVER)
        self._finished_ns = []
        if options.duration_s:
            self._run(_NEVER, time.monotonic_ns() + round(options.duration_s * 1e9))
        else:
            self._run(options.iterations, _NEVER)

    @property
    def result(self) -> BandwidthResult | None:
        """Return what was measured; None where nothing was."""
        if not self._finished_ns:
            return None
        peak = not self._session.options.duration_s
        return bandwidth_result(self._size, self._begun_ns, self._finished_ns, self._depth, peak=peak)


def serve_bandwidth(session: PerftestSession, size: int) -> BandwidthResult:
    """The server's side of one size: it measures too if both directions are measured."""
    run = BandwidthRun(session, size)
    own: BandwidthResult | None = None
    if session.options.bidirectional:
        run.measure()
        own = run.result

    def turn() -> bool:
        run.poll()
        return False

    theirs = decode_bandwidth(session.ask("end", turn)["end"])
    session.channel.send({"result": None if own is None else asdict(own)})
    return theirs if own is None else own.plus(theirs)


def measure_bandwidth(session: PerftestSession, run: BandwidthRun) -> BandwidthResult:
    """The client's side of one size."""
    run.measure()
    own = run.result
    assert own is not None

    def turn() -> bool:
        run.poll()
        return False

    session.channel.send({"end": asdict(own)})
    theirs = session.ask("result", turn)["result"]
    return own if theirs is None else own.plus(decode_bandwidth(theirs))


def decode_bandwidth(fields: object) -> BandwidthResult:
    """A result that the other side sent. Raises `PeerGoneError`."""
    try:
        assert isinstance(fields, dict)
        return BandwidthResult(
            size=int(fields["size"]),
            iterations=int(fields["iterations"]),
            peak=float(fields["peak"]),
            average=float(fields["average"]),
        )
    except (AssertionError, KeyError, TypeError, ValueError):
        raise PeerGoneError("the other side sends no result") from None
