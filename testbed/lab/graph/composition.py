"""A lab made ready to be drawn: its networks, its parts and their places, and what a script knows of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.lab.core.model import BACKEND, Lab, Link, NodeKind
from testbed.lab.core.model.link_condition import LinkCondition
from testbed.lab.graph.back_end import lay_out
from testbed.lab.graph.grouping import LEAF_NAME, ROUTER_NAME, TIER_NAMES, Grouping, Tier, group_lab, network_alone
from testbed.lab.graph.layers import Layer, group_layers, lay_out_layers, layers_of
from testbed.lab.graph.layout import Layout
from testbed.lab.graph.management import pictured, special_names
from testbed.lab.graph.scale_up import with_domains


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """A lab as it is `written`, with its domains (`whole`), and as a picture shows it (`lab`), divided and placed."""

    written: Lab
    whole: Lab
    lab: Lab
    layers: Sequence[Layer]
    grouping: Grouping
    layout: Layout

    @classmethod
    def of(cls, written: Lab) -> Composition:
        """Divide a lab, and place all of it."""
        whole = with_domains(written)
        lab = pictured(whole)
        layers = layers_of(lab)
        grouping = group_layers(lab, layers) if layers else group_lab(lab)
        layout = lay_out_layers(lab, grouping, layers) if layers else lay_out(lab, grouping)
        return cls(written=written, whole=whole, lab=lab, layers=layers, grouping=grouping, layout=layout)

    def data(self, status: Mapping[str, str], conditions: Mapping[str, LinkCondition]) -> dict[str, object]:
        """Return what a script knows of the lab; `picture.js` names the columns. Where there are several networks,
        nodes and links have one column more, the number of theirs: -1 for a host. Rails are those of the back end then.
        """
        lab, layers = self.lab, self.layers
        named = {node.name: ROUTER_NAME for node in lab.nodes if node.kind is NodeKind.ROUTER}
        named |= special_names(self.whole)
        alone = network_alone(lab)
        links, interfaces, properties = self._links(conditions)
        return {
            "nodes": self._nodes(status),
            "links": links,
            "interfaces": interfaces,
            "properties": properties,
            "tiers": [LEAF_NAME if tier is Tier.RAIL and alone else TIER_NAMES[tier] for tier in sorted(TIER_NAMES)],
            **({"named": named} if named else {}),
            **({"rail": "NIC port"} if alone else {}),
            **({"leaf": LEAF_NAME, "networks": {layer.number: layer.name for layer in layers}} if layers else {}),
        }

    @property
    def _numbered(self) -> dict[str, int]:
        return {layer.name: layer.number for layer in self.layers}

    def _nodes(self, status: Mapping[str, str]) -> list[list[object]]:
        numbered, grouping = self._numbered, self.grouping
        trays = {host.name: tray.number for tray in self.layout.trays for host in tray.group.hosts}
        return [
            [
                node.name,
                int(grouping.tiers[node.name]),
                trays.get(node.name, -1),
                status.get(node.name, ""),
                node.place.pod if node.place else 0,
                node.place.segment if node.place else 0,
                list(grouping.rails.get(node.name, ())),
                dict(node.labels),
                *((-1 if node.kind is NodeKind.HOST else numbered.get(node.network, 0),) if self.layers else ()),
            ]
            for node in self.lab.nodes
        ]

    def _links(self, conditions: Mapping[str, LinkCondition]) -> tuple[list[list[object]], list[str], list[str]]:
        """The links, and the names of interfaces and properties that they refer to by number."""
        numbers = {node.name: position for position, node in enumerate(self.lab.nodes)}
        numbered = self._numbered
        interfaces: dict[str, int] = {}
        properties: dict[str, int] = {}

        def number(text: str, among: dict[str, int]) -> int:
            """The number of a string that occurs many times, and is kept once."""
            return among.setdefault(text, len(among))

        links: list[list[object]] = [
            [
                numbers[link.a.node],
                number(link.a.interface, interfaces),
                numbers[link.b.node],
                number(link.b.interface, interfaces),
                link.rail if not self.layers or link.network == BACKEND else 0,
                number(_properties(link, conditions.get(str(link.a))), properties),
                (conditions[str(link.a)].rate if str(link.a) in conditions else link.rate).bps // 1_000_000,
                *((numbered[link.network],) if self.layers else ()),
            ]
            for link in self.lab.links
        ]
        return links, list(interfaces), list(properties)


def _properties(link: Link, condition: LinkCondition | None) -> str:
    """Describe a link for the side panel, in parts."""
    parts = [str(link.rate), f"MTU {link.mtu_bytes}", *([f"delay {link.delay.value}"] if link.delay else [])]
    if condition is not None and not condition.as_declared:
        if condition.rate != link.rate:
            parts[0] = f"{condition.rate} (declared {link.rate})"
        parts.insert(0, "not as declared" if condition.up else "down")
    return "|".join(parts)
