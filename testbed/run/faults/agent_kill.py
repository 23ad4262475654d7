"""`agent-kill`: the worker of a host or a storage target dies, and with it the run; the next run starts a new one."""

from __future__ import annotations

from testbed.run.faults.lab_fault import FaultPlace, FaultSite, LabFault


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
