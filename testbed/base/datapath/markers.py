"""Everything that can mark ECN in a switch port: what it is called, and what it cannot do.

This is one of the two files of a queueing discipline of the kernel that marks. The other one is
`testbed.lab.core.drivers.netlink.marking_qdiscs`: what the kernel is told. Readers of files, the question to the
machine, reports and the documentation take a marker from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class MarkAt(StrEnum):
    """Which queue decides about a packet's mark: the one that it finds, or the one that it leaves behind.

    At dequeue the mark tells what the queue is now, not what it was when the packet came (UE specification 1.0,
    section 3.6.17).
    """

    ENQUEUE = "enqueue"
    DEQUEUE = "dequeue"


DOES_TO_QUEUE: Mapping[MarkAt, str] = MappingProxyType({MarkAt.ENQUEUE: "finds", MarkAt.DEQUEUE: "leaves behind"})
"""The verb of sentences about a packet and the queue that decides about its mark."""


class MarkBy(StrEnum):
    """The name of a marker, as `ecn: {by: ...}` has it."""

    EBPF = "ebpf"
    """The eBPF program of the data path."""
    RED = "kernel"
    """The kernel's `red` qdisc with the same thresholds, as a cross-check of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerDeclaration:
    """One marker, whichever class of whichever lab it marks."""

    by: MarkBy
    title: str
    """Its name in reports, such as RED."""
    qdisc: str = ""
    """The kernel's name of it; "" for our own program."""
    places: tuple[MarkAt, ...]
    """The places where it can mark; at the first it marks unless a file says otherwise."""
    approximation: str = ""
    """The difference of its marks from the curve of the class, behind the words "not ours but the kernel's RED's:"."""

    @property
    def noun(self) -> str:
        """Its name in a sentence, such as "the kernel's RED"."""
        return f"the kernel's {self.title}" if self.qdisc else f"our own {self.title}"

    @property
    def capability(self) -> str:
        """Its name among the answers of the machine, such as "qdisc.red"."""
        return f"qdisc.{self.qdisc}"

    @property
    def option(self) -> str:
        """The option of the kernel's configuration that brings it."""
        return f"CONFIG_NET_SCH_{self.qdisc.upper()}"


_EBPF = MarkerDeclaration(by=MarkBy.EBPF, title="eBPF", places=tuple(MarkAt))

_RED = MarkerDeclaration(
    by=MarkBy.RED,
    title="RED",
    qdisc="red",
    places=(MarkAt.ENQUEUE,),
    approximation="evenly spaced, so that between Kmin and Kmax up to Pmax^2 / 8 more packets have one than the curve"
    " says, and by a queue that no longer has the packet which is being sent",
)

MARKERS: Mapping[MarkBy, MarkerDeclaration] = MappingProxyType({one.by: one for one in (_EBPF, _RED)})
"""By the word of the file, in the order in which they are listed."""

KERNEL_MARKERS = tuple(one for one in MARKERS.values() if one.qdisc)
"""The markers that are queueing disciplines of the kernel."""
