"""Trust checks of the traffic: order of its packets, its probes, faults, requests, and congestion control.

Packets that overtake each other where each flow has one path were reordered by the machine: a veth whose receive
steering is not pinned does so, and the kernel's queue for a neighbour that does not answer yet. Source: RFC 4737 for
what counts as reordered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from testbed.lab.core.model.tcp import DEFAULT_TCP_CC, FALLBACK_TCP_CC
from testbed.record.record import Check
from testbed.record.samples import Channel, RunEvent
from testbed.run.faults.outcome import FaultOutcome
from testbed.run.placed.lab import LiveLab
from testbed.run.placed.traffic import RunTraffic
from testbed.run.probes.ledger import ProbeReport
from testbed.run.schema.model import Scenario
from testbed.run.transports.lab_transport import LabTransport, PathChoice
from testbed.run.transports.registry import transport_on

MOVED = frozenset({"detected", "carrier-lost", "daemon-ended"})
"""Events of a lab whose flows may have moved to other paths."""
MOST_NAMED = 3
"""So many flows are named, those with the most disorder."""


def channels_in_order(
    scenario: Scenario, lab: LiveLab, traffic: RunTraffic, channels: Sequence[Channel], *, lost: int
) -> list[Channel]:
    """Return the channels whose count of packets out of order must be 0 where switches give each flow one path.

    Those whose transport counts what follows a lost packet, too, are left out where the run lost any (`lost`), or the
    receiver itself asked for packets again, because it was not ready.
    """
    if traffic.parts:
        carriers = [(part.ranks, transport_on(part.view(lab), part.transport)) for part in traffic.parts]
    else:
        carriers = [(frozenset(range(len(traffic.placement.nics))), transport_on(lab, scenario.transport))]
    carrier: dict[int | None, LabTransport] = {rank: one for ranks, one in carriers for rank in ranks}
    return [
        channel
        for channel in channels
        if "out_of_order" in channel.counters
        and (transport := carrier.get(channel.source_rank)) is not None
        and transport.path_choice is PathChoice.HASHED
        and not (transport.counts_gaps and (lost or channel.counters.get("not_ready", 0)))
    ]


def check_order(report: ProbeReport | None, channels: Sequence[Channel], events: Sequence[RunEvent]) -> Iterator[Check]:
    """Judge streams of probes and what transports counted on these channels; nothing where there is nothing to judge,
    or routing moved flows meanwhile.

    For runs in which each flow keeps to one path (`probes.planning.is_single_path`, `channels_in_order`).
    """
    streams = [] if report is None else [item for item in report.streams if item.arrived > 1]
    if not (streams or channels) or any(event.kind in MOVED for event in events):
        return
    overtaken = {f"probes {item.stream}": item.inversions for item in streams}
    disordered = {f"{one.source} -> {one.destination}": one.counters["out_of_order"] for one in channels}
    arrived = sum(item.arrived for item in streams)
    found = []
    if sum(overtaken.values()):
        found.append(
            f"{sum(overtaken.values())} of {arrived} probes were overtaken by later ones of their flow, though it has"
            f" one path: {_worst(overtaken)}"
        )
    if sum(disordered.values()):
        found.append(
            f"transports received {sum(disordered.values())} packets out of order, though each flow has one path and"
            f" none is known to be lost: {_worst(disordered)}"
        )
    if not found:
        whole = [f"{arrived} probes of {len(streams)} flows"] if streams else []
        whole += [f"all packets of {len(channels)} channels"] if channels else []
        found = [f"{' and '.join(whole)} arrived in the order in which they were sent"]
    yield Check.at_most(
        name="ordering",
        title="No packet overtook another of its flow",
        value=sum(overtaken.values()) + sum(disordered.values()),
        limit=0,
        message="; ".join(found),
    )


def check_neighbours(unresolved: Sequence[str]) -> Iterator[Check]:
    """Judge whether every neighbour of the traffic had answered before it began."""
    named = ", ".join(unresolved[:MOST_NAMED]) + (", ..." if len(unresolved) > MOST_NAMED else "")
    yield Check.at_most(
        name="neighbours",
        title="Neighbours were resolved before traffic began",
        value=len(unresolved),
        limit=0,
        message=f"{len(unresolved)} neighbours did not answer: {named}"
        if unresolved
        else "every neighbour of the traffic had answered before it began",
    )


def _worst(counted: dict[str, int]) -> str:
    """Name the flows with the most, and how many have any."""
    worst = sorted((item for item in counted.items() if item[1]), key=lambda item: -item[1])
    more = len(worst) - MOST_NAMED
    named = ", ".join(f"{count} of {name}" for name, count in worst[:MOST_NAMED])
    return f"{named}, and {more} flows more" if more > 0 else named


MAX_SKIPPED = 0.05
"""The share of the probes that may not have been sent: as much may be missing from the time that was lost."""


def check_pace(report: ProbeReport) -> Iterator[Check]:
    """Tell whether probes were sent when they were due, so that those lost can be turned into time."""
    due = report.sent + report.skipped
    share = report.skipped / due if due else 0.0
    yield Check.at_most(
        name="probe-pace",
        title="Probes were sent when they were due",
        value=share,
        limit=MAX_SKIPPED,
        message=f"{share:.1%} of the probes could not be sent in time (limit {MAX_SKIPPED:.0%}), the latest of the"
        f" others {report.latest_s * 1e3:.0f} ms late",
    )


def check_congestion_control(found: Mapping[str, str]) -> Iterator[Check]:
    """Judge what TCP had in each host: the default, or in all of them what labs have on a kernel without it."""
    wrong = {host: name for host, name in found.items() if name != DEFAULT_TCP_CC}
    lacking = bool(wrong) and set(found.values()) == {FALLBACK_TCP_CC}
    if lacking:
        message = f"this kernel lets labs have no {DEFAULT_TCP_CC}: TCP used {FALLBACK_TCP_CC} instead"
    elif wrong:
        host, name = next(iter(wrong.items()))
        message = (
            f"{len(wrong)} hosts do not have the lab's {DEFAULT_TCP_CC}, {host} has {name}; deploy again, or say cc"
        )
    else:
        message = f"TCP used {DEFAULT_TCP_CC}, the lab's default"
    yield Check(
        name="tcp-cc",
        title="TCP's congestion control is the lab's",
        value=0 if lacking else len(wrong),
        limit=0,
        ok=lacking or not wrong,
        message=message,
    )


MAX_LATENESS_MS = 5.0
"""The lateness with which requests may begin and tokens be sent, as the 99th percentile: what a real-time thread is
granted, too."""


def check_request_lateness(counters: Mapping[str, float]) -> Iterator[Check]:
    """Judges how late the generator was; nothing where there were no requests.

    An open loop that is late offers less than it says, and what it measures is this machine: such a run is invalid, and
    not slow.
    """
    if not counters.get("requests_begun"):
        return
    asked_ms = counters.get("request_lateness_p99_us", 0.0) / 1e3
    sent_ms = counters.get("token_lateness_p99_us", 0.0) / 1e3
    yield Check.at_most(
        name="request-lateness",
        title="Requests and tokens were sent when due",
        value=max(asked_ms, sent_ms),
        limit=MAX_LATENESS_MS,
        message=f"{counters['requests_begun']:.0f} requests began p99 {asked_ms:.2f} ms late, and their tokens were"
        f" sent p99 {sent_ms:.2f} ms late (limit {MAX_LATENESS_MS:g} ms)",
    )


def check_faults(outcome: FaultOutcome) -> Iterator[Check]:
    """Tell whether every fault was done and undone in time. What was not is named."""
    count = "the fault was" if outcome.planned == 1 else f"all {outcome.planned} faults were"
    fine = f"{count} done as planned, the latest act {outcome.latest_s * 1e3:.1f} ms late, and nothing is left of it"
    yield Check.at_most(
        name="faults",
        title="Faults happened as planned and were undone",
        value=len(outcome.troubles),
        limit=0,
        message="; ".join(outcome.troubles) or fine,
    )
