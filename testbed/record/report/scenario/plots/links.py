"""Links: how full each uplink was, which ports were busiest, and which of them were paused."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.record.record import RunResult
from testbed.record.report.chart import Cell, Row, draw_heat_map, draw_rows, linear_axis
from testbed.record.report.scenario.figures import format_bytes, format_time
from testbed.record.report.scenario.plots.plot import Plot
from testbed.record.samples import PortLoad
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
        (link.node, column[_name(link)]): Cell(
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
