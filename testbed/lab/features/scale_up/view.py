"""The scale-up domains of a lab as `inspect`, `validate` and the console show them.

Everything is per direction. In lab units it is there for a deployed lab, or for a file that names its time scale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.base.rows import column, measured
from testbed.base.units import ByteCount, Duration, Rate
from testbed.lab.core.fabric.sizing import SizingRow
from testbed.lab.core.model import BACKEND, Credits, Lab, LinkRetry, ScaleUp, ScaleUpBy
from testbed.lab.core.plan.domain_plan import ScaleUpPlan
from testbed.lab.features.scale_up.plan.time_scale import (
    CARRIED_FRAMES_PER_S,
    PacketScale,
    packet_scale,
    plan_pool,
    plan_scale_up,
)
from testbed.lab.features.scale_up.sizing import ScaleUpSizing, measure_scale_up

if TYPE_CHECKING:
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.features.scale_up.apply import DomainState

_UNSTATED = "the file says nothing: transfers inside a host take the rate of an H100's, and no latency"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpRow:
    """A quantity of scale-up domains in real and in lab units, or the switch of one."""

    what: str
    real: str
    lab: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRow:
    """A NIC port of a host's GPUs in the back end, and the scale-up domain that the host is in."""

    host: str
    nic: str
    gpus: int
    rail: int
    domain: str = column(sparse=True, default="")
    switch: str
    rate: str


def gpu_rows(lab: Lab, wanted: Callable[[str], bool]) -> Iterator[GpuRow]:
    """Yield the NIC ports of GPUs of the hosts that are wanted."""
    domains = lab.host_domains if lab.scale_up.stated else {}
    for link in lab.links:
        if link.rail and link.network == BACKEND and wanted(link.a.node):
            yield GpuRow(
                host=link.a.node,
                nic=link.a.interface,
                gpus=lab.gpus_per_nic,
                rail=link.rail,
                domain=domains.get(link.a.node, ""),
                switch=link.b.node,
                rate=str(link.rate),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneRow:
    """A link of a GPU to a plane of its scale-up domain, as the switch's end of it counts since the deploy."""

    gpu: str
    plane: int
    domain: str
    state: str
    rate: str
    sent: int | None = measured("B")
    received: int | None = measured("B")
    again: int | None = measured("frames", heading="sent again")
    dropped: int | None = measured("frames")


def plane_rows(lab: RunningLab, wanted: Callable[[str], bool]) -> Iterator[PlaneRow]:
    """Yield the links of GPUs of the hosts that are wanted, as their switches count them now."""
    from testbed.lab.features.scale_up.counters.reading import read_domains

    scale_up = lab.model.scale_up
    for reading in (one for domain in read_domains(lab) for one in domain.links):
        link, counters = reading.link, reading.counters
        if wanted(link.host):
            yield PlaneRow(
                gpu=link.gpu_name,
                plane=link.plane,
                domain=link.domain,
                state="down" if reading.errors.down else "up",
                rate=str(scale_up.plane_rate(link.plane)),
                sent=counters["sent_bytes"],
                received=counters["received_bytes"],
                again=counters["llr_tx_replay"],
                dropped=counters["dropped_frames"],
            )


def switch_document(state: DomainState) -> dict[str, Any]:
    """The state of a switch, whether it runs or not; the counters of its ports are in `stats`."""
    counted = {key: value for key, value in state.counted.items() if key != "ports"}
    return {"domain": state.name, "namespace": state.node, "running": state.is_running, **counted}


def switch_row(state: DomainState) -> ScaleUpRow:
    """Return the state of a switch, for a person."""
    from testbed.lab.features.scale_up.watch_switches import revival_hint

    what = f"switch of {state.name}"
    if not state.is_running:
        return _row(what, "", "does not run", revival_hint(state.name))
    counted, times = state.counted, state.counted["times"]
    said = (
        f"process {counted['pid']}, {len(counted['ports'])} ports, {counted['frames']} frames,"
        f" {state.busy_share:.1%} of a core; a pass takes {Duration(times['pass']['p50_ns'])} at the median,"
        f" {Duration(times['pass']['p99_ns'])} at the 99th percentile of real time"
    )
    lost = f"; {counted['socket_drops']} frames lost by this machine" if counted["socket_drops"] else ""
    return _row(what, "", "runs", "; ".join([said + lost, *counted["weaknesses"]]))


def scale_up_document(lab: Lab, k: float | None) -> dict[str, Any]:
    """Put all that is known of a lab's scale-up domains into JSON data. Lab units are None without a time scale."""
    scale_up, sizing, packets = lab.scale_up, measure_scale_up(lab), packet_scale(lab)
    plan = None if k is None else plan_scale_up(scale_up, k)
    credits, retry = scale_up.credits, scale_up.retry
    return {
        "lab": lab.name,
        "k": k,
        **_in_units(scale_up, "stated", "preset", "domain", "by"),
        "gpus": sizing.gpus,
        "domains": [_in_units(domain, "name", "hosts", "gpus") for domain in sizing.domains],
        "planes": [
            {
                "plane": number,
                "links_per_gpu": share,
                "rate_bps": scale_up.plane_rate(number).bps,
                "lab_rate_bps": None if plan is None else plan.plane_rates[number - 1].bps,
            }
            for number, share in enumerate(scale_up.shares, 1)
        ],
        "switch_ports": scale_up.switch_ports,
        "links_per_gpu": scale_up.links,
        "rates_count": "each direction",
        "gpu_rate_bps": scale_up.rate.bps,
        "nic_rates_bps": [rate.bps for rate in sizing.nic_rates],
        "rho": list(sizing.ratios),
        **_in_units(scale_up, "link_rate", "rtt", "latency", "flow_control", "vcs", "coarse"),
        **_in_units(sizing, "link_round_trip", "gpu_bdp_bytes", "link_bdp_bytes"),
        "credits": None
        if sizing.credits is None
        else {
            **_in_units(credits, "unit"),
            "limit": sizing.credits,
            "auto": credits.limit is None,
            "loop_ns": sizing.credit_loop.ns,
        },
        "llr": None
        if retry is None
        else {
            "window_frames": sizing.window_frames,
            "auto": retry.window is None,
            **_in_units(retry, "timer_windows", "replays"),
        },
        "lab_units": None
        if plan is None
        else {
            **_in_units(plan, "gpu_rate", "rtt", "latency", "frame", "window_frames", "credit_unit", "credits"),
            "replay_timer_ns": None if plan.replay_timer is None else plan.replay_timer.ns,
        },
        "pool": None
        if scale_up.pool is None
        else {
            **_in_units(scale_up.pool, "devices", "ways", "regions", "capacity", "rate", "latency", "interleave"),
            "lab_units": None
            if k is None
            else _in_units(plan_pool(scale_up, scale_up.pool, k), "rate", "latency", "granule"),
        },
        "packets": {
            **_in_units(packets, "frames_per_s", "k", "rate_k", "latency_k"),
            "carried_frames_per_s": CARRIED_FRAMES_PER_S,
        },
    }


def _in_units(item: object, *names: str) -> dict[str, Any]:
    """Return attributes as JSON data, by their names with the units of quantities."""
    found: dict[str, Any] = {}
    for name in names:
        match getattr(item, name):
            case Rate() as rate:
                found[f"{name}_bps"] = rate.bps
            case Duration() as duration:
                found[f"{name}_ns"] = duration.ns
            case ByteCount() as size:
                found[f"{name}_bytes"] = size.bytes
            case tuple() as entries:
                found[name] = list(entries)
            case value:
                found[name] = value
    return found


def scale_up_rows(lab: Lab, k: float | None) -> list[ScaleUpRow]:
    """Make rows of a lab's scale-up domains that a person reads: real and lab units side by side."""
    scale_up, sizing = lab.scale_up, measure_scale_up(lab)
    plan = None if k is None else plan_scale_up(scale_up, k)
    return [
        *_shape_rows(scale_up, sizing, plan),
        *_link_rows(scale_up, sizing, plan),
        *_pool_rows(scale_up, k),
        _packets_row(packet_scale(lab), scale_up, k),
    ]


def _shape_rows(scale_up: ScaleUp, sizing: ScaleUpSizing, plan: ScaleUpPlan | None) -> list[ScaleUpRow]:
    """Who is in a domain, and at what rate."""
    largest = sizing.largest
    planes = _folded(scale_up)
    first = _row("domains", str(len(sizing.domains)), note=domains_text(scale_up, sizing))
    return [
        first,
        _row("GPUs of a domain", str(largest.gpus), note=f"{sizing.gpus} in all; {largest.name} is the largest"),
        _row("planes", str(scale_up.planes), note=f"links of a GPU to each: {planes}{_ports(scale_up, largest.gpus)}"),
        _row(
            "rate of a GPU",
            str(scale_up.rate),
            "" if plan is None else str(plan.gpu_rate),
            f"each direction; {Rate(2 * scale_up.rate.bps)} where both are counted together",
        ),
        _row(
            "rate of a GPU to a plane",
            _span([scale_up.plane_rate(number) for number in range(1, scale_up.planes + 1)]),
            "" if plan is None else _span(list(plan.plane_rates)),
            f"{scale_up.link_rate} a link",
        ),
        _row("rho", rho_text(sizing), note=_nics_text(sizing)),
    ]


def _link_rows(scale_up: ScaleUp, sizing: ScaleUpSizing, plan: ScaleUpPlan | None) -> list[ScaleUpRow]:
    """The bytes under way on a link, and those that its credits and its window hold."""
    of_link = f"a link {ByteCount(sizing.link_bdp_bytes)}"
    latency = "" if scale_up.stated else "; transfers by time take none, as no file states it"
    bdp = str(ByteCount(sizing.gpu_bdp_bytes))
    rows = [
        _row(
            "RTT, GPU to GPU",
            str(scale_up.rtt),
            "" if plan is None else str(plan.rtt),
            f"one way is half of it{latency}",
        ),
        _row("BDP of a GPU", bdp, "" if plan is None else bdp, f"{of_link}, {_frames(sizing, plan)}"),
    ]
    unit = scale_up.credits.unit
    if sizing.credits is None:
        rows.append(_row("flow control", scale_up.flow_control.value, note="no credits"))
    else:
        rows.append(
            _row(
                "credits of a channel",
                f"{sizing.credits} x {unit}",
                "" if plan is None else f"{plan.credits} x {plan.credit_unit}",
                f"{_share(scale_up.credits)}; credit loop {sizing.credit_loop}; {scale_up.vcs} channels a link",
            )
        )
    retry = scale_up.retry
    if retry is None:
        rows.append(_row("link-level retry", "off", note="a lost frame is lost to the link"))
    else:
        timer = "" if plan is None or plan.replay_timer is None else f" ({plan.replay_timer} in the lab)"
        rows.append(
            _row(
                "retry window of a link",
                f"{sizing.window_frames} frames",
                "" if plan is None else f"{plan.window_frames} frames",
                f"{_share(retry)}; timer {retry.timer_windows:g} windows{timer}, {retry.replays} replays",
            )
        )
    return rows


def _pool_rows(scale_up: ScaleUp, k: float | None) -> list[ScaleUpRow]:
    """The memory devices of a domain, and what a region of them has together; none without a pool."""
    pool = scale_up.pool
    if pool is None:
        return []
    planned = None if k is None else plan_pool(scale_up, pool, k)
    capacity, rate = ByteCount(pool.ways * pool.capacity.bytes), Rate(pool.ways * pool.rate.bps)
    whole = "" if planned is None else str(Rate(pool.ways * planned.rate.bps))
    latency = Duration(scale_up.rtt.ns + pool.latency.ns)
    return [
        _row(
            "memory devices of a domain",
            str(pool.devices),
            note=f"{pool.regions} regions of {pool.ways} ways; {pool.capacity} each, {capacity} a region: an account",
        ),
        _row("rate of a region", str(rate), whole, f"{pool.rate} a device, reads and writes together"),
        _row(
            "latency of a device",
            str(pool.latency),
            "" if planned is None else str(planned.latency),
            f"a load takes {latency} without load, an RTT among it",
        ),
        _row(
            "interleave",
            str(pool.interleave),
            "" if planned is None else str(planned.granule),
            "of one way before the next; frames of the lab stand for several transactions",
        ),
    ]


def _packets_row(packets: PacketScale, scale_up: ScaleUp, k: float | None) -> ScaleUpRow:
    """By what transfers are realised, and the time scale that packets would need."""
    note = (
        f"{_needs(packets, scale_up, k)} ({packets.frames_per_s:.2g} / k frames/s and as many answers, in"
        f" {packets.share:.0%} of the {CARRIED_FRAMES_PER_S:,} that two cores carry)"
    )
    return _row("transfers by", scale_up.by.value, note=note)


def _needs(packets: PacketScale, scale_up: ScaleUp, k: float | None) -> str:
    """Which time scale packets need, and whether that of the lab or file, `k`, is too small for those that it has."""
    if scale_up.by is not ScaleUpBy.PACKETS:
        return f"packets would need k = {packets.k:,.0f}"
    short = f", more than {k:,.0f}" if k is not None and k < packets.k else ""
    return f"packets need k = {packets.k:,.0f}{short}"


def validated_rows(lab: Lab) -> list[SizingRow]:
    """Make the rows that `validate` adds to a lab's sizing: none where its file says nothing of scale-up."""
    sizing = measure_scale_up(lab)
    if not lab.scale_up.stated or not sizing.domains:
        return []
    scale_up, packets, k = lab.scale_up, packet_scale(lab), lab.scale.time
    planes = f"links of a GPU to {scale_up.planes} planes: {_folded(scale_up)}{_ports(scale_up, sizing.largest.gpus)}"
    return [
        SizingRow(
            what="scale-up domains",
            value=str(len(sizing.domains)),
            note=f"{domains_text(scale_up, sizing)}; {planes}",
        ),
        SizingRow(
            what="scale-up rate of a GPU",
            value=str(scale_up.rate),
            note=f"each direction; rho {rho_text(sizing)}, {_nics_text(sizing)}",
        ),
        SizingRow(
            what="scale-up BDP of a link",
            value=str(ByteCount(sizing.link_bdp_bytes)),
            note=f"{scale_up.link_rate} x {scale_up.rtt}; by {scale_up.by}; {_needs(packets, scale_up, k)}",
        ),
    ]


def domains_text(scale_up: ScaleUp, sizing: ScaleUpSizing) -> str:
    """Tell whose GPUs are one domain, and where the figures come from: "nvl72: a segment each, up to 72 GPUs"."""
    if not scale_up.stated:
        return _UNSTATED
    preset = f"{scale_up.preset}: " if scale_up.preset else ""
    return f"{preset}a {scale_up.domain.value} each, up to {sizing.largest.gpus} GPUs"


def rho_text(sizing: ScaleUpSizing) -> str:
    """Tell how much more a GPU has for scale-up than of its NIC: "9", or "9 to 18" where NICs differ."""
    ratios = sorted(sizing.ratios)
    if not ratios:
        return "-"
    low, high = f"{ratios[0]:.3g}", f"{ratios[-1]:.3g}"
    return low if low == high else f"{low} to {high}"


def _nics_text(sizing: ScaleUpSizing) -> str:
    if not sizing.nic_rates:
        return "no NIC to compare it with"
    return f"over {_span(list(sizing.nic_rates))} of NICs a GPU, like for like"


def _folded(scale_up: ScaleUp) -> str:
    """The shares of the planes, short where all are alike: "18 x 1", "5 4 4 5"."""
    if len(set(scale_up.shares)) == 1:
        return f"{scale_up.planes} x {scale_up.shares[0]}"
    return " ".join(str(share) for share in scale_up.shares)


def _ports(scale_up: ScaleUp, gpus: int) -> str:
    if scale_up.switch_ports is None:
        return ""
    return f"; {gpus * max(scale_up.shares)} of {scale_up.switch_ports} ports of a switch used"


def _span(rates: list[Rate]) -> str:
    low, high = min(rates), max(rates)
    return str(low) if low == high else f"{low} to {high}"


def _frames(sizing: ScaleUpSizing, plan: ScaleUpPlan | None) -> str:
    if plan is None:
        return f"{sizing.link_bdp_bytes / 256:.0f} transactions"
    return f"{sizing.link_bdp_bytes / plan.frame.bytes:.1f} frames of {plan.frame} in the lab"


def _share(what: Credits | LinkRetry) -> str:
    """Return the origin of a number of credits or frames."""
    counted, share = (what.limit, what.loops) if isinstance(what, Credits) else (what.window, what.round_trips)
    if counted is not None:
        return "as written"
    return "auto" if share == 1 else f"{share:.0%} of what the link needs"


def _row(what: str, real: str, lab: str = "", note: str = "") -> ScaleUpRow:
    return ScaleUpRow(what=what, real=real, lab=lab, note=note)
