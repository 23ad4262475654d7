"""Storage targets: nodes that serve their medium to hosts over a network."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from testbed.base.units import ByteCount, Duration, Rate


class StorageProtocol(StrEnum):
    """A protocol of storage targets."""

    NVME_TCP = "nvme-tcp"
    """NVMe over Fabrics with its TCP transport (NVM Express TCP Transport Specification 1.0)."""
    NBD = "nbd"
    """The Network Block Device protocol (NetworkBlockDevice/nbd, doc/proto.md)."""
    NFS = "nfs"
    """NFS version 4 (RFC 8881)."""


class ServedBy(StrEnum):
    """The implementations of a storage target."""

    USER_SPACE = "user-space"
    """A process of ours (`testbed.endpoints.storage`), which needs nothing of the kernel."""
    KERNEL = "kernel"
    """The target of Linux (nvmet-tcp) in the namespace of the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Medium:
    """The medium that a target's data lies on, in the units of the real one."""

    rate: Rate | None = None
    """The rate at which it reads and writes, both together; None: as fast as the network asks."""
    latency: Duration | None = None
    """From a command to its first byte, and from the last byte of a write to its end; None: none."""
    depth: int = 128
    """The number of commands that it works on at once; others wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageTarget:
    """The service of a storage target."""

    protocols: tuple[StorageProtocol, ...] = (StorageProtocol.NVME_TCP,)
    """All that hosts may speak with it."""
    capacity: ByteCount
    medium: Medium = Medium()
    served_by: ServedBy = ServedBy.USER_SPACE
