"""Flows over RDMA: perftest's servers and clients inside the hosts.

Servers must listen before any client starts; clients then start together, or, to measure latency, one after the other.
Clients look for completions without a pause, which takes a CPU for each: they run at the lowest priority, so that
whatever forwards packets goes first, and the time that they spent looking is told, so that it is not taken for work.
"""

from __future__ import annotations

import resource
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testbed.base.errors import CapabilityError
from testbed.base.linux.processes import search_path
from testbed.lab.core.drivers.netlink import rdma
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.record.samples import ChannelSamples
from testbed.run.programs.perftest import (
    Bandwidth,
    PerftestReportError,
    complaint,
    parse_latencies_us,
    parse_report,
    run_until_clock_known,
)
from testbed.run.programs.perftest_flows import (
    ATOMIC_TYPES,
    QP_TIMEOUT,
    PerftestFlow,
    PerftestJob,
    iterations,
    whole_option,
)
from testbed.run.programs.timed_flows import (
    LISTEN_TIMEOUT_S,
    SAMPLE_S,
    WARM_UP_S,
    FlowFailed,
    FlowProgram,
    TimedTraffic,
    children,
    wait_for_senders,
)
from testbed.workload.oracles.serialisation import Framing

LISTEN_TIMEOUT_PER_FLOW_S = 0.5
_LOOK_MS = 20
_ETHERNET_BYTES = 14
"""A shaped port counts them with each packet, and an RDMA device does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerftestMeasurement:
    """The report of one flow's client. `started_s` counts from the first client's start."""

    flow: PerftestFlow
    started_s: float
    bandwidth: Bandwidth | None = None
    latencies_us: tuple[float, ...] = ()
    """The latency of each message, where that was the test."""


@dataclass(slots=True)
class PerftestResult:
    """The flows that ended, in the order of the flows; filled while traffic runs."""

    measurements: list[PerftestMeasurement] = field(default_factory=list)
    interrupted: bool = False
    samples: dict[int, ChannelSamples] = field(default_factory=dict)
    """By the id of a flow that has both its devices for itself: only devices are counted over time."""
    counters: dict[int, dict[str, int]] = field(default_factory=dict)
    """By the id of the first flow of each asking device: what such devices counted of all."""
    polling_s: float = 0.0
    """CPU time that perftest spent in user space, which is looking for completions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerftestTraffic(TimedTraffic):
    """Transfers to be run over perftest.

    `devices` are RDMA devices by (node, interface), `options` those of the scenario's transport. `duration` is how long
    flows send, or, where latency is measured, the longest that all of them may take; on an idle fabric they then take
    `expected_s`.
    """

    devices: Mapping[tuple[str, str], str]
    options: Mapping[str, object]
    framing: Framing
    expected_s: float = 0.0

    def run(self, flows: Sequence[PerftestFlow], result: PerftestResult) -> None:
        """Run all flows, at once or in turns, and put what they measured into `result`.

        After an interrupt the clients are asked to stop, and `result.interrupted` is set. All is run again where a
        client knew no clock (`run_until_clock_known`). Raises `FlowFailed` for the first flow that fails,
        `CapabilityError` without perftest. No child outlives this call.
        """
        for program in {flow.test.value for flow in flows}:
            if shutil.which(program, path=search_path()) is None:
                raise CapabilityError(
                    f"{program} is not installed", missing="perftest", hint="apt-get install perftest"
                )
        run_until_clock_known(lambda: self._run_once(flows, result))

    def _run_once(self, flows: Sequence[PerftestFlow], result: PerftestResult) -> None:
        result.measurements.clear()  # of a try before
        spent_s = _children_user_s()
        with tempfile.TemporaryDirectory(prefix="testbed-perftest-") as directory, children() as processes:
            if not self._start_servers(processes, flows, Path(directory)):
                result.interrupted = True
                return
            asking = self._asking_devices(flows)
            before = {device: rdma.counters(device) for device in asking}
            recorder = _Recorder(self, flows)

            def on_elapsed(elapsed_s: float, whole_s: float) -> None:
                recorder.read()
                self.watch.on_elapsed(elapsed_s, whole_s)

            with self.watch.around():
                recorder.begin()
                for turn in self._turns(flows):
                    clients = self._start_clients(processes, turn.flows, Path(directory), result)
                    result.interrupted = wait_for_senders(
                        clients,
                        planned_s=turn.planned_s,
                        interrupt=self.watch.interrupt,
                        on_elapsed=turn.elapsed(on_elapsed),
                    )
                    if result.interrupted:
                        break
            result.samples = recorder.samples()
            for device, number in asking.items():
                now, counted = rdma.counters(device), result.counters.setdefault(number, {})
                for name in rdma.RETRANSMISSIONS:
                    counted[name] = counted.get(name, 0) + now.get(name, 0) - before[device].get(name, 0)
        result.polling_s = _children_user_s() - spent_s
        result.measurements.sort(key=lambda item: item.flow.id)

    def _turns(self, flows: Sequence[PerftestFlow]) -> Iterator[_Turn]:
        """Yield the flows that run together, one turn after the other. Latency has what is left of its time."""
        if not flows[0].test.is_latency:
            planned_s = self.duration.seconds + 2 * WARM_UP_S
            yield _Turn(flows=flows, planned_s=planned_s, begin_s=0.0, whole_s=planned_s)
            return
        begin = time.monotonic()
        for some in [flows] if self.options.get("together") else [[flow] for flow in flows]:
            spent_s = time.monotonic() - begin
            yield _Turn(
                flows=some,
                planned_s=max(0.0, self.duration.seconds - spent_s),
                begin_s=spent_s,
                whole_s=self.expected_s,
            )

    def arguments(self, flow: PerftestFlow, nic: PortPlan) -> list[str]:
        """Return the command line of the end at `nic`, the client's without its peer."""
        job = PerftestJob(
            test=flow.test,
            size_bytes=flow.message_bytes,
            iterations=iterations(self.options),
            queue_pairs=len(flow.flow_labels),
            traffic_class=self.tos,
            qp_timeout=whole_option(self.options, "qp_timeout", QP_TIMEOUT),
            port=flow.port,
            # perftest takes whole seconds; the loader has seen to it
            duration_s=None if flow.test.is_latency else round(self.duration.seconds),
            margin_s=WARM_UP_S,
            flow_labels=flow.flow_labels,
            path_mtu=whole_option(self.options, "path_mtu", None),
            tx_depth=whole_option(self.options, "tx_depth", None),
            atomic_type=ATOMIC_TYPES.get(str(self.options.get("verb"))),
        )
        assert nic.address is not None, "a flow is planned between NICs that have addresses"
        device = self._device(nic)
        return job.arguments(device, rdma.gid_index(device, nic.address.ip))

    def _device(self, nic: PortPlan) -> str:
        return self.devices[nic.node, nic.name]

    def _asking_devices(self, flows: Sequence[PerftestFlow]) -> dict[str, int]:
        """Return those whose requests may be sent again, with the id of the first flow of each. A message and its
        answer are requests of both ends."""
        found: dict[str, int] = {}
        for flow in flows:
            both = flow.test.is_latency and not flow.test.is_round_trip
            for nic in (flow.client, flow.server) if both else (flow.client,):
                found.setdefault(self._device(nic), flow.id)
        return found

    def _start_servers(self, processes: list[FlowProgram], flows: Sequence[PerftestFlow], directory: Path) -> bool:
        """True once every server listens, False after an interrupt."""
        waiting: dict[int, tuple[PerftestFlow, subprocess.Popen[bytes], Path]] = {}
        for flow in flows:
            said = directory / f"{flow.id}.server.txt"
            process = self._spawn(flow.server.node, self.arguments(flow, flow.server), said)
            processes.append(process)
            waiting[flow.id] = flow, process, said
        poller = select.poll()
        poller.register(self.watch.interrupt, select.POLLIN)
        timeout_s = LISTEN_TIMEOUT_S + LISTEN_TIMEOUT_PER_FLOW_S * len(flows)
        deadline = time.monotonic() + timeout_s
        while waiting:
            for flow, process, said in list(waiting.values()):
                if process.poll() is not None:
                    words = complaint(said.read_text(errors="replace")) or f"{flow.test} ended before its client came"
                    raise FlowFailed(flow, flow.server.node, words)
                if listens(process.pid, flow.port):
                    del waiting[flow.id]
                    self.watch.on_listening(len(flows) - len(waiting), len(flows))
            if waiting and poller.poll(_LOOK_MS):
                return False
            if waiting and time.monotonic() > deadline:
                late = next(iter(waiting.values()))[0]
                raise FlowFailed(late, late.server.node, f"not listening after {timeout_s:.0f} s")
        return True

    def _start_clients(
        self,
        processes: list[FlowProgram],
        flows: Sequence[PerftestFlow],
        directory: Path,
        result: PerftestResult,
    ) -> list[_Client]:
        ready = [(flow, self.arguments(flow, flow.client)) for flow in flows]
        clients: list[_Client] = []
        origin = time.monotonic()
        for flow, arguments in ready:
            document, output = directory / f"{flow.id}.json", directory / f"{flow.id}.txt"
            assert flow.client.address is not None and flow.server.address is not None
            argv = [*arguments, f"--bind_source_ip={flow.client.address.ip}"]
            argv += ["--report-unsorted"] if flow.test.is_latency else []
            argv += ["--out_json", f"--out_json_file={document}", str(flow.server.address.ip)]
            started = time.monotonic()
            process = self._spawn(flow.client.node, argv, output)
            processes.append(process)
            clients.append(
                _Client(
                    flow=flow,
                    process=process,
                    output=output,
                    document=document,
                    started_s=started - origin,
                    result=result,
                )
            )
        return clients

    def _spawn(self, node: str, argv: Sequence[str], output: Path) -> subprocess.Popen[bytes]:
        with output.open("wb") as file:
            return self.spawn(
                node, ["nice", "-n", "19", *argv], package="coreutils", own_sysfs=True, stdout=file, cwd="/"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """Flows that run together. Times are those for whoever waits: when it began, how long it may take, and how long all
    turns take together."""

    flows: Sequence[PerftestFlow]
    planned_s: float
    begin_s: float
    whole_s: float

    def elapsed(self, tell: Callable[[float, float], None]) -> Callable[[float, float], None]:
        def of_all(elapsed_s: float, _: float) -> None:
            tell(self.begin_s + elapsed_s, max(self.whole_s, self.begin_s + elapsed_s))

        return of_all


@dataclass(slots=True, kw_only=True)
class _Client:
    flow: PerftestFlow
    process: subprocess.Popen[bytes]
    output: Path
    document: Path
    started_s: float
    result: PerftestResult

    @property
    def node(self) -> str:
        return self.flow.client.node

    def collect(self, *, interrupted: bool) -> None:
        """Parse what an ended client reported. Raises `FlowFailed`, unless everything is being stopped."""
        status = self.process.wait()
        said = self.output.read_text(errors="replace")
        written = self.document.read_text(errors="replace") if self.document.exists() else ""
        try:
            if status:
                raise PerftestReportError(complaint(said) or f"{self.flow.test} ended with status {status}")
            report = parse_report(self.flow.test, said, written, gigabits=not self.flow.test.is_latency)
            latencies_us = parse_latencies_us(said) if self.flow.test.is_latency else ()
            if self.flow.test.is_latency and not latencies_us:
                raise PerftestReportError(f"{self.flow.test} listed no latencies of its messages")
        except PerftestReportError as error:
            if interrupted:
                return  # stopped before it had anything to say
            reason = f"{self.flow.test} was killed by signal {-status}" if status < 0 else str(error)
            raise FlowFailed(self.flow, self.node, reason) from error
        if report.bandwidths and not report.bandwidths[-1].iterations:
            raise FlowFailed(self.flow, self.node, "no message of it arrived within the measured time")
        self.result.measurements.append(
            PerftestMeasurement(
                flow=self.flow,
                started_s=self.started_s,
                bandwidth=report.bandwidths[-1] if report.bandwidths else None,
                latencies_us=latencies_us,
            )
        )


class _Recorder:
    """Samples of what devices received, for flows that have both their devices for themselves."""

    def __init__(self, traffic: PerftestTraffic, flows: Sequence[PerftestFlow]) -> None:
        sending = [(flow.source.node, flow.source.name) for flow in flows]
        receiving = [(flow.destination.node, flow.destination.name) for flow in flows]
        self._devices = {
            flow.id: traffic.devices[receiver]
            for flow, sender, receiver in zip(flows, sending, receiving, strict=True)
            if sending.count(sender) == 1 and receiving.count(receiver) == 1
        }
        framing = traffic.framing
        self._share = framing.payload_bytes / (framing.payload_bytes + framing.overhead_bytes - _ETHERNET_BYTES)
        self._begin = 0.0
        self._next = 0.0
        self._at: list[float] = []
        self._bytes: dict[int, list[int]] = {number: [] for number in self._devices}

    def begin(self) -> None:
        self._begin = self._next = time.monotonic()
        self.read()

    def read(self) -> None:
        """Take a sample, if it is time for one."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = max(self._next + SAMPLE_S, now)
        self._at.append(now - self._begin)
        for number, device in self._devices.items():
            self._bytes[number].append(rdma.counters(device).get("rcvd_bytes", 0))

    def samples(self) -> dict[int, ChannelSamples]:
        return {
            number: ChannelSamples(at_s=list(self._at), acked_bytes=[round((n - seen[0]) * self._share) for n in seen])
            for number, seen in self._bytes.items()
            if seen
        }


def _children_user_s() -> float:
    """CPU time in user space of children that have ended and been waited for."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


_LISTEN = "0A"
"""TCP_LISTEN in /proc/net/tcp (proc(5))."""


def listens(pid: int, port: int) -> bool:
    """Tell whether something in the process's namespace listens on the TCP port."""
    for family in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{family}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                return True
    return False
