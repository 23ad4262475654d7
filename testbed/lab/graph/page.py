"""The picture as one HTML file: SVG drawn here, the style and script beside this file, the lab as JSON for the script.

The file needs no network. Without scripts the picture is still there, with every host group closed; networks can be
left out without them, too, as that is the style's doing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from testbed.base.units import Rate
from testbed.lab.core.fabric import Sizing, measure_sizing
from testbed.lab.core.fabric.figures.design import load_text
from testbed.lab.core.fabric.figures.traffic import TrafficLoad
from testbed.lab.core.fabric.sizing import seen_for_sizing
from testbed.lab.core.model import BACKEND, OUT_OF_BAND, Lab
from testbed.lab.core.model.link_condition import LinkCondition
from testbed.lab.graph.composition import Composition
from testbed.lab.graph.grouping import counted, network_alone
from testbed.lab.graph.layers import Layer
from testbed.lab.graph.management import sized
from testbed.lab.graph.scale_up import SCALE_UP, described_domains, domain_scales
from testbed.lab.graph.svg import colour_class, draw_svg, state_class

_EXPORT = re.compile(r"^export ", re.MULTILINE)


def render_html(
    lab: Lab,
    *,
    status: Mapping[str, str] | None = None,
    k: float | None = None,
    conditions: Mapping[str, LinkCondition] | None = None,
) -> str:
    """A page that shows `lab`, to open in a browser.

    `k` is the time scale of a lab that is deployed; without it that of the file, if it has one.
    `status` maps nodes to states as `inspect` has them ("running", "degraded", ...); nodes it does not
    name get no mark. `conditions` are those of links by their lower ends ("node:interface"): links that
    are down, or otherwise not as declared, are drawn so, and listed.
    """
    status, k, conditions = status or {}, k or lab.scale.time, conditions or {}
    composed = Composition.of(lab)
    written, lab, layout, grouping = lab, composed.lab, composed.layout, composed.grouping
    measured = measure_networks(composed, k)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(_text("page.html.j2"))
    return template.render(
        lab=lab,
        css=Markup(_text("picture.css") + _text("page.css")),
        js=Markup(_EXPORT.sub("", _text("picture.js")) + _text("page.js")),
        svg=Markup(draw_svg(lab, grouping, layout, status, conditions)),
        data=Markup(_script_json(composed.data(status, conditions))),
        rails=[
            (rail, colour_class(rail)) for rail in sorted({rail for has in grouping.rails.values() for rail in has})
        ],
        alone=network_alone(lab),
        layers=composed.layers,
        figures=_figures(measured[0].sizing, written),
        measured=measured,
        trays=len(layout.trays),
        states=sorted({(state_class(state), state) for state in status.values()}, key=_by_severity),
        troubled=[
            (f"{link.a} – {link.b}", conditions[str(link.a)])
            for link in lab.links
            if str(link.a) in conditions and not conditions[str(link.a)].as_declared
        ],
    )


def _text(name: str) -> str:
    """A file beside this one."""
    return (files(__package__) / name).read_text(encoding="utf-8")


def measure_networks(composed: Composition, k: float | None) -> Sequence[MeasuredNetwork]:
    """Return the figures of each network of a lab, whose time scale is `k`, where it is known."""
    written, whole, layers = composed.written, composed.whole, composed.layers
    return [MeasuredNetwork.of_layer(written, whole, one, k) for one in layers] or [MeasuredNetwork.of(composed.lab)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredNetwork:
    """The figures of one network as the side panel shows them. `layer` is None where there is but one network."""

    layer: Layer | None
    sizing: Sizing
    oversubscription: Mapping[str, str]
    paths: Sequence[tuple[str, str]]
    bisection: str
    told: str = ""
    """Takes the place of `counted` where there is something else to count."""
    scales: Sequence[tuple[str, str, str]] = ()
    """The figures of the real system and of the lab: a name, and both values."""
    k: str = ""
    """The time scale between the two, where it is known."""

    @property
    def counted(self) -> str:
        """Return the numbers of hosts, NICs and links."""
        sizing = self.sizing
        if self.told:
            return self.told
        if self.layer is not None and self.layer.seen.design == OUT_OF_BAND:
            return f"{counted(sizing.hosts, 'node')}, {counted(sizing.links, 'link')}"
        if self.layer is not None and self.layer.number:
            nics = counted(sizing.nics, "NIC port")
        else:
            nics = counted(sizing.gpus, "GPU" if self.layer is None or self.layer.seen.design else "NIC")
        targets = f"{counted(sizing.targets, 'storage target')}, " if sizing.targets else ""
        return f"{counted(sizing.hosts, 'host')}, {targets}{nics}, {counted(sizing.links, 'link')}"

    @classmethod
    def of_layer(cls, written: Lab, whole: Lab, layer: Layer, k: float | None) -> MeasuredNetwork:
        """The figures of one layer of a lab as it is `written`; `whole` has its scale-up domains, too."""
        if layer.name != SCALE_UP:
            return cls.of(sized(seen_for_sizing(whole, layer.name)), layer)
        hosts = replace(layer.seen, nodes=layer.seen.hosts, links=())  # planes have no tiers and no paths
        return replace(
            cls.of(hosts, layer),
            told=described_domains(written),
            scales=domain_scales(written, k),
            k="" if k is None else f"k = {k:,g}",
        )

    @classmethod
    def of(cls, lab: Lab, layer: Layer | None = None) -> MeasuredNetwork:
        sizing = measure_sizing(lab)
        return cls(
            layer=layer,
            sizing=sizing,
            oversubscription={role.role: _ratio(role.oversubscription) for role in sizing.roles},
            paths=[(path.relation.value, _span(path.fewest, path.most)) for path in sizing.paths],
            bisection=_bisection(sizing),
        )


def _by_severity(state: tuple[str, str]) -> tuple[int, str]:
    return ("ok", "warn", "bad").index(state[0]), state[1]


def _figures(sizing: Sizing, lab: Lab) -> list[tuple[str, str]]:
    """Return what the header counts: each a number and what it is of."""
    if lab.design == OUT_OF_BAND:
        found = [(sizing.hosts, "node"), (sizing.links, "link")]
    else:
        ports = bool(lab.links) and all(link.network != BACKEND for link in lab.links)
        nics = (sizing.nics, "NIC port") if ports else (sizing.gpus, "GPU" if lab.design else "NIC")
        found = [nics, (len(lab.hosts), "host"), (len(lab.switches), "switch"), (len(lab.links), "link")]
    return [(number, what) for number, _, what in (counted(*one).partition(" ") for one in found)]


def _ratio(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.3g} : 1"


def _span(fewest: int, most: int) -> str:
    return f"{fewest:,}" if fewest == most else f"{fewest:,} – {most:,}"


def _bisection(sizing: Sizing) -> str:
    if sizing.bisection is None:
        return ""
    told = (f"{load.pattern} traffic {_carried(load, sizing)}" for load in sizing.bisection_traffic)
    return f"Between {sizing.bisection.between}: {'; '.join(told)}."


def _carried(load: TrafficLoad, sizing: Sizing) -> str:
    """Tell what the NICs of one half can send of a kind of traffic."""
    if load.bandwidth_bps is None:
        return load_text(load, sizing)
    share = f"{load.bandwidth_bps / load.access_bps * 100:.3g} % of what NICs can send"
    return f"{Rate(load.bandwidth_bps)}, {share}"


def _script_json(data: object) -> str:
    """JSON that cannot end the `<script>` element it stands in (HTML, "restrictions for contents of script")."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
