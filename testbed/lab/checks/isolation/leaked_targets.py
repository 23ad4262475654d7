"""The attack of a leaf that announces another tenant's route target, and what becomes of it elsewhere.

A leaf that is not to be believed (a stolen one, or one with a slip in its configuration) has a VRF of one tenant export
its routes with the route target of a tenant that it has no part in. Where VRFs of that tenant import them, packets of
the tenant go to the attacker. The leaf's bgpd is told so over its vty, and told to stop afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.base.linux import vty
from testbed.lab.checks.isolation.arena import Fate
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.plan.lab_plan import SwitchPlan
from testbed.lab.core.plan.overlay_plan import VrfPlan

NAME = "unauthorised route target"
GUARD = "rt_filter"
MOST_LEAVES = 8
"""In a network: more of them do not attack."""
TIMEOUT_S = 5.0
_LOOK_EVERY_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """A VRF on a leaf that exports with the route target of `victim`, a VRF of another tenant on another leaf."""

    switch: SwitchPlan
    vrf: VrfPlan
    victim: VrfPlan

    def __str__(self) -> str:
        return f"{self.vrf.switch} ({self.vrf.tenant} as {self.victim.tenant})"


def find_leaks(lab: RunningLab, network: str) -> list[Leak]:
    """Find the attacks that each leaf of a network could try: one for each VRF that it lacks of a tenant that others
    have."""
    overlay = lab.plan.overlay
    if overlay is None:
        return []
    switches = {switch.node: switch for switch in lab.plan.switches if switch.network == network}
    vrfs = [vrf for vrf in overlay.vrfs if vrf.switch in switches]
    reachable = {
        switch: {route.prefix.network_address for route in lab.plan.expected_routes.get(switch, ())}
        for switch in switches
    }
    has = {(vrf.switch, vrf.tenant) for vrf in vrfs}
    found: dict[str, Leak] = {}
    for vrf in vrfs:
        for victim in vrfs if vrf.l2 else ():
            if (vrf.switch, victim.tenant) not in has and vrf.vtep in reachable[victim.switch]:
                found.setdefault(vrf.switch, Leak(switch=switches[vrf.switch], vrf=vrf, victim=victim))
    return list(found.values())[:MOST_LEAVES]


def leak(lab: RunningLab, one: Leak) -> Fate:
    """Have the leaf announce its routes so, see whether the victim takes them up, and undo it.

    They were stopped where the victim's leaf does not hear of them any more: who filters them drops what it believed
    before. Raises `DriverError` where a daemon does not answer.
    """
    run = lab.state.run_directory(lab.name)
    here, there = run / one.vrf.switch, run / one.victim.switch
    command = f"route-target export {one.victim.l3.imports[0]}"
    deadline = time.monotonic() + TIMEOUT_S
    fate = Fate.UNSEEN
    try:
        _tell(one, here, command)
        while fate is Fate.UNSEEN and time.monotonic() < deadline:
            if _taken_up(one, there):
                fate = Fate.SUCCEEDED
            elif not _heard(one, there):
                fate = Fate.STOPPED
            else:
                time.sleep(_LOOK_EVERY_S)
    finally:
        _tell(one, here, f"no {command}")
    deadline = time.monotonic() + TIMEOUT_S
    while (_taken_up(one, there) or not _heard(one, there)) and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY_S)
    return fate


def _tell(one: Leak, directory: Path, command: str) -> None:
    section = f"router bgp {one.switch.asn} vrf {one.vrf.tenant}"
    vty.configure(directory, "bgpd", (section, "address-family l2vpn evpn", command))


def _taken_up(one: Leak, directory: Path) -> bool:
    """Tell whether the victim's VRF has a route by the attacker's VTEP."""
    table = vty.ask_json(directory, "bgpd", f"show bgp vrf {one.victim.tenant} ipv4 unicast json")
    return str(one.vrf.vtep) in _next_hops(table.get("routes", {}).values())


def _next_hops(entries: Iterable[Sequence[dict[str, Any]]]) -> set[str]:
    return {hop.get("ip", "") for paths in entries for path in paths for hop in path.get("nexthops", ())}


def _heard(one: Leak, directory: Path) -> bool:
    """Tell whether the victim's leaf has a route of the attacker's VRF, whoever imports it."""
    table = vty.ask_json(directory, "bgpd", "show bgp l2vpn evpn json")
    return any(prefix.startswith("[5]") for prefix in table.get(one.vrf.l3.rd, {}))
