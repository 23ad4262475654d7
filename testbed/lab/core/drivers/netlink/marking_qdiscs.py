"""The queueing disciplines of the kernel that mark ECN instead of our program, as netlink messages.

`testbed.base.datapath.markers` declares each of them; here is what the kernel is told of the class that it marks.
Formats: linux/pkt_sched.h.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType

from testbed.base.datapath.abi import PROBABILITY_ONE, class_handle, gate_handle, marker_handle
from testbed.base.datapath.markers import MARKERS, MarkBy
from testbed.base.datapath.traffic_class import ClassPlan
from testbed.base.linux.rtnetlink import attribute, u32
from testbed.base.linux.traffic_control import GATE_LIMIT_BYTES, new_qdisc
from testbed.lab.core.plan.operations import InstallPort

TCA_RED_PARMS, TCA_RED_STAB, TCA_RED_MAX_P, TCA_RED_FLAGS = 1, 2, 3, 4
TC_RED_ECN, TC_RED_NODROP = 1, 8
RED_STAB_BYTES = 256


def red_options(_port: InstallPort, item: ClassPlan) -> bytes:
    """RED that marks ECT packets by the curve and drops nothing.

    The average is of one packet: with Wlog 0, which tc cannot ask for, it is the queue itself (include/net/red.h,
    red_calc_qavg_no_idle_time). RED spaces its marks evenly (Floyd and Jacobson 1993, section 7), so that at
    probability p a share of 2p / (1 + p) is marked; p / (2 - p) makes that Pmax at Kmax, and no more than
    Pmax^2 / 8 above the line between, where Pmax is small.
    """
    parameters = struct.pack("=IIIBBBB", GATE_LIMIT_BYTES, item.kmin_bytes, item.kmax_bytes, 0, 0, 0, 0)
    options = attribute(TCA_RED_PARMS, parameters)
    options += attribute(TCA_RED_STAB, bytes(RED_STAB_BYTES))  # how an idle queue's average decays: it is no average
    options += u32(TCA_RED_MAX_P, round(item.pmax / (2 - item.pmax) * PROBABILITY_ONE))
    flags = TC_RED_ECN | TC_RED_NODROP
    return options + attribute(TCA_RED_FLAGS, struct.pack("=II", flags, flags))  # value and mask


MARKING_QDISCS: Mapping[MarkBy, Callable[[InstallPort, ClassPlan], bytes]] = MappingProxyType({MarkBy.RED: red_options})
"""The attributes in TCA_OPTIONS of each qdisc that marks, for a class with an ECN curve on a port."""


def new_marking_qdisc(port: InstallPort, item: ClassPlan, *, change: bool = False) -> bytes:
    """The qdisc that marks ECT packets by the curve of a class, in the class or in its gate; `change` one that is
    there, which keeps its packets."""
    parent = gate_handle(item.priority) | 1 if item.lossless else class_handle(item.priority)
    options = MARKING_QDISCS[item.mark_by](port, item)
    kind = MARKERS[item.mark_by].qdisc
    return new_qdisc(port.ifindex, marker_handle(item.priority), parent, kind, options, change=change)
