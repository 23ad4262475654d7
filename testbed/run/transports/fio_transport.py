"""The base of transports by fio: each transfer is a job at a host, and a real server is at the target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

from testbed.base.errors import CapabilityError, ScenarioError
from testbed.base.installation.packages import KnownProgram, missing_programs
from testbed.base.linux.processes import search_path
from testbed.base.units import ByteCount
from testbed.endpoints.storage.fio import blocks_of
from testbed.endpoints.worker.fio.settings import FioSettings, JobSettings
from testbed.endpoints.worker.program import Settings
from testbed.lab.core.model.storage import ServedBy
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.measuring.measured import Measured
from testbed.run.placed.channels import ChannelPlan, ChannelRules
from testbed.run.placed.placed_workload import PlacedWorkload
from testbed.run.schema.model import Transport
from testbed.run.transports.storage_transport import StorageTransport
from testbed.workload.steps import IoJob, Transfer, Workload

MOST_JOBS = 64
"""A host has no more jobs: each is a thread of fio, and a connection."""
_SLOT_BYTES = 4096
"""Slots of a target's medium are multiples of this."""


class FioTransport(StorageTransport):
    """A transport whose bytes are moved by programs of other projects, which this machine may lack."""

    server_port: ClassVar[int]
    programs: ClassVar[tuple[str, ...]]
    """The programs that it needs (`testbed.base.installation.packages`)."""
    defaults: ClassVar[FioSettings]
    """The settings of this protocol's workers where a scenario says nothing."""

    @classmethod
    def check_machine(cls, transport: Transport) -> None:
        missing = cls._missing()
        if missing is not None:
            raise CapabilityError(
                f"{cls.noun}: {missing.name} is not installed",
                missing=missing.name,
                hint=missing.installation,
            )

    def warnings(self) -> list[str]:
        missing = self._missing()
        if missing is None:
            return []
        return [f"{missing.name} is not installed, and {self.transport.kind} needs it: {missing.installation}"]

    @classmethod
    def _missing(cls) -> KnownProgram | None:
        """The first program that it needs and this machine does not have."""
        return next(iter(missing_programs(cls.programs, search_path())), None)

    @property
    def channel_rules(self) -> ChannelRules:
        return ChannelRules(destination_port=self.server_port, one_for_each_pair=True, own_ports=True)

    def _option(self, name: str) -> int:
        return int(self.transport.options.get(name) or getattr(self.defaults, name))

    def plan_channels(self, workload: Workload, ranks: Sequence[PortPlan], *, seed: int) -> ChannelPlan:
        plan = super().plan_channels(workload, ranks, seed=seed)
        used = dict.fromkeys(nic.node for nic in ranks)
        for name, target in self.targets.items():
            if name in used and target.served_by is ServedBy.KERNEL:
                message = f"{name} is served by the kernel, which speaks NVMe/TCP"
                raise ScenarioError(message, hint="served_by: user-space, or transport: {kind: nvme-tcp}")
        jobs: Counter[str] = Counter()
        written: Counter[str] = Counter()
        for step in workload.transfers:
            source, destination = (ranks[rank].node for rank in (step.source, step.destination))
            if step.job is not None:
                self.check_job(step.job)
                if step.job.read_percent and step.pulled:
                    continue  # it is the other half of a job
            jobs[destination if source in self.targets else source] += 1
            written[destination] += step.size_bytes if step.job is None else step.job.area_bytes
        for host, count in jobs.items():
            if count > MOST_JOBS:
                raise ScenarioError(
                    f"{host} has {count} transfers, and each is a job of fio, of which there are at most {MOST_JOBS}",
                    hint="fewer stripes or checkpoints",
                )
        for name, target in self.targets.items():
            if written[name] > target.capacity.bytes:
                raise ScenarioError(
                    f"{ByteCount(written[name])} are written to {name}, which holds {target.capacity}",
                    hint="a larger capacity of the target, or less to write",
                )
        return plan

    def check_job(self, job: IoJob) -> None:
        """Raise `ScenarioError` for a job of a workload that fio cannot run over this protocol."""

    def worker_settings(self, placement: PlacedWorkload) -> Callable[[str], Settings]:
        io_bytes = self._option("io_bytes")
        transfers = placement.workload.transfers
        cut = [blocks_of(step.size_bytes, io_bytes) for step in transfers if step.job is None]
        areas = [blocks * block_bytes for blocks, block_bytes in cut]
        areas += [step.job.area_bytes for step in transfers if step.job is not None]
        largest = max(areas, default=1)
        settings = replace(
            self.defaults,
            targets={
                str(nic.address.ip): self.medium(self.targets[nic.node])
                for nic in placement.ranks
                if nic.node in self.targets and nic.address is not None
            },
            depth=self._option("depth"),
            io_bytes=io_bytes,
            at_random=self.transport.options.get("order") == "random",
            slot_bytes=-(-largest // _SLOT_BYTES) * _SLOT_BYTES,
            steps=len(placement.workload.steps),
            jobs=_jobs(transfers, placement.k),
        )
        return lambda host: settings

    def observe_run(self, ranks: Sequence[PortPlan]) -> Callable[[Measured], None]:
        """The ports of fio's connections are the kernel's choice, and nobody counts their packets."""

        def add(measured: Measured) -> None:
            measured.channels = [replace(one, source_port=None, packets=None) for one in measured.channels]

        return add

    def approximations(self) -> list[str]:
        return [
            f"{self.noun} goes over the kernel's TCP in lab time, by fio and a real server: TCP's timers (200 ms"
            " minimum RTO, delayed acknowledgements) are not scaled, nor is what programs take (some ms a transfer).",
            "What is read or written is in memory or the page cache of this machine.",
        ]


def _jobs(transfers: Sequence[Transfer], k: float) -> tuple[JobSettings, ...]:
    """The jobs that a workload describes; what one reads and writes has the same label."""
    steps: dict[tuple[str, IoJob], list[int]] = {}
    for step in transfers:
        if step.job is not None:
            steps.setdefault((step.label, step.job), []).append(step.number)
    return tuple(
        JobSettings(
            steps=tuple(numbers),
            block_bytes=job.block_bytes,
            blocks=job.area_bytes // job.block_bytes,
            depth=job.depth,
            at_random=job.at_random,
            read_percent=job.read_percent or 0,
            runtime_us=max(1, round(job.runtime_ns * k / 1000)) if job.runtime_ns else 0,
            repeats=job.repeats,
        )
        for (_, job), numbers in steps.items()
    )
