"""The shape of a lab: what a page has to know once, until the lab is changed. Nodes, ports and links have numbers here,
by which all that follows names them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.lab.core.model import BACKEND, Lab
from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LabShape:
    """The nodes and ports of a lab by number. `places` are "NODE:IF" of each port; `document` is what a page gets."""

    model: Lab
    k: float
    revision: str
    nodes: Mapping[str, int]
    places: Mapping[str, int]
    rate_bps: NDArray[np.int64]
    """The rate that each port may send at, in bits/s of lab time."""
    networks: tuple[str, ...]
    network: NDArray[np.int64]
    """The place of each port's network in `networks`."""
    peer: NDArray[np.int64]
    """The port at the other end; -1 where it is none of the lab's."""
    document: Mapping[str, Any] = field(repr=False)

    @property
    def ports(self) -> int:
        """The number of ports."""
        return len(self.rate_bps)

    def of_networks(self, networks: Sequence[str]) -> NDArray[np.bool_]:
        """Tell of each port whether it is in one of these networks; all are where none is named."""
        chosen = np.array([not networks or name in networks for name in self.networks], bool)
        return np.asarray(chosen[self.network])


def shape_of(model: Lab, plan: LabPlan, *, k: float, revision: str, created: str) -> LabShape:
    """Make the shape of a lab from its model and plan. Pure."""
    nodes = {node.name: number for number, node in enumerate(model.nodes)}
    places = {f"{port.node}:{port.name}": number for number, port in enumerate(plan.ports)}
    networks = model.network_names
    network_numbers = {name: number for number, name in enumerate(networks)}
    network = np.array([network_numbers.get(port.network, 0) for port in plan.ports], np.int64)
    peer = np.array([places.get(port.peer, -1) for port in plan.ports], np.int64)
    rate_bps = np.array([port.rate_bps for port in plan.ports], np.int64)
    document = {
        "name": model.name,
        "k": k,
        "revision": revision,
        "created": created,
        "design": model.design,
        "networks": _networks(model),
        "nodes": _nodes(model),
        "ports": _ports(model, plan.ports, nodes) | {"peer": peer, "rate_bps": rate_bps, "network": network},
        "links": len(model.links),
        "tenants": [] if model.overlay is None else [tenant.name for tenant in model.overlay.tenants],
        "gpus": model.gpus_per_nic * len({link.nic for link in model.links if link.rail and link.network == BACKEND}),
        "domains": len(plan.scale_up_domains),
        **_classes(plan),
    }
    return LabShape(
        model=model,
        k=k,
        revision=revision,
        nodes=nodes,
        places=places,
        rate_bps=rate_bps,
        networks=tuple(networks),
        network=network,
        peer=peer,
        document=document,
    )


def digest(*parts: object) -> str:
    """Return a short text that is another one where any part is."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:12]


def _networks(model: Lab) -> list[dict[str, str]]:
    designs = {network.name: network.design for network in model.networks}
    return [
        {"name": name, "design": designs.get(name, model.design), "carrier": model.carrier_of(name)}
        for name in model.network_names
    ]


def _nodes(model: Lab) -> dict[str, list[str]]:
    return {
        "name": [node.name for node in model.nodes],
        "kind": [node.kind.value for node in model.nodes],
        "role": [node.role.value if node.role else "" for node in model.nodes],
        "network": [node.network for node in model.nodes],
        "runtime": [node.runtime for node in model.nodes],
    }


def _ports(model: Lab, ports: Sequence[PortPlan], nodes: Mapping[str, int]) -> dict[str, Any]:
    ends = {
        (end.node, end.interface): (number, which)
        for number, link in enumerate(model.links)
        for which, end in enumerate((link.a, link.b))
    }
    found = [ends.get((port.node, port.name), (-1, 0)) for port in ports]
    return {
        "node": [nodes[port.node] for port in ports],
        "name": [port.name for port in ports],
        "line_rate_bps": [port.line_rate_bps for port in ports],
        "link": [link for link, _ in found],
        "end": [end for _, end in found],
    }


def _classes(plan: LabPlan) -> dict[str, Any]:
    """Return the names of traffic classes by profile, and the profile of each port; -1 for one without queues."""
    installs = {(item.node, item.name): item.profile for item in plan.installs}
    profiles = () if plan.tables is None else plan.tables.profiles
    return {
        "classes": [[item.name for item in profile.classes] for profile in profiles],
        "profile": [installs.get((port.node, port.name), -1) for port in plan.ports],
    }
