"""The verbs `uet plot` and `uet states`: what an endpoint's trace shows, and the states of its contexts."""

from __future__ import annotations

import sys
from pathlib import Path


def plot(source: Path, target: Path, pdcid: int | None) -> None:
    """Draw the trace of one PDC, by default of the one that sent most."""
    from testbed.report.transport_trace import busiest_pdc, gather, load_trace, plot_trace

    events = load_trace(source)
    chosen = busiest_pdc(events) if pdcid is None else pdcid
    trace = gather(events, chosen)
    plot_trace(trace, f"PDC {chosen} of {source.name}", target)
    lost = {kind: len(times) for kind, times in trace.losses.items()}
    print(f"PDC {chosen}: {len(trace.paths)} packets sent, {lost or 'nothing lost'}: {target}", file=sys.stderr)


def states() -> None:
    """Print the state diagram of a packet delivery context, as Mermaid."""
    from testbed.transport.uet.delivery.states import state_diagram

    print(state_diagram(), end="")
