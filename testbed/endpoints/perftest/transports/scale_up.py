"""Measuring a scale-up domain: a GPU stores to, loads from and updates the memory of another one of its domain.

What the lab says of its host's GPUs (`testbed.protocols.scale_up.domain.host_gpus`) has the settings, so that the
options name nothing but the GPU. The server's GPU only answers: all operations are one-sided.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from testbed.endpoints.gpus.gpu_agent import GpuAgent
from testbed.endpoints.perftest.arguments import Refused, in_range
from testbed.endpoints.perftest.errors import MismatchError, PerftestError
from testbed.endpoints.perftest.exchange import told
from testbed.endpoints.perftest.options import Options
from testbed.endpoints.perftest.results import BandwidthResult
from testbed.endpoints.perftest.tool import Tool, Verb
from testbed.endpoints.perftest.transport import (
    MeasuredEndpoint,
    MeasuredTransport,
    MeasuringAgent,
    ToolMemory,
    TransportOptions,
)
from testbed.protocols.errors import UsageError
from testbed.protocols.scale_up.domain.binding import OPERATIONS, OVERHEAD_BYTES, REGION_BYTES
from testbed.protocols.scale_up.domain.endpoint import Endpoint, Gpu
from testbed.protocols.scale_up.domain.host_gpus import GPUS_VARIABLE, HostGpus
from testbed.protocols.scale_up.domain.windows import WindowReference

_NUMBER_BYTES: Final = 8
_COPY_BYTES: Final = 1 << 20
WINDOW_BYTES: Final = 2 << 20
"""The least memory that is written and read: operations go through it one after another."""
FLOOR_READS: Final = 50
"""READs of 8 bytes, one at a time, that the latency floor is taken from."""
FLOOR_SHARE: Final = 0.1
"""The share of the modelled round trip that the machine's own time may be."""
_RESPONSE_BYTES: Final = OVERHEAD_BYTES - 8
"""A read's answer beyond its data: its header has 8 bytes, where a request's has 16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpOptions(TransportOptions):
    """The options that only scale-up domains have, and what the lab says of this host's GPUs."""

    host: HostGpus
    number: int
    """The number of this side's GPU in its host, from 1."""
    pull: bool

    @property
    def gpu(self) -> Gpu:
        return self.host.gpu(self.number)

    @property
    def gpu_name(self) -> str:
        """The name of this side's GPU in the lab."""
        return self.host.name(self.number)

    @property
    def connection_type(self) -> str:
        return "memory"

    @property
    def details(self) -> tuple[tuple[str, str], tuple[str, str], tuple[str, str]]:
        return (
            ("Planes", str(len(self.gpu.interfaces))),
            ("Link retry", "OFF" if self.gpu.link.retry is None else "ON"),
            ("Time scale", f"{self.host.time_scale:g}"),
        )

    def compared(self) -> dict[str, Any]:
        return {"--pull": self.pull, "domain": self.host.domain}

    def test_info(self) -> dict[str, Any]:
        host = self.host
        return {
            "Domain": host.domain,
            "Gpu": self.gpu_name,
            "Planes": len(self.gpu.interfaces),
            "Link_retry": self.gpu.link.retry is not None,
            "Time_scale": host.time_scale,
            "GPU_rate_real_Gb": host.rate_bps / 1e9,
            "RTT_modelled_ns": host.rtt_ns,
            "Latency_unit": "RTT_modelled",
        }

    @property
    def latency_unit(self) -> tuple[str, float, int]:
        """Latencies are multiples of the modelled round trip: nanoseconds of this machine would say nothing."""
        return "RTT", self.host.lab_rtt_ns / 1e3, 3

    @property
    def bandwidth_columns(self) -> tuple[str, ...]:
        return ("modelled, each way[Gb/sec]", "of a GPU's rate[%]")

    def _modelled_bps(self, result: BandwidthResult, directions: int) -> float:
        return result.average * 8 * self.host.time_scale / directions

    def bandwidth_cells(self, result: BandwidthResult, directions: int) -> tuple[str, ...]:
        modelled = self._modelled_bps(result, directions)
        return f"{modelled / 1e9:.1f}", f"{100 * modelled / self.host.rate_bps:.2f}"

    def bandwidth_fields(self, result: BandwidthResult, directions: int) -> dict[str, Any]:
        modelled = self._modelled_bps(result, directions)
        return {
            "BW_modelled_each_way_Gb": round(modelled / 1e9, 6),
            "share_of_gpu_rate": round(modelled / self.host.rate_bps, 6),
        }


class _Transport(MeasuredTransport):
    __slots__ = ()

    def default_size(self, tool: Tool) -> int:
        if tool.latency:
            return _NUMBER_BYTES
        return _COPY_BYTES if tool.verb is Verb.COPY else 4096

    def default_depth(self, tool: Tool) -> int:
        """Return the depth that fills a GPU's links for several round trips: 450 kB are one of an HGX H100."""
        return 2 if tool.verb is Verb.COPY else 512

    def add_options(self, add: Any, tool: Tool) -> None:
        add("--gpu", type=in_range(1, 1024), default=1, metavar="N", help="GPU of this host, from 1 (%(default)s)")
        gpus_help = f"what the lab says of this host's GPUs (the environment's {GPUS_VARIABLE})"
        add("--gpus", type=Path, metavar="FILE", help=gpus_help)
        if tool.verb is Verb.COPY:
            add("--pull", action="store_true", help="copy from the peer's memory, not to it")
        for names, reason in _REFUSED:
            add(*names, action=Refused, reason=reason)

    def read_options(self, given: argparse.Namespace, tool: Tool, parser: argparse.ArgumentParser) -> ScaleUpOptions:
        try:
            host = HostGpus.read(given.gpus)
            gpu = host.gpu(given.gpu)
        except UsageError as error:
            parser.error(str(error))
        given.mtu = gpu.link.coarse * REGION_BYTES
        given.cc = gpu.link.flow_control.name.lower()
        given.rate = round(host.rate_bps / host.time_scale)
        given.base_rtt = round(host.lab_rtt_ns)
        return ScaleUpOptions(host=host, number=given.gpu, pull=getattr(given, "pull", False))

    def open_agent(self, options: Options) -> GpuAgent:
        library = options.of(ScaleUpOptions).host.library
        try:
            return GpuAgent(library)
        except OSError as error:
            raise PerftestError(f"cannot load {library}: {error}") from None

    def open(
        self,
        options: Options,
        agent: MeasuringAgent,
        address: str,
        memory: ToolMemory,
        theirs: Mapping[str, Any] | None,
    ) -> ScaleUpEndpoint:
        assert isinstance(agent, GpuAgent)
        given = options.of(ScaleUpOptions)
        name = f"gpu{given.number}"
        try:
            return ScaleUpEndpoint(options, agent, name, agent.open(name, given.gpu), memory)
        except OSError as error:
            raise PerftestError(f"cannot open {given.gpu_name}: {error.strerror or error}") from None
        except UsageError as error:
            raise PerftestError(f"cannot open {given.gpu_name}: {error}") from None


class ScaleUpEndpoint(MeasuredEndpoint):
    """A GPU's end, with one window that the peer alone may reach."""

    def __init__(self, options: Options, agent: GpuAgent, name: str, endpoint: Endpoint, memory: ToolMemory) -> None:
        super().__init__(options, name)
        self._given = options.of(ScaleUpOptions)
        self._agent = agent
        self._endpoint = endpoint
        self._window = endpoint.export(bytearray(max(len(memory.remote), WINDOW_BYTES)))
        self._region = self._given.gpu.link.coarse * REGION_BYTES
        self._offset = 0
        self._peer = WindowReference(gpu=0, number=0, key=0, size=0)
        self._peer_name = ""
        self._floor_ns: float | None = None

    @property
    def introduction(self) -> dict[str, Any]:
        reference = self._window.reference()
        window = {"number": reference.number, "key": reference.key, "size": reference.size}
        return {"domain": self._given.host.domain, "gpu": reference.gpu, "name": self._given.gpu_name, "window": window}

    def connect(self, peer: str, introduction: Mapping[str, Any]) -> None:
        gpu, window = told(introduction, "gpu", int), told(introduction, "window", dict)
        if gpu == self._endpoint.gpu:
            raise MismatchError(f"both sides are {self._given.gpu_name}: name another GPU with --gpu")
        self._peer_name = told(introduction, "name", str)
        self._peer = WindowReference(
            gpu=gpu, number=told(window, "number", int), key=told(window, "key", int), size=told(window, "size", int)
        )
        try:
            self._window.authorise(gpu)
        except UsageError as error:
            raise MismatchError(str(error)) from None

    @property
    def ends(self) -> tuple[Sequence[str], Sequence[str]]:
        here, there = (
            f"{name} window {item.number} key 0x{item.key:04x}"
            for name, item in ((self._given.gpu_name, self._window.reference()), (self._peer_name, self._peer))
        )
        return (here,), (there,)

    def prepare(self) -> None:
        if self._options.tool.latency and not self._options.server:
            self._floor_ns = self._measure_floor()

    def _measure_floor(self) -> float:
        """Return how much longer than modelled a smallest transaction takes in an idle domain, in ns of the lab."""
        into, times = bytearray(_NUMBER_BYTES), []
        for _ in range(FLOOR_READS):
            ended: list[int] = []
            begun = time.monotonic_ns()
            self._endpoint.read(self._peer, into)
            if not self._agent.drive(lambda: bool(self.take(ended) or ended), self._options.timeout_ns):  # noqa: B023
                raise PerftestError(f"nothing has arrived for {self._options.timeout_ns / 1e9:g} s")
            times.append(ended[0] - begun)
        gpu = self._given.gpu
        fastest = max(gpu.plane_rates_bps, default=gpu.link.rate_bps)
        sent = 2 * (OVERHEAD_BYTES + _RESPONSE_BYTES + _NUMBER_BYTES) * 8e9 / fastest
        return max(0.0, statistics.median(times) - 4 * gpu.link.delay_ns - sent)

    @property
    def _floor_share(self) -> float:
        return 0.0 if self._floor_ns is None else self._floor_ns / self._given.host.lab_rtt_ns

    @property
    def remarks(self) -> Sequence[str]:
        if self._floor_ns is None:
            return ()
        host = self._given.host
        real = self._floor_ns / host.time_scale
        return (
            f"RTT modelled   : {host.rtt_ns} ns, {host.lab_rtt_ns / 1e3:g} us in the lab",
            f"rtt_floor_real : {real:.1f} ns, {self._floor_share:.1%} of it: what this machine adds, over k",
        )

    def found(self) -> dict[str, Any]:
        if self._floor_ns is None:
            return {}
        return {
            "rtt_floor_real_ns": round(self._floor_ns / self._given.host.time_scale, 3),
            "rtt_floor_share": round(self._floor_share, 6),
            "valid": not self.objection,
        }

    @property
    def objection(self) -> str:
        if self._floor_share <= FLOOR_SHARE:
            return ""
        return (
            f"this machine adds {self._floor_share:.0%} to the modelled round trip, and at most {FLOOR_SHARE:.0%} says "
            "something of the domain: deploy with a larger scale.time"
        )

    def _next_offset(self, size: int) -> int:
        """Return the offset at which the next operation begins: in a region of its own, for all of a region take one
        plane."""
        offset = self._offset if self._offset + size <= self._peer.size else 0
        self._offset = offset + -(-size // self._region) * self._region
        return offset

    def post(self, data: memoryview, now: int) -> None:
        endpoint, peer = self._endpoint, self._peer
        try:
            match self._verb:
                case Verb.WRITE:
                    endpoint.write(peer, data, self._next_offset(len(data)))
                case Verb.READ:
                    endpoint.read(peer, data, self._next_offset(len(data)))
                case Verb.ATOMIC:
                    endpoint.fetch_add(peer, 0, 1)
                case Verb.COPY:
                    copy = endpoint.read if self._given.pull else endpoint.write
                    copy(peer, data, self._next_offset(len(data)))
                case Verb.SEND:
                    raise AssertionError("there is no such tool")
        except UsageError as error:
            raise PerftestError(str(error)) from None

    def take(self, finished_ns: list[int]) -> int:
        for done in self._endpoint.completions():
            if done.error is not None:
                raise PerftestError(f"a {done.kind.name.lower()} at {self._peer_name} failed: {done.error}")
            finished_ns.append(done.ended_ns)
        return 0


_REFUSED: Final = (
    (("-q", "--qp"), "a GPU has one end, and spreads what it does over its planes itself"),
    (("-m", "--mtu"), "how much a frame carries is the lab's: fabric.scale_up.coarse"),
    (("--cc",), "what controls the flow is the lab's: fabric.scale_up.flow_control"),
    (("--rate", "--base-rtt"), "rates and round trips are the lab's"),
)
TRANSPORT = _Transport(
    prefix="su",
    name="scale-up domain",
    short_name="SU",
    queues=None,
    controllers=(),
    tools=(
        (Verb.WRITE, False),
        (Verb.READ, False),
        (Verb.COPY, False),
        (Verb.READ, True),
        (Verb.ATOMIC, True),
    ),
    depths=OPERATIONS,
)
