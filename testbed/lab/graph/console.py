"""The picture of a lab for the console, which colours it with what it measures.

It is the picture of `./lab graph`, in parts: the drawing, and the same data for `picture.js`. Its lines say which of
the drawn links they stand for (`data-l`), and `link` has the number of each in the model of the lab: -1 for one that is
drawn alone, as those to the planes of scale-up domains are.
"""

from __future__ import annotations

from testbed.lab.core.model import Lab
from testbed.lab.graph.composition import Composition
from testbed.lab.graph.page import measure_networks
from testbed.lab.graph.svg import draw_svg


def console_map(lab: Lab, *, k: float | None = None) -> dict[str, object]:
    """Return the drawing of a lab as SVG, and what the page must know of it, as values for JSON."""
    composed = Composition.of(lab)
    numbers = {link.a: number for number, link in enumerate(lab.links)}
    svg = draw_svg(composed.lab, composed.grouping, composed.layout, {}, {}, with_links=True)
    return {
        "svg": svg,
        "data": composed.data({}, {}),
        "link": [numbers.get(link.a, -1) for link in composed.lab.links],
        "layers": [{"number": layer.number, "name": layer.name, "carrier": layer.carrier} for layer in composed.layers],
        "figures": [
            {"network": one.layer.name if one.layer else "", "counted": one.counted, "bisection": one.bisection}
            for one in measure_networks(composed, k)
        ],
    }
