"""The operations that put in force what passes between tenants, and from outside into one."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address

from testbed.lab.core.model import Service


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyPort:
    """The filter at a VRF's end of a wire between two tenants.

    From `sources` to `targets` alone: `everything`, or the services that the one at the other end may ask for and
    answers of those that it may be asked for. `wire` is what people know the wire by, whatever the interface is called.
    """

    wire: str
    name: str
    ifindex: int
    sources: tuple[IPv4Address | IPv6Address, ...]
    targets: tuple[IPv4Address | IPv6Address, ...]
    services: tuple[Service, ...]
    answers: tuple[Service, ...]
    everything: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPolicy:
    """Filters what comes into a VRF of `tenant` from others, put in force at all of its wires together.

    `node` is its place, and `shared` tells whether other VRFs have the same one.
    """

    node: str
    tenant: str
    shared: bool
    ports: tuple[PolicyPort, ...]

    def __str__(self) -> str:
        return f"let pass into {self.node} from {len(self.ports)} other tenants what they may ask for"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetBorder:
    """Filters what comes into a VRF of `tenant` at its port to a router outside: IPv4 from `sources` to `targets`.

    Beside it there is IPv6 of the link itself, which BGP is spoken over. `node` and `shared` are as above.
    """

    node: str
    tenant: str
    shared: bool
    name: str
    sources: tuple[IPv4Network, ...]
    targets: tuple[IPv4Network, ...]

    def __str__(self) -> str:
        sources = ", ".join(map(str, self.sources))
        return f"let pass into {self.node}:{self.name} from {sources} what is to the tenant"
