"""A traffic class of a port as it is planned: what eBPF programs, qdiscs and the simulator's queues are all told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from testbed.base.datapath.markers import MarkAt, MarkBy

UNLIMITED: Final = 1 << 61
"""More than any queue holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassPlan:
    """A traffic class in bytes. `priority` is its number, that of IEEE 802.1Q (PCP) and that of its pause frames.

    `quantum_bytes` is what a weighted class may send in its turn. `limit_bytes` is the static tail drop, `alpha` the
    factor of what is free in the shared buffer (0: none); below `reserved_bytes` neither counts. `kmin_bytes` None: no
    ECN; `mark_at` and `mark_by` say which queue decides, and who marks. `xoff_bytes`, `xon_bytes` and `headroom_bytes`
    are those of an ingress port, 0 for a lossy class.
    """

    priority: int
    name: str = ""
    strict: bool = False
    weight: int = 0
    quantum_bytes: int = 1 << 14
    lossless: bool = False
    limit_bytes: int = UNLIMITED
    reserved_bytes: int = 0
    alpha: float = 0.0
    kmin_bytes: int | None = None
    kmax_bytes: int | None = None
    pmax: float = 1.0
    drop_non_ect: bool = False
    mark_at: MarkAt = MarkAt.ENQUEUE
    mark_by: MarkBy = MarkBy.EBPF
    xoff_bytes: int = 0
    xon_bytes: int = 0
    headroom_bytes: int = 0

    @property
    def hold_bytes(self) -> int:
        """All that an ingress port holds of the class: what it has at XOFF, and the headroom."""
        return self.xoff_bytes + self.headroom_bytes
