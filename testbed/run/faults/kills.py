"""Faults that end processes: a switch loses power, one of its routing daemons dies, or the worker of a host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from testbed.base.errors import Finding, ScenarioError
from testbed.base.linux.processes import Process, freeze, kill_processes
from testbed.lab.core.deploy.links.changes import LinkChange
from testbed.lab.core.deploy.routing import running_daemons, start_routing
from testbed.lab.core.model import Lab
from testbed.run.faults.lab_fault import FaultPlace, FaultSite, LabFault, carriers

if TYPE_CHECKING:
    from testbed.run.faults.subnet import SubnetSite


class NodeKill(LabFault):
    """All ports of a switch lose their carrier, and its routing daemons get SIGKILL.

    Ports go one after the other, and a switch without power says nothing meanwhile: its daemons stand still before. A
    switch of InfiniBand has no daemons, and loses what it has in its buffers.
    """

    kind = "node-kill"
    place = FaultPlace.NODE
    of_bridges = True

    def holds(self, lab: Lab) -> Mapping[str, str]:
        """The carriers of its links, and its routing, which starts anew."""
        links = carriers(lab, lambda link: self.target in (link.a.node, link.b.node))
        return {f"the routing of {self.target}": "", **links}

    def do(self, site: FaultSite) -> None:
        if site.subnet is not None and site.subnet.has_switch(self.target):
            site.subnet.kill_switch(self.target)
            return
        daemons = running_daemons(site.lab, self.target)
        freeze(daemons)
        for port in self._ports(site):
            site.links.set(port, LinkChange(up=False))
        kill_processes(daemons)

    def undo(self, site: FaultSite) -> None:
        """All ports are tried, whichever of them refuses, and the routing is started in any case."""
        if site.subnet is not None and site.subnet.has_switch(self.target):
            site.subnet.revive_switch(self.target)
            return
        errors: list[Exception] = []
        for port in self._ports(site):
            try:
                site.links.set(port, LinkChange(up=True))
            except Exception as error:
                errors.append(error)
        start_routing(site.lab, self.target)
        if errors:
            raise errors[0]

    @property
    def may_lose(self) -> bool:
        return True

    def _ports(self, site: FaultSite) -> list[str]:
        return [f"{port.node}:{port.name}" for port in site.lab.plan.ports if port.node == self.target]


class DaemonKill(LabFault):
    """The daemon that `settings` names (bgpd, bfdd or zebra) gets SIGKILL; undone, the switch's routing starts anew."""

    kind = "daemon-kill"
    place = FaultPlace.NODE

    def check(self, lab: Lab) -> Iterator[Finding]:
        yield from self.place_findings(lab)
        if self._daemon == "bfdd" and lab.routing.bfd is None:
            yield Finding(
                code="unknown-daemon",
                keys=("daemon",),
                message=f"{lab.name} runs no BFD",
                hint="fabric: {routing: {bfd: {interval: 300ms}}}",
            )

    def holds(self, lab: Lab) -> Mapping[str, str]:
        return {f"the routing of {self.target}": ""}

    def prepare(self, site: FaultSite) -> None:
        super().prepare(site)
        daemons = site.lab.daemons.get(self.target, ())
        if self._daemon not in daemons:
            known = ", ".join(daemons) or "none"
            raise ScenarioError(f"{self.target} has no daemon {self._daemon}", hint=f"it has {known}")

    def do(self, site: FaultSite) -> None:
        running = self._running(site)
        if not running:
            raise ScenarioError(f"{self.target} runs no {self._daemon} that could be killed")
        kill_processes(running)
        if self._running(site):
            raise ScenarioError(f"{self._daemon} of {self.target} has not ended after SIGKILL")

    def undo(self, site: FaultSite) -> None:
        start_routing(site.lab, self.target)

    @property
    def may_lose(self) -> bool:
        return True

    @property
    def _daemon(self) -> str:
        return str(self.fault.settings.get("daemon", ""))

    def _running(self, site: FaultSite) -> list[Process]:
        return [one for one in running_daemons(site.lab, self.target) if one.command == self._daemon]


class ManagerKill(LabFault):
    """The subnet manager at a host of an InfiniBand back end gets SIGKILL; undone, it starts again."""

    kind = "manager-kill"
    place = FaultPlace.MANAGER

    def check(self, lab: Lab) -> Iterator[Finding]:
        hosts = () if lab.infiniband is None else lab.infiniband.settings.sm_hosts
        if self.target not in hosts:
            known = ", ".join(hosts)
            yield Finding(
                code="unknown-manager",
                keys=("manager",),
                message=f"{lab.name} has no subnet manager at {self.target}",
                hint=f"it has those at {known}" if known else "a back end with link_layer: infiniband has some",
            )

    def holds(self, lab: Lab) -> Mapping[str, str]:
        return {f"the subnet manager at {self.target}": ""}

    def prepare(self, site: FaultSite) -> None:
        self._subnet(site).prepare()

    def do(self, site: FaultSite) -> None:
        self._subnet(site).kill_manager(self.target)

    def undo(self, site: FaultSite) -> None:
        self._subnet(site).restart_manager(self.target)

    @property
    def may_lose(self) -> bool:
        return False

    def _subnet(self, site: FaultSite) -> SubnetSite:
        if site.subnet is None:
            raise ScenarioError(f"the back end of {site.lab.name} has no subnet manager")
        return site.subnet


class AgentKill(LabFault):
    """The worker of a node gets SIGKILL. It cannot be done to a node without a worker: one that takes no part in the
    workload, or whose traffic is that of programs such as iperf3."""

    kind = "agent-kill"
    place = FaultPlace.AGENT
    is_undone = False

    def do(self, site: FaultSite) -> None:
        site.kill_worker(self.target)

    def undo(self, site: FaultSite) -> None:
        """Undo nothing: nothing is left to be undone."""

    @property
    def may_lose(self) -> bool:
        return False
