"""The base of transports to storage targets: who begins a transfer, and what a target's medium allows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

from testbed.base.errors import ScenarioError
from testbed.lab.core.model.storage import StorageTarget
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.placed.channels import ChannelPlan
from testbed.run.transports.lab_transport import TCP_PROTOCOL, LabTransport
from testbed.workload.oracles.serialisation import Framing, tcp_framing
from testbed.workload.steps import Transfer, Workload


class StorageTransport(LabTransport):
    """Every transfer has a storage target at one of its ends: it is written by the host there is, or read."""

    protocol: ClassVar[int] = TCP_PROTOCOL
    by_default_lossless: ClassVar[bool] = False
    noun: ClassVar[str]
    """The name of the protocol in a sentence."""

    @cached_property
    def targets(self) -> dict[str, StorageTarget]:
        """Return the lab's storage targets by their nodes' names."""
        return {node.name: node.target for node in self.lab.model.targets if node.target is not None}

    def framing(self, nic: PortPlan) -> Framing:
        return tcp_framing(nic.mtu_bytes)

    def plan_channels(self, workload: Workload, ranks: Sequence[PortPlan], *, seed: int) -> ChannelPlan:
        for step in workload.transfers:
            ends = [ranks[rank].node for rank in (step.source, step.destination)]
            if sum(end in self.targets for end in ends) != 1:
                raise ScenarioError(
                    f"{ends[0]} sends to {ends[1]}, and {self.noun} leads from a host to a storage target, or back",
                    hint='ranks: {network: storage, targets: ["*"]}, which are the last ranks',
                )
        return super().plan_channels(workload, ranks, seed=seed)

    def pulls(self, step: Transfer, ranks: Sequence[PortPlan]) -> bool:
        return ranks[step.source].node in self.targets

    def endpoint_bps(self, nic: PortPlan) -> float:
        target = self.targets.get(nic.node)
        if target is None or target.medium.rate is None:
            return super().endpoint_bps(nic)
        return min(super().endpoint_bps(nic), float(target.medium.rate.scaled(self.lab.plan.k).bps))

    def one_way_s(self, a: PortPlan, b: PortPlan, size_bytes: int, framing: Framing) -> float:
        """With the medium of a target: its latency, and all bytes at its rate where that is less than the ports'."""
        alone_s = super().one_way_s(a, b, size_bytes, framing)
        for nic in (a, b):
            if (target := self.targets.get(nic.node)) is not None:
                medium = self.medium(target)
                if medium["rate"]:
                    alone_s = max(alone_s, size_bytes / medium["rate"])
                alone_s += medium["latency_us"] / 1e6
        return alone_s

    def goodput_bps(self, a: PortPlan, b: PortPlan) -> float:
        return min(super().goodput_bps(a, b), self.endpoint_bps(a), self.endpoint_bps(b))

    def medium(self, target: StorageTarget) -> dict[str, int]:
        """Return what a worker is told of a target's medium, in lab time: `rate` in bytes/s (0: no limit),
        `latency_us`, and `depth`."""
        medium, k = target.medium, self.lab.plan.k
        return {
            "rate": 0 if medium.rate is None else max(1, medium.rate.scaled(k).bps // 8),
            "latency_us": 0 if medium.latency is None else medium.latency.scaled(k).ns // 1000,
            "depth": medium.depth,
        }
