"""Do the counters add up? What senders sent against what receivers got, and where the rest is."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.record.record import RunResult
from testbed.record.report.scenario.figures import fates_of, format_bytes, format_time, total


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceLine:
    """One line: what was counted, and what is left when it is set against what it should be.

    `ok` None: it is told, and judged by nothing.
    """

    what: str
    counted: str
    remark: str = ""
    ok: bool | None = None


def reconcile(run: RunResult) -> list[BalanceLine]:
    """Balance the counters of one run; nothing that the record does not have is assumed."""
    return [*_transfers(run), *_payload(run), *_packets(run), *_queue_pairs(run), *_fates(run), *_links(run)]


def _transfers(run: RunResult) -> list[BalanceLine]:
    table = run.transfers
    if not table.number:
        return []
    begun = sum(start is not None for start in table.start_s)
    ended = sum(end is not None for end in table.end_s)
    rest = len(table.number) - ended
    said = (
        "all ended"
        if not rest
        else f"{begun - ended:,} were under way at the end, {rest - begun + ended:,} never began"
    )
    return [BalanceLine(what="Transfers", counted=f"{len(table.number):,}", remark=said, ok=not rest)]


def _payload(run: RunResult) -> list[BalanceLine]:
    if not run.channels:
        return []
    sent = sum(channel.sent_bytes for channel in run.channels)
    received = sum(channel.received_bytes for channel in run.channels)
    lines = [BalanceLine(what="Payload handed to the transports", counted=format_bytes(sent))]
    rest = sent - received
    said = "all of it" if not rest else f"{format_bytes(abs(rest))} {'still under way' if rest > 0 else 'too much'}"
    lines.append(BalanceLine(what="Payload received", counted=format_bytes(received), remark=said, ok=rest >= 0))
    asked = [size for size, end in zip(run.transfers.size_bytes, run.transfers.end_s, strict=False) if end is not None]
    if asked:
        missing = sum(asked) - received
        said = "covered by what was received" if missing <= 0 else f"{format_bytes(missing)} more than was received"
        lines.append(
            BalanceLine(what="Bytes of ended transfers", counted=format_bytes(sum(asked)), remark=said, ok=missing <= 0)
        )
    return lines


def _packets(run: RunResult) -> list[BalanceLine]:
    lines = []
    packets = [channel.packets for channel in run.channels if channel.packets is not None]
    resent = sum(channel.retransmits for channel in run.channels)
    if packets and len(packets) == len(run.channels):
        lines.append(BalanceLine(what="Packets sent by the transports", counted=f"{sum(packets):,}"))
        resent_ok = resent <= sum(packets)
        lines.append(BalanceLine(what="Of them sent again", counted=f"{resent:,}", ok=resent_ok))
    elif run.channels:
        lines.append(BalanceLine(what="Packets sent again", counted=f"{resent:,}"))
    return lines


def _queue_pairs(run: RunResult) -> list[BalanceLine]:
    """Return what connections cost: memory of a NIC, and packets that attach where connections are dynamic."""
    state = run.counters.get("qp_state_bytes")
    if not state:
        return []
    lines = [BalanceLine(what="State of queue pairs, of the NIC with the most", counted=format_bytes(int(state)))]
    connects = int(run.counters.get("connects", 0))
    if connects:
        lines.append(BalanceLine(what="Packets that attach initiators (connects)", counted=f"{connects:,}"))
    return lines


def _fates(run: RunResult) -> list[BalanceLine]:
    """Return what befell packets: by channel, against what the transports' endpoints count in all."""
    of_channels = total(run.channels)
    lines = []
    for fate in fates_of([of_channels]):
        counted = fate.of(of_channels)
        told = [name for name in fate.names if name in run.counters]
        missing = fate.of(run.counters) - counted
        said = f"{abs(missing):,} {'of no channel' if missing > 0 else 'more than the endpoints counted'}"
        lines.append(
            BalanceLine(
                what=f"{fate.title}, packets of all channels",
                counted=f"{counted:,}",
                remark=said if told and missing else "as the endpoints counted" if told else "",
                ok=missing >= 0 if told else None,
            )
        )
    return lines


def _links(run: RunResult) -> list[BalanceLine]:
    ports = run.ports
    if not ports:
        return []
    lines = []
    for tier in dict.fromkeys(port.tier for port in ports):
        of = [port for port in ports if port.tier == tier]
        dropped = sum(port.tx_dropped for port in of)
        lines.append(
            BalanceLine(
                what=f"Sent by ports of the tier {tier}" if tier else "Sent by ports",
                counted=format_bytes(sum(port.tx_bytes for port in of)),
                remark=f"{dropped:,} packets dropped" if dropped else "nothing dropped",
            )
        )
    marks, paused = sum(port.ce_packets for port in ports), sum(port.paused_us for port in ports)
    if marks:
        lines.append(BalanceLine(what="Packets marked CE", counted=f"{marks:,}"))
    if paused:
        lines.append(BalanceLine(what="Time paused, over all ports", counted=format_time(paused / 1e6)))
    return lines
