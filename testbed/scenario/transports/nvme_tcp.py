"""NVMe/TCP between hosts and storage targets: what its media are in lab time, and who begins a transfer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from testbed.errors import ScenarioError
from testbed.model import BACKEND
from testbed.model.storage import StorageTarget
from testbed.plan.operations import PLAIN_QUEUE_PACKETS, PortPlan
from testbed.scenario.run.channels import ChannelPlan, ChannelRules
from testbed.scenario.run.placed_workload import PlacedWorkload
from testbed.scenario.transports.storage_transport import StorageTransport
from testbed.worker.program import Settings
from testbed.worker.transports.nvme_tcp import NvmeTcpSettings
from testbed.workload.steps import Workload

DEFAULTS = NvmeTcpSettings()
_QUEUES = 2
"""Of ports on the way that one host's data may fill: its NIC's, and that of the leaf towards the target."""
NVME_TCP_PORT = 4420
"""Registered with IANA for NVMe over Fabrics."""


class NvmeTcp(StorageTransport):
    """Every transfer has a storage target at one of its ends: it is written by the host there is, or read."""

    noun: ClassVar[str] = "NVMe/TCP"

    def warnings(self) -> list[str]:
        """A path whose keep-alive commands wait behind its own data for longer than it may be silent."""
        depth, io_bytes, keep_alive_ms = self._option("depth"), self._option("io_bytes"), self._option("keep_alive_ms")
        nics = [nic for host in self.lab.plan.hosts for nic in host.nics if host.node in self.targets]
        if not nics:
            return []
        slowest = min(nics, key=lambda nic: nic.nic_bps)
        waiting_bytes = min(depth * io_bytes, _QUEUES * PLAIN_QUEUE_PACKETS * slowest.mtu_bytes)
        wait_ms = 8000 * waiting_bytes / slowest.nic_bps
        if wait_ms < keep_alive_ms:
            return []
        return [
            f"at {slowest.node}:{slowest.name} {waiting_bytes} bytes take {wait_ms:.0f} ms, and a path that is silent"
            f" for {keep_alive_ms} ms is dead: less depth or io_bytes, or more keep_alive_ms"
        ]

    def _option(self, name: str) -> int:
        return int(self.transport.options.get(name) or getattr(DEFAULTS, name))

    @property
    def channel_rules(self) -> ChannelRules:
        return ChannelRules(destination_port=NVME_TCP_PORT, one_for_each_pair=True, own_ports=True)

    def plan_channels(self, workload: Workload, ranks: Sequence[PortPlan], *, seed: int) -> ChannelPlan:
        self._check_paths(ranks)
        return super().plan_channels(workload, ranks, seed=seed)

    def _check_paths(self, ranks: Sequence[PortPlan]) -> None:
        """Refuse paths to NICs of a target on other rails where rails do not reach each other."""
        if not self.transport.options.get("multipath") or not self.lab.model.isolated_rails:
            return
        rails: dict[str, set[int]] = {}
        for nic in ranks:
            if nic.node in self.targets and nic.network == BACKEND:
                rails.setdefault(nic.node, set()).add(nic.rail)
        several = next((name for name, found in rails.items() if len(found) > 1), None)
        if several is not None:
            raise ScenarioError(
                f"{several} has NICs on several rails of {self.lab.model.name}, which do not reach each other: a path"
                " to another NIC leads nowhere",
                hint="multipath: false, or ranks: {rails: [1]}",
            )

    def worker_settings(self, placement: PlacedWorkload) -> Callable[[str], Settings]:
        options = self.transport.options
        ports: dict[str, list[str]] = {}
        for nic in placement.ranks:
            if nic.node in self.targets and nic.address is not None:
                ports.setdefault(nic.node, []).append(str(nic.address.ip))
        settings = NvmeTcpSettings(
            targets={
                address: self.medium(self.targets[name]) for name, addresses in ports.items() for address in addresses
            },
            ports={name: tuple(addresses) for name, addresses in ports.items()},
            multipath=bool(options.get("multipath")),
            keep_alive_ms=self._option("keep_alive_ms"),
            depth=self._option("depth"),
            io_bytes=self._option("io_bytes"),
            digests=bool(options.get("digests")),
            congestion_control=self.transport.cc,
            tos=self.tos,
        )
        return lambda host: settings

    def medium(self, target: StorageTarget) -> dict[str, int]:
        """With the target's capacity, which is as it is."""
        return {**super().medium(target), "capacity": target.capacity.bytes}

    def approximations(self) -> list[str]:
        cc = self.transport.cc or "the machine's default congestion control"
        return [
            f"NVMe/TCP goes over the kernel's TCP ({cc}) in lab time: its timers (200 ms minimum RTO, delayed"
            " acknowledgements) are not scaled.",
            "Targets' media are a rate, a latency and a number of commands at once: they have no cache and no wear, and"
            " contents are checked on arrival, and kept only where the workload restores them.",
        ]


TRANSPORT = NvmeTcp
