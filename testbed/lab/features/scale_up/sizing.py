"""Sizing of scale-up domains: who is in one, what its links hold, and what of a file cannot work.

Everything is per direction and in the units of the real system. A transaction crosses two links each way, to the
switch and from it, so that a link's own round trip is taken as half of the domain's, with half of the switch in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil

from testbed.base.errors import FabricError
from testbed.base.units import ByteCount, Duration, Rate
from testbed.lab.core.model import (
    BACKEND,
    TRANSACTION,
    DomainSpan,
    Lab,
    LinkKind,
    NodeKind,
    ScaleUp,
    ScaleUpBy,
    ScaleUpFlowControl,
)

CREDIT_SPACING = ByteCount(6_400)
"""The bytes that a link sends from one return of credits (CF_Update) to the next: the default of SAI-CBFC."""

MOST_CREDITS = 2**20 - 1
"""The largest limit: the counters of credits have 20 bits (Ultra Ethernet 1.0 section 5.2)."""
PACKET_GPUS = 1_024
"""GPUs of a domain by packets: UALink's identifiers have 10 bits (UALink 200G 1.0 section 1)."""
POOL_ENDS = 1_023
"""GPUs and memory devices of a domain together: an identifier less, which is the switch's (transactions.h)."""
PACKET_VCS = 8
"""Virtual channels of a link by packets, as many as PFC has priorities."""
LINE = ByteCount(64)
"""The smallest load that memory is asked for."""
MOST_ANSWERS = 8_192
"""The loads that a memory device works on at once, at most: `MOST_RESPONSES` of an endpoint, less its own 16."""
LOADS_OF_GPU = 2_048
"""Loads and stores that a GPU has asked for at once, at most: `TAGS` of an endpoint."""
PACKET_CREDITS = 2**15 - 1
"""Credits of a channel by packets: a CF_Update has 15 bits for what is freed (Ultra Ethernet 1.0 table 5-28)."""
LARGEST_WINDOW = 2**19
"""Frames without an acknowledgement: half of the 20-bit sequence numbers (Ultra Ethernet 1.0 section 5.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpDomain:
    """GPUs that one scale-up domain joins. `hosts` are in the order of the lab."""

    name: str
    hosts: tuple[str, ...]
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpSizing:
    """The scale-up domains of a lab in numbers. `nic_rates` are what GPUs have of their hosts' NICs, ascending."""

    domains: tuple[ScaleUpDomain, ...]
    nic_rates: tuple[Rate, ...]
    ratios: tuple[float, ...]
    """The scale-up rate of a GPU over that of its NIC, each per direction, for each of `nic_rates`."""
    gpu_bdp_bytes: int
    """The bytes of one GPU that are under way within the round trip of the domain."""
    link_bdp_bytes: int
    """The bytes of one link that are under way within it."""
    link_round_trip: Duration
    window_frames: int | None
    """Frames of one transaction that a link sends without an acknowledgement; None without retry."""
    credit_loop: Duration
    """The time from the sending of a frame of one transaction until its credits can be used again."""
    credits: int | None
    """Credits of a link's virtual channel; None where credits are not what controls the flow."""

    @property
    def gpus(self) -> int:
        return sum(domain.gpus for domain in self.domains)

    @property
    def largest(self) -> ScaleUpDomain:
        """The first of the domains that have the most GPUs."""
        return max(self.domains, key=lambda domain: domain.gpus)


def find_domains(lab: Lab) -> tuple[ScaleUpDomain, ...]:
    """The scale-up domains of a lab that have GPUs, in the order of their first hosts.

    A host has the GPUs of its NICs in the back end; one that has no rails has a GPU for every link there.
    """
    gpus = gpus_of_hosts(lab)
    members: dict[str, list[str]] = {}
    for host, domain in lab.host_domains.items():
        if gpus[host]:
            members.setdefault(domain, []).append(host)
    return tuple(
        ScaleUpDomain(name=name, hosts=tuple(hosts), gpus=sum(gpus[host] for host in hosts))
        for name, hosts in members.items()
    )


def measure_scale_up(lab: Lab) -> ScaleUpSizing:
    """The sizing of a lab's scale-up domains, whether or not its file states any."""
    scale_up = lab.scale_up
    rates = _nic_rates(lab)
    return ScaleUpSizing(
        domains=find_domains(lab),
        nic_rates=rates,
        ratios=tuple(scale_up.rate.bps / rate.bps for rate in rates),
        gpu_bdp_bytes=bdp_bytes(scale_up.rate, scale_up.rtt),
        link_bdp_bytes=bdp_bytes(scale_up.link_rate, scale_up.rtt),
        link_round_trip=link_round_trip(scale_up),
        window_frames=replay_window(scale_up, TRANSACTION),
        credit_loop=credit_loop(scale_up, TRANSACTION),
        credits=credit_limit(scale_up, scale_up.credits.unit, TRANSACTION),
    )


def bdp_bytes(rate: Rate, round_trip: Duration) -> int:
    """The bytes that `rate` sends within a round trip."""
    return round(rate.bps * round_trip.seconds / 8)


def link_round_trip(scale_up: ScaleUp) -> Duration:
    """The round trip of one link, GPU to switch and back."""
    return Duration(scale_up.rtt.ns // 2)


def fold_plane(scale_up: ScaleUp, plane: int) -> ScaleUp:
    """A GPU's links to one plane (from 1) as one link of their rates together, with their credits and windows.

    A lab has a wire for each GPU and plane, however many links a file says there are.
    """
    share, credits, retry = scale_up.shares[plane - 1], scale_up.credits, scale_up.retry
    if credits.limit is not None:
        credits = replace(credits, limit=share * credits.limit)
    if retry is not None and retry.window is not None:
        retry = replace(retry, window=share * retry.window)

    def of_all(size: ByteCount | None) -> ByteCount | None:
        return None if size is None else ByteCount(share * size.bytes)

    return replace(
        scale_up,
        rate=scale_up.plane_rate(plane),
        shares=(1,),
        credits=credits,
        retry=retry,
        buffer=of_all(scale_up.buffer),
        xoff=of_all(scale_up.xoff),
        xon=of_all(scale_up.xon),
    )


def needed_window(scale_up: ScaleUp, frame: ByteCount) -> int:
    """The frames that fill a link for its round trip: 1 + B x RTT / (8 L)."""
    return 1 + ceil(scale_up.link_rate.bps * link_round_trip(scale_up).seconds / 8 / frame.bytes)


def replay_window(scale_up: ScaleUp, frame: ByteCount) -> int | None:
    """The window of link-level retry in frames of `frame` bytes; None without retry. A file's window counts frames of
    one transaction, so that of larger frames there are fewer, and at least one."""
    retry = scale_up.retry
    if retry is None:
        return None
    if retry.window is not None:
        return max(1, ceil(retry.window * TRANSACTION.bytes / frame.bytes))
    return max(1, round(retry.round_trips * needed_window(scale_up, frame)))


def credit_loop(scale_up: ScaleUp, frame: ByteCount) -> Duration:
    """The time until credits return: the link's round trip, the spacing of updates, and the service of one frame."""
    held = (CREDIT_SPACING.bytes + frame.bytes) * 8 / scale_up.link_rate.bps
    return Duration(link_round_trip(scale_up).ns + ceil(held * 1e9))


def credit_limit(scale_up: ScaleUp, unit: ByteCount, frame: ByteCount) -> int | None:
    """The credits of `unit` bytes that a virtual channel of a link may have in use; None without credits.

    A file's limit counts credits of the file's unit, so that of larger ones there are fewer.
    """
    if scale_up.flow_control is not ScaleUpFlowControl.CREDITS:
        return None
    credits = scale_up.credits
    if credits.limit is not None:
        return credits.limit * credits.unit.bytes // unit.bytes
    frames = _loop_bytes(scale_up, frame) / frame.bytes
    return ceil(credits.loops * frames * frame_credits(frame, unit))


def lab_unit(scale_up: ScaleUp) -> ByteCount:
    """The bytes of a credit where domains go by packets, of which each stands for `coarse` transactions.

    So does a credit, but for a domain with pooled memory: loads of a line are no fewer in a lab than in the fabric,
    and each would take the credits of `coarse` lines.
    """
    return ByteCount((1 if scale_up.devices else scale_up.coarse) * scale_up.credits.unit.bytes)


def retry_frames(scale_up: ScaleUp, frame: ByteCount) -> int | None:
    """The frames of any size that a link keeps for a replay, with an answer for each of the other direction, beside the
    limit of bytes that `replay_window` gives; None without retry. A domain with pooled memory has as many as the
    fabric."""
    window = replay_window(scale_up, TRANSACTION if scale_up.devices else frame)
    return None if window is None else 2 * window + 1


def device_answers(scale_up: ScaleUp, gpus: int) -> int:
    """The loads of a line that a memory device works on at once in a domain of so many GPUs, so that its rate is
    reached in spite of its latency: no more than GPUs may have asked for. 0 without any device."""
    pool = scale_up.pool
    if pool is None:
        return 0
    return min(ceil(pool.rate.bps * pool.latency.seconds / 8 / LINE.bytes), gpus * LOADS_OF_GPU)


def frame_credits(frame: ByteCount, unit: ByteCount) -> int:
    """The credits of `unit` bytes that a frame takes: at least one, however large they are."""
    return ceil(frame.bytes / unit.bytes)


def peer_window(scale_up: ScaleUp, frame: ByteCount) -> int:
    """The frames that one GPU has on its way to another over a link, where the switch has a queue for each output.

    They are those of the domain's round trip, and one each at the sender, the switch and the receiver. So none sends
    more to a busy receiver than keeps its own link busy, and the rest of a buffer is for other outputs.
    """
    return bdp_bytes(scale_up.link_rate, scale_up.rtt) // frame.bytes + 4


def _loop_bytes(scale_up: ScaleUp, frame: ByteCount) -> float:
    """The bytes that a busy link needs of a buffer: a credit loop's, beside those that wait for one output of a switch
    with queues for each."""
    waiting = peer_window(scale_up, frame) * frame.bytes if scale_up.voq else 0
    return waiting + scale_up.link_rate.bps * credit_loop(scale_up, frame).seconds / 8


def buffer_credits(scale_up: ScaleUp, unit: ByteCount, frame: ByteCount) -> int:
    """The buffer of a virtual channel at the receiving end of a link, in credits, whatever controls the flow.

    It is the file's, or what credits need for a busy link. PFC has as much again and two frames: half of it lets the
    link be busy, the other half is for what arrives until a pause is in force (IEEE 802.1Q Annex N).
    """
    if (credits := credit_limit(scale_up, unit, frame)) is not None:
        return credits
    if scale_up.buffer is not None:
        return held_credits(scale_up.buffer, unit, frame)
    loop = ceil(_loop_bytes(scale_up, frame))
    pauses = scale_up.flow_control is ScaleUpFlowControl.PFC
    return held_credits(ByteCount(2 * (loop + frame.bytes) if pauses else loop), unit, frame)


def held_credits(buffer: ByteCount, unit: ByteCount, frame: ByteCount) -> int:
    """The credits that a buffer full of such frames takes."""
    return buffer.bytes * frame_credits(frame, unit) // frame.bytes


def check_scale_up(lab: Lab) -> tuple[FabricError, ...]:
    """All that cannot work of what a file states of scale-up; nothing where it states nothing."""
    if not lab.scale_up.stated:
        return ()
    packets = _unfit_packets(lab) if lab.scale_up.by is ScaleUpBy.PACKETS else ()
    return (*_too_large(lab), *_unfit_credits(lab.scale_up), *_unfit_window(lab.scale_up), *packets)


def _too_large(lab: Lab) -> Iterator[FabricError]:
    """A domain that has more GPUs than fit on its switches, or none that spans what it should."""
    scale_up = lab.scale_up
    if scale_up.domain is DomainSpan.SEGMENT and not any(host.place and host.place.segment for host in lab.hosts):
        yield FabricError(
            "no host is in a segment, so that no scale-up domain can be one",
            field="scale_up.domain",
            code="scale-up-domain",
            hint="domain: host joins the GPUs of each host; a design makes segments",
        )
        return
    domains = find_domains(lab)
    if not domains or scale_up.switch_ports is None:
        return
    largest = max(domains, key=lambda domain: domain.gpus)
    most = max(scale_up.shares)
    devices = scale_up.devices
    if (ports := (largest.gpus + devices) * most) > scale_up.switch_ports:
        links = "a link" if most == 1 else f"{most} links"
        fitting = max(0, scale_up.switch_ports // most - devices)
        members = f"{largest.gpus} GPUs" if not devices else f"{largest.gpus} GPUs and {devices} memory devices"
        yield FabricError(
            f"the scale-up domain {largest.name} has {members} with {links} each to one plane, which needs"
            f" {ports} ports; a switch has {scale_up.switch_ports}",
            field="scale_up.domain",
            code="scale-up-domain",
            hint=f"at most {fitting} GPUs a domain, or switch_ports: {ports} where a plane stands for several switches",
        )


def _unfit_credits(scale_up: ScaleUp) -> Iterator[FabricError]:
    """Credits that never suffice for one frame, or that cannot be counted."""
    frame = ByteCount(scale_up.coarse * TRANSACTION.bytes)
    limit = credit_limit(scale_up, scale_up.credits.unit, frame)
    if limit is None:
        return
    unit = scale_up.credits.unit
    if limit > MOST_CREDITS:
        yield FabricError(
            f"a credit loop of {credit_loop(scale_up, frame)} at {scale_up.link_rate} needs {limit:,} credits of"
            f" {unit}, and counters of 20 bits have {MOST_CREDITS:,}",
            field="scale_up.rtt",
            code="scale-up-credits",
            hint="a shorter rtt, a larger unit, or a limit",
        )
    elif limit * unit.bytes < frame.bytes:
        yield FabricError(
            f"{limit} credits of {unit} hold {ByteCount(limit * unit.bytes)}, and a frame has {frame}"
            f" ({scale_up.coarse} x {TRANSACTION}): it could never be sent",
            field="scale_up.credits.limit",
            code="scale-up-credits",
            hint=f"limit: {ceil(frame.bytes / unit.bytes)} at least, limit: auto, or a smaller coarse",
        )


def _unfit_packets(lab: Lab) -> Iterator[FabricError]:
    """Yield the faults of a domain that may be, but not with a switch that is a process of this machine."""
    scale_up, domains = lab.scale_up, find_domains(lab)
    if not domains:
        yield FabricError(
            "no host has a GPU, so that no scale-up domain can have packets",
            field="scale_up.by",
            code="scale-up-packets",
            hint="GPUs come with NICs of the back end",
        )
    elif (gpus := max(domain.gpus for domain in domains)) > PACKET_GPUS:
        yield FabricError(
            f"a domain of {gpus} GPUs is larger than addresses of 10 bits tell apart",
            field="scale_up.domain",
            code="scale-up-packets",
            hint=f"by: time, or at most {PACKET_GPUS} GPUs a domain",
        )
    elif scale_up.devices and gpus + scale_up.devices > POOL_ENDS:
        yield FabricError(
            f"{gpus} GPUs and {scale_up.devices} memory devices are more ends than a domain with a pool has",
            field="scale_up.pool.devices",
            code="scale-up-packets",
            hint=f"{POOL_ENDS} ends at most",
        )
    if scale_up.vcs > PACKET_VCS:
        yield FabricError(
            f"links by packets have at most {PACKET_VCS} virtual channels, not {scale_up.vcs}",
            field="scale_up.vcs",
            code="scale-up-packets",
            hint=f"vcs: {PACKET_VCS}, or by: time",
        )
    frame = ByteCount(scale_up.coarse * TRANSACTION.bytes)
    unit = lab_unit(scale_up)
    widest = fold_plane(scale_up, scale_up.shares.index(max(scale_up.shares)) + 1)
    credits = buffer_credits(widest, unit, frame)
    if credits > PACKET_CREDITS:
        yield FabricError(
            f"a channel of a GPU's links to one plane has {credits:,} credits, and a CF_Update tells"
            f" {PACKET_CREDITS:,} apart",
            field="scale_up.rtt",
            code="scale-up-packets",
            hint="a shorter rtt, a larger unit, or a smaller limit or buffer",
        )
    if domains and scale_up.pool is not None and (answers := device_answers(scale_up, gpus)) > MOST_ANSWERS:
        yield FabricError(
            f"a memory device of {scale_up.pool.rate} that answers after {scale_up.pool.latency} works on"
            f" {answers:,} loads of {LINE} of {gpus} GPUs at once, and has room for {MOST_ANSWERS:,}",
            field="scale_up.pool.latency",
            code="scale-up-packets",
            hint="a shorter latency, more devices of a lower rate, or fewer GPUs to a domain",
        )
    if credits < frame_credits(frame, unit) and widest.buffer is not None:
        yield FabricError(
            f"a buffer of {widest.buffer} never holds a frame of {frame} ({scale_up.coarse} x {TRANSACTION})",
            field="scale_up.buffer",
            code="scale-up-packets",
            hint=f"buffer: {frame.bytes}B at least, or a smaller coarse",
        )


def _unfit_window(scale_up: ScaleUp) -> Iterator[FabricError]:
    """A window that leaves the link idle while acknowledgements are on their way, or that cannot be numbered."""
    retry = scale_up.retry
    if retry is None:
        return
    need = needed_window(scale_up, TRANSACTION)
    if need > LARGEST_WINDOW:
        yield FabricError(
            f"a link of {scale_up.link_rate} with a round trip of {link_round_trip(scale_up)} holds {need:,} frames of"
            f" {TRANSACTION}, and sequence numbers of 20 bits tell {LARGEST_WINDOW:,} apart",
            field="scale_up.rtt",
            code="scale-up-window",
            hint="a shorter rtt, or llr: off",
        )
    elif retry.window is not None and retry.window < need:
        yield FabricError(
            f"a window of {retry.window} frames of {TRANSACTION} is too small for a link of {scale_up.link_rate} with a"
            f" round trip of {link_round_trip(scale_up)}, which holds {need}: at most"
            f" {retry.window / need:.0%} of the rate",
            field="scale_up.llr.window",
            code="scale-up-window",
            hint=f"window: {need}, or auto; window: {retry.window / need:.0%} says that it is to be so small",
        )


def gpus_of_hosts(lab: Lab) -> Counter[str]:
    """Return the number of GPUs of each host: one for each rail's NIC, times the GPUs of a NIC, or one for each
    link."""
    links = _gpu_links(lab)
    railed = {(host, rail) for host, rail, _ in links if rail}
    if railed:
        nics = Counter(host for host, _ in railed)
        return Counter({host: number * lab.gpus_per_nic for host, number in nics.items()})
    return Counter(host for host, _, _ in links)


def domain_ends(domain: ScaleUpDomain, gpus: Mapping[str, int], devices: int) -> list[tuple[str, int, int, str]]:
    """Return the ends of a domain in the order of their numbers: host, number there, that of the memory device (0 for a
    GPU), and name. Memory devices are with the first host, behind its GPUs."""
    first = domain.hosts[0]
    found = [(host, local, 0, f"gpu{local}") for host in domain.hosts for local in range(1, gpus[host] + 1)]
    return found + [(first, gpus[first] + number, number, f"mem{number}") for number in range(1, devices + 1)]


def _nic_rates(lab: Lab) -> tuple[Rate, ...]:
    """The share that a GPU has of its host's NICs, each way: every different rate, ascending."""
    gpus = gpus_of_hosts(lab)
    rates: Counter[str] = Counter()
    for host, rail, bps in _gpu_links(lab):
        if rail or not lab.rail_subnets:
            rates[host] += bps
    return tuple(Rate(bps) for bps in sorted({rates[host] // gpus[host] for host in gpus if rates[host]}))


def _gpu_links(lab: Lab) -> list[tuple[str, int, int]]:
    """The ends at hosts of links of the back end: host, rail (0: none), rate in bit/s."""
    hosts = {node.name for node in lab.nodes if node.kind is NodeKind.HOST}
    return [
        (end.node, link.rail, link.rate.bps)
        for link in lab.links
        if link.network == BACKEND and link.kind is not LinkKind.MANAGEMENT
        for end in (link.a, link.b)
        if end.node in hosts
    ]
