"""Both sides of what transports in user space scale: the base round trip, times and rates of RoCE's controllers, and
the media of storage targets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from testbed.base.units import Duration, Rate
from testbed.lab.core.fabric.base_rtt import declared_base_rtt, model_base_rtt
from testbed.lab.core.model import Lab
from testbed.protocols.congestion.controller import FlowSettings
from testbed.protocols.congestion.scaled_parameters import Dimension, scaled_parameters
from testbed.protocols.roce.config import RoceConfig

_LAWS = {Dimension.TIME_NS: "x k", Dimension.RATE_BPS: "/ k", Dimension.SIZE_BYTES: "unchanged"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledRow:
    """A quantity of the fabric as it is written and as it is in the lab, and by which law."""

    quantity: str
    fabric: str
    lab: str
    law: str

    @classmethod
    def rate(cls, quantity: str, rate: Rate, k: float) -> ScaledRow:
        return cls(quantity=quantity, fabric=str(rate), lab=str(rate.scaled(k)), law="/ k")

    @classmethod
    def time(cls, quantity: str, time: Duration, k: float) -> ScaledRow:
        return cls(quantity=quantity, fabric=str(time), lab=str(time.scaled(k)), law="x k")

    @classmethod
    def unchanged(cls, quantity: str, value: str, law: str = "unchanged") -> ScaledRow:
        return cls(quantity=quantity, fabric=value, lab=value, law=law)


def transport_rows(lab: Lab, k: float) -> Iterator[ScaledRow]:
    """Yield the rows of `inspect scale`: the base round trip of a fabric, and parameters of a flow from its fastest
    NIC. A set is named as `transport.cc` and `transport.parameters` name it, a parameter as its `cc_` key does."""
    hosts = {node.name for node in lab.hosts}
    rates = [link.rate.bps for link in lab.links if link.a.node in hosts or link.b.node in hosts]
    if not rates:
        return
    base_rtt = declared_base_rtt(lab) or model_base_rtt(lab)
    settings = FlowSettings(
        link_rate_bps=max(1, round(max(rates) / k)),
        base_rtt_ns=base_rtt.scaled(k).ns,
        time_scale=k,
        mtu_bytes=RoceConfig().mtu,
    )
    yield ScaledRow.time("base round trip", base_rtt, k)
    for one in scaled_parameters(settings):
        yield ScaledRow(
            quantity=f"roce, {one.controller} {one.parameters}: {one.name}",
            fabric=_text(one.dimension, one.fabric),
            lab=_text(one.dimension, one.lab),
            law=_LAWS[one.dimension],
        )


def medium_rows(lab: Lab, k: float) -> Iterator[ScaledRow]:
    """Yield the rows of the media that storage targets have, each kind once."""
    media = [node.target.medium for node in lab.targets if node.target is not None]
    for rate in sorted({medium.rate for medium in media if medium.rate is not None}, key=lambda rate: rate.bps):
        yield ScaledRow.rate("rate of a medium", rate, k)
    for latency in sorted({one.latency for one in media if one.latency is not None}, key=lambda time: time.ns):
        yield ScaledRow.time("latency of a medium", latency, k)


def _text(dimension: Dimension, value: float) -> str:
    match dimension:
        case Dimension.TIME_NS:
            return str(Duration(round(value)))
        case Dimension.RATE_BPS:
            return str(Rate(max(1, round(value)))) if value else "0"
        case Dimension.SIZE_BYTES:
            return f"{value:.0f} B"
