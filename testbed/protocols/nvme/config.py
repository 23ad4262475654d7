"""The wishes and the limits of an end of NVMe/TCP. Times in ns, sizes in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta, Struct

_S = 1_000_000_000
Positive = Annotated[int, Meta(ge=1, le=1 << 40)]
DataBytes = Annotated[int, Meta(ge=4096, le=1 << 30)]


class ControllerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of all controllers of a target; a target's document may have it."""

    queue_entries: Annotated[int, Meta(ge=2, le=4096)] = 128
    """CAP.MQES + 1."""
    most_io_queues: Annotated[int, Meta(ge=1, le=1024)] = 16
    """I/O queues of one controller."""
    most_controllers: Positive = 128
    """Controllers of one subsystem."""
    most_unconnected: Positive = 64
    """Connections that have not got as far as Connect; one more ends the oldest."""
    handshake_ns: Positive = 5 * _S
    """So long a new connection may take to send Connect."""
    most_transfer: Annotated[int, Meta(ge=4096, le=1 << 27)] = 4 << 20
    """MDTS."""
    max_h2c_data: DataBytes = 1 << 20
    """MAXH2CDATA: data of one H2CData."""
    r2t_bytes: DataBytes = 4 << 20
    """The most that one R2T asks for. Several are under way, as many as MAXR2T allows."""
    c2h_data_bytes: DataBytes = 4 << 20
    """Data of one C2HData, at most."""
    cpda: Annotated[int, Meta(ge=0, le=31)] = 0
    """Alignment of data that come, in units of 4 bytes, counted from zero."""
    header_digest: bool = True
    data_digest: bool = True
    """Digests are granted to a host that asks for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConfig:
    """The settings of a host's association with one controller."""

    hostnqn: str
    hostid: bytes
    """16 bytes."""
    io_queues: int = 1
    queue_entries: int = 128
    kato_ms: int = 5000
    """Keep-alive time-out; 0: none."""
    header_digest: bool = False
    data_digest: bool = False
    hpda: int = 0
    """Alignment of data that come, in units of 4 bytes, counted from zero."""
    maxr2t: int = 16
    """R2Ts of one command that may be under way."""
    flow_control: bool = False
    """SQ flow control; without it the controller may leave the completion of a read out (SUCCESS)."""
    connect_ns: int = 5 * _S
    """So long it may take until the controller is live."""
    io_timeout_ns: int = 30 * _S
    """So long the controller may take for a command on an I/O queue, as Linux has it (`nvme_core.io_timeout`); 0: for
    ever."""
