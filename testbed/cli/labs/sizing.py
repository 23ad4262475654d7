"""The sizing of a lab as `validate` and `inspect sizing` print it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from testbed.base.units import Rate
from testbed.cli.options import Format
from testbed.cli.output import emit
from testbed.lab.core.fabric import Sizing, measure_sizing
from testbed.lab.core.fabric.sizing import SizingRow, seen_for_sizing
from testbed.lab.core.model import BACKEND, OUT_OF_BAND, Lab, Network, Role
from testbed.lab.features.scale_up.view import scale_up_document, validated_rows


def emit_sizing(lab: Lab, form: Format) -> None:
    """Print ports, oversubscription, bisection and path counts of a lab, of each of its networks by itself, and its
    scale-up domains where its file states any."""
    rows, document = describe_sizing(lab)
    unshown = ("file",) if len(lab.network_names) > 1 else ("file", "network")
    emit(rows, SizingRow, form, document=document, without=unshown)


def emit_sizings(labs: Sequence[Lab], form: Format) -> None:
    """Print the sizing of files for programs: each row has its file, and JSON of several files is a list."""
    documents = sizing_documents(labs)
    every = [replace(row, file=lab.source) for lab in labs for row in describe_sizing(lab)[0]]
    emit(every, SizingRow, form, document=documents if len(labs) > 1 else documents[0])


def sizing_documents(labs: Sequence[Lab]) -> list[dict[str, Any]]:
    """The JSON data of files, with their names."""
    return [{"file": lab.source, **describe_sizing(lab)[1]} for lab in labs]


def describe_sizing(lab: Lab) -> tuple[list[SizingRow], dict[str, Any]]:
    """Rows of the sizing of a lab, and the same as JSON data."""
    seen = [seen_for_sizing(lab, name) for name in lab.data_networks] or [lab]
    if lab.design == OUT_OF_BAND and lab.out_of_band is not None:
        name, rows, sized = _out_of_band(lab, lab.out_of_band)
        return rows, {"lab": lab.name, "networks": {name: sized}}
    sizings = [measure_sizing(one) for one in seen]
    rows = [
        replace(row, network=network)
        for network, sizing in zip(lab.data_networks or ("",), sizings, strict=True)
        for row in sizing_rows(sizing, lab, network)
    ]
    document: dict[str, Any] = {"lab": lab.name, "design": lab.design, "sizing": dataclasses.asdict(sizings[0])}
    if lab.networks:
        document["networks"] = {
            network: {"design": one.design, "sizing": dataclasses.asdict(sizing)}
            for network, one, sizing in zip(lab.data_networks, seen, sizings, strict=True)
        }
    if lab.out_of_band is not None:
        name, more, sized = _out_of_band(lab, lab.out_of_band)
        rows += more
        document["networks"][name] = sized
    if scale_up := validated_rows(lab):
        rows += scale_up
        document["scale_up"] = scale_up_document(lab, lab.scale.time)
    return rows, document


def sizing_rows(sizing: Sizing, lab: Lab, network: str) -> list[SizingRow]:
    """Make rows of the sizing of a network of a lab that a person reads."""
    carrier, guests = lab.carrier_of(network), [f"{_links_of(lab, name)} of {name}" for name in lab.carried_by(network)]
    among = f" ({', '.join(guests)})" if guests else ""
    rows = [
        SizingRow(what="hosts, NIC ports", value=f"{sizing.hosts}, {sizing.host_links}")
        if carrier != network or any(role.role is Role.LEAF for role in sizing.roles)
        else SizingRow(what="hosts, GPUs, NICs", value=f"{sizing.hosts}, {sizing.gpus}, {sizing.nics}"),
        SizingRow(
            what="links",
            value=sizing.links,
            note=f"on switches of {carrier}"
            if carrier != network
            else f"{sizing.host_links} to hosts{among}, {sizing.fabric_links} in the fabric",
        ),
    ]
    if sizing.targets:
        among = "links to hosts" if network == BACKEND else "hosts' ports and links"
        rows.append(
            SizingRow(
                what="storage targets", value=sizing.targets, note=f"among {among}; speak {_protocols(lab, network)}"
            )
        )
    for role in sizing.roles:
        ports = f"{role.ports} of {role.radix}" if role.radix else str(role.ports)
        over = f", oversubscription {role.oversubscription:.2f}:1" if role.oversubscription is not None else ""
        rows.append(SizingRow(what=f"{role.role} switches", value=role.switches, note=f"{ports} ports used{over}"))
    if sizing.bisection is not None:
        bisection = sizing.bisection
        ecmp = ""
        if bisection.ecmp_bps is not None and bisection.ecmp_bps < bisection.bandwidth_bps:
            ecmp = f", {bisection.ecmp_share:.0%} by plain ECMP"
        rows.append(
            SizingRow(
                what=f"bisection between {bisection.between}",
                value=str(Rate(bisection.bandwidth_bps)),
                note=f"{bisection.share:.0%} of what the NICs of one half can send{ecmp}",
            )
        )
    for path in sizing.paths:
        count = str(path.fewest) if path.fewest == path.most else f"{path.fewest} to {path.most}"
        note = "" if path.most else "not joined by the fabric"
        rows.append(SizingRow(what=f"equal-cost paths, {path.relation}", value=count, note=note))
    return rows


def _protocols(lab: Lab, network: str) -> str:
    """All that the storage targets of a network speak, the first ones first."""
    targets = [node.target for node in lab.targets if node.network == network and node.target is not None]
    return ", ".join(dict.fromkeys(protocol.value for target in targets for protocol in target.protocols))


def _out_of_band(lab: Lab, network: Network) -> tuple[str, list[SizingRow], dict[str, Any]]:
    """The name of the network of management ports, its rows, and the same as data."""
    links = [link for link in lab.links if link.network == network.name]
    room = network.prefix.num_addresses - 2
    sized = {"nodes": len(links) - 1, "links": len(links), "prefix": str(network.prefix), "addresses": room}
    row = partial(SizingRow, network=network.name)
    rows = [
        row(
            what="nodes, links",
            value=f"{len(links) - 1}, {len(links)}",
            note=f"all on {links[0].b.node}",
        ),
        row(what="addresses", value=str(network.prefix), note=f"{len(links)} of {room:,} in use"),
    ]
    return network.name, rows, {"design": network.design, **sized}


def _links_of(lab: Lab, network: str) -> int:
    return sum(link.network == network for link in lab.links)
