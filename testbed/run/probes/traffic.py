"""Probes beside the traffic of a run: small UDP packets at a fixed rate from host to host, open loop.

The sockets are this process's (`testbed.lab.core.drivers.nodes.udp_prober`). One thread sends what is due, a few
milliseconds' worth at a time, and now and then empties the receivers; that a probe waits there changes nothing, since
the kernel keeps their order and knows when each came.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from testbed.base.errors import DriverError
from testbed.lab.core.drivers.nodes.udp_prober import ProbeEnd, UdpProber
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.probes.ledger import ProbeLedger, ProbeReport, ProbeStream

PROBE_PORT = 18_516
"""The port at which probes are received: beside that of the transfers."""
TICK_NS = 4_000_000
"""Probes due within so long are sent together: one wake-up for all of them."""
DRAIN_NS = 50_000_000
GRACE_S = 0.5
"""In which a probe arrives or is lost once the traffic has ended, where queues drain in less."""
MOST_GRACE_S = 5.0
THRESHOLD_S = 0.25
"""A probe that takes longer counts as lost (RFC 6412), or one that takes longer than queues that were seen explain."""
MOST_LATE_NS = 250_000_000
"""A probe that is later than this is left out, so that a machine that was stopped does not flood its lab."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFlow:
    """A stream to be: from a NIC's address and a source port to another NIC's address."""

    source: PortPlan
    destination: PortPlan
    source_port: int
    tos: int | None = None
    """The IP header's former type of service of what it sends; None: that of all."""

    @property
    def stream(self) -> ProbeStream:
        return ProbeStream(
            source=f"{self.source.node}:{self.source.name}",
            destination=f"{self.destination.node}:{self.destination.name}",
            source_port=self.source_port,
        )


class ProbeTraffic:
    """The probes of one run. A context: entering it opens the sockets, leaving it ends all.

    `begin` starts sending, `halt` ends it, `report` waits for what is under way. `tos` is the IP header's former type
    of service. Raises `DriverError` where a socket cannot be had.
    """

    def __init__(self, lab: str, flows: Sequence[ProbeFlow], *, rate_pps: float, train: int = 1, tos: int = 0) -> None:
        if rate_pps <= 0 or train < 1:
            raise ValueError(f"{rate_pps} probes a second in trains of {train} are none")
        self._lab = lab
        self._flows = tuple(flows)
        self._rate_pps = rate_pps
        self._train = train
        self._tos = tos
        self._ledger = ProbeLedger([flow.stream for flow in flows])
        self._interval_ns = round(train * 1e9 / rate_pps)
        self._prober: UdpProber | None = None
        self._ends: list[tuple[ProbeEnd, ProbeEnd]] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._due: list[tuple[int, int]] = []
        self._begin_ns = 0
        self._latest_ns = 0
        self._skipped = 0

    def __enter__(self) -> Self:
        sources = [ProbeEnd.on(flow.source, flow.source_port, tos=flow.tos) for flow in self._flows]
        destinations = [ProbeEnd.on(flow.destination, PROBE_PORT) for flow in self._flows]
        try:
            self._prober = UdpProber(self._lab, [*sources, *destinations], tos=self._tos, timestamps=True)
        except DriverError as error:
            raise DriverError(
                error.message, operation="probe", errno=error.errno, hint="probes: off, in the scenario file"
            ) from error
        self._prober.listen(destinations)
        self._ends = list(zip(sources, destinations, strict=True))
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the thread and close the sockets. Once is enough."""
        self.halt()
        if self._prober is not None:
            self._prober.close()

    # --- verbs -------------------------------------------------------------------------------------------

    def begin(self, begin_ns: int) -> None:
        """Send from now on; the run began at `begin_ns` (CLOCK_MONOTONIC). Streams begin evenly spread over an
        interval, so that never many probes are under way at once."""
        self._begin_ns = begin_ns
        self._sockets.set_clock()
        now = time.monotonic_ns()
        count = len(self._flows)
        self._due = [(now + self._interval_ns * place // count, place) for place in range(count)]
        heapq.heapify(self._due)
        # a daemon: an interpreter that ends without leaving this context must not wait for it
        self._thread = threading.Thread(target=self._run, name="probes", daemon=True)
        self._thread.start()

    def halt(self) -> None:
        """Send no more. May be called twice."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def report(self, threshold_s: float = THRESHOLD_S) -> ProbeReport:
        """Return, after `halt`, what arrived and what did not within `threshold_s` after it was sent.

        Raises `DriverError` where sending ended by itself.
        """
        if self._error is not None:
            raise DriverError(f"the probes stopped: {self._error}", operation="probe") from self._error
        grace_s = min(max(GRACE_S, threshold_s), MOST_GRACE_S)
        ended = time.monotonic_ns()
        self._drain()
        while True:
            # whatever was sent before the grace began has had its time
            left_ns = ended + round(grace_s * 1e9) - time.monotonic_ns()
            if left_ns <= 0 or not self._ledger.missing(time.monotonic_ns() - round(grace_s * 1e9)):
                break
            self._drain(min(left_ns, DRAIN_NS) / 1e9)
        return self._ledger.report(
            threshold_ns=round(threshold_s * 1e9),
            begin_ns=self._begin_ns,
            rate_pps=self._rate_pps,
            train=self._train,
            latest_ns=self._latest_ns,
            skipped=self._skipped,
        )

    # --- the thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._send_until_halted()
        except BaseException as error:  # told to whoever wants the report; a thread has nobody to raise to
            self._error = error

    def _send_until_halted(self) -> None:
        drain_at = 0
        while not self._stop.is_set():
            now = time.monotonic_ns()
            self._send_due(now)
            if now >= drain_at:
                self._drain()
                drain_at = now + DRAIN_NS
            wake_at = max(now + TICK_NS, self._due[0][0])
            self._stop.wait(max(0, wake_at - time.monotonic_ns()) / 1e9)

    def _send_due(self, now: int) -> None:
        """Every probe whose time has come, those that are somewhat late included: the rate is kept."""
        due = self._due
        while due and due[0][0] <= now:
            at, stream = due[0]
            heapq.heapreplace(due, (at + self._interval_ns, stream))
            if now - at > MOST_LATE_NS:
                self._skipped += self._train
                continue
            self._latest_ns = max(self._latest_ns, now - at)
            source, destination = self._ends[stream]
            for _ in range(self._train):
                # without a route or with a queue that takes no more it was offered and is lost
                self._sockets.send(source, destination, self._ledger.send(stream, time.monotonic_ns()))

    def _drain(self, timeout_s: float = 0.0) -> None:
        for arrival in self._sockets.arrivals(timeout_s):
            self._ledger.receive(arrival.number, arrival.at_ns)

    @property
    def _sockets(self) -> UdpProber:
        assert self._prober is not None, "the context has been entered"
        return self._prober
