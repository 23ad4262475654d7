"""Links: how full each uplink was, which ports were busiest, and which of them were paused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.report.chart import Cell, Row, draw_heat_map, draw_rows, linear_axis
from testbed.report.scenario.figures import format_bytes, format_time
from testbed.report.scenario.plots.plot import Plot
from testbed.results import RunResult
from testbed.workload.metrics import jain_index, max_mean_ratio

MAX_PORTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class _Link:
    node: str
    interface: str
    peer: str
    tier: str
    tx_bytes: int
    tx_dropped: int
    utilisation: float
    ce_packets: int = 0
    paused_us: int = 0
    queue_max_bytes: int = 0

    @property
    def name(self) -> str:
        return f"{self.node}:{self.interface}"

    @property
    def to(self) -> str:
        """The switch it leads to."""
        return self.peer.partition(":")[0] or self.interface

    @property
    def remark(self) -> str:
        said = f"{self.name} to {self.peer}: {self.utilisation:.1%}, {format_bytes(self.tx_bytes)} sent"
        said += f", {self.tx_dropped:,} dropped" if self.tx_dropped else ""
        said += f", {self.ce_packets:,} CE-marked" if self.ce_packets else ""
        said += f", paused for {format_time(self.paused_us / 1e6)}" if self.paused_us else ""
        return said + (f", deepest queue {format_bytes(self.queue_max_bytes)}" if self.queue_max_bytes else "")


def plot_links(run: RunResult) -> list[Plot]:
    links = _links(run)
    tiers = list(dict.fromkeys(link.tier for link in links if link.tier.endswith("uplink")))
    found = [plot for tier in tiers if (plot := _heat_map([link for link in links if link.tier == tier], tier))]
    found += [plot for plot in (_busiest(links), _paused(links, run)) if plot is not None]
    return found


def _links(run: RunResult) -> list[_Link]:
    if run.ports:
        return [
            _Link(
                node=port.node,
                interface=port.interface,
                peer=port.peer,
                tier=port.tier,
                tx_bytes=port.tx_bytes,
                tx_dropped=port.tx_dropped,
                utilisation=port.utilisation,
                ce_packets=port.ce_packets,
                paused_us=port.paused_us,
                queue_max_bytes=port.queue_max_bytes,
            )
            for port in run.ports
        ]
    return [
        _Link(
            node=uplink.switch,
            interface=uplink.interface,
            peer=uplink.peer,
            tier="uplink",
            tx_bytes=uplink.tx_bytes,
            tx_dropped=uplink.tx_dropped,
            utilisation=uplink.utilisation,
        )
        for uplink in run.uplinks
    ]


def _heat_map(links: Sequence[_Link], tier: str) -> Plot | None:
    """A row for each switch, a column for each it leads to; None where there is one alone, or nothing was carried."""
    if len(links) < 2 or not any(link.tx_bytes for link in links):
        return None
    rows = list(dict.fromkeys(link.node for link in links))
    by_peer = len({(link.node, link.to) for link in links}) == len(links)
    column = {link.name: link.to if by_peer else link.interface for link in links}
    cells = {
        (link.node, column[link.name]): Cell(
            share=link.utilisation,
            written=f"{link.utilisation:.0%}",
            remark=link.remark,
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


def _busiest(links: Sequence[_Link]) -> Plot | None:
    """Ports of all tiers; None where the heat map has them all."""
    if all(link.tier == "uplink" for link in links):
        return None
    busy = sorted((link for link in links if link.tx_bytes), key=lambda link: -link.utilisation)[:MAX_PORTS]
    if not busy:
        return None
    rows = [
        Row(
            label=f"{link.name} → {link.peer}" + (f", {link.tier}" if link.tier else ""),
            value=link.utilisation,
            written=f"{link.utilisation:.0%}" + (f", {link.tx_dropped:,} lost" if link.tx_dropped else ""),
            remark=link.remark,
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


def _paused(links: Sequence[_Link], run: RunResult) -> Plot | None:
    paused = sorted((link for link in links if link.paused_us), key=lambda link: -link.paused_us)[:MAX_PORTS]
    if not paused:
        return None
    rows = [
        Row(
            label=f"{link.name} → {link.peer}" + (f", {link.tier}" if link.tier else ""),
            value=link.paused_us / 1e6,
            written=format_time(link.paused_us / 1e6),
            remark=link.remark,
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
