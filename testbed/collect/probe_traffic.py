"""Probes beside the traffic of a run: small UDP packets at a fixed rate from host to host, open loop.

All sockets are this process's, each opened inside its host's namespace: a packet leaves and arrives as any of that host
does, and no host needs a further process. One thread sends what is due, a few milliseconds' worth at a time, and now
and then empties the receivers; that a probe waits there changes nothing, since the kernel keeps their order and knows
when each came.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from testbed.agent.options import set_receive_buffer, set_tos
from testbed.collect.probe_ledger import ProbeLedger, ProbeReport, ProbeStream
from testbed.collect.probe_packet import KEY_BYTES, decode_probe, encode_probe
from testbed.drivers.nodes import syscalls
from testbed.drivers.nodes.namespaces import enter_namespace
from testbed.errors import DriverError
from testbed.names import namespace_name
from testbed.plan.operations import PortPlan

PROBE_PORT = 18_516
"""Where probes are received: beside that of the transfers."""
TICK_NS = 4_000_000
"""Probes due within so long are sent together: one wake-up for all of them."""
DRAIN_NS = 50_000_000
GRACE_S = 0.5
"""In which a probe arrives or is lost once the traffic has ended: queues drain in less."""
THRESHOLD_S = 0.25
"""What takes longer counts as lost (RFC 6412), unless a fabric's queues hold packets as long."""
MOST_LATE_NS = 250_000_000
"""What is not sent by then is left out, so that a machine that was stopped does not flood its lab."""
RECEIVE_BUFFER_BYTES = 1 << 20
MOST_AT_ONCE = 4096
"""Datagrams taken from a receiver before others have their turn, whoever floods it."""
_LONGEST = 256
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@qq")
_CONTROL_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFlow:
    """A stream to be: from a NIC's address and a source port to another NIC's address."""

    source: PortPlan
    destination: PortPlan
    source_port: int

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

    def __init__(
        self,
        lab: str,
        flows: Sequence[ProbeFlow],
        *,
        rate_pps: float,
        train: int = 1,
        tos: int = 0,
        threshold_s: float = THRESHOLD_S,
    ) -> None:
        if rate_pps <= 0 or train < 1:
            raise ValueError(f"{rate_pps} probes a second in trains of {train} are none")
        self._lab = lab
        self._flows = tuple(flows)
        self._rate_pps = rate_pps
        self._train = train
        self._tos = tos
        self._key = os.urandom(KEY_BYTES)
        self._ledger = ProbeLedger([flow.stream for flow in flows], threshold_ns=round(threshold_s * 1e9))
        self._interval_ns = round(train * 1e9 / rate_pps)
        self._senders: list[tuple[socket.socket, tuple[str, int]]] = []
        self._receivers: dict[int, socket.socket] = {}
        self._open: dict[tuple[str, str, int], socket.socket] = {}
        self._epoll = select.epoll()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._due: list[tuple[int, int]] = []
        self._begin_ns = 0
        self._latest_ns = 0
        self._skipped = 0
        self._clock_offset_ns = 0
        """What CLOCK_REALTIME, by which the kernel stamps, is ahead of CLOCK_MONOTONIC."""

    # --- sockets -----------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            syscalls.in_thread(self._open_sockets)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise DriverError(
                    f"cannot open a socket for probes: {error.strerror}",
                    operation="probe",
                    errno=error.errno or 0,
                    hint="probes: off, in the scenario file",
                ) from error
            raise
        return self

    def _open_sockets(self) -> None:
        wanted: dict[str, dict[tuple[str, int], PortPlan]] = {}
        for flow in self._flows:
            wanted.setdefault(flow.source.node, {})[flow.source.name, flow.source_port] = flow.source
            wanted.setdefault(flow.destination.node, {})[flow.destination.name, PROBE_PORT] = flow.destination
        for node, ends in wanted.items():
            enter_namespace(namespace_name(self._lab, node))
            for (interface, port), nic in ends.items():
                self._open[node, interface, port] = _udp_socket(nic, port, self._tos)
        for flow in self._flows:
            source, destination = flow.source, flow.destination
            sender = self._open[source.node, source.name, flow.source_port]
            self._senders.append((sender, (_address(destination), PROBE_PORT)))
            receiver = self._open[destination.node, destination.name, PROBE_PORT]
            if receiver.fileno() not in self._receivers:
                self._receivers[receiver.fileno()] = receiver
                self._epoll.register(receiver.fileno(), select.EPOLLIN)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the thread and close the sockets. Once is enough."""
        self.halt()
        for item in self._open.values():
            item.close()
        self._epoll.close()

    # --- verbs -------------------------------------------------------------------------------------------

    def begin(self, begin_ns: int) -> None:
        """Send from now on; the run began at `begin_ns` (CLOCK_MONOTONIC). Streams begin evenly spread over an
        interval, so that never many probes are under way at once."""
        self._begin_ns = begin_ns
        self._clock_offset_ns = time.time_ns() - time.monotonic_ns()
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

    def report(self, grace_s: float = GRACE_S) -> ProbeReport:
        """After `halt`: what arrived and what did not, within `grace_s` after it was sent.

        Raises `DriverError` where sending ended by itself.
        """
        if self._error is not None:
            raise DriverError(f"the probes stopped: {self._error}", operation="probe") from self._error
        ended = time.monotonic_ns()
        while True:
            self._drain()
            # whatever was sent before the grace began has had its time
            left_ns = ended + round(grace_s * 1e9) - time.monotonic_ns()
            if left_ns <= 0 or not self._ledger.missing(time.monotonic_ns() - round(grace_s * 1e9)):
                break
            self._epoll.poll(min(left_ns, DRAIN_NS) / 1e9)
        return self._ledger.report(
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
            sender, destination = self._senders[stream]
            for _ in range(self._train):
                payload = encode_probe(self._key, self._ledger.send(stream, time.monotonic_ns()))
                # without a route or with a queue that takes no more it was offered and is lost
                with contextlib.suppress(OSError):
                    sender.sendto(payload, destination)

    def _drain(self) -> None:
        for fd, _ in self._epoll.poll(0):
            receiver = self._receivers[fd]
            for _ in range(MOST_AT_ONCE):
                try:
                    payload, control, _, _ = receiver.recvmsg(_LONGEST, _CONTROL_BYTES)
                except OSError:  # nothing is left
                    break
                self._ledger.receive(decode_probe(self._key, payload), self._stamp_ns(control))

    def _stamp_ns(self, control: Sequence[tuple[int, int, bytes]]) -> int:
        """When the kernel had it (CLOCK_MONOTONIC); now, where it does not say."""
        for level, kind, data in control:
            if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS) and len(data) == _TIMESPEC.size:
                seconds, nanoseconds = _TIMESPEC.unpack(data)
                stamp: int = seconds * 1_000_000_000 + nanoseconds
                return stamp - self._clock_offset_ns
        return time.monotonic_ns()


def _udp_socket(nic: PortPlan, port: int, tos: int) -> socket.socket:
    item = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        set_receive_buffer(item, RECEIVE_BUFFER_BYTES)
        set_tos(item, tos)
        item.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        item.bind((_address(nic), port))
    except BaseException:
        item.close()
        raise
    return item


def _address(nic: PortPlan) -> str:
    assert nic.address is not None, "probes go between NICs that have addresses"
    return str(nic.address.ip)
