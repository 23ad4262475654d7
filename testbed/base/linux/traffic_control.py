"""Traffic control messages as bytes: HTB with its classes, the TBF gates that PFC closes, and eBPF filters.

Formats: linux/pkt_sched.h, linux/pkt_cls.h. Handles of the port set, from the outside in:
HTB 1:, line class 1:1, class 1:(10+p) of priority p, gate (10+p): in it, a qdisc that marks (20+p): innermost.
"""

from __future__ import annotations

import functools
import struct

from testbed.base.datapath.abi import LINE_CLASS, class_handle, gate_handle
from testbed.base.linux.rtnetlink import (
    NLM_F_ACK,
    NLM_F_CREATE,
    NLM_F_EXCL,
    RTM_DELQDISC,
    RTM_NEWQDISC,
    RTM_NEWTCLASS,
    RTM_NEWTFILTER,
    TC_H_ROOT,
    TCA_KIND,
    TCA_OPTIONS,
    TCMSG,
    attribute,
    fields,
    message,
    text,
    u32,
)

TCA_HTB_PARMS, TCA_HTB_INIT, TCA_HTB_RATE64, TCA_HTB_CEIL64 = 1, 2, 6, 7
TCA_TBF_PARMS, TCA_TBF_RATE64, TCA_TBF_BURST = 1, 4, 6
TCA_BPF_CLASSID, TCA_BPF_FD, TCA_BPF_NAME, TCA_BPF_FLAGS = 3, 6, 7, 8
TCA_BPF_FLAG_ACT_DIRECT = 1

HTB_ROOT_HANDLE = 0x00010000
TC_H_CLSACT, _CLSACT_HANDLE = 0xFFFFFFF1, 0xFFFF0000
CLSACT_INGRESS = 0xFFFFFFF2
CLSACT_EGRESS = 0xFFFFFFF3
_RTM_DELTCLASS, _RTM_DELTFILTER = 41, 45
_ETH_P_ALL = 0x0300  # network byte order
_FIRST_PRIORITY = 1

NSEC_PER_TICK_SHIFT = 6
"""psched ticks are 64 ns (include/net/pkt_sched.h, PSCHED_SHIFT)."""
ETHERNET_HEADER_BYTES = 14

OWN_BYTES_PER_S = 1
"""The own rate of a traffic class: HTB needs one, and sends of it without asking the line for tokens. At this one,
without a burst, that is a frame a minute, for so far back HTB keeps debts (net/sched/sch_htb.c, mbuffer)."""
OPEN_GATE_BYTES_PER_S = 12_500_000_000
OPEN_GATE_BURST_BYTES = 1 << 20
CLOSED_GATE_WINDOW_S = 4.0
"""TBF keeps a burst as time in 32 bits of ns: 4.29 s at most. A closed gate leaks one full frame in that time."""
GATE_LIMIT_BYTES = 1 << 30
"""More than eBPF ever admits, so that the gate's own queue drops nothing."""

_U64 = struct.Struct("=Q")
_RATESPEC = struct.Struct("=BBHhHI")


def new_qdisc(
    ifindex: int, handle: int, parent: int, kind: str, options: bytes | None = None, *, change: bool = False
) -> bytes:
    """`tc qdisc add|change dev X parent PARENT handle HANDLE KIND`; `options` are its attributes, None for no word."""
    body = TCMSG.pack(0, ifindex, handle, parent, 0) + text(TCA_KIND, kind)
    if options is not None:
        body += attribute(TCA_OPTIONS, options)
    return message(RTM_NEWQDISC, 0 if change else NLM_F_CREATE | NLM_F_EXCL, body)


def new_htb_qdisc(ifindex: int, *, default: int = 1) -> bytes:
    """`tc qdisc add dev X root handle 1: htb default N`."""
    init = struct.pack("=IIIII", 3, 10, default, 0, 0)  # version, rate2quantum, defcls, debug, direct_pkts
    return new_qdisc(ifindex, HTB_ROOT_HANDLE, TC_H_ROOT, "htb", attribute(TCA_HTB_INIT, init))


def delete_root_qdisc(ifindex: int) -> bytes:
    return message(RTM_DELQDISC, 0, TCMSG.pack(0, ifindex, 0, TC_H_ROOT, 0))


def _ticks(size_bytes: int, rate_bytes_per_s: int) -> int:
    """The time `size_bytes` take at a rate, in psched ticks of 64 ns."""
    nanoseconds = size_bytes * 1_000_000_000 // max(1, rate_bytes_per_s)
    return min(nanoseconds >> NSEC_PER_TICK_SHIFT, 0xFFFFFFFF)


def _ratespec(rate_bytes_per_s: int) -> bytes:
    """No rate table goes along: with the link layer given (1, Ethernet) the kernel computes from the rate."""
    return _RATESPEC.pack(0, 1, 0, -1, 0, min(rate_bytes_per_s, 0xFFFFFFFF))


@functools.cache
def _htb_class_options(
    rate: int, ceil: int, burst_bytes: int, ceil_burst_bytes: int, quantum_bytes: int, priority: int
) -> bytes:
    """Rates in byte/s. The options of equal classes are packed once."""
    parameters = (
        _ratespec(rate)
        + _ratespec(ceil)
        + struct.pack("=IIIII", _ticks(burst_bytes, rate), _ticks(ceil_burst_bytes, ceil), quantum_bytes, 0, priority)
    )
    inner = b""
    if rate > 0xFFFFFFFF:
        inner += attribute(TCA_HTB_RATE64, _U64.pack(rate))
    if ceil > 0xFFFFFFFF:
        inner += attribute(TCA_HTB_CEIL64, _U64.pack(ceil))
    inner += attribute(TCA_HTB_PARMS, parameters)
    return text(TCA_KIND, "htb") + attribute(TCA_OPTIONS, inner)


def new_htb_line_class(ifindex: int, rate_bps: int, burst_bytes: int, mtu_bytes: int, *, change: bool = False) -> bytes:
    """The class 1:1 at line rate; `burst_bytes` is burst and cburst."""
    rate = max(1, rate_bps // 8)
    options = _htb_class_options(rate, rate, burst_bytes, burst_bytes, max(mtu_bytes + ETHERNET_HEADER_BYTES, 1000), 0)
    body = TCMSG.pack(0, ifindex, LINE_CLASS, HTB_ROOT_HANDLE, 0) + options
    return message(RTM_NEWTCLASS, 0 if change else NLM_F_CREATE | NLM_F_EXCL, body)


def new_htb_traffic_class(
    ifindex: int,
    priority: int,
    *,
    line_rate_bps: int,
    burst_bytes: int,
    quantum_bytes: int,
    rank: int,
    change: bool = False,
) -> bytes:
    """A traffic class in the line class, which it borrows all of its rate from, with the line's burst.

    Classes borrow in order of `rank` (0 first), those of equal rank in turns of `quantum_bytes`.
    """
    line = max(1, line_rate_bps // 8)
    options = _htb_class_options(OWN_BYTES_PER_S, line, 0, burst_bytes, quantum_bytes, rank)
    body = TCMSG.pack(0, ifindex, class_handle(priority), LINE_CLASS, 0) + options
    return message(RTM_NEWTCLASS, 0 if change else NLM_F_CREATE | NLM_F_EXCL, body)


def delete_class(ifindex: int, priority: int) -> bytes:
    """Remove the class of `priority`, with its gate and what waits in it."""
    return message(_RTM_DELTCLASS, 0, TCMSG.pack(0, ifindex, class_handle(priority), 0, 0))


@functools.cache
def _gate_options(closed: bool, frame_bytes: int) -> bytes:
    if closed:
        burst = frame_bytes
        rate = max(1, int(frame_bytes / CLOSED_GATE_WINDOW_S))
    else:
        burst = max(OPEN_GATE_BURST_BYTES, frame_bytes)
        rate = OPEN_GATE_BYTES_PER_S
    parameters = (
        _ratespec(rate)
        + _RATESPEC.pack(0, 0, 0, 0, 0, 0)
        + struct.pack("=III", GATE_LIMIT_BYTES, _ticks(burst, rate), 0)
    )
    inner = attribute(TCA_TBF_PARMS, parameters)
    if rate > 0xFFFFFFFF:
        inner += attribute(TCA_TBF_RATE64, _U64.pack(rate))
    inner += u32(TCA_TBF_BURST, burst)
    return text(TCA_KIND, "tbf") + attribute(TCA_OPTIONS, inner)


def new_gate(ifindex: int, priority: int, mtu_bytes: int) -> bytes:
    """An open TBF in the class of `priority`."""
    body = TCMSG.pack(0, ifindex, gate_handle(priority), class_handle(priority), 0)
    return message(
        RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, body + _gate_options(False, mtu_bytes + ETHERNET_HEADER_BYTES)
    )


def change_gate(ifindex: int, priority: int, mtu_bytes: int, *, closed: bool) -> bytes:
    """Close or open a gate; asks for an acknowledgement.

    A change fills the bucket, so closing lets at most one more frame through (net/sched/sch_tbf.c, tbf_change).
    After opening, nothing is sent before something enqueues on the interface: send a kick frame.
    """
    body = TCMSG.pack(0, ifindex, gate_handle(priority), class_handle(priority), 0)
    return message(RTM_NEWQDISC, NLM_F_ACK, body + _gate_options(closed, mtu_bytes + ETHERNET_HEADER_BYTES))


def new_clsact(ifindex: int) -> bytes:
    return new_qdisc(ifindex, _CLSACT_HANDLE, TC_H_CLSACT, "clsact")


def delete_clsact(ifindex: int) -> bytes:
    """Remove clsact or ingress, whichever is there. Without either it is ENOENT: with a handle it would be EINVAL."""
    return message(RTM_DELQDISC, 0, TCMSG.pack(0, ifindex, 0, TC_H_CLSACT, 0))


def new_ingress(ifindex: int) -> bytes:
    """Only the ingress hook of clsact.

    The kernel keeps a list of all places for filters, and searches it for each new one (net/core/flow_offload.c,
    indir_dev_find): thousands of ports notice one place less.
    """
    return new_qdisc(ifindex, _CLSACT_HANDLE, TC_H_CLSACT, "ingress")


_FIRST_HANDLE = 1
"""The handle that the kernel gives the first eBPF filter of a priority."""


def new_bpf_filter(
    ifindex: int, parent: int, program: int, name: str, port: int, priority: int = _FIRST_PRIORITY
) -> bytes:
    """A direct-action eBPF filter under `parent`; `program` is a descriptor of this process.

    The port's number travels in the class ID, which the program reads back as `skb->tc_classid`. Of several filters
    that of the lowest `priority` has a packet first. There is one of each priority: the kernel would give a second one
    a handle of its own, and refuses one that has the handle of the first.
    """
    options = (
        u32(TCA_BPF_CLASSID, HTB_ROOT_HANDLE | port)
        + u32(TCA_BPF_FD, program)
        + text(TCA_BPF_NAME, name)
        + u32(TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT)
    )
    body = TCMSG.pack(0, ifindex, _FIRST_HANDLE, parent, priority << 16 | _ETH_P_ALL) + text(TCA_KIND, "bpf")
    return message(RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL, body + attribute(TCA_OPTIONS, options))


def program_of(options: bytes) -> tuple[str, int]:
    """The name and the class ID of an eBPF program in the options of a filter; "" and 0 of another filter."""
    found = fields(options)
    return found.get(TCA_BPF_NAME, b"").rstrip(b"\0").decode(), int.from_bytes(
        found.get(TCA_BPF_CLASSID, b""), "little"
    )


def delete_filters(ifindex: int, parent: int, priority: int) -> bytes:
    """Remove all filters of this priority under `parent`."""
    return message(_RTM_DELTFILTER, 0, TCMSG.pack(0, ifindex, 0, parent, priority << 16 | _ETH_P_ALL))
