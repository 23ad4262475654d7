"""The sizing of a lab as `validate` and `inspect sizing` print it."""

from __future__ import annotations

import dataclasses
from typing import Any

from testbed.cli.output import Format, emit_rows
from testbed.fabric import Sizing, measure_sizing
from testbed.model import Lab, Role
from testbed.units import Rate


def emit_sizing(lab: Lab, form: Format) -> None:
    """Print ports, oversubscription, bisection and path counts of a lab, of each of its networks by itself."""
    seen = [lab.of_network(name) for name in lab.network_names] or [lab]
    sizings = [measure_sizing(one) for one in seen]
    rows = [
        {"network": network, **row}
        for network, sizing in zip(lab.network_names or ("",), sizings, strict=True)
        for row in sizing_rows(sizing)
    ]
    document: dict[str, Any] = {"lab": lab.name, "design": lab.design, "sizing": dataclasses.asdict(sizings[0])}
    if lab.networks:
        document["networks"] = {
            network: {"design": one.design, "sizing": dataclasses.asdict(sizing)}
            for network, one, sizing in zip(lab.network_names, seen, sizings, strict=True)
        }
    columns = ["what", "value", "note"]
    emit_rows(rows, ["network", *columns] if len(seen) > 1 else columns, form, json_document=document)


def sizing_rows(sizing: Sizing) -> list[dict[str, Any]]:
    """Make rows of the sizing that a person reads."""
    rows: list[dict[str, Any]] = [
        {"what": "hosts, NIC ports", "value": f"{sizing.hosts}, {sizing.host_links}", "note": ""}
        if any(role.role is Role.LEAF for role in sizing.roles)
        else {"what": "hosts, GPUs, NICs", "value": f"{sizing.hosts}, {sizing.gpus}, {sizing.nics}", "note": ""},
        {
            "what": "links",
            "value": sizing.links,
            "note": f"{sizing.host_links} to hosts, {sizing.fabric_links} in the fabric",
        },
    ]
    for role in sizing.roles:
        ports = f"{role.ports} of {role.radix}" if role.radix else str(role.ports)
        over = f", oversubscription {role.oversubscription:.2f}:1" if role.oversubscription is not None else ""
        rows.append({"what": f"{role.role} switches", "value": role.switches, "note": f"{ports} ports used{over}"})
    if sizing.bisection is not None:
        bisection = sizing.bisection
        rows.append(
            {
                "what": f"bisection between {bisection.between}",
                "value": str(Rate(bisection.bandwidth_bps)),
                "note": f"{bisection.share:.0%} of what the NICs of one half can send",
            }
        )
    for path in sizing.paths:
        count = str(path.fewest) if path.fewest == path.most else f"{path.fewest} to {path.most}"
        note = "" if path.most else "not joined by the fabric"
        rows.append({"what": f"equal-cost paths, {path.relation}", "value": count, "note": note})
    return rows
