"""The network of management ports in `networks:`, which is made when all other nodes of the lab are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from ipaddress import IPv4Network

from testbed.base.errors import Problem
from testbed.base.units import Rate
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path
from testbed.lab.assembly.network_spec import DEFAULT_MTU, ROUTED_KEYS, NetworkSpec, located
from testbed.lab.core.fabric.networks import DEFAULT_PREFIXES, NetworkParams
from testbed.lab.core.model import OUT_OF_BAND, Lab
from testbed.lab.features.management.fabric import check_out_of_band, generate_out_of_band
from testbed.lab.features.management.services_schema import service_problems

DEFAULT_RATE = Rate.parse("1G")


def find_misplaced_keys(document: Document, name: str) -> list[Problem]:
    """Keys of a network of management ports that only one with routing switches has."""
    return [
        document.problem(
            "design-fixes",
            ("networks", name, *keys),
            f"{'.'.join(keys)!r} has no meaning out of band: there are one switch, one server and a port on every node",
            hint="remove design: out-of-band, and it is in band" if keys == ("on",) else "remove this key",
            key=True,
        )
        for keys in ROUTED_KEYS
        if document.has(("networks", name, *keys))
    ]


def find_second(document: Document, specs: Mapping[str, NetworkSpec]) -> list[Problem]:
    """A second network that manages the nodes of the lab: out of band, or in band with services."""
    found = [name for name, spec in specs.items() if spec.design == OUT_OF_BAND or (spec.on and spec.services)]
    if len(found) < 2:
        return []
    key = "design" if specs[found[1]].design == OUT_OF_BAND else "services"
    message = f"{found[0]} is the management network already, and a lab has one"
    return [document.problem("second-out-of-band", ("networks", found[1], key), message)]


def add_out_of_band(document: Document, specs: Mapping[str, NetworkSpec], lab: Lab) -> tuple[Lab, list[Problem]]:
    """The lab, which has all its other networks, with the one of management ports; and what is wrong with that."""
    found = [(number, name) for number, name in enumerate(specs, 1) if specs[name].design == OUT_OF_BAND]
    if not found:
        return lab, []
    number, name = found[0]
    spec = specs[name]
    params = NetworkParams(
        name=name,
        number=number,
        design=OUT_OF_BAND,
        short=spec.short,
        rate=spec.nic.rate or DEFAULT_RATE,
        prefix=spec.prefix or DEFAULT_PREFIXES[number - 1],
        mtu=DEFAULT_MTU if spec.mtu is None else spec.mtu,
    )
    path: Path = ("networks", name)
    if faults := check_out_of_band(params, lab):
        return lab, [located(document, path, fault) for fault in faults]
    if problems := [*service_problems(document, (*path, "services")), *_overlapping_links(document, params)]:
        return lab, problems
    made = generate_out_of_band(params, lab)
    network = replace(made.network, services=() if spec.services is None else spec.services.services())
    networks = sorted((*lab.networks, network), key=lambda network: network.number)
    lab = replace(lab, nodes=(*lab.nodes, *made.nodes), links=(*lab.links, *made.links), networks=tuple(networks))
    return lab, []


def _overlapping_links(document: Document, params: NetworkParams) -> Iterator[Problem]:
    """Links of the file whose prefixes have addresses of management."""
    for number in range(len(document.get("topology.links") or ())):
        path: Path = ("topology", "links", number, "prefix")
        written = document.get(path)
        if written is not None and params.addresses.overlaps(prefix := IPv4Network(written)):
            message = f"{prefix} overlaps {params.addresses} of the network {params.name}"
            yield document.problem("overlap", path, message, hint="leave it out, and one is chosen")
