"""The scale-up domains in a picture: a layer beside the networks, with the planes as switches.

A host has one line to each plane of its domain, for all of its GPUs. Where there would be many planes, a domain's are
one box. A lab whose file states no domains is drawn without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from ipaddress import IPv4Network

from testbed.base.units import Rate
from testbed.lab.core.model import TRANSACTION, End, Lab, Link, LinkKind, Network, Node, NodeKind, Role, ScaleUpBy
from testbed.lab.features.scale_up.plan.time_scale import plan_scale_up
from testbed.lab.features.scale_up.sizing import ScaleUpDomain, find_domains, measure_scale_up
from testbed.lab.graph.grouping import counted

SCALE_UP = "scale-up domains"
"""The layer's name. No network of a file can be called so, nor a node as planes are: names there have no spaces."""
PLANE_NAME = "scale-up switch"
MAX_PLANES = 24
"""The most planes of all domains of a picture that are drawn one by one."""


def with_domains(lab: Lab) -> Lab:
    """The lab with its scale-up domains as one more network; itself, where its file states none."""
    domains = find_domains(lab) if lab.scale_up.stated else ()
    if not domains:
        return lab
    folded = len(domains) * lab.scale_up.planes > MAX_PLANES
    nodes = [
        Node(name=name, kind=NodeKind.SWITCH, role=Role.LEAF, network=SCALE_UP)
        for domain in domains
        for name, _ in _planes(lab, domain, folded=folded)
    ]
    network = Network(
        name=SCALE_UP,
        number=len(lab.networks) + 1,
        prefix=IPv4Network("0.0.0.0/32"),  # nothing in a domain has an address
        design=lab.scale_up.preset or "written out",
    )
    links = [link for domain in domains for link in _links(lab, domain, folded=folded)]
    return replace(lab, nodes=(*lab.nodes, *nodes), links=(*lab.links, *links), networks=(*lab.networks, network))


def _planes(lab: Lab, domain: ScaleUpDomain, *, folded: bool) -> Iterator[tuple[str, Rate]]:
    """Yield the boxes of a domain's planes, and what a GPU sends to each."""
    scale_up = lab.scale_up
    if folded:
        yield f"{domain.name} {scale_up.planes} planes", scale_up.rate
        return
    for number in range(1, scale_up.planes + 1):
        yield f"{domain.name} plane {number}", scale_up.plane_rate(number)


def _links(lab: Lab, domain: ScaleUpDomain, *, folded: bool) -> Iterator[Link]:
    """Yield a link from every host to every box, at the rate of all GPUs of the host."""
    gpus = domain.gpus // len(domain.hosts)
    for number, (plane, rate) in enumerate(_planes(lab, domain, folded=folded), 1):
        for host in domain.hosts:
            yield Link(
                a=End(node=host, interface="planes" if folded else f"plane{number}"),
                b=End(node=plane, interface=host),
                kind=LinkKind.ACCESS,
                rate=Rate(gpus * rate.bps),
                mtu_bytes=lab.scale_up.coarse * TRANSACTION.bytes,
                network=SCALE_UP,
            )


def plane_labels(planes: Sequence[Node]) -> dict[str, str]:
    """Return what stands in the boxes of planes: the domain where a box is all of its planes; of the only domain the
    plane's number."""
    alone = len({_domain(node.name) for node in planes}) == 1
    labels = {}
    for node in planes:
        domain, number = _domain(node.name), node.name.rpartition(" ")[2]
        labels[node.name] = domain if folded_planes(node.name) else number if alone else f"{domain} {number}"
    return labels


def folded_planes(name: str) -> str:
    """Return how many planes the box of this name stands for, in words; "" for one."""
    rest = name.removeprefix(_domain(name)).strip()
    return rest if rest.endswith("planes") else ""


def _domain(plane: str) -> str:
    """The domain of a plane, or of the box of its planes; names of domains have no spaces."""
    return plane.partition(" ")[0]


def counted_planes(seen: Lab) -> str:
    """Tell what the layer consists of, as it is written in its box: `seen` is the lab in it alone."""
    domains = len(set(seen.host_domains.values()))
    return f"{counted(domains, 'domain')}, {counted(seen.scale_up.planes, 'plane')} each"


def described_domains(lab: Lab) -> str:
    """Tell the figures of a lab's domains in a line."""
    scale_up, sizing = lab.scale_up, measure_scale_up(lab)
    ratios = " to ".join(dict.fromkeys(f"{ratio:.3g}" for ratio in sorted(sizing.ratios)))
    over = f", {ratios} times its NIC" if ratios else ""
    counts = (len(sizing.domains), "domain"), (sizing.largest.gpus, "GPU"), (scale_up.planes, "plane")
    domains, gpus, planes = (counted(*one) for one in counts)
    return f"{domains} of up to {gpus}, {planes}, {scale_up.rate} a GPU each way{over}"


def domain_scales(lab: Lab, k: float | None) -> list[tuple[str, str, str]]:
    """Return the figures of a domain's links: a name, the value in the real system, and that in the lab at time scale
    `k`.

    There is none in the lab without a time scale, and where transfers take their time and no frame is sent.
    """
    scale_up, sizing = lab.scale_up, measure_scale_up(lab)
    packets = scale_up.by is ScaleUpBy.PACKETS
    plan = plan_scale_up(scale_up, k) if k is not None else None
    rows = [("a GPU, one way", str(scale_up.rate), "" if plan is None else str(plan.gpu_rate))]
    rates = scale_up.plane_rate(1), None if plan is None else plan.plane_rates[0]
    if len(set(scale_up.shares)) == 1:
        rows.append(("a GPU to a plane", str(rates[0]), "" if rates[1] is None else str(rates[1])))
    rows.append(("round trip", str(scale_up.rtt), "" if plan is None else str(plan.rtt)))
    if not packets:
        return rows
    rows.append(("a frame", f"{scale_up.coarse} x {TRANSACTION}", "" if plan is None else str(plan.frame)))
    if sizing.credits is not None:
        here = "" if plan is None else f"{plan.credits} x {plan.credit_unit}"
        rows.append(("credits of a VC", f"{sizing.credits} x {scale_up.credits.unit}", here))
    else:
        rows.append(("flow control", scale_up.flow_control.value, ""))
    if scale_up.retry is not None:
        here = "" if plan is None else f"{plan.window_frames} frames"
        rows.append(("retry window", f"{sizing.window_frames} frames", here))
    return rows
