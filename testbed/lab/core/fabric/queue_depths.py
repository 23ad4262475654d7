"""Turns depths of queues into bytes, and divides a switch's buffer between its ports.

The same arithmetic serves the check of a topology file (before a time scale is known: no reaction time, the least that
every queue needs) and the plan (with both). Rates times delays do not change with the time scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from testbed.base.units import Duration, Rate
from testbed.lab.core.model import Lab, QosPolicy, QosProfile, TrafficClass

ETHERNET_HEADER_BYTES = 14
RESERVED_FRAMES = 2
"""Frames that an egress queue may always hold, whatever the rest of the buffer is used for."""
LEAST_XOFF_FRAMES = 8
"""An automatic XOFF is not below this: pausing at less would stop a sender at every small burst."""
HYSTERESIS_FRAMES = 2
"""An automatic XON is at least so far below XOFF, or every frame would cross both."""
FLIGHT_FRAMES = 3
"""Frames that arrive after XOFF at no delay at all: one on its way here when XOFF is crossed, the pause frame's wait
behind one at our port, and the one that a closing gate lets through."""


def frame_bytes(mtu_bytes: int) -> int:
    """A full frame as queues count it: without preamble and FCS, which veth does not carry."""
    return mtu_bytes + ETHERNET_HEADER_BYTES


def bdp_bytes(rate_bps: int, base_rtt: Duration) -> int:
    """The bandwidth-delay product; at least a byte."""
    return max(1, rate_bps * base_rtt.ns // (8 * 10**9))


@dataclass(frozen=True, slots=True, kw_only=True)
class PortShape:
    """Everything that the depths of a switch port's queues follow from. `line_rate_bps` is real.

    `flight_bytes` arrive between XOFF and the end of sending: rate x (2 x link delay + reaction to a pause).
    """

    profile: QosProfile
    line_rate_bps: int
    mtu_bytes: int
    flight_bytes: int
    base_rtt: Duration

    @property
    def frame(self) -> int:
        return frame_bytes(self.mtu_bytes)

    @property
    def bdp(self) -> int:
        return bdp_bytes(self.line_rate_bps, self.base_rtt)


def shapes_of_ports(
    lab: Lab,
    policy: QosPolicy,
    base_rtt: Callable[[QosProfile], Duration],
    flight_bytes: Callable[[Rate, Duration], int],
) -> list[PortShape]:
    """Return the shape of each port, in the order of the links. Equal shapes are one object, known by its identity.

    `flight_bytes` is that of a link's rate and one-way delay, both real.
    """
    known: dict[tuple[int, int, int, int], PortShape] = {}
    equal: dict[PortShape, PortShape] = {}
    found = []
    for link in lab.links:
        delay = Duration(link.delay_ns)
        for end in (link.a, link.b):
            index = policy.index_of(end.node, end.interface)
            key = (index, link.rate.bps, link.mtu_bytes, delay.ns)
            if key not in known:
                profile = policy.profiles[index]
                shape = PortShape(
                    profile=profile,
                    line_rate_bps=link.rate.bps,
                    mtu_bytes=link.mtu_bytes,
                    flight_bytes=flight_bytes(link.rate, delay),
                    base_rtt=base_rtt(profile),
                )
                known[key] = equal.setdefault(shape, shape)
            found.append(known[key])
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseDepths:
    """PFC thresholds of an ingress port and priority, in bytes."""

    xoff: int
    xon: int
    headroom: int


def pause_depths(item: TrafficClass, port: PortShape, share: int | None = None) -> PauseDepths:
    """The thresholds of a lossless class at `port`; what the file leaves to us is chosen here.

    `share` is what the buffer has for this queue, XOFF and headroom together; None: the least it can do with. An
    automatic XOFF is one bandwidth-delay product, or the end of the ECN curve where that is higher (marking comes
    before pausing), as far as the share allows.
    """
    frame, bdp, pfc = port.frame, port.bdp, item.pfc
    headroom = port.flight_bytes + FLIGHT_FRAMES * frame
    if pfc is not None and pfc.headroom is not None:
        headroom = pfc.headroom.bytes_at(bdp)
    xon = None if pfc is None or pfc.xon is None else pfc.xon.bytes_at(bdp)
    if pfc is not None and pfc.xoff is not None:
        xoff = max(1, pfc.xoff.bytes_at(bdp))  # a small part of a small BDP: of 0 a queue would pause for ever
    else:
        xoff = LEAST_XOFF_FRAMES * frame
        if xon is not None:
            xoff = max(xoff, xon + HYSTERESIS_FRAMES * frame)
        if share is not None:
            kmax = 0 if item.ecn is None else item.ecn.kmax.bytes_at(bdp)
            xoff = max(xoff, min(max(bdp, kmax), share - headroom))
    if xon is None:
        xon = max(xoff - max(HYSTERESIS_FRAMES * frame, xoff // 4), xoff // 2)
    return PauseDepths(xoff=xoff, xon=xon, headroom=headroom)


def lossless_share(shared_bytes: int, ports: Mapping[PortShape, int]) -> int:
    """Return what the buffer of a switch has for each lossless ingress queue. `ports` counts its ports of each shape.

    That is what the queues' own reserves leave, or half of it where lossy classes need some too, in equal parts.
    """
    queues = sum(count * len(_lossless(port)) for port, count in ports.items())
    if not queues:
        return 0
    lossy = any(len(_lossless(port)) < len(port.profile.classes) for port in ports)
    left = max(0, shared_bytes - _queue_reserves(ports))
    return left // (2 * queues if lossy else queues)


def needed_bytes(ports: Mapping[PortShape, int], share: int | None = None) -> int:
    """Return what the queues of a switch must have of its buffer: two frames each, and XOFF and headroom of lossless
    ones.

    `share` None: the least.
    """
    return _queue_reserves(ports) + sum(
        count * (depths.xoff + depths.headroom)
        for port, count in ports.items()
        for depths in (pause_depths(item, port, share) for item in _lossless(port))
    )


def _lossless(port: PortShape) -> list[TrafficClass]:
    return [item for item in port.profile.classes if item.lossless]


def _queue_reserves(ports: Mapping[PortShape, int]) -> int:
    return sum(count * len(port.profile.classes) * RESERVED_FRAMES * port.frame for port, count in ports.items())
