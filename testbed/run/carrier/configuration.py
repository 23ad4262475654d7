"""The things that a process of the carrier is told when it starts, as one line of JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from testbed.run.carrier.endpoint_settings import EndpointSettings

KINDS = ("uet", "roce")


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedNic:
    """A NIC to whose addresses TCP is carried. `endpoint` is the address of its endpoint, one of `addresses`."""

    host: str
    endpoint: str
    addresses: tuple[str, ...]
    rail: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CarrierConfiguration:
    """`namespaces` are the paths of the network namespaces of the hosts that the process works for, by their names, and
    `endpoints` the settings of these hosts' endpoints by address; all else is about the whole lab."""

    lab: str
    journal: str
    """The directory of the lab's journal."""
    kind: str
    job_id: int
    """Endpoints of UET hear nothing of those of another job; it is the protection domain of RoCE."""
    nics: tuple[CarriedNic, ...]
    owners: Mapping[str, str]
    """The host of each address that a host of the lab has."""
    namespaces: Mapping[str, str]
    endpoints: Mapping[str, EndpointSettings]
    tick_ns: int
    window_bytes: int
    data_bytes: int
    """The longest frame of data, without its header."""
    patience_ns: int
    """For how long a connection that is refused is asked for again."""
