"""The numbers that the programs and everything around them agree on: the twin of the constants in
`programs/layout.h` and `programs/rules.h`.

Apart from the structures (`maps`), so that who sends a netlink message needs no numpy.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType

from testbed.base.datapath.markers import MarkAt

CLASSES = 8
DEPTH_BINS = 16
CURVE_BINS = 24
CURVE_BINS_TO_KMAX = 16
"""The number of bins of a marking curve below Kmax; each is Kmax / 16 wide, the last takes all that is deeper."""
MARK_VALID = 0x8000_0000
MARK_TRIMMED = 0x0008_0000
TAG_BITS = 21
"""The tag of a lab, which is never 0, in the note that a packet has while it waits."""
PROBABILITY_ONE = 0xFFFF_FFFF
MAX_PORTS = 65_535
"""A port's number travels in the 16 bits of a filter's class ID."""


class BalancingMode(enum.StrEnum):
    """The way in which a switch spreads packets over equal-cost paths: by the flow's hash, by its flowlets, packet by
    packet, by the queues in front of the paths, or as each destination is pinned to one."""

    FLOW = "flow"
    FLOWLET = "flowlet"
    SPRAY = "spray"
    ADAPTIVE = "adaptive"
    STATIC = "static"


class AdaptPer(enum.StrEnum):
    """The occasion on which `BalancingMode.ADAPTIVE` looks at the queues again: at each packet, or after a gap."""

    PACKET = "packet"
    FLOWLET = "flowlet"


class HashField(enum.StrEnum):
    """A field of a packet that the hash of flows heeds."""

    SOURCE = "source"
    DESTINATION = "destination"
    PROTOCOL = "protocol"
    SOURCE_PORT = "source_port"
    DESTINATION_PORT = "destination_port"
    ROCE_QP = "roce_qp"
    """The destination queue pair of a RoCEv2 packet (InfiniBand volume 1, section 9.2.5), as E-ECMP hashes it."""


HASH_BITS: Mapping[HashField, int] = MappingProxyType({field: 1 << place for place, field in enumerate(HashField)})
"""`enum hash_fields`: the bit of each field. The program calls them `HASH_*`."""
FIVE_TUPLE = tuple(field for field in HashField if field is not HashField.ROCE_QP)
"""The fields that are hashed where nothing else is said."""


BALANCING_CODES: Mapping[str, int] = MappingProxyType(
    {name: code for code, name in enumerate((*(mode.name for mode in BalancingMode), "KERNEL"))}
)
"""`enum load_balancing`: the modes in their order, then that the kernel hashes. The program calls them `LB_*`."""


class ClassFlag(enum.IntFlag):
    PRESENT = 1
    LOSSLESS = 2
    ECN = 4
    DROP_NON_ECT = 8
    STRICT = 16
    MARK_BY_KERNEL = 1 << 16
    """A qdisc of the kernel marks, and our program only counts."""
    COUNT_MARKS = 1 << 17
    """Packets that may be marked are counted by the depth that decided."""


MARK_AT_FLAGS: Mapping[MarkAt, int] = MappingProxyType(
    {place: 1 << 5 + number for number, place in enumerate(tuple(MarkAt)[1:])}
)
"""Further flags of a class, for every place of marking but the first: `CLASS_MARK_AT_*`."""


class PortFlag(enum.IntFlag):
    SWITCH = 1
    TRIM = 2
    LAST_HOP = 4
    """A host's NIC is at the other end."""
    FLOWLETS = 8
    """With `BalancingMode.ADAPTIVE`: a flow may move after a gap alone."""


class EventKind(enum.IntEnum):
    XOFF = 1
    XON = 2
    PFC = 3


class SampleFate(enum.IntEnum):
    """The fate of a packet that telemetry is told of: it went on, or why it was dropped."""

    SENT = 0
    TAIL = 1
    BUFFER = 2
    WRED = 3
    HEADROOM = 4
    CAP = 5


SAMPLE_BYTES = 128
"""The most that is copied of a packet that telemetry is told of."""
MOST_PATHS = 64
"""The paths of a packet that a switch with `BalancingMode.ADAPTIVE` or `STATIC` chooses among; it sees no more."""

MAP_NAMES = ("lab", "profiles", "ports", "buffers", "queues", "ingress", "pauses", "curves", "addresses", "egresses")
QUEUE_MAPS = frozenset({"queues", "ingress", "pauses", "curves"})
"""The maps that have CLASSES values for each port."""
EVENTS_MAP = "events"
"""The BPF ring buffer of `EVENT`s."""
SAMPLES_MAP = "samples"
"""The BPF ring buffer of `SAMPLE`s."""
PATHS_MAP = "paths"
"""The paths of a packet, one for each CPU: between the program that finds them and the one that chooses."""

LINE_CLASS = 0x0001_0001
"""HTB class 1:1, the line rate."""


def class_handle(priority: int) -> int:
    """The HTB class 1:(10+priority) of a traffic class."""
    return 0x0001_0000 | (0x10 + priority)


def marker_handle(priority: int) -> int:
    """The qdisc (20+priority) that marks: of a class that the kernel marks, in its gate if it has one."""
    return (0x20 + priority) << 16


def gate_handle(priority: int) -> int:
    """The TBF qdisc (10+priority): that PFC closes, in the class of that priority."""
    return (0x10 + priority) << 16
