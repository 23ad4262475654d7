"""iperf3 over the kernel's TCP: timed flows as servers and clients inside the hosts, and the reports of clients.

Written against iperf 3.12 and the JSON layout of esnet/iperf `iperf_api.c` (`start`, `intervals`,
`end`, `error`), which 3.9 to 3.19 share for TCP.

A flow is a pair of NICs, its ports fixed so that ECMP hashes them the same each time. Receivers must be known to listen
before any sender starts; senders then start together. Nothing here sleeps: it waits for a server's "listening" line,
for the exit of children, or for an interrupt.
"""

from __future__ import annotations

import json
import os
import random
import selectors
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import IO, Any

from testbed.base.units import Duration
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.record.samples import Channel, ChannelSamples
from testbed.run.placed.placement import RankPlacement, flow_end
from testbed.run.programs.timed_flows import (
    LISTEN_TIMEOUT_S,
    SAMPLE_S,
    WARM_UP_S,
    FlowFailed,
    FlowProgram,
    TimedFlow,
    TimedTraffic,
    children,
    wait_for_senders,
)
from testbed.run.schema.model import Transport
from testbed.workload.draws import draw_below
from testbed.workload.steps import Workload


class Iperf3Error(ValueError):
    """iperf3 failed or printed something that is not its report. The text is fit for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An interval of the sender. `rtt_us` is TCP's smoothed RTT at its end."""

    seconds: float
    bytes: int
    retransmits: int
    cwnd_bytes: int
    rtt_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Iperf3Report:
    """One client's run without its warm-up. Bytes are payload; `received_s` is the receiver's own clock.

    `received_bytes` is None where the client was interrupted before it could ask the server.
    """

    mss_bytes: int
    sent_bytes: int
    sent_s: float
    received_bytes: int | None
    received_s: float
    retransmits: int
    intervals: tuple[Interval, ...]


def parse_client_report(output: bytes, *, interrupted: bool = False) -> Iperf3Report:
    """Read what `iperf3 -c ... -J` printed.

    Raises `Iperf3Error` with iperf3's own words if it reports an error, except that an
    `interrupted` client's "interrupt" error is expected and its samples are kept.
    """
    try:
        document = json.loads(output)
    except (ValueError, RecursionError) as error:
        text = output[:200].decode(errors="replace").strip()
        raise Iperf3Error(f"iperf3 printed no JSON: {text or 'nothing'}") from error
    if not isinstance(document, dict):
        raise Iperf3Error("iperf3 printed JSON that is not its report")
    problem = document.get("error")
    if problem is not None and not (interrupted and "interrupt" in str(problem)):
        raise Iperf3Error(str(problem))
    try:
        return _report(document, interrupted=interrupted)
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise Iperf3Error(f"iperf3's report lacks {error}") from error


def _report(document: Mapping[str, Any], *, interrupted: bool) -> Iperf3Report:
    end = document["end"]
    sent, received = end["sum_sent"], end["sum_received"]
    return Iperf3Report(
        mss_bytes=int(document["start"].get("tcp_mss_default", 0)),
        sent_bytes=int(sent["bytes"]),
        sent_s=_span(sent),
        received_bytes=None if interrupted else int(received["bytes"]),
        received_s=_span(received),
        retransmits=int(sent.get("retransmits", 0)),
        intervals=tuple(
            Interval(
                seconds=round(float(row["seconds"]), 6),
                bytes=int(row["bytes"]),
                retransmits=int(row.get("retransmits", 0)),
                cwnd_bytes=int(row.get("snd_cwnd", 0)),
                rtt_us=int(row.get("rtt", 0)),
            )
            for row in (one["streams"][0] for one in document["intervals"] if not one["sum"].get("omitted"))
        ),
    )


def _span(total: Mapping[str, Any]) -> float:
    """`seconds` of the receiver's sum is the sender's in some versions; end - start is its own."""
    return float(total["end"]) - float(total["start"])


FIRST_PORT = 5201
"""iperf3's own; a host's further servers follow it."""
_SOURCE_PORTS = (20000, 32000)
"""Below Linux's ephemeral range (ip_local_port_range), so that no control connection sits on one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IperfFlow(TimedFlow):
    """One flow over iperf3: a pair of ports makes it the same flow for every hash, each time."""

    source_port: int
    destination_port: int = FIRST_PORT


def plan_flows(workload: Workload, placement: RankPlacement, *, seed: int) -> tuple[IperfFlow, ...]:
    """Return a flow for every transfer over the fabric, whatever its size."""
    rng = random.Random(seed)
    listening: dict[tuple[str, str], int] = {}
    flows: list[IperfFlow] = []
    for step, source, destination in placement.over_fabric(workload):
        key = (destination.node, destination.name)
        listening[key] = listening.get(key, -1) + 1
        flows.append(
            IperfFlow(
                id=len(flows) + 1,
                source_rank=step.source,
                destination_rank=step.destination,
                source=source,
                destination=destination,
                source_port=_SOURCE_PORTS[0] + draw_below(rng, _SOURCE_PORTS[1] - _SOURCE_PORTS[0]),
                destination_port=FIRST_PORT + listening[key],
            )
        )
    return tuple(flows)


def channel_of(flow: IperfFlow, report: Iperf3Report, *, ideal_bps: float, measured_from_s: float) -> Channel:
    """Return a sender's report as the record keeps it. An interrupted flow counts what it had sent.

    `ideal_bps`: what it would get alone.
    `measured_from_s`: when its own measurement began, after its warm-up, in the time of the run.
    """
    if report.received_bytes is None:
        payload, seconds = report.sent_bytes, report.sent_s
    else:
        payload, seconds = report.received_bytes, report.received_s
    intervals, from_begin = report.intervals, (*report.intervals[:1], *report.intervals)
    # not the intervals' own starts: a late iperf3 gives the one that ends the warm-up the wrong one
    at_s = accumulate((one.seconds for one in intervals), initial=measured_from_s)
    return Channel(
        source_rank=flow.source_rank,
        destination_rank=flow.destination_rank,
        source=flow_end(flow.source),
        destination=flow_end(flow.destination),
        rail=flow.source.rail,
        source_port=flow.source_port,
        destination_port=flow.destination_port,
        sent_bytes=report.sent_bytes,
        received_bytes=payload,
        seconds=seconds,
        busy_s=seconds,
        ideal_bps=ideal_bps,
        goodput_bps=payload * 8 / seconds if seconds > 0 else 0.0,
        retransmits=report.retransmits,
        packets=-(-report.sent_bytes // report.mss_bytes) + report.retransmits if report.mss_bytes > 0 else None,
        min_rtt_us=min((one.rtt_us for one in intervals if one.rtt_us > 0), default=None),
        samples=ChannelSamples(
            at_s=[round(at, 6) for at in at_s],
            acked_bytes=list(accumulate((one.bytes for one in intervals), initial=0)),
            cwnd_bytes=[one.cwnd_bytes for one in from_begin],
            rtt_us=[float(one.rtt_us) for one in from_begin],
            retransmits=list(accumulate((one.retransmits for one in intervals), initial=0)),
        ),
        counters={"mss_bytes": report.mss_bytes},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class IperfMeasurement:
    """The report of one flow's sender. `started_s` counts from the first sender's start."""

    flow: IperfFlow
    report: Iperf3Report
    started_s: float


@dataclass(slots=True)
class IperfResult:
    """The flows that ended, in the order of the flows; filled while traffic runs."""

    measurements: list[IperfMeasurement] = field(default_factory=list)
    interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IperfTraffic(TimedTraffic):
    """Runs transfers over iperf3."""

    transport: Transport

    @property
    def planned_s(self) -> float:
        """Return how long senders run."""
        return self.duration.seconds + WARM_UP_S

    def run(self, flows: Sequence[IperfFlow], result: IperfResult) -> None:
        """Run all flows at once and put what they measured into `result`.

        After an interrupt the senders are asked to stop, what they printed is kept, and
        `result.interrupted` is set. Raises `FlowFailed` for the first flow that fails; `result` then
        holds those that had ended. No child outlives this call.
        """
        with children() as processes:
            if not self._start_servers(processes, flows):
                result.interrupted = True
                return
            with self.watch.around():
                clients = self._start_clients(processes, flows, result)
                result.interrupted = wait_for_senders(
                    clients, planned_s=self.planned_s, interrupt=self.watch.interrupt, on_elapsed=self.watch.on_elapsed
                )
        result.measurements.sort(key=lambda item: item.flow.id)

    def _start_servers(self, processes: list[FlowProgram], flows: Sequence[IperfFlow]) -> bool:
        """True once every server has said that it listens, False after an interrupt."""
        deadline = time.monotonic() + LISTEN_TIMEOUT_S
        with selectors.DefaultSelector() as selector:
            selector.register(self.watch.interrupt, selectors.EVENT_READ, None)
            waiting: set[int] = set()
            for flow in flows:
                process = self.start(
                    flow.destination.node, server_arguments(flow), package="iperf3", stdout=subprocess.PIPE
                )
                processes.append(process)
                assert process.stdout is not None
                selector.register(process.stdout, selectors.EVENT_READ, _Server(flow=flow, stdout=process.stdout))
                waiting.add(flow.id)
            while waiting:
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                for key, _ in ready:
                    if key.data is None:
                        return False
                    if key.data.listens():
                        selector.unregister(key.fileobj)
                        waiting.discard(key.data.flow.id)
                        self.watch.on_listening(len(flows) - len(waiting), len(flows))
                if not ready:
                    late = next(flow for flow in flows if flow.id in waiting)
                    raise FlowFailed(late, late.destination.node, f"not listening after {LISTEN_TIMEOUT_S:.0f} s")
        return True

    def _start_clients(
        self, processes: list[FlowProgram], flows: Sequence[IperfFlow], result: IperfResult
    ) -> list[_Client]:
        clients: list[_Client] = []
        origin = time.monotonic()
        for flow in flows:
            # a file, not a pipe: nobody has to read while it runs, and nobody blocks
            output = tempfile.TemporaryFile()  # noqa: SIM115 - closed when this list goes
            started = time.monotonic()
            argv = client_arguments(flow, transport=self.transport, duration=self.duration, tos=self.tos)
            process = self.start(flow.source.node, argv, package="iperf3", stdout=output)
            processes.append(process)
            clients.append(
                _Client(flow=flow, process=process, output=output, started_s=started - origin, result=result)
            )
        return clients


def server_arguments(flow: IperfFlow) -> list[str]:
    """Return the command of a server that takes one test, then exits.

    Its output is text, and flushed: its "Server listening" line is what we wait for.
    """
    return [
        "iperf3", "-s", "-1", "--forceflush", "-i", "0",
        "-B", _address(flow.destination), "-p", str(flow.destination_port),
    ]  # fmt: skip


def client_arguments(flow: IperfFlow, *, transport: Transport, duration: Duration, tos: int) -> list[str]:
    """Return the command of the sender, bound to its NIC's address, so that source routing takes it out of that NIC."""
    arguments = [
        "iperf3", "-c", _address(flow.destination), "-p", str(flow.destination_port),
        "-B", _address(flow.source), "--cport", str(flow.source_port),
        "-J", "-i", str(SAMPLE_S), "--connect-timeout", "5000",
    ]  # fmt: skip
    # iperf3 takes whole seconds; the loader has seen to it
    arguments += ["-t", str(round(duration.seconds)), "-O", str(WARM_UP_S)]
    if tos:
        arguments += ["-S", str(tos)]
    if transport.cc is not None:
        arguments += ["-C", transport.cc]
    return arguments


@dataclass(slots=True, kw_only=True)
class _Server:
    flow: IperfFlow
    stdout: IO[bytes]
    said: bytes = b""

    def listens(self) -> bool:
        """Read what there is. Raises `FlowFailed` with its last words if it has ended."""
        chunk = os.read(self.stdout.fileno(), 4096)
        self.said += chunk
        if b"listening" in self.said:
            return True
        if not chunk:
            words = [line for line in self.said.decode(errors="replace").splitlines() if "error" in line]
            raise FlowFailed(self.flow, self.flow.destination.node, words[0] if words else "iperf3 server ended")
        return False


@dataclass(slots=True, kw_only=True)
class _Client:
    flow: IperfFlow
    process: FlowProgram
    output: IO[bytes]
    started_s: float
    result: IperfResult

    @property
    def node(self) -> str:
        return self.flow.source.node

    def collect(self, *, interrupted: bool) -> None:
        """Parse what an ended client printed. Raises `FlowFailed`, unless everything is being stopped."""
        status = self.process.wait()
        self.output.seek(0)
        try:
            report = parse_client_report(self.output.read(), interrupted=interrupted)
        except Iperf3Error as error:
            if interrupted:
                return  # stopped before it had anything to say
            reason = f"iperf3 was killed by signal {-status}" if status < 0 else f"iperf3: {error}"
            raise FlowFailed(self.flow, self.flow.source.node, reason) from error
        self.result.measurements.append(IperfMeasurement(flow=self.flow, report=report, started_s=self.started_s))


def _address(nic: PortPlan) -> str:
    assert nic.address is not None, "a flow is planned between NICs that have addresses"
    return str(nic.address.ip)
