"""The verbs `uet plot` and `uet states`: what an endpoint's trace shows, and the states of its contexts."""

import sys
from pathlib import Path

from testbed.cli.command import PATH, Group, argument, option

uet = Group("uet", help="Look at the UET transport.")


@uet.command("plot")
@argument("trace", metavar="TRACE", type=PATH, help="Events of an endpoint, one JSON object a line.")
@option("-o", "--output", type=PATH, default=Path("trace.svg"), help="Picture to write: .svg, .png or .pdf.")
@option("--pdc", type=int, help="PDCID; default: the one that sent most.")
def plot(trace: Path, output: Path, pdc: int | None) -> None:
    """Draw window, round trips, paths and losses of a PDC over time."""
    from testbed.record.report.chart.sheet import write_picture
    from testbed.record.report.transport_trace import busiest_pdc, draw_trace, gather, load_trace

    events = load_trace(trace)
    chosen = busiest_pdc(events) if pdc is None else pdc
    gathered = gather(events, chosen)
    write_picture(draw_trace(gathered, f"PDC {chosen} of {trace.name}"), output)
    lost = {kind: len(times) for kind, times in gathered.losses.items()}
    print(f"PDC {chosen}: {len(gathered.paths)} packets sent, {lost or 'nothing lost'}: {output}", file=sys.stderr)


@uet.command("states")
def states() -> None:
    """Print the states of a packet delivery context as a Mermaid diagram."""
    from testbed.protocols.uet.delivery.states import state_diagram

    print(state_diagram(), end="")
