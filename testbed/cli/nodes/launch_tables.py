"""The closing tables of `launch`: what rails carried, and what the uplinks of each switch did."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.base.rows import column, short
from testbed.cli.options import Format
from testbed.cli.output import emit, emit_json, warn
from testbed.run.launch import LaunchResult, PortTraffic

_UNEVEN = 1.5
"""A direction whose busiest uplink has so many times the mean is said to be uneven."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RailRow:
    """The NICs of ranks on one rail."""

    rail: str
    nics: int
    sent: str
    received: str
    dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UplinksRow:
    """The uplinks of a switch that carried something: in all, and how uneven. A share of 1 is the mean of them."""

    switch: str
    uplinks: int
    sent: str
    sent_share: float = column("max/mean")
    busiest: str
    received: str
    received_share: float = column("received_max_mean", heading="max/mean")
    most_received: str = column("received_busiest", heading="busiest")
    marked: int | None = column(sparse=True)
    dropped: int


def print_result(result: LaunchResult, form: Format) -> None:
    """Print what came of a launch: tables and a sentence for people, a document, or a line for each port."""
    if form is Format.JSON:
        emit_json(result.to_json())
        return
    if form is Format.CSV:
        emit([*result.nics, *result.uplinks], PortTraffic, form)
        return
    if result.nics:
        emit(rail_rows(result.nics), RailRow, form)
    if rows := uplink_rows(result.uplinks):
        emit(rows, UplinksRow, form)
    print(summary(result), file=sys.stderr)
    if not result.rail_bytes and len({place.host for place in result.places}) > 1:
        warn("the ranks are on several hosts, and no byte of them crossed a rail")


def summary(result: LaunchResult) -> str:
    """Say in a sentence what happened."""
    ranks, hosts = len(result.places), len({place.host for place in result.places})
    control = f" ({result.congestion_control})" if result.congestion_control and result.transport == "tcp" else ""
    again = "" if result.sent_again is None else f", {result.sent_again} packets sent again"
    return (
        f"{ranks} rank{'' if ranks == 1 else 's'} on {hosts} host{'' if hosts == 1 else 's'},"
        f" {result.seconds:.2f} s of lab time at k = {result.k:g}:"
        f" {short(result.rail_bytes, 'B')} sent by their NICs over {result.transport}{control}{again}"
    )


def rail_rows(nics: Sequence[PortTraffic]) -> list[RailRow]:
    """Add up the NICs of each rail."""
    by_rail: dict[str, list[PortTraffic]] = defaultdict(list)
    for nic in nics:
        by_rail[nic.interface].append(nic)
    return [
        RailRow(
            rail=rail,
            nics=len(found),
            sent=short(sum(nic.tx_bytes for nic in found), "B"),
            received=short(sum(nic.rx_bytes for nic in found), "B"),
            dropped=sum(nic.dropped_packets for nic in found),
        )
        for rail, found in by_rail.items()
    ]


def uplink_rows(uplinks: Sequence[PortTraffic]) -> list[UplinksRow]:
    """Put the uplinks of each switch together that carried something."""
    by_switch: dict[str, list[PortTraffic]] = defaultdict(list)
    for port in uplinks:
        by_switch[port.node].append(port)
    return [_uplinks_row(switch, ports) for switch, ports in by_switch.items() if any(map(_carried, ports))]


def _carried(port: PortTraffic) -> bool:
    return bool(port.tx_bytes or port.rx_bytes)


def _uplinks_row(switch: str, ports: Sequence[PortTraffic]) -> UplinksRow:
    sender = max(ports, key=lambda port: port.tx_bytes)
    receiver = max(ports, key=lambda port: port.rx_bytes)
    marks = [port.marked_packets for port in ports if port.marked_packets is not None]
    return UplinksRow(
        switch=switch,
        uplinks=len(ports),
        sent=short(sum(port.tx_bytes for port in ports), "B"),
        sent_share=round(sender.tx_share, 2),
        busiest=_named(sender, sender.tx_share),
        received=short(sum(port.rx_bytes for port in ports), "B"),
        received_share=round(receiver.rx_share, 2),
        most_received=_named(receiver, receiver.rx_share),
        marked=sum(marks) if marks else None,
        dropped=sum(port.dropped_packets for port in ports),
    )


def _named(port: PortTraffic, share: float) -> str:
    """Name an uplink that has much more than the others, by its own end and the switch that it leads to."""
    return f"{port.interface} to {port.peer.partition(':')[0]}" if share >= _UNEVEN else ""
