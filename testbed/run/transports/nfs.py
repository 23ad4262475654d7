"""NFSv4 between hosts and storage targets: fio at the hosts, NFS-Ganesha at the targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from testbed.base.errors import CapabilityError, ScenarioError
from testbed.base.programs import captured
from testbed.endpoints.storage.fio import LIST_OF_ENGINES, has_engine
from testbed.endpoints.storage.ganesha import MOST_IO_BYTES, NFS_PORT
from testbed.endpoints.worker.fio.settings import FioSettings
from testbed.endpoints.worker.transports.nfs import NfsSettings
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.schema.model import Transport
from testbed.run.transports.fio_transport import FioTransport
from testbed.workload.steps import IoJob


class Nfs(FioTransport):
    """A target has no medium but this machine's page cache and disk: nothing of NFS-Ganesha would slow it down."""

    noun: ClassVar[str] = "NFS"
    server_port: ClassVar[int] = NFS_PORT
    programs: ClassVar[tuple[str, ...]] = ("fio", "ganesha.nfsd", "setpriv")
    defaults: ClassVar[FioSettings] = NfsSettings()

    @classmethod
    def check_machine(cls, transport: Transport) -> None:
        super().check_machine(transport)
        if not _fio_speaks_nfs():
            raise CapabilityError(
                "NFS: this fio was built without its engine nfs",
                missing="fio with libnfs",
                hint="Debian 13's has it: apt-get install fio there; or protocol: nbd",
            )

    def warnings(self) -> list[str]:
        found = super().warnings()
        if not found and not _fio_speaks_nfs():
            found.append("this fio was built without its engine nfs, which Debian 13's has: a run will be refused")
        return found

    def check_ranks(self, nics: Sequence[PortPlan]) -> None:
        for nic in nics:
            target = self.targets.get(nic.node)
            if target is not None and (target.medium.rate is not None or target.medium.latency is not None):
                raise ScenarioError(
                    f"the storage target {nic.node} has a medium with a rate or a latency, and an NFS server has none",
                    hint="a target without medium, or transport: {kind: nbd}",
                )

    def check_job(self, job: IoJob) -> None:
        """Beside what `NfsSettings` says, the engine cannot read what it creates."""
        if job.at_random or job.read_percent or job.depth > 1 or job.block_bytes > MOST_IO_BYTES:
            raise ScenarioError(
                "over NFS a job of fio reads or writes, in order, with one request of at most 1 MiB under way",
                hint="rw: write, iodepth: 1 and a higher numjobs; or transport: {kind: nbd}",
            )

    def approximations(self) -> list[str]:
        return [
            *super().approximations(),
            "NFS clients in user space open files one by one and have no cache, no delegations and no pNFS.",
        ]


def _fio_speaks_nfs() -> bool:
    listed = captured(LIST_OF_ENGINES).stdout
    return has_engine(listed, "nfs")


TRANSPORT = Nfs
