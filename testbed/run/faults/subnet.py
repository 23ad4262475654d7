"""Faults of an InfiniBand back end that is up: what happens at once, and what its subnet manager makes of it.

Frames are lost from the moment at which a link or a switch goes. The manager's new tables come later, in its own time,
or in two seconds where its trap was lost, and are no part of the fault: a thread waits for them, has frames go by them,
and notes when that was. In virtual time `testbed.run.simulated.infiniband.faults` does the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from testbed.base.errors import Finding, ScenarioError
from testbed.lab.core.model import Lab
from testbed.run.faults.lab_fault import FaultPlace, FaultSite, LabFault
from testbed.run.faults.outcome import TimedEvent, error_words

if TYPE_CHECKING:
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.features.infiniband.live import LinksChange


def subnet_switches(lab: Lab) -> frozenset[str]:
    """Return the names of the switches of a lab's InfiniBand back end; none where it has no such."""
    return frozenset() if lab.infiniband is None else frozenset(node.name for node in lab.infiniband.switches)


def subnet_ports(lab: Lab) -> frozenset[str]:
    """Return the names of all ports of a lab's InfiniBand back end; none where it has no such."""
    links = () if lab.infiniband is None else lab.infiniband.links
    return frozenset(str(end) for link in links for end in (link.a, link.b))


class SubnetSite:
    """The InfiniBand back end of a lab, for the faults of one run. All but `settle` belongs to the thread that does
    the faults."""

    def __init__(self, lab: RunningLab) -> None:
        """Raises `NoSubnet` for a lab whose back end is Ethernet."""
        from testbed.lab.features.infiniband.live import LiveSubnet  # what is simulated has none

        self.seen: list[TimedEvent] = []
        """When frames went by new tables, and when that could not be."""
        self._live = LiveSubnet(lab)
        model = lab.whole.model
        self._switches, self._ports = subnet_switches(model), subnet_ports(model)
        self._cut: dict[str, list[int]] = {}
        """The links that went with each switch that has no power."""
        self._changed = threading.Condition()
        self._change: LinksChange | None = None
        """The latest change that nobody has waited for yet."""
        self._thread: threading.Thread | None = None
        self._trouble = ""

    def has_port(self, place: str) -> bool:
        """Tell whether this is a port of the subnet."""
        return place in self._ports

    def has_switch(self, name: str) -> bool:
        """Tell whether this is one of its switches."""
        return name in self._switches

    def prepare(self) -> None:
        """Make sure that the subnet answers. Raises `DriverError`."""
        list(self._live.links())

    def set_link(self, place: str, *, up: bool) -> None:
        """Cut the link at a port, or join it again; one that is so already stays so."""
        if self._live.link(place).up != up:
            self._set_links([self._live.find_link(place)], up=up)

    def kill_switch(self, name: str) -> None:
        """Take a switch's power: the frames that it has are lost, and all its links go at once."""
        self._cut[name] = self._live.links_of(name)
        self._set_links(self._cut[name], up=False)

    def revive_switch(self, name: str) -> None:
        """Give a switch its power back, and with it the links that went. Fine where it has it."""
        down = {index for index, state in enumerate(self._live.links()) if not state.up}
        self._set_links([index for index in self._cut.get(name, ()) if index in down], up=True)
        self._cut.pop(name, None)

    def _set_links(self, links: Sequence[int], *, up: bool) -> None:
        if not links:
            return
        self._await(self._live.change_links(links, up=up))

    def _await(self, change: LinksChange) -> None:
        """Have the thread wait for the tables of a change, and of one before it that it has not come to."""
        with self._changed:
            earlier = () if self._change is None else self._change.links
            self._change = replace(change, links=tuple(dict.fromkeys((*earlier, *change.links))))
            if self._thread is None:
                self._thread = threading.Thread(target=self._follow, name="reroutes", daemon=True)
                self._thread.start()

    def set_leak(self, place: str, vl: int, share: float) -> None:
        """Let what a port sends on a lane lack a share of its credits; 0: none any more."""
        node, port = self._live.channel(place)
        self._live.require_wires().set_leak(node, port, vl, share)

    def kill_manager(self, host: str) -> None:
        """End the subnet manager at a host by SIGKILL; another one may take its place. Raises `NoSubnet` where none
        runs."""
        change = self._live.no_change()
        self._live.kill_manager(self._manager(host))
        self._await(change)

    def restart_manager(self, host: str) -> None:
        """Start it again, where it does not run, and wait until the subnet is up with it."""
        self._live.restart_manager(self._manager(host))

    def _manager(self, host: str) -> str:
        return next(node.name for node in self._live.planned.managers if node.host == host)

    # --- the thread --------------------------------------------------------------------------------------

    def _follow(self) -> None:
        while True:
            with self._changed:
                change, self._change = self._change, None
                if change is None:
                    self._thread = None
                    self._changed.notify_all()
                    return
            try:
                self._trouble = ""
                reroute = self._live.await_tables(change)
                subnet = None if self._live.wires is None else self._live.wires.subnet()
            except Exception as error:  # whatever it was, this thread has nobody else who would hear of it
                self._trouble = error_words(error)
                self._note("not-rerouted", "", self._trouble)
                continue
            if reroute is None or subnet is None:
                self._note("rerouted", "", "")
            else:
                self._note("rerouted", subnet.sm, f"{subnet.engine}: {reroute.sentence}")

    def _note(self, kind: str, target: str, detail: str) -> None:
        self.seen.append(TimedEvent(at_ns=time.monotonic_ns(), kind=kind, target=target, detail=detail))

    def settle(self) -> None:
        """Wait until frames go by the tables of the subnet as it is. Raises `ScenarioError` where they do not."""
        self._wait()
        if self._trouble:  # what was in the way may have been undone since
            self._await(self._live.no_change())
            self._wait()
        if self._trouble:
            raise ScenarioError(f"frames go by tables of before: {self._trouble}", hint="`testbed check` looks again")

    def _wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._thread is None)


class CreditLeak(LabFault):
    """The buffer of a lane at a port's peer loses a share of its blocks, so that the port lacks as many credits."""

    kind = "credit-leak"
    place = FaultPlace.LINK

    def check(self, lab: Lab) -> Iterator[Finding]:
        misplaced = [*self.place_findings(lab)]
        yield from misplaced
        if misplaced:
            return
        if self.target not in subnet_ports(lab):
            yield Finding(
                code="no-credits",
                keys=("leak",),
                message=f"{self.target} has no credits of InfiniBand that could leak",
                hint="a port of a back end with link_layer: infiniband; silent: true stops other links",
                at_key=True,
            )
        elif lab.infiniband is not None and self.vl >= lab.infiniband.settings.vls:
            yield Finding(
                code="unknown-lane",
                keys=("leak", "vl"),
                message=f"links of {lab.name} have no VL {self.vl}",
                hint=f"0 to {lab.infiniband.settings.vls - 1}, or more of them by fabric.infiniband.vls",
            )

    def holds(self, lab: Lab) -> Mapping[str, str]:
        return {f"the credits of VL {self.vl} at {self.target}": ""}

    @property
    def vl(self) -> int:
        """The lane."""
        return int(self.fault.settings["vl"])

    @property
    def share(self) -> float:
        """The share of its credits that it loses."""
        return float(self.fault.settings["share"])

    def do(self, site: FaultSite) -> None:
        _subnet_of(site, self).set_leak(self.target, self.vl, self.share)

    def undo(self, site: FaultSite) -> None:
        _subnet_of(site, self).set_leak(self.target, self.vl, 0.0)

    @property
    def may_lose(self) -> bool:
        return False


def _subnet_of(site: FaultSite, fault: LabFault) -> SubnetSite:
    if site.subnet is None:
        raise ScenarioError(f"{fault.kind} of {fault.target}: the back end of {site.lab.name} is no InfiniBand")
    return site.subnet
