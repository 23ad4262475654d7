"""The scale-up domains of a lab: GPUs that load and store each other's memory over switches of their own.

A domain (NVLink with NVSwitch, UALink, Scale-Up Ethernet) stands beside the fabric, which joins GPUs of different
domains. It has one tier: every GPU has links to every plane, and a plane is one switch chip. Nothing is routed in it,
and no address of the fabric is in it. All rates here are per direction: a port of 3.6 Tb/s sends 450 GB/s and receives
450 GB/s at the same time, which data sheets print as 900 GB/s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from testbed.base.units import ByteCount, Duration, Rate

if TYPE_CHECKING:
    from testbed.lab.core.model.lab import Node

TRANSACTION = ByteCount(256)
"""The most that a load, a store or an atomic carries, in bytes (UALink 200G 1.0 section 3, NVLink)."""


class DomainSpan(StrEnum):
    """The GPUs that make one scale-up domain."""

    HOST = "host"
    """The GPUs of one host: an HGX board."""
    SEGMENT = "segment"
    """The GPUs of all hosts of one segment: a rack whose compute trays are hosts."""


class ScaleUpFlowControl(StrEnum):
    """The means by which a scale-up link keeps its receiver's buffer from overflowing."""

    CREDITS = "credits"
    """Credits of each virtual channel of a link (CBFC of Ultra Ethernet 1.0 section 5.2; NVLink and UALink alike)."""
    PFC = "pfc"
    """Pause frames (IEEE 802.1Qbb)."""
    NONE = "none"
    """Nothing: a full buffer drops."""


class ScaleUpBy(StrEnum):
    """The mechanism of the transfers of a domain."""

    TIME = "time"
    """Timers: a copy in memory takes the time that the GPU's links would need. No packets, no loss."""
    PACKETS = "packets"
    """Frames through a switch process."""


class PlaneSpray(StrEnum):
    """The spread of the transactions of a copy over planes. Those of one 256-byte region take one plane."""

    EQUAL = "equal"
    """All alike."""
    WEIGHTED = "weighted"
    """In proportion to what planes carry."""
    PINNED = "pinned"
    """By the address alone, also where a plane is down: what belongs there does not arrive."""


class ScaleUpHeaders(StrEnum):
    """The headers that the payload of a frame stands behind, as far as it occupies its link."""

    LAB = "lab"
    """The lab's own, from Ethernet header to FCS."""
    UDP = "udp"
    """Scale-Up Ethernet over UDP/IP."""
    AFH = "afh"
    """Scale-Up Ethernet with the AI fabric header, second generation."""
    SUE_LITE = "sue-lite"
    """SUE-Lite with the compressed AI fabric header."""
    UALINK = "ualink"
    """The flits of UALink 200G."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credits:
    """The credits of one virtual channel of a link.

    A frame costs ceil(frame / `unit`) of them. `limit` is how many the sender may have in use; None: as many as
    `loops` credit loops of the link need. `cc_update` is the time between two messages (CC_Update) that give back the
    credits of frames that were lost on the wire; None: they stay lost. A link with retry loses none and sends no such
    message.
    """

    unit: ByteCount = TRANSACTION
    limit: int | None = None
    loops: float = 1.0
    cc_update: Duration | None = field(default_factory=lambda: Duration(256_000))


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRetry:
    """Link-level retry: a lost frame is sent again by the link, with all that followed it (go-back-N).

    `window` counts frames that may be sent and not acknowledged; None: as many as `round_trips` of the link need.
    Without an acknowledgement the window is sent again after `timer_windows` times the time it takes to send it (that
    of a round trip's frames, where there are more), and at most `replays` times (Ultra Ethernet 1.0 section 5.1; the
    SONiC sample profiles have a timer of 4 windows). A link that is silent for `pcs_lost_windows` such times gives up
    what it has sent.
    """

    window: int | None = None
    round_trips: float = 1.0
    timer_windows: float = 4.0
    replays: int = 3
    pcs_lost_windows: float = 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpPool:
    """Memory that the GPUs of each domain have in common: devices on its switches that answer loads and stores.

    A device has links as a GPU has, and behind them memory of `rate`, reads and writes together, which answers after
    `latency`. `ways` devices are one region, over which memory is interleaved: `interleave` bytes of each in turn. The
    defaults are a memory expander of CXL 2.0 on 16 lanes of PCIe 5 (64 GB/s each way), and loads as they were measured
    from such (Sun et al., "Demystifying CXL memory with genuine CXL-ready systems and devices", MICRO 2023).
    """

    devices: int
    capacity: ByteCount = field(default_factory=lambda: ByteCount(10**12))
    """That of a device. It is an account: no memory is set aside for it."""
    rate: Rate = field(default_factory=lambda: Rate.parse("512G"))
    latency: Duration = field(default_factory=lambda: Duration(250))
    interleave: ByteCount = TRANSACTION
    ways: int = 1

    @property
    def regions(self) -> int:
        """Return how many regions the devices make."""
        return self.devices // self.ways


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUp:
    """The scale-up domains of a lab, in the units of the real system; all domains of a lab are alike."""

    preset: str = ""
    """The system that it is taken from (`SCALE_UP_PRESETS`); "": written out in the file."""
    stated: bool = True
    """The topology file says it. Where it does not, transfers inside a host take the preset's rate and no latency."""
    domain: DomainSpan = DomainSpan.HOST
    rate: Rate
    """The rate at which a GPU sends over all its links together, and receives at the same time."""
    shares: tuple[int, ...]
    """The number of a GPU's links that go to each plane."""
    rtt: Duration = field(default_factory=lambda: Duration(1_000))
    """The round trip of a smallest transaction, GPU to switch to GPU and back, without load."""
    flow_control: ScaleUpFlowControl = ScaleUpFlowControl.CREDITS
    vcs: int = 2
    """Virtual channels of a link: requests and responses in different ones, or they can block each other for ever."""
    credits: Credits = field(default_factory=Credits)
    retry: LinkRetry | None = field(default_factory=LinkRetry)
    """None: a lost frame is lost to the link."""
    coarse: int = 16
    """Transactions of `TRANSACTION` bytes that one frame of the lab stands for."""
    by: ScaleUpBy = ScaleUpBy.TIME
    voq: bool = False
    """Inputs of a switch have a queue for each output, so that none is held up by another's first frame."""
    spray: PlaneSpray = PlaneSpray.WEIGHTED
    buffer: ByteCount | None = None
    """The buffer of a virtual channel at the receiving end of a link, without credits; None: as its link needs."""
    xoff: ByteCount | None = None
    """The bytes in that buffer at which a pause is asked for (PFC); None: half of it."""
    xon: ByteCount | None = None
    """The bytes that are left in it when a pause ends; None: a quarter of it."""
    headers: ScaleUpHeaders = ScaleUpHeaders.LAB
    switch_ports: int | None = None
    """Ports of one plane's switch; None: not known, and nothing is checked against it."""
    pool: ScaleUpPool | None = None
    """None: GPUs have no memory in common."""

    @property
    def devices(self) -> int:
        """Return how many memory devices each domain has."""
        return 0 if self.pool is None else self.pool.devices

    @property
    def planes(self) -> int:
        """Switch chips that each GPU reaches."""
        return len(self.shares)

    @property
    def links(self) -> int:
        """Links of one GPU, over all planes."""
        return sum(self.shares)

    @property
    def link_rate(self) -> Rate:
        """The rate of one link, in bit/s each way."""
        return Rate(self.rate.bps // self.links)

    def plane_rate(self, plane: int) -> Rate:
        """Return the rate at which a GPU sends to one plane (from 1)."""
        return Rate(self.rate.bps * self.shares[plane - 1] // self.links)

    @property
    def latency(self) -> Duration:
        """The real time from a GPU to another one of its domain: half of `rtt`, or zero where no file states it."""
        return Duration(self.rtt.ns // 2) if self.stated else Duration(0)

    def domain_of(self, host: Node) -> str:
        """Return the name of a host's domain: of its segment (p1-s1), or the host's own.

        A host that is in no segment, such as a hand-written one, is a domain by itself.
        """
        place = host.place
        if self.domain is DomainSpan.HOST or place is None or not place.segment:
            return host.name
        return f"p{place.pod}-s{place.segment}"


_H100 = ScaleUp(
    preset="h100",
    rate=Rate.parse("3.6T"),
    shares=(5, 4, 4, 5),
    switch_ports=64,
)
"""HGX H100: 18 NVLink 4 of 25 GB/s each way per GPU, on 4 NVSwitch 3 of 64 ports (Hot Chips 34)."""

_NVL72 = ScaleUp(
    preset="nvl72",
    domain=DomainSpan.SEGMENT,
    rate=Rate.parse("7.2T"),
    shares=(1,) * 18,
    switch_ports=72,
)
"""GB200 NVL72: 18 NVLink 5 of 50 GB/s each way per GPU, one to each of 18 NVSwitch chips of 72 ports."""

_UALINK = ScaleUp(
    preset="ualink",
    domain=DomainSpan.SEGMENT,
    rate=Rate.parse("6.4T"),
    shares=(1,) * 8,
    switch_ports=1024,
)
"""A UALink 200G 1.0 pod: 8 stations of 800 Gb/s an accelerator, each on a switch with a port for all of up to 1,024."""

_SUE = ScaleUp(
    preset="sue",
    domain=DomainSpan.SEGMENT,
    rate=Rate.parse("9.6T"),
    shares=(1,) * 12,
    switch_ports=64,
)
"""The example of Scale-Up Ethernet 1.0 (OCP): 12 instances of 800 Gb/s an XPU, on 12 switches of 64 ports."""

SCALE_UP_PRESETS: Mapping[str, ScaleUp] = MappingProxyType({one.preset: one for one in (_H100, _NVL72, _UALINK, _SUE)})
"""The systems that a file can name. NVLink's credits, channels and replay are not published: they are as in CBFC."""

UNSTATED_SCALE_UP = ScaleUp(
    preset=_H100.preset, stated=False, rate=_H100.rate, shares=_H100.shares, switch_ports=_H100.switch_ports
)
"""The scale-up of a lab whose file says nothing of it: the rate of an H100 inside each host, without latency."""
