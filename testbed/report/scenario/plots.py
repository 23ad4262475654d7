"""The plots of a report, as SVG that takes its colours from the page.

Matplotlib draws with stand-in colours that are replaced by the page's CSS variables afterwards, so that
one drawing serves light and dark. Nothing of a record is interpreted: no mathtext, no paths.
"""

from __future__ import annotations

import io
import re
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from testbed.results import FlowResult, Record, RunResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, EDGE, ACCENT, WARN, ON_ACCENT = "#010101", "#020202", "#030303", "#040404", "#050505", "#060606"
_VARIABLES = {
    INK: "--ink", SOFT: "--soft", EDGE: "--edge", ACCENT: "--accent", WARN: "--warn", ON_ACCENT: "--on-accent",
}  # fmt: skip
MAX_LINES = 64
MAX_CELLS = 64
"""Flows drawn over time, rows and columns of the heat map: more cannot be told apart."""
_LABELLED_CELLS = 160
_SIZE = (5.4, 3.1)


def plot_ranks(record: Record) -> str | None:
    """Throughput by flow rank, one line per run, with the ideal; None where no flow was measured."""
    runs = [run for point in record.points for run in point.runs if run.flows]
    if not runs:
        return None
    with _figure("rank", _SIZE) as (figure, axes):
        widest = max(len(run.flows) for run in runs)
        for run in runs:
            shares = sorted(flow.share * 100 for flow in run.flows)
            ranks = range(1, len(shares) + 1)
            marker = "o" if widest <= 64 else None
            axes.plot(ranks, shares, color=ACCENT, alpha=max(0.35, 1 / len(runs)), lw=1.6, marker=marker, ms=4)
        _ideal(axes, 100, "ideal")
        axes.set_xlabel("flow, slowest first")
        axes.set_ylabel("goodput, % of ideal")
        axes.set_xlim(0.5, widest + 0.5)
        axes.set_ylim(0, max(112.0, max(flow.share for run in runs for flow in run.flows) * 105))
        return _svg(figure, "rank")


def plot_time(run: RunResult) -> str | None:
    """Each flow's sent payload over time as a share of its ideal, and the mean of all."""
    lines = [line for flow in run.flows[:MAX_LINES] if flow.ideal_bps > 0 and (line := _timeline(flow))[0]]
    if not lines:
        return None
    with _figure("time", _SIZE) as (figure, axes):
        for times, shares in lines:
            axes.plot(times, shares, color=ACCENT, alpha=max(0.12, 0.5 - len(lines) / 100), lw=1)
        common = min(len(shares) for _, shares in lines)
        mean = [statistics.fmean(shares[index] for _, shares in lines) for index in range(common)]
        axes.plot(lines[0][0][:common], mean, color=ACCENT, lw=2.6)
        _ideal(axes, 100, "ideal")
        axes.set_xlabel("seconds after the warm-up (lab time)")
        axes.set_ylabel("sent, % of ideal")
        axes.set_ylim(0, 150)
        axes.set_xlim(left=0)
        return _svg(figure, "time")


def plot_uplinks(run: RunResult) -> str | None:
    """Utilisation of every uplink: a row per rail switch, a column per uplink's peer."""
    switches = list(dict.fromkeys(uplink.switch for uplink in run.uplinks))[:MAX_CELLS]
    columns = list(dict.fromkeys(_column(uplink.peer, uplink.interface) for uplink in run.uplinks))[:MAX_CELLS]
    if not switches or not columns:
        return None
    loads = {(uplink.switch, _column(uplink.peer, uplink.interface)): uplink.utilisation for uplink in run.uplinks}
    height = min(9.0, 0.6 + 0.34 * len(switches))
    with _figure("uplinks", (5.4 if len(columns) <= 8 else 9.0, height)) as (figure, axes):
        from matplotlib.patches import Rectangle

        labelled = len(switches) * len(columns) <= _LABELLED_CELLS
        for row, switch in enumerate(switches):
            for column, peer in enumerate(columns):
                load = loads.get((switch, peer))
                if load is None:
                    continue
                shade = min(1.0, max(0.0, load))
                corner, opacity = (column + 0.03, row + 0.05), 0.06 + 0.86 * shade
                axes.add_patch(Rectangle(corner, 0.94, 0.9, lw=0, facecolor=ACCENT, alpha=opacity))
                if labelled:
                    colour = INK if shade < 0.55 else ON_ACCENT
                    axes.text(
                        column + 0.5, row + 0.5, f"{load:.0%}", ha="center", va="center", fontsize=9, color=colour
                    )
        axes.set_xlim(0, len(columns))
        axes.set_ylim(len(switches), 0)
        axes.set_xticks([index + 0.5 for index in range(len(columns))], columns)
        axes.set_yticks([index + 0.5 for index in range(len(switches))], switches)
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        axes.grid(visible=False)
        for spine in axes.spines.values():
            spine.set_visible(False)
        if len(columns) > 12:
            axes.tick_params(axis="x", rotation=90)
        return _svg(figure, "uplinks")


def _timeline(flow: FlowResult) -> tuple[list[float], list[float]]:
    """Middles of the sample intervals and payload sent in each, in percent of the flow's ideal."""
    times, shares = [], []
    for start, seconds, sent in zip(flow.samples.start_s, flow.samples.seconds, flow.samples.bytes, strict=False):
        if seconds > 0:
            times.append(start + seconds / 2)
            shares.append(sent * 8 / seconds / flow.ideal_bps * 100)
    return times, shares


def _column(peer: str, interface: str) -> str:
    """The switch an uplink leads to."""
    return peer.partition(":")[0] or interface


def _ideal(axes: Axes, value: float, label: str) -> None:
    axes.axhline(value, color=WARN, lw=1.3, ls=(0, (5, 3)))
    axes.annotate(
        label, (1, value), xycoords=("axes fraction", "data"), xytext=(-4, 3), textcoords="offset points",
        ha="right", color=WARN, fontsize=10,
    )  # fmt: skip


@contextmanager
def _figure(name: str, size: tuple[float, float]) -> Iterator[tuple[Figure, Axes]]:
    """A figure without the pyplot machinery (no global state), in the stand-in colours."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": f"testbed-{name}",
        "text.parse_math": False,
        "font.family": "DejaVu Sans",
        "font.size": 10,
        "text.color": INK,
        "axes.edgecolor": EDGE,
        "axes.labelcolor": SOFT,
        "xtick.color": SOFT,
        "ytick.color": SOFT,
        "axes.grid": True,
        "grid.color": EDGE,
        "grid.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
    }
    with mpl.rc_context(settings):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        figure.patch.set_alpha(0)
        axes = figure.add_subplot()
        axes.patch.set_alpha(0)
        yield figure, axes


def _svg(figure: Figure, name: str) -> str:
    """The drawing as an `<svg>` element: page colours, ids of its own, no fixed size."""
    output = io.StringIO()
    figure.savefig(output, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = output.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(url\(#|xlink:href="#)', rf"\g<1>{name}-", svg)
    return re.sub(r'^<svg ([^>]*?)width="[^"]*"\s*height="[^"]*"', r"<svg \1", svg.replace("\n", " ", 1), count=1)
