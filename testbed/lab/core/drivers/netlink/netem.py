"""The wire as rtnetlink messages: netem on an ifb device for delay, and the rates of a port's HTB classes.

Netem stands neither at the sender's port, whose queue it would become, nor in a node's path otherwise: arrivals of
a port go through an ifb of their own and come back where they were, with mark and hash untouched. The port's eBPF
program sends them there, or u32 with mirred where there is none. Formats: linux/pkt_sched.h, linux/pkt_cls.h,
linux/tc_act/tc_mirred.h.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from testbed.base.linux import traffic_control as traffic
from testbed.base.linux.rtnetlink import (
    IFLA_MTU,
    IFLA_NUM_RX_QUEUES,
    IFLA_NUM_TX_QUEUES,
    NLM_F_CREATE,
    NLM_F_EXCL,
    RTM_GETTCLASS,
    RTM_NEWTCLASS,
    RTM_NEWTFILTER,
    TC_H_ROOT,
    TCA_KIND,
    TCA_OPTIONS,
    TCMSG,
    RouteSocket,
    attribute,
    delete_link,
    fields,
    message,
    new_link,
    set_link_state,
    text,
    u32,
)
from testbed.lab.core.plan.operations import DelayPort

TCA_NETEM_RATE, TCA_NETEM_LATENCY64, TCA_NETEM_JITTER64 = 6, 10, 11
TCA_U32_SEL, TCA_U32_ACT = 5, 7
TCA_ACT_KIND, TCA_ACT_OPTIONS = 1, 2
TCA_MIRRED_PARMS = 2
TC_ACT_STOLEN = 4
TCA_EGRESS_REDIR = 1

_NETEM = struct.Struct("=IIIIII")
"""struct tc_netem_qopt: latency (ticks), limit (packets), loss, gap, duplicate, jitter (ticks)."""
_NETEM_RATE = struct.Struct("=IiIi")
"""struct tc_netem_rate: byte/s, packet overhead, cell size, cell overhead."""
_S64 = struct.Struct("=q")
_U32_SELECTOR = struct.Struct("=BBBxHHhhI")
_U32_KEY = struct.Struct("=IIii")
_MIRRED = struct.Struct("=IIiiiiI")
_HTB = struct.Struct("=BBHhHIBBHhHIIIIII")
"""struct tc_htb_opt: two tc_ratespec (the last field is byte/s), buffer, cbuffer (ticks), quantum, level, prio."""

_FILTER_PRIORITY = 1
_ETH_P_ALL = 0x0300  # network byte order
_UNLIMITED_RATE = 0xFFFFFFFF


def _ticks(nanoseconds: int) -> int:
    return min(nanoseconds >> traffic.NSEC_PER_TICK_SHIFT, 0xFFFFFFFF)


def netem_options(delay_ns: int, jitter_ns: int, limit_packets: int, *, change: bool = False) -> bytes:
    """The options of netem. The 64-bit times count where the kernel knows them (Linux 4.16).

    With jitter goes a rate far above any port's: netem keeps packets in order only where it has a rate
    (net/sched/sch_netem.c, netem_enqueue), and a wire does not reorder. A `change` says that there is none, too: one
    that was there before would stay.
    """
    options = _NETEM.pack(_ticks(delay_ns), limit_packets, 0, 0, 0, _ticks(jitter_ns))
    options += attribute(TCA_NETEM_LATENCY64, _S64.pack(delay_ns))
    options += attribute(TCA_NETEM_JITTER64, _S64.pack(jitter_ns))
    if jitter_ns or change:
        options += attribute(TCA_NETEM_RATE, _NETEM_RATE.pack(_UNLIMITED_RATE if jitter_ns else 0, 0, 0, 0))
    return options


def set_netem(ifindex: int, delay_ns: int, jitter_ns: int, limit_packets: int, *, change: bool = False) -> bytes:
    """`tc qdisc add|change dev X root handle 1: netem delay D J limit N`."""
    options = netem_options(delay_ns, jitter_ns, limit_packets, change=change)
    return traffic.new_qdisc(ifindex, 0x00010000, TC_H_ROOT, "netem", options, change=change)


def new_ifb(name: str, ifindex: int, mtu_bytes: int) -> bytes:
    """An intermediate functional block device with one queue each way."""
    more = u32(IFLA_MTU, mtu_bytes) + u32(IFLA_NUM_TX_QUEUES, 1) + u32(IFLA_NUM_RX_QUEUES, 1)
    return new_link(ifindex, name, "ifb", more)


_FIRST_U32_HANDLE = 0x80000800
"""800::800, which the kernel gives the first u32 filter: a second one is refused, and not put beside it."""


def redirect_arrivals(ifindex: int, through: int) -> bytes:
    """`tc filter add dev X ingress pref 1 u32 match u32 0 0 action mirred egress redirect dev THROUGH`."""
    selector = _U32_SELECTOR.pack(1, 0, 1, 0, 0, 0, 0, 0) + _U32_KEY.pack(0, 0, 0, 0)  # TC_U32_TERMINAL, one key
    parameters = _MIRRED.pack(0, 0, TC_ACT_STOLEN, 0, 0, TCA_EGRESS_REDIR, through)
    action = text(TCA_ACT_KIND, "mirred") + attribute(TCA_ACT_OPTIONS, attribute(TCA_MIRRED_PARMS, parameters))
    options = attribute(TCA_U32_SEL, selector) + attribute(TCA_U32_ACT, attribute(1, action))
    body = TCMSG.pack(0, ifindex, _FIRST_U32_HANDLE, traffic.CLSACT_INGRESS, _FILTER_PRIORITY << 16 | _ETH_P_ALL)
    body += text(TCA_KIND, "u32") + attribute(TCA_OPTIONS, options)
    return message(RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL, body)


def delay_port(operation: DelayPort) -> tuple[bytes, ...]:
    """The wire of a port, in order: the ifb with netem, and the filter where no eBPF program does its work."""
    batch = [
        new_ifb(operation.ifb_name, operation.ifb_ifindex, operation.mtu_bytes),
        set_netem(operation.ifb_ifindex, operation.delay_ns, operation.jitter_ns, operation.limit_packets),
        set_link_state(operation.ifb_ifindex, True),
    ]
    if operation.clsact:
        batch.append(traffic.new_clsact(operation.ifindex))
        batch.append(redirect_arrivals(operation.ifindex, operation.ifb_ifindex))
    return tuple(batch)


def undelay_port(operation: DelayPort) -> tuple[bytes, ...]:
    """Take `delay_port` back. What is on the wire at that moment is lost."""
    batch = [delete_link(operation.ifb_ifindex)]
    if operation.clsact:
        batch.insert(0, traffic.delete_clsact(operation.ifindex))
    return tuple(batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class HtbClass:
    """An HTB class as the kernel keeps it. Rates in byte/s; buffers in psched ticks (64 ns) at those rates."""

    handle: int
    parent: int
    rate: int
    ceil: int
    buffer: int
    cbuffer: int
    quantum: int
    rank: int

    def scaled(self, factor: float) -> HtbClass:
        """The class with rate and ceiling multiplied, and as far ahead of them in time as before."""
        return replace(self, rate=max(1, round(self.rate * factor)), ceil=max(1, round(self.ceil * factor)))


def read_classes(route: RouteSocket, ifindex: int) -> list[HtbClass]:
    """The HTB classes of an interface, the line class 1:1 first; none where it is not shaped."""
    found = []
    for body in route.dump(RTM_GETTCLASS, TCMSG.pack(0, ifindex, 0, 0, 0)):
        item = parse_class(bytes(body))
        if item is not None:
            found.append(item)
    return sorted(found, key=lambda item: item.handle)


def parse_class(body: bytes) -> HtbClass | None:
    """The class in the body of an RTM_NEWTCLASS message; None for one that is not HTB's."""
    _, _, handle, parent, _ = TCMSG.unpack_from(body)
    found = fields(body, TCMSG.size)
    if found.get(TCA_KIND) != b"htb\0":
        return None
    inner = fields(found[TCA_OPTIONS])
    values = _HTB.unpack_from(inner[traffic.TCA_HTB_PARMS])
    rate64, ceil64 = inner.get(traffic.TCA_HTB_RATE64), inner.get(traffic.TCA_HTB_CEIL64)
    return HtbClass(
        handle=handle,
        parent=parent,
        rate=int.from_bytes(rate64, "little") if rate64 else values[5],
        ceil=int.from_bytes(ceil64, "little") if ceil64 else values[11],
        buffer=values[12],
        cbuffer=values[13],
        quantum=values[14],
        rank=values[16],
    )


def change_class(ifindex: int, item: HtbClass) -> bytes:
    """`tc class change` to exactly these values."""
    parameters = _HTB.pack(
        *(0, 1, 0, -1, 0, min(item.rate, 0xFFFFFFFF)),
        *(0, 1, 0, -1, 0, min(item.ceil, 0xFFFFFFFF)),
        *(item.buffer, item.cbuffer, item.quantum, 0, item.rank),
    )
    inner = b""
    if item.rate > 0xFFFFFFFF:
        inner += attribute(traffic.TCA_HTB_RATE64, struct.pack("=Q", item.rate))
    if item.ceil > 0xFFFFFFFF:
        inner += attribute(traffic.TCA_HTB_CEIL64, struct.pack("=Q", item.ceil))
    inner += attribute(traffic.TCA_HTB_PARMS, parameters)
    body = TCMSG.pack(0, ifindex, item.handle, item.parent, 0) + text(TCA_KIND, "htb") + attribute(TCA_OPTIONS, inner)
    return message(RTM_NEWTCLASS, 0, body)


def change_rate(ifindex: int, originals: Sequence[HtbClass], rate_bps: int, declared_bps: int) -> list[bytes]:
    """Bring a port whose classes at `declared_bps` are `originals` to `rate_bps`. Equal rates restore it exactly."""
    if rate_bps == declared_bps:
        return [change_class(ifindex, item) for item in originals]
    factor = rate_bps / declared_bps
    return [change_class(ifindex, item.scaled(factor)) for item in originals]
