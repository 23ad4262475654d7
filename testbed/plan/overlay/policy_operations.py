"""The operation that puts in force what passes between tenants."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address

from testbed.model import Service


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyPort:
    """What may come in at a VRF's end of a wire between two tenants.

    From `sources` to `targets` alone: `everything`, or the services that the one at the other end may ask for and
    answers of those that it may be asked for.
    """

    name: str
    ifindex: int
    sources: tuple[IPv4Address, ...]
    targets: tuple[IPv4Address, ...]
    services: tuple[Service, ...]
    answers: tuple[Service, ...]
    everything: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPolicy:
    """What may come into a VRF (`node`) from others, put in force at all of its wires together."""

    node: str
    ports: tuple[PolicyPort, ...]
