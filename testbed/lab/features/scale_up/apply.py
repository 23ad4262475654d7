"""The scale-up domains of a live lab by packets: their switches started, and what endpoints of GPUs are told.

A domain's switch is one process in a namespace of its own, which holds one end of every wire. It goes with the other
processes of the lab. The other ends are interfaces of hosts; who works for a GPU opens its endpoint there
(`gpu_settings`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from testbed.base.errors import TestbedError
from testbed.base.linux.namespaces import in_namespace
from testbed.base.linux.rtnetlink import RouteSocket, set_link_state
from testbed.base.names import namespace_name
from testbed.daemons.switchd.description import SwitchDescription, SwitchPort
from testbed.daemons.switchd.errors import SwitchMissing
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.plan.domain_plan import DomainPlan, ScaleUpPlan
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.features.scale_up.sizing import CREDIT_SPACING, frame_credits, peer_window, retry_frames
from testbed.lab.features.scale_up.watch_switches import dead_domains, domain_switch
from testbed.protocols.scale_up.credits import spacing_ns
from testbed.protocols.scale_up.domain.binding import OVERHEAD_BYTES
from testbed.protocols.scale_up.domain.endpoint import Gpu, Spray
from testbed.protocols.scale_up.domain.link import FlowControl, LinkSettings, plane_links
from testbed.protocols.scale_up.retry import RetryConfig

ANSWER_BYTES = 30
"""The length of the frame that answers a write, which has its transaction and no data."""
ACK_SPACING_BYTES = 2_048
"""Between two acknowledgements of LLR (SAI-LLR)."""
STARTED_AT_ONCE = 8

LEAST_TIMEOUT_S, TIMEOUT_ROUND_TRIPS = 5.0, 100
"""The timeouts of a transaction that was sent: in lab time, and in round trips of a domain without load."""


class NoPackets(TestbedError):
    """A lab whose scale-up domains have no packets, or no such GPU or domain."""


def domain_link(plan: LabPlan, plane: int) -> LinkSettings:
    """Return the settings of the wires of a plane (from 1), in lab units. Raises `NoPackets` for a lab without
    packets."""
    links = domain_links(_first(plan))
    if not 1 <= plane <= len(links):
        raise NoPackets(f"the scale-up domains of {plan.lab} have planes 1 to {len(links)}, not {plane}")
    return links[plane - 1]


def domain_links(domain: DomainPlan) -> tuple[LinkSettings, ...]:
    """Return the settings of the wires of each plane, in lab units: those of the fastest one, with rates of their
    own."""
    return plane_links(_widest(domain), domain.planes, _rates(domain))


def link_settings(link: ScaleUpPlan) -> LinkSettings:
    """The settings of a wire that is planned as `link`.

    A credit holds its share of a frame's headers, too, so that a full frame takes as many as its payload does by the
    plan.
    """
    real = link.real
    coarse = real.coarse
    bare = LinkSettings(rate_bps=link.gpu_rate.bps, coarse=coarse)
    per_frame = frame_credits(link.frame, link.credit_unit)
    unit = max(link.credit_unit.bytes, ceil(bare.frame_bytes / per_frame))
    xoff, xon = link.pause_credits or (None, None)
    cc_update = real.credits.cc_update
    return LinkSettings(
        rate_bps=link.gpu_rate.bps,
        delay_ns=link.rtt.ns // 4,
        flow_control=FlowControl[real.flow_control.name],
        coarse=coarse,
        unit_bytes=unit,
        capacity=(link.buffer_credits,) * real.vcs,
        xoff=() if xoff is None else (xoff,) * real.vcs,
        xon=() if xon is None else (xon,) * real.vcs,
        cf_spacing_bytes=CREDIT_SPACING.bytes,
        cc_period_ns=0 if real.retry is not None or cc_update is None else cc_update.scaled(link.k).ns,
        headers=real.headers.value,
        retry=_retry(link),
    )


def _retry(link: ScaleUpPlan) -> RetryConfig | None:
    retry = link.real.retry
    frames = retry_frames(link.real, link.frame)
    if retry is None or link.window_frames is None or link.replay_timer is None or frames is None:
        return None
    window_ns = link.replay_timer.ns / retry.timer_windows
    return RetryConfig(
        # An answer of a few bytes for each frame of the other direction must not take the place of one.
        outstanding_frames_max=frames,
        outstanding_bytes_max=link.window_frames * (link.frame.bytes + OVERHEAD_BYTES + ANSWER_BYTES),
        replay_timer_ns=link.replay_timer.ns,
        replay_count_max=retry.replays,
        pcs_lost_timeout_ns=round(retry.pcs_lost_windows * window_ns),
        ack_spacing_ns=spacing_ns(ACK_SPACING_BYTES, link.gpu_rate.bps),
    )


def _first(plan: LabPlan) -> DomainPlan:
    if not plan.scale_up_domains:
        raise NoPackets(f"the scale-up domains of {plan.lab} have no packets", hint="fabric: {scale_up: {by: packets}}")
    return plan.scale_up_domains[0]


def _widest(domain: DomainPlan) -> LinkSettings:
    """The link to the fastest plane. Others have the same buffers and windows, and rates of their own."""
    return link_settings(max(domain.links, key=lambda link: link.gpu_rate.bps))


def _peer_window(plan: ScaleUpPlan, link: LinkSettings) -> int:
    """The frames that a GPU may have on its way to one other, where each output of a switch has its own queues; at most
    half of what a buffer holds until the link is stopped, so that there is room for other outputs."""
    held = (link.xoff or link.capacity)[0] // link.credits(link.frame_bytes)
    return max(1, min(peer_window(plan.real, plan.frame), held // 2))


def _rates(domain: DomainPlan) -> tuple[int, ...]:
    return tuple(link.gpu_rate.bps for link in domain.links)


def switch_description(plan: LabPlan, domain: DomainPlan) -> SwitchDescription:
    """Describe a domain for its switch."""
    return SwitchDescription(
        gpus=domain.ends,
        planes=domain.planes,
        voq=domain.links[0].real.voq,
        link=_widest(domain),
        plane_rates_bps=_rates(domain),
        ports=[
            SwitchPort(interface=wire.switch_interface, mac=_bytes(wire.switch_mac), peer=_bytes(wire.mac))
            for wire in domain.wires
        ],
    )


def gpu_settings(plan: LabPlan, host: str, local_gpu: int, run: Path | None = None) -> Gpu:
    """Return the settings of the endpoint of a GPU of a host (from 1), or of a memory device that has such a number
    there. It is opened in the namespace of the host.

    `run` is the lab's run directory, by which the domain's switch learns at once when the endpoint's process dies.

    Raises `NoPackets` where there is no such GPU, or no packets.
    """
    _first(plan)
    for domain in plan.scale_up_domains:
        if wires := domain.wires_of(host, local_gpu):
            first, link = domain.links[0], _widest(domain)
            pool = domain.pool if wires[0].memory else None
            return Gpu(
                gpu=wires[0].gpu,
                gpus=domain.ends,
                interfaces=[wire.interface for wire in wires],
                addresses=[(_bytes(wire.mac), _bytes(wire.switch_mac)) for wire in wires],
                link=link,
                plane_rates_bps=_rates(domain),
                peer_window=_peer_window(first, link) if first.real.voq else 0,
                response_vc=min(1, first.real.vcs - 1),
                timeout_s=max(LEAST_TIMEOUT_S, TIMEOUT_ROUND_TRIPS * first.rtt.seconds),
                spray=Spray[first.real.spray.name],
                memory_bps=0 if pool is None else pool.rate.bps,
                memory_ns=0 if pool is None else pool.latency.ns,
                switch="" if run is None else str(domain_switch(run, domain.name).run_directory),
            )
    raise NoPackets(f"{host} has no GPU {local_gpu} in a scale-up domain of {plan.lab}")


def _bytes(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainState:
    """The state of the switch of a scale-up domain. `counted` is what it says of itself; empty where it does not
    run."""

    name: str
    node: str
    gpus: int
    planes: int
    counted: Mapping[str, Any]

    @property
    def is_running(self) -> bool:
        return bool(self.counted)

    @property
    def busy_share(self) -> float:
        """The share of a core that it has used since it started."""
        return float(self.counted["cpu_ns"] / max(1, self.counted["up_ns"]))


def domain_states(lab: RunningLab) -> list[DomainState]:
    """Return the state of the switches of a lab's domains. Raises `SwitchError` for one that runs and does not
    answer."""
    run = lab.state.run_directory(lab.name)
    found = []
    for domain in lab.plan.scale_up_domains:
        try:
            counted = domain_switch(run, domain.name).status()
        except SwitchMissing:
            counted = {}
        found.append(
            DomainState(name=domain.name, node=domain.node, gpus=domain.gpus, planes=domain.planes, counted=counted)
        )
    return found


def set_gpu_wires(lab: RunningLab, host: str, *, up: bool) -> None:
    """Bring the interfaces of a host's GPUs up or down, as its power does."""
    all_wires = (wire for domain in lab.plan.scale_up_domains for wire in domain.wires)
    wires = [wire for wire in all_wires if wire.host == host and not wire.memory]
    if not wires:
        return

    def change() -> None:
        with closing(RouteSocket()) as socket:
            word = "up" if up else "down"
            whats = [f"link {word} {host}:{wire.interface}" for wire in wires]
            socket.expect([set_link_state(wire.ifindex, up) for wire in wires], whats)

    in_namespace(lab.namespace(host), change)


def start_domain_switches(plan: LabPlan, run: Path, only: Collection[str] = ()) -> None:
    """Start the switches of all domains, or of `only` those, where they do not run, and return when they switch.

    Raises `SwitchError` and `CapabilityError`. Interfaces must be up.
    """
    dead = dead_domains(plan, run)
    wanted = [domain for domain in plan.scale_up_domains if domain.name in dead and (not only or domain.name in only)]
    if not wanted:
        return

    def start(domain: DomainPlan) -> None:
        switch = domain_switch(run, domain.name)
        switch.start(namespace_name(plan.lab, domain.node), switch_description(plan, domain))

    with ThreadPoolExecutor(STARTED_AT_ONCE, thread_name_prefix="scale-up") as pool:
        list(pool.map(start, wanted))
