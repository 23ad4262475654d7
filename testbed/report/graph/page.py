"""The picture as one HTML file: SVG drawn here, the style and script beside this file, the lab as JSON for the script.

The file needs no network. Without scripts the picture is still there, with every host group closed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from testbed.fabric import Sizing, measure_sizing
from testbed.model import Lab
from testbed.report.graph.grouping import TIER_NAMES, Grouping, group_lab
from testbed.report.graph.layout import Layout, lay_out
from testbed.report.graph.svg import colour_class, draw_svg, state_class
from testbed.units import Rate


def render_html(lab: Lab, *, status: Mapping[str, str] | None = None) -> str:
    """A page that shows `lab`, to open in a browser.

    `status` maps nodes to states as `inspect` has them ("running", "degraded", ...); nodes it does not
    name get no mark.
    """
    status = status or {}
    grouping = group_lab(lab)
    layout = lay_out(lab, grouping)
    sizing = measure_sizing(lab)
    here = files(__package__)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((here / "page.html.j2").read_text(encoding="utf-8"))
    return template.render(
        lab=lab,
        css=Markup((here / "page.css").read_text(encoding="utf-8")),
        js=Markup((here / "page.js").read_text(encoding="utf-8")),
        svg=Markup(draw_svg(lab, grouping, layout, status)),
        data=Markup(_script_json(_data(lab, grouping, layout, status))),
        rails=[
            (rail, colour_class(rail)) for rail in sorted({rail for has in grouping.rails.values() for rail in has})
        ],
        figures=_figures(sizing, lab),
        roles=sizing.roles,
        oversubscription={role.role: _ratio(role.oversubscription) for role in sizing.roles},
        paths=[(path.relation.value, _span(path.fewest, path.most)) for path in sizing.paths],
        bisection=_bisection(sizing),
        trays=len(layout.trays),
        states=sorted({(state_class(state), state) for state in status.values()}, key=_by_severity),
    )


def _by_severity(state: tuple[str, str]) -> tuple[int, str]:
    return ("ok", "warn", "bad").index(state[0]), state[1]


def _figures(sizing: Sizing, lab: Lab) -> list[tuple[str, str]]:
    figures = [(f"{sizing.gpus:,}", "GPUs" if lab.design else "NICs"), (f"{sizing.hosts:,}", "hosts")]
    figures.append((f"{sizing.switches:,}", "switches"))
    figures.append((f"{sizing.links:,}", "links"))
    return figures


def _ratio(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.3g} : 1"


def _span(fewest: int, most: int) -> str:
    return f"{fewest:,}" if fewest == most else f"{fewest:,} – {most:,}"


def _bisection(sizing: Sizing) -> str:
    if sizing.bisection is None:
        return ""
    bisection = sizing.bisection
    share = f"{bisection.share * 100:.3g} % of what NICs can send"
    return f"{Rate(bisection.bandwidth_bps)} between {bisection.between}, {share}"


class _Table:
    """Strings that occur many times, kept once; links refer to them by number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))


def _data(lab: Lab, grouping: Grouping, layout: Layout, status: Mapping[str, str]) -> dict[str, object]:
    """Return what the script knows of the lab; `page.js` names the columns."""
    numbers = {node.name: position for position, node in enumerate(lab.nodes)}
    trays = {host.name: tray.number for tray in layout.trays for host in tray.group.hosts}
    interfaces, properties = _Table(), _Table()
    links = [
        [
            numbers[link.a.node],
            interfaces.number(link.a.interface),
            numbers[link.b.node],
            interfaces.number(link.b.interface),
            link.rail,
            properties.number(
                f"{link.rate}|MTU {link.mtu_bytes}" + (f"|delay {link.delay.value}" if link.delay else "")
            ),
            link.rate.bps // 1_000_000,
        ]
        for link in lab.links
    ]
    nodes = [
        [
            node.name,
            int(grouping.tiers[node.name]),
            trays.get(node.name, -1),
            status.get(node.name, ""),
            node.place.pod if node.place else 0,
            node.place.segment if node.place else 0,
            list(grouping.rails.get(node.name, ())),
            dict(node.labels),
        ]
        for node in lab.nodes
    ]
    return {
        "nodes": nodes,
        "links": links,
        "interfaces": list(interfaces.numbers),
        "properties": list(properties.numbers),
        "tiers": [TIER_NAMES[tier] for tier in sorted(TIER_NAMES)],
    }


def _script_json(data: object) -> str:
    """JSON that cannot end the `<script>` element it stands in (HTML, "restrictions for contents of script")."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
