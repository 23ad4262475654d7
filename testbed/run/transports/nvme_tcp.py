"""NVMe/TCP between hosts and storage targets: what its media are in lab time, and who begins a transfer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from testbed.base.errors import ScenarioError
from testbed.base.names import kernel_target_nqn
from testbed.endpoints.storage.kernel_target import whole_mib
from testbed.endpoints.worker.nvme.settings import NvmeTcpSettings
from testbed.endpoints.worker.program import Settings
from testbed.lab.core.drivers.probing.machine import parse_available_memory
from testbed.lab.core.fabric.forwarding.links import planes_apart
from testbed.lab.core.model import BACKEND
from testbed.lab.core.model.storage import ServedBy, StorageTarget
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.core.plan.operations import PLAIN_QUEUE_PACKETS
from testbed.run.placed.channels import ChannelPlan, ChannelRules
from testbed.run.placed.placed_workload import PlacedWorkload
from testbed.run.transports.storage_transport import StorageTransport
from testbed.workload.steps import Compute, Workload

DEFAULTS = NvmeTcpSettings()
_QUEUES = 2
"""Queues on the way that one host's data may fill: its NIC's, and that of the leaf towards the target."""
NVME_TCP_PORT = 4420
"""Registered with IANA for NVMe over Fabrics."""
_PATIENCE = 4
"""Times what all commands under way take together: so long is waited for one of them."""
_MEMORY_SHARE = 0.5
"""The share of the machine's free memory that the kernel's targets may fill with a run's bytes."""
_RATE_ERROR = 0.02
"""The share of a medium's rate by which whole MiB/s may miss it."""


class NvmeTcp(StorageTransport):
    """Every transfer has a storage target at one of its ends: it is written by the host there is, or read."""

    noun: ClassVar[str] = "NVMe/TCP"

    @cached_property
    def _kernel(self) -> dict[str, str]:
        """The NQNs of the targets that the kernel serves."""
        return {
            name: kernel_target_nqn(self.lab.name, name)
            for name, target in self.targets.items()
            if target.served_by is ServedBy.KERNEL
        }

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
        self._check_kernel_targets(workload, ranks)
        return super().plan_channels(workload, ranks, seed=seed)

    def _check_paths(self, ranks: Sequence[PortPlan]) -> None:
        """Refuse paths to NICs of a target on other rails where rails do not reach each other."""
        lab = self.lab.model
        planes = planes_apart(lab)
        if not self.transport.options.get("multipath") or not (lab.isolated_rails or planes):
            return
        parts: dict[str, set[int]] = {}
        for nic in ranks:
            if nic.node in self.targets and nic.network == BACKEND:
                part = nic.rail if lab.isolated_rails else planes.get(nic.peer.partition(":")[0], 0)
                parts.setdefault(nic.node, set()).add(part)
        several = next((name for name, found in parts.items() if len(found) > 1), None)
        if several is not None:
            what, key = ("rails", "{rails: [1]}") if lab.isolated_rails else ("planes", "{planes: [a]}")
            raise ScenarioError(
                f"{several} has NICs on several {what} of {lab.name}, which do not reach each other: a path"
                " to another NIC leads nowhere",
                hint=f"multipath: false, or ranks: {key}",
            )

    def _check_kernel_targets(self, workload: Workload, ranks: Sequence[PortPlan]) -> None:
        """Raise `ScenarioError` where the targets of a run that the kernel serves cannot do what ours can."""
        used = [name for name in dict.fromkeys(nic.node for nic in ranks) if name in self._kernel]
        if not used:
            return
        ours = "served_by: user-space"
        if self.transport.cc is not None:
            raise ScenarioError(
                f"cc: {used[0]} is served by the kernel, with the machine's congestion control", hint=ours
            )
        for step in workload.steps:
            if isinstance(step, Compute) and ranks[step.rank].node in used:
                raise ScenarioError(f"rank {step.rank} computes on {ranks[step.rank].node}, which the kernel serves")
        kept = dict.fromkeys(used, 0)
        for step in workload.transfers:
            for rank in (step.source, step.destination):
                if ranks[rank].node in kept:
                    kept[ranks[rank].node] += step.size_bytes
        for name in used:
            self._check_kernel_medium(name, kept[name])
        room = int(_MEMORY_SHARE * _available_bytes())
        if sum(kept.values()) > room:
            raise ScenarioError(
                f"the kernel's targets keep what is written in memory: {sum(kept.values())} bytes, and there is room"
                f" for {room}",
                hint=f"fewer bytes, or {ours}, which keeps nothing",
            )

    def _check_kernel_medium(self, name: str, kept: int) -> None:
        target = self.targets[name]
        if kept > target.capacity.bytes:
            raise ScenarioError(f"{name} is to hold {kept} bytes, and its capacity is {target.capacity}")
        rate = self.medium(target)["rate"]
        if rate and abs(whole_mib(rate) * 2**20 / rate - 1) > _RATE_ERROR:
            raise ScenarioError(
                f"the medium of {name} has {rate / 2**20:.3g} MiB/s in lab time, and the kernel's has whole MiB/s",
                hint="a smaller scale.time, another medium.rate or none, or served_by: user-space",
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
            kernel={name: nqn for name, nqn in self._kernel.items() if name in ports},
            multipath=bool(options.get("multipath")),
            keep_alive_ms=self._option("keep_alive_ms"),
            io_timeout_ms=self.io_timeout_ms(placement),
            depth=self._option("depth"),
            io_bytes=self._option("io_bytes"),
            digests=bool(options.get("digests")),
            congestion_control=self.transport.cc,
            tos=self.tos,
        )
        return lambda host: settings

    def io_timeout_ms(self, placement: PlacedWorkload) -> int:
        """Return how long a command may take, in ms of lab time.

        Rates are scaled, and what is under way is not, so that commands which wait at a port of the lab for those in
        front of them take longer than any in the real fabric. Unless the scenario says it, four times what all of them
        take is allowed.
        """
        wanted = self.transport.options.get("io_timeout_ms")
        if wanted is not None:
            return int(wanted)
        ranks, depth, io_bytes = placement.ranks, self._option("depth"), self._option("io_bytes")
        pairs: Counter[tuple[int, int]] = Counter()
        for step in placement.workload.transfers:
            pairs[step.source, step.destination] += step.size_bytes
        waiting: Counter[int] = Counter()
        commands: Counter[int] = Counter()
        for (source, destination), size_bytes in pairs.items():
            for rank in (source, destination):
                waiting[rank] += min(size_bytes, depth * io_bytes)
                commands[rank] += min(-(-size_bytes // io_bytes), depth)
        longest_s = 0.0
        for rank, size_bytes in waiting.items():
            took_s = 8 * size_bytes / self.endpoint_bps(ranks[rank])
            if (target := self.targets.get(ranks[rank].node)) is not None:
                medium = self.medium(target)
                took_s += medium["latency_us"] / 1e6 * -(-commands[rank] // medium["depth"])
            longest_s = max(longest_s, took_s)
        return max(DEFAULTS.io_timeout_ms, math.ceil(_PATIENCE * longest_s * 1000))

    def medium(self, target: StorageTarget) -> dict[str, int]:
        """With the target's capacity, which is as it is."""
        return {**super().medium(target), "capacity": target.capacity.bytes}

    def approximations(self) -> list[str]:
        cc = self.transport.cc or "the machine's default congestion control"
        kernel = [
            f"The kernel (nvmet-tcp) serves {', '.join(self._kernel)}: writes arrive when the host learns of it, half a"
            " round trip later than at a target of ours; contents are kept in memory and checked at the end of a run;"
            " the target's ends of connections are not counted; a rate holds over 20 ms."
        ]
        return [
            *(kernel if self._kernel else ()),
            f"NVMe/TCP goes over the kernel's TCP ({cc}) in lab time: its timers (200 ms minimum RTO, delayed"
            " acknowledgements) are not scaled.",
            "Targets' media are a rate, a latency and a number of commands at once: they have no cache and no wear, and"
            " contents are checked on arrival, and kept only where the workload restores them.",
        ]


def _available_bytes() -> int:
    """The memory that the machine can give without swapping (proc_meminfo(5), MemAvailable)."""
    return parse_available_memory(Path("/proc/meminfo").read_text())


TRANSPORT = NvmeTcp
