"""BGP sessions and BFD peers of switches, as their daemons report them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.base.errors import DriverError
from testbed.base.linux import vty
from testbed.lab.core.plan.lab_plan import SwitchPlan

ESTABLISHED = "Established"
UP = "up"


@dataclass(frozen=True, slots=True, kw_only=True)
class BgpSession:
    """A BGP session with the neighbour on `interface`. `uptime_s` since it was established."""

    node: str
    interface: str
    remote: str
    remote_asn: int
    state: str
    prefixes_received: int
    prefixes_sent: int
    uptime_s: float
    bfd: str = ""
    """State of the BFD peer: "up", "down", ...; "" where BFD is off."""


def read_sessions(switch: SwitchPlan, directory: Path) -> list[BgpSession]:
    """The planned sessions of a switch; one that bgpd does not know has the state "absent".

    Raises `DriverError` when bgpd (or bfdd, where BFD is on) does not answer.
    """
    if not switch.neighbors:
        return []
    answer = vty.ask_json(directory, "bgpd", "show bgp ipv4 unicast summary json")
    peers: dict[str, Any] = answer.get("ipv4Unicast", answer).get("peers", {})
    bfd = read_bfd(directory) if switch.bfd else {}
    sessions = []
    for neighbor in switch.neighbors:
        peer = peers.get(neighbor.interface, {})
        sessions.append(
            BgpSession(
                node=switch.node,
                interface=neighbor.interface,
                remote=neighbor.remote,
                remote_asn=int(peer.get("remoteAs", 0)),
                state=str(peer.get("state", "absent")),
                prefixes_received=int(peer.get("pfxRcd", 0)),
                prefixes_sent=int(peer.get("pfxSnt", 0)),
                uptime_s=float(peer.get("peerUptimeMsec", 0)) / 1000,
                bfd=bfd.get(neighbor.interface, "absent") if switch.bfd and neighbor.bfd else "",
            )
        )
    return sessions


def read_bfd(directory: Path) -> dict[str, str]:
    """State of the BFD peer on each interface."""
    peers = vty.ask_json(directory, "bfdd", "show bfd peers json")
    return {str(peer.get("interface", "")): str(peer.get("status", "unknown")) for peer in peers}


def missing_sessions(switches: Iterable[SwitchPlan], run: Path) -> list[str]:
    """A line for each planned session or BFD peer that is not up, and for each daemon that does not answer."""
    missing = []
    for switch in switches:
        try:
            sessions = read_sessions(switch, run / switch.node)
        except DriverError as error:
            missing.append(error.message)
            continue
        for session in sessions:
            if session.state != ESTABLISHED:
                missing.append(f"{session.node}: BGP to {session.remote} ({session.interface}) is {session.state}")
            elif session.bfd not in ("", UP):
                missing.append(f"{session.node}: BFD to {session.remote} ({session.interface}) is {session.bfd}")
    return missing
