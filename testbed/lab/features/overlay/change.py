"""The overlay of a lab that is up, changed: its routing daemons see the VRFs that there are, and its keeper keeps them.

The kernel and the configurations of FRR are changed by the plans alone. What neither says is here. A namespace that is
a VRF is shown to daemons that run as long as it is empty, and hidden once nothing is configured in it any more. The
keeper is started anew with the routers that there are from now on, as soon as all VRFs have their devices: the first
routes of a new one may be those that zebra loses the router of.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from testbed.base.errors import DriverError
from testbed.base.linux import vty
from testbed.base.linux.processes import Process
from testbed.base.names import namespace_name
from testbed.daemons.keeper.configuration import KeeperConfiguration
from testbed.lab.core.deploy.changing.refusal import ChangeRefused
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.routing import ask_strangers, takes_namespaces
from testbed.lab.core.drivers.probing.machine import KNOWN_DAEMONS
from testbed.lab.core.drivers.routing.vrf_views import hide_vrf, show_vrfs, takes_vrfs
from testbed.lab.core.feature import Changing, FeatureChange
from testbed.lab.core.plan.changes import ChangeRow, Effect
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.overlay_plan import OverlayPlan, VrfPlan
from testbed.lab.core.render import FrrVersion, daemons_of
from testbed.lab.features.overlay.keeper import (
    EVENTS_FILE,
    end_keeper,
    forget_keeper,
    keeper_configuration,
    start_keeper,
)

_ACTIVE = re.compile(r"^vrf (\S+) id ", re.MULTILINE)
"""A VRF in what zebra answers to `show vrf`; one that is not there is "inactive"."""


def change_overlay(running: RunningLab, plan: LabPlan) -> OverlayChange:
    """Return what makes the overlay of a lab that is up that of a plan.

    Raises `ChangeRefused` where switches would have VRFs by another mechanism, or have daemons that take none.
    """
    change = OverlayChange(running, plan)
    change.require()
    return change


class OverlayChange(FeatureChange):
    """The part of an overlay in a change."""

    def __init__(self, running: RunningLab, plan: LabPlan) -> None:
        self._running = running
        self._plan = plan
        run, events = running.processes_directory, running.state_directory / EVENTS_FILE
        self._kept = tuple(keeper_configuration(each, run, events) for each in (running.plan, plan))
        before, after = ({vrf.node: vrf for vrf in _vrfs(each.overlay)} for each in (running.plan, plan))
        told = [{(one.node, takes_namespaces(one)) for one in each.speakers} for each in (running.plan, plan)]
        staying = {node for node, _ in told[0] & told[1]}  # others start, or are started anew, with the VRFs there are
        self._moved = [vrf for node, vrf in after.items() if node in before and before[node].place != vrf.place]
        self._come = _by_switch(vrf for node, vrf in after.items() if node not in before and vrf.switch in staying)
        self._gone = _by_switch(vrf for node, vrf in before.items() if node not in after and vrf.switch in staying)
        super().__init__(_keeper_rows(*self._kept))

    def require(self) -> None:
        """Raise `ChangeRefused` for what only a new deploy can bring about."""
        hint = "deploy --reconfigure replaces the lab"
        if self._moved:
            vrf = self._moved[0]
            kind = "a device" if vrf.is_device else "a namespace"
            raise ChangeRefused(f"the VRF of {vrf.tenant} on {vrf.switch} would be {kind}, which it is not", hint=hint)
        shown = {switch for switch, vrfs in self._come.items() if any(not vrf.is_device for vrf in vrfs)}
        for switch, daemons in self._daemons(shown).items():
            if not takes_vrfs(daemons):
                raise ChangeRefused(f"{switch} was deployed by an older version: its daemons take no VRFs", hint=hint)

    def created(self, changing: Changing) -> None:
        """Show new namespaces to the daemons of switches, and wait until zebra has them as VRFs."""
        wanted = {
            switch: {vrf.tenant: namespace_name(self._plan.lab, vrf.node) for vrf in vrfs if not vrf.is_device}
            for switch, vrfs in self._come.items()
        }
        wanted = {switch: vrfs for switch, vrfs in wanted.items() if vrfs}
        for switch, daemons in self._daemons(wanted).items():
            show_vrfs(daemons, wanted[switch])
        for switch, vrfs in wanted.items():
            _await_vrfs(changing.run / switch, partial(_are_known, vrfs.keys()), "its new VRFs")

    def linked(self, changing: Changing) -> None:
        """Have a keeper keep the routers that there are from now on."""
        before, after = self._kept
        if before == after:
            return
        end_keeper(self._identities(vrf.place for vrf in _vrfs(self._running.plan.overlay)).keys())
        start_keeper(changing.plan, changing.state)
        if after is None:
            forget_keeper(changing.run)

    def routed(self, changing: Changing) -> None:
        """Have the password asked in new VRFs, and wait until no L3VNI of those that go keeps bgpd."""
        switches = {switch.node: switch for switch in changing.plan.switches}
        for switch, vrfs in self._come.items():
            ask_strangers(switches[switch], changing.run, {vrf.tenant for vrf in vrfs})
        for switch, vrfs in self._gone.items():
            tenants = {vrf.tenant for vrf in vrfs}
            vty.await_json(
                changing.run / switch,
                "bgpd",
                "show bgp vrfs json",
                partial(_have_no_l3vni, tenants),
                "no L3VNI any more",
            )

    def removed(self, changing: Changing) -> None:
        """Hide the namespaces that are gone from the daemons that still have them open, one after the other."""
        daemons = self._daemons({switch for switch, vrfs in self._gone.items() if any(not v.is_device for v in vrfs)})
        for switch, vrfs in self._gone.items():
            directory = changing.run / switch
            for vrf in vrfs:
                if not vrf.is_device:
                    hide_vrf(daemons[switch], vrf.tenant)
                    _await_vrfs(directory, partial(_is_unknown, vrf.tenant), f"no VRF {vrf.tenant}")
                with suppress(DriverError):  # it knows already that it is gone
                    vty.configure(directory, self._settings_daemon(switch), [f"no vrf {vrf.tenant}"])

    def _settings_daemon(self, switch: str) -> str:
        """The daemon of a switch that VRFs are configured in: the first that is started."""
        plan = next(each for each in self._plan.switches if each.node == switch)
        return daemons_of(plan, FrrVersion.parse(self._running.configured_frr(switch)))[0]

    def _daemons(self, switches: Collection[str]) -> dict[str, list[Process]]:
        """Return the routing daemons of switches."""
        return self._running.processes(switches, KNOWN_DAEMONS)

    def _identities(self, places: Iterable[str]) -> dict[int, str]:
        """The namespaces of those of some nodes and VRFs that were made."""
        known = self._running.identities
        return {known[place]: place for place in places if place in known}


def _vrfs(overlay: OverlayPlan | None) -> Sequence[VrfPlan]:
    return () if overlay is None else overlay.vrfs


def _by_switch(vrfs: Iterable[VrfPlan]) -> Mapping[str, list[VrfPlan]]:
    found: dict[str, list[VrfPlan]] = defaultdict(list)
    for vrf in vrfs:
        found[vrf.switch].append(vrf)
    return found


def _keeper_rows(before: KeeperConfiguration | None, after: KeeperConfiguration | None) -> list[ChangeRow]:
    if before == after:
        return []
    effect = Effect.MADE if before is None else Effect.REMOVED if after is None else Effect.RESTARTED
    return [ChangeRow(effect=effect, node="", what="the keeper of the overlay", reason="other VTEPs are routed to")]


def _have_no_l3vni(tenants: Collection[str], answer: Any) -> bool:
    """Tell whether bgpd, which answered so, has no L3VNI in the VRFs of these tenants."""
    return not any(answer["vrfs"].get(tenant, {}).get("vni") for tenant in tenants)


def _are_known(vrfs: Collection[str], known: set[str]) -> bool:
    return known.issuperset(vrfs)


def _is_unknown(vrf: str, known: set[str]) -> bool:
    return vrf not in known


def _await_vrfs(directory: Path, ready: Callable[[set[str]], bool], awaited: str) -> None:
    """Wait until zebra has the VRFs that it is to have. Raises `DriverError`."""
    vty.await_text(
        directory, "zebra", "show vrf", lambda answer: ready(set(_ACTIVE.findall(answer))), awaited, runs=True
    )
