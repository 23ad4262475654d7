"""Both sides of what transports in user space scale: the base round trip, times and rates of RoCE's controllers, and
the media of storage targets."""

from __future__ import annotations

from testbed.base.units import Duration, Rate
from testbed.lab.core.fabric.base_rtt import declared_base_rtt, model_base_rtt
from testbed.lab.core.model import Lab
from testbed.protocols.congestion.controller import FlowSettings
from testbed.protocols.congestion.scaled_parameters import Dimension, scaled_parameters
from testbed.protocols.roce.config import RoceConfig

_LAWS = {Dimension.TIME_NS: "x k", Dimension.RATE_BPS: "/ k", Dimension.SIZE_BYTES: "unchanged"}


def transport_rows(lab: Lab, k: float) -> list[dict[str, str]]:
    """Return the rows of `inspect scale`: the base round trip of a fabric, and parameters of a flow from its fastest
    NIC. A set is named as `transport.cc` and `transport.parameters` name it, a parameter as its `cc_` key does."""
    hosts = {node.name for node in lab.hosts}
    rates = [link.rate.bps for link in lab.links if link.a.node in hosts or link.b.node in hosts]
    if not rates:
        return []
    base_rtt = declared_base_rtt(lab) or model_base_rtt(lab)
    config = RoceConfig()
    settings = FlowSettings(
        link_rate_bps=max(1, round(max(rates) / k)),
        base_rtt_ns=base_rtt.scaled(k).ns,
        time_scale=k,
        mtu_bytes=config.mtu,
    )
    rows = [{"quantity": "base round trip", "fabric": str(base_rtt), "lab": str(base_rtt.scaled(k)), "law": "x k"}]
    rows += [
        {
            "quantity": f"roce, {one.controller} {one.parameters}: {one.name}",
            "fabric": _text(one.dimension, one.fabric),
            "lab": _text(one.dimension, one.lab),
            "law": _LAWS[one.dimension],
        }
        for one in scaled_parameters(settings)
    ]
    return rows


def medium_rows(lab: Lab, k: float) -> list[dict[str, str]]:
    """Return the rows of the media that storage targets have, each kind once."""
    media = [node.target.medium for node in lab.targets if node.target is not None]
    rates = sorted({medium.rate.bps for medium in media if medium.rate is not None})
    latencies = sorted({medium.latency.ns for medium in media if medium.latency is not None})
    both = [("rate of a medium", str(Rate(bps)), str(Rate(bps).scaled(k)), "/ k") for bps in rates]
    both += [("latency of a medium", str(Duration(ns)), str(Duration(ns).scaled(k)), "x k") for ns in latencies]
    return [{"quantity": what, "fabric": real, "lab": scaled, "law": law} for what, real, scaled, law in both]


def _text(dimension: Dimension, value: float) -> str:
    match dimension:
        case Dimension.TIME_NS:
            return str(Duration(round(value)))
        case Dimension.RATE_BPS:
            return str(Rate(max(1, round(value)))) if value else "0"
        case Dimension.SIZE_BYTES:
            return f"{value:.0f} B"
