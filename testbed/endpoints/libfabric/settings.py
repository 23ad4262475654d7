"""The settings of the process that has the endpoints: JSON of these data classes, in one line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from testbed.base.typed_json import Nanoseconds, Text

Dscp = Annotated[int, Meta(ge=0, lt=64)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RailSettings:
    """A rail of a host. `config` has fields of `testbed.protocols.uet.config.UetConfig` other than `entropies`."""

    name: Annotated[str, Meta(min_length=1, max_length=15)]
    """The interface."""
    address: Text
    config: dict[str, bool | int | float | str]
    delays_ns: dict[str, Nanoseconds] = field(default_factory=dict)
    """The times for which datagrams are held, by the address that they are from."""
    least_rtts_ns: dict[str, Nanoseconds] = field(default_factory=dict)
    """The round trip of a full packet while nothing else is sent, by the peer's address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """A host whose programs are served."""

    name: Text
    namespace: str
    """The path of its network namespace; "" for the one that the process is started in."""
    socket: Annotated[str, Meta(max_length=107)]
    """The path of the Unix socket, which exists from when the process is ready until it ends."""
    rails: tuple[RailSettings, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """All of a process."""

    hosts: tuple[HostSettings, ...]
    job_id: Annotated[int, Meta(ge=1, lt=1 << 24)]
    dscp: Dscp
    control_dscp: Dscp
    tick_ns: Nanoseconds = 0
    """The least interval at which it looks for what has come and is due; 0: at once."""
