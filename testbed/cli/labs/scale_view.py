"""The view `inspect scale`, both sides of everything that a lab scales, and how delays are told in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.base.units import Duration, Rate
from testbed.cli.options import Format
from testbed.cli.output import emit
from testbed.lab.core.model import BACKEND, Delay, DelayBy, Lab, LinkKind
from testbed.lab.core.plan.link_delays import mechanism_text

if TYPE_CHECKING:
    from testbed.cli.lab_choice import DeclaredLab
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.protocols.congestion.scaled_parameters import Dimension


def show_scale(lab: RunningLab | DeclaredLab, form: Format) -> None:
    """Print both sides of everything that a lab scales, and of what it does not."""
    emit(list(_scaled(lab)), ScaledRow, form, title=f"{lab.name}: time scale k = {lab.plan.k:g}")
    print_mechanism(lab, form)


def _scaled(lab: RunningLab | DeclaredLab) -> Iterator[ScaledRow]:
    """Yield both sides of everything that a lab scales, and of what it does not."""
    from testbed.lab.core.deploy.packet_costs import PacketCosts
    from testbed.lab.core.deploy.records.state import StateDirectory
    from testbed.lab.features.scale_up.plan.time_scale import plan_scale_up

    model, k = lab.model, lab.plan.k
    for kind, rate in sorted({(link.kind.value, link.rate) for link in model.links}, key=lambda it: (it[0], it[1].bps)):
        if kind == LinkKind.MANAGEMENT:
            yield ScaledRow.unchanged(f"rate of {kind} links", str(rate))
        else:
            yield ScaledRow.rate(f"rate of {kind} links", rate, k)
    ports = {(port.node, port.name): port for port in lab.plan.ports}
    lower = ((link, ports[link.a.node, link.a.interface]) for link in model.links)
    for text, delay_ns in sorted({(delay_text(link.delay, port.delay_by), port.delay_ns) for link, port in lower}):
        if text:
            yield ScaledRow(quantity="link delay", fabric=text, lab=str(Duration(delay_ns)), law="x k")
    for mtu in sorted({link.mtu_bytes for link in model.links}):
        yield ScaledRow.unchanged("MTU", f"{mtu} B")
    if (scale_up := model.scale_up).stated:
        plan = plan_scale_up(scale_up, k)
        yield ScaledRow(quantity="scale-up rate of a GPU", fabric=str(scale_up.rate), lab=str(plan.gpu_rate), law="/ k")
        yield ScaledRow(quantity="scale-up RTT, GPU to GPU", fabric=str(scale_up.rtt), lab=str(plan.rtt), law="x k")
    yield from medium_rows(model, k)
    for network in model.data_networks:
        if model.carrier_of(network) != network:
            continue  # its switches are another one's
        bfd = model.of_network(network).routing.bfd
        said = "off" if bfd is None else f"{bfd.interval} x {bfd.multiplier}"
        of = "" if network == model.data_networks[0] else f", {network}"
        yield ScaledRow.unchanged(f"BFD{of}", said, law="lab time, not scaled")
    for cost in PacketCosts(StateDirectory()).all():
        what, law = f"CPU time of a data packet, {cost.transport}", "measured on this machine"
        yield ScaledRow(quantity=what, fabric="", lab=f"{cost.us:.0f} us", law=law)
    if BACKEND in model.network_names:
        yield from transport_rows(model.of_network(BACKEND), k)


def delay_text(delay: Delay | None, by: DelayBy) -> str:
    """Tell a link's delay in real time and who realises it."""
    if delay is None:
        return ""
    varying = f" +- {delay.jitter}" if delay.jitter else ""
    return f"{delay.value}{varying} ({'ignored' if by is DelayBy.IGNORE else f'by {by.value}'})"


def print_mechanism(lab: RunningLab | DeclaredLab, form: Format) -> None:
    """Print who realises the links' delays, where a person reads the output."""
    sentence = mechanism_text(lab.plan.ports)
    if sentence and form is Format.TABLE:
        print(sentence)


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
    from testbed.lab.core.fabric.base_rtt import declared_base_rtt, model_base_rtt
    from testbed.protocols.congestion.controller import FlowSettings
    from testbed.protocols.congestion.scaled_parameters import Dimension, scaled_parameters
    from testbed.protocols.roce.config import RoceConfig

    laws = {Dimension.TIME_NS: "x k", Dimension.RATE_BPS: "/ k", Dimension.SIZE_BYTES: "unchanged"}
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
            law=laws[one.dimension],
        )


def medium_rows(lab: Lab, k: float) -> Iterator[ScaledRow]:
    """Yield the rows of the media that storage targets have, each kind once."""
    media = [node.target.medium for node in lab.targets if node.target is not None]
    for rate in sorted({medium.rate for medium in media if medium.rate is not None}, key=lambda rate: rate.bps):
        yield ScaledRow.rate("rate of a medium", rate, k)
    for latency in sorted({one.latency for one in media if one.latency is not None}, key=lambda time: time.ns):
        yield ScaledRow.time("latency of a medium", latency, k)


def _text(dimension: Dimension, value: float) -> str:
    from testbed.protocols.congestion.scaled_parameters import Dimension

    match dimension:
        case Dimension.TIME_NS:
            return str(Duration(round(value)))
        case Dimension.RATE_BPS:
            return str(Rate(max(1, round(value)))) if value else "0"
        case Dimension.SIZE_BYTES:
            return f"{value:.0f} B"
