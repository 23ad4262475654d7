"""`daemon-kill`: one routing daemon of a switch dies, while its ports go on forwarding."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.base.errors import Finding, ScenarioError
from testbed.base.linux.processes import Process, kill_processes
from testbed.lab.core.deploy.routing import running_daemons, start_routing
from testbed.lab.core.model import Lab
from testbed.run.faults.lab_fault import FaultPlace, FaultSite, LabFault


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
