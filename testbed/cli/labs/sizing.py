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
from testbed.lab.core.fabric import PathCount, Sizing
from testbed.lab.core.fabric.figures.design import (
    DesignFigures,
    figures_document,
    largest_title,
    load_text,
    loss_text,
    measure_designs,
)
from testbed.lab.core.fabric.sizing import SizingRow
from testbed.lab.core.model import BACKEND, OUT_OF_BAND, Lab, Network, Role
from testbed.lab.features.scale_up.view import scale_up_document, validated_rows

_ROUNDING = 1 + 1e-9


def emit_sizing(lab: Lab, form: Format) -> None:
    """Print ports, oversubscription, bisection and path counts of a lab, of each of its networks by itself, and its
    scale-up domains where its file states any."""
    rows, document = describe_sizing(lab)
    unshown = ("file",) if len(lab.network_names) > 1 else ("file", "network")
    emit(rows, SizingRow, form, document=document, without=unshown)


def emit_file_sizing(lab: Lab, form: Format) -> None:
    """Print the sizing of a file for programs: each row, and the document, has its file."""
    rows, document = describe_sizing(lab)
    every = [replace(row, file=lab.source) for row in rows]
    emit(every, SizingRow, form, document={"file": lab.source, **document})


def describe_sizing(lab: Lab) -> tuple[list[SizingRow], dict[str, Any]]:
    """Rows of the sizing of a lab, and the same as JSON data."""
    if lab.design == OUT_OF_BAND and lab.out_of_band is not None:
        name, rows, sized = _out_of_band(lab, lab.out_of_band)
        return rows, {"lab": lab.name, "networks": {name: sized}}
    figures = measure_designs(lab)
    rows = [
        replace(row, network=network)
        for network, one in zip(lab.data_networks or ("",), figures, strict=True)
        for row in (*sizing_rows(one.sizing, lab, network), *_largest_rows(one), *_failure_rows(one), *_cable_rows(one))
    ]
    if lab.out_of_band is not None:
        rows += _out_of_band(lab, lab.out_of_band)[1]
    return rows + validated_rows(lab), describe_figures(lab, figures)


def describe_figures(lab: Lab, figures: Sequence[DesignFigures]) -> dict[str, Any]:
    """Return the figures of a lab's networks as JSON data: the first one's, and by name where there are several."""
    document: dict[str, Any] = {"lab": lab.name, **_figures_of(figures[0])}
    if lab.networks:
        document["networks"] = {one.network: _figures_of(one) for one in figures}
    if lab.out_of_band is not None:
        name, _, sized = _out_of_band(lab, lab.out_of_band)
        document["networks"][name] = sized
    if validated_rows(lab):
        document["scale_up"] = scale_up_document(lab, lab.scale.time)
    return document


def _figures_of(one: DesignFigures) -> dict[str, Any]:
    return {"design": one.design, "sizing": dataclasses.asdict(one.sizing), **figures_document(one)}


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
    if lab.planes > 1 and network == BACKEND:
        rows.append(SizingRow(what="planes", value=lab.planes, note="which share no switch"))
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
    rows += _bisection_rows(sizing)
    for path in sizing.paths:
        count = str(path.fewest) if path.fewest == path.most else f"{path.fewest} to {path.most}"
        rows.append(SizingRow(what=f"equal-cost paths, {path.relation}", value=count, note=_passed(path)))
    return rows


def _bisection_rows(sizing: Sizing) -> list[SizingRow]:
    """Make rows of what one half of the hosts can send to the other: on its own rails, and to all NICs there."""
    bisection = sizing.bisection
    if bisection is None:
        return []
    rows = []
    for load in sizing.bisection_traffic:
        what = f"bisection between {load.between}, {load.pattern} traffic"
        if load.bandwidth_bps is None:
            rows.append(
                SizingRow(
                    what=what, value="not joined" if not load.is_joined else "unknown", note=load_text(load, sizing)
                )
            )
            continue
        note = f"{load.bandwidth_bps / load.access_bps:.0%} of what the NICs of one half can send"
        if bisection.bandwidth_bps > load.bandwidth_bps * _ROUNDING:
            note += f" by {bisection.balancing}, up to {bisection.share:.0%} by the links"
        elif bisection.weighted:
            note += f" by {bisection.balancing}"
        rows.append(SizingRow(what=what, value=str(Rate(load.bandwidth_bps)), note=note))
    return rows


def _largest_rows(figures: DesignFigures) -> list[SizingRow]:
    """Make rows of how many GPUs fit on switches of the radix that the file names."""
    return [SizingRow(what=largest_title(one), value=f"{one.gpus:,} GPUs", note=one.words) for one in figures.largest]


def _failure_rows(figures: DesignFigures) -> list[SizingRow]:
    """Make rows of what is lost when one switch, link or plane dies."""
    return [
        SizingRow(
            what=f"{one.what} dies",
            value=loss_text(one),
            note=f"the worst of {one.elements}: {one.worst}" if one.elements > 1 else one.worst,
        )
        for one in figures.failures
    ]


def _cable_rows(figures: DesignFigures) -> list[SizingRow]:
    """Make rows of the cables of each kind."""
    return [SizingRow(what=f"cables, {one.cable.shown} {one.rate}", value=one.count) for one in figures.cables]


def _passed(path: PathCount) -> str:
    """Tell how many switches there are on the way."""
    if not path.most:
        return "not joined by the fabric"
    if path.fewest_switches != path.most_switches:
        return f"through {path.fewest_switches} to {path.most_switches} switches"
    return f"through {path.most_switches} switch{'es' if path.most_switches > 1 else ''}"


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
        row(what="nodes, links", value=f"{len(links) - 1}, {len(links)}", note=f"all on {links[0].b.node}"),
        row(what="addresses", value=str(network.prefix), note=f"{len(links)} of {room:,} in use"),
    ]
    return network.name, rows, {"design": network.design, **sized}


def _links_of(lab: Lab, network: str) -> int:
    return sum(link.network == network for link in lab.links)
