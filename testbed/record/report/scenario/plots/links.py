"""Links: how full each uplink was, which ports were busiest, and which of them were paused."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from testbed.record.record import Record, RunResult
from testbed.record.report.chart import Row, Shade, XYChart, draw_heat_map, draw_rows, linear_axis
from testbed.record.report.scenario.figures import format_bytes, format_time
from testbed.record.report.scenario.plots.plot import MAX_SERIES, Curve, Plot, curves, which_runs
from testbed.record.samples import MarkingCurve, PortLoad
from testbed.workload.metrics import jain_index, max_mean_ratio

MAX_PORTS = 10


def plot_links(run: RunResult) -> list[Plot]:
    links = run.ports
    tiers = list(dict.fromkeys(link.tier for link in links if link.tier.endswith("uplink")))
    found = [plot for tier in tiers if (plot := _heat_map([link for link in links if link.tier == tier], tier))]
    found += [plot for plot in (_busiest(links), _paused(links, run)) if plot is not None]
    return found


def _name(link: PortLoad) -> str:
    return f"{link.node}:{link.interface}"


def _to(link: PortLoad) -> str:
    """The switch it leads to."""
    return link.peer.partition(":")[0] or link.interface


def _remark(link: PortLoad) -> str:
    said = f"{_name(link)} to {link.peer}: {link.utilisation:.1%}, {format_bytes(link.tx_bytes)} sent"
    said += f", {link.tx_dropped:,} dropped" if link.tx_dropped else ""
    said += f", {link.ce_packets:,} CE-marked" if link.ce_packets else ""
    said += f", paused for {format_time(link.paused_us / 1e6)}" if link.paused_us else ""
    return said + (f", deepest queue {format_bytes(link.queue_max_bytes)}" if link.queue_max_bytes else "")


def _heat_map(links: Sequence[PortLoad], tier: str) -> Plot | None:
    """A row for each switch, a column for each it leads to; None where there is one alone, or nothing was carried."""
    if len(links) < 2 or not any(link.tx_bytes for link in links):
        return None
    rows = list(dict.fromkeys(link.node for link in links))
    by_peer = len({(link.node, _to(link)) for link in links}) == len(links)
    column = {_name(link): _to(link) if by_peer else link.interface for link in links}
    cells = {
        (link.node, column[_name(link)]): Shade(
            share=link.utilisation,
            written=f"{link.utilisation:.0%}",
            remark=_remark(link),
            flagged=bool(link.tx_dropped),
        )
        for link in links
    }
    drawing = draw_heat_map(rows, list(dict.fromkeys(column.values())), cells, described=f"Utilisation of every {tier}")
    loads = [max(0.0, float(link.tx_bytes)) for link in links]
    mmr, jain = max_mean_ratio(loads), jain_index(loads)
    numbers = "" if mmr is None or jain is None else f" Maximum over mean {mmr:.2f}, Jain's index {jain:.3f}."
    dropped = " A frame means that it dropped packets." if any(link.tx_dropped for link in links) else ""
    names = {"uplink": "Uplink utilisation"}
    return Plot(
        name=f"links-{tier.replace(':', '-') if tier in ('uplink', 'spine-uplink') else 'other'}",
        title=names.get(tier, f"Utilisation: {tier}"),
        caption="What each switch sent to each switch above, as a share of the link's rate over the whole time traffic"
        f" ran. Full cells beside empty ones are hash collisions.{numbers}{dropped}",
        drawing=drawing,
        wide=True,
    )


def _busiest(links: Sequence[PortLoad]) -> Plot | None:
    """Ports of all tiers; None where the heat map has them all."""
    if all(link.tier == "uplink" for link in links):
        return None
    busy = sorted((link for link in links if link.tx_bytes), key=lambda link: -link.utilisation)[:MAX_PORTS]
    if not busy:
        return None
    rows = [
        Row(
            label=f"{_name(link)} → {link.peer}" + (f", {link.tier}" if link.tier else ""),
            value=link.utilisation,
            written=f"{link.utilisation:.0%}" + (f", {link.tx_dropped:,} lost" if link.tx_dropped else ""),
            remark=_remark(link),
            series=4 if link.tx_dropped else 0,
        )
        for link in busy
    ]
    axis = linear_axis("of the link's rate", "share", [link.utilisation for link in busy], least=1.0)
    return Plot(
        name="busiest",
        title="Busiest ports",
        caption=f"The {len(rows)} ports that were fullest over the whole time traffic ran, of {len(links)}.",
        drawing=draw_rows(rows, axis, described="Utilisation of the busiest ports"),
    )


def _paused(links: Sequence[PortLoad], run: RunResult) -> Plot | None:
    paused = sorted((link for link in links if link.paused_us), key=lambda link: -link.paused_us)[:MAX_PORTS]
    if not paused:
        return None
    rows = [
        Row(
            label=f"{_name(link)} → {link.peer}" + (f", {link.tier}" if link.tier else ""),
            value=link.paused_us / 1e6,
            written=format_time(link.paused_us / 1e6),
            remark=_remark(link),
            series=2,
        )
        for link in paused
    ]
    axis = linear_axis("paused (lab)", "s", [row.value or 0.0 for row in rows])
    return Plot(
        name="paused",
        title="Paused ports",
        caption="How long each port was kept from sending by its peer's pause frames, over all its priorities: how far"
        f" congestion spread from its root. Traffic ran for {format_time(run.elapsed_s)}.",
        drawing=draw_rows(rows, axis, described="Time each port was paused"),
    )


FEWEST_PACKETS = 100
"""Packets of a bin that is drawn, at least."""
_FEWEST_BINS = 3
"""Bins of a curve, at least: with fewer, traffic never met the depths that it is about."""


def plot_marking(record: Record) -> Plot | None:
    """A line for each class of each point; the ideal where all have the same. None where queues hardly filled."""
    drawn = [
        (_label(curve.label, marking, len(curve.run.marking)), curve, marking, points)
        for curve in curves(record)
        for marking in curve.run.marking
        if _crosses(points := _points(marking), marking)
    ][:MAX_SERIES]
    if not drawn:
        return None
    deepest = max(depth for _, _, _, points in drawn for depth, _ in points)
    chart = XYChart(
        x=linear_axis("queue depth", "byte", [deepest], tight=True),
        y=linear_axis("packets marked", "share", [1.0]),
    )
    shapes = {(marking.kmin_bytes, marking.kmax_bytes, marking.pmax) for _, _, marking, _ in drawn}
    if len(shapes) == 1:
        chart.ideal_line(_ideal(drawn[0][2], deepest), "the curve as configured")
    alone = len({curve.series for _, curve, _, _ in drawn}) == 1
    labels = list(dict.fromkeys(label for label, _, _, _ in drawn))
    runs = len(drawn) > len(labels)
    for label, curve, marking, points in drawn:
        weight = curve.weight if runs else ""
        remark = f"{label}, {curve.remark}: {sum(marking.packets):,} packets in {marking.queues} queues"
        series = labels.index(label) if alone else curve.series
        for stretch in _stretches(points, marking):
            chart.line(stretch, series=series, label=label, weight=weight, dots=curve.typical, remark=remark)
    return Plot(
        name="marking",
        title="ECN marks against queue depth",
        caption="Of the packets that allowed a mark, the share that had one at the other end of the link, by the depth"
        f" of the queue that decided. Points are joined where depths between them were measured.{_apart(drawn)}"
        f"{which_runs(record)}",
        drawing=chart.draw("Share of packets marked against queue depth"),
    )


def _label(point: str, marking: MarkingCurve, classes: int) -> str:
    words = [point, marking.class_name if classes > 1 else "", marking.marker]
    return " ".join(word for word in words if word)


def _points(marking: MarkingCurve) -> list[tuple[float, float]]:
    """The middle of each bin with enough packets; the last bin, which has no upper end, is left out."""
    edges = marking.edges_bytes
    return [
        ((low + high) / 2, marked / packets)
        for low, high, packets, marked in zip(edges, edges[1:], marking.packets, marking.marked, strict=False)
        if packets >= FEWEST_PACKETS
    ]


def _stretches(points: list[tuple[float, float]], marking: MarkingCurve) -> list[list[tuple[float, float]]]:
    """Return the points in stretches of bins that follow each other: between two stretches nothing was measured."""
    edges = marking.edges_bytes
    numbers = {(low + high) / 2: number for number, (low, high) in enumerate(itertools.pairwise(edges))}
    found: list[list[tuple[float, float]]] = []
    for point, before in zip(points, [None, *points], strict=False):
        if before is None or numbers[point[0]] != numbers[before[0]] + 1:
            found.append([])
        found[-1].append(point)
    return found


def _crosses(points: list[tuple[float, float]], marking: MarkingCurve) -> bool:
    return len(points) >= _FEWEST_BINS and points[-1][0] > marking.kmin_bytes


def _ideal(marking: MarkingCurve, deepest: float) -> list[tuple[float, float]]:
    kmin, kmax = float(marking.kmin_bytes), float(marking.kmax_bytes)
    line = [(0.0, 0.0), (kmin, 0.0), (kmax, marking.pmax), (kmax, 1.0), (max(deepest, kmax), 1.0)]
    return [(min(depth, max(deepest, kmax)), share) for depth, share in line]


def _apart(drawn: list[tuple[str, Curve, MarkingCurve, list[tuple[float, float]]]]) -> str:
    """Return how far two markers of one curve are from each other, where bins of both are judged."""
    if len(drawn) != 2 or drawn[0][0] == drawn[1][0] or drawn[0][2].edges_bytes != drawn[1][2].edges_bytes:
        return ""
    judged = {low for low, ideal in zip(drawn[0][2].edges_bytes, drawn[0][2].ideal, strict=True) if ideal is not None}
    width = drawn[0][2].edges_bytes[1]
    first, second = dict(drawn[0][3]), dict(drawn[1][3])
    both = [depth for depth in first.keys() & second.keys() if depth - width / 2 in judged]
    if not both:
        return ""
    most = max(abs(first[depth] - second[depth]) for depth in both)
    return f" Away from the step at Kmax the two are {100 * most:.1f} percentage points apart at most."
