"""The base of transports in user space on a lab: endpoints that hold packets for delays, and turns in ticks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

from testbed.base.errors import ScenarioError
from testbed.lab.core.fabric.base_rtt import declared_base_rtt, model_base_rtt
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.core.plan.link_delays import PathModel
from testbed.protocols.errors import UsageError
from testbed.run.placed.channels import ChannelPlan
from testbed.run.placed.lab import LiveLab
from testbed.run.schema.model import Transport
from testbed.run.transports.lab_transport import LabTransport, address_of

TICKS_PER_RTT = 100
"""Workers look for what has come and is due so often in a base round trip: a wake-up for each packet buys nothing. What
is due waits for half of that on average, 0.5 % of a base round trip."""
LEAST_TICK_NS = 500_000
"""Below this, ticks save nothing: a wake-up takes tens of microseconds."""
CONTROL_DSCP = 48


class UserSpaceTransport(LabTransport):
    """The base class of such transports."""

    in_user_space: ClassVar[bool] = True

    def __init__(self, lab: LiveLab, transport: Transport) -> None:
        self._runs = 0
        """Counts runs: what is left of the last one's packets must not be taken for the next one's."""
        super().__init__(lab, transport)

    def check(self) -> None:
        super().check()
        any_nic = next((nic for host in self.lab.plan.hosts for nic in host.nics), None)
        if any_nic is not None:
            try:
                self.check_config(any_nic)
            except (UsageError, TypeError) as error:
                raise ScenarioError(f"transport: {error}") from None

    @abstractmethod
    def check_config(self, nic: PortPlan) -> None:
        """Raise `UsageError` or `TypeError` where the endpoint of a NIC cannot be configured so."""

    @property
    def tick_ns(self) -> int:
        """Return the least time between two turns of a worker, in ns of lab time; 0 where a round trip is short."""
        tick_ns = self.base_rtt_ns // TICKS_PER_RTT
        return tick_ns if tick_ns >= LEAST_TICK_NS else 0

    @cached_property
    def base_rtt_ns(self) -> int:
        declared = declared_base_rtt(self.lab.model)
        return super().base_rtt_ns if declared is None else max(1000, declared.scaled(self.lab.plan.k).ns)

    @cached_property
    def pipeline_ns(self) -> int:
        return max(0, -self._undeclared_ns // 2)

    @cached_property
    def _undeclared_ns(self) -> int:
        """Return by how much the longest path's links exceed the declared base RTT, in lab time; below 0 for less."""
        declared = declared_base_rtt(self.lab.model)
        if declared is None:
            return 0
        return round((model_base_rtt(self.lab.model).ns - declared.ns) * self.lab.plan.k)

    def held_ns(self, path: PathModel) -> int:
        return path.endpoint_ns + self.pipeline_ns

    def own_nic_and_delays(
        self, host: str, ranks: Sequence[PortPlan], channels: ChannelPlan
    ) -> tuple[PortPlan | None, dict[str, dict[str, int]]]:
        """Return the first NIC of a host that a channel begins or ends at, and what its datagrams are held for (ns),
        by own address and the peer's."""
        delays: dict[str, dict[str, int]] = {}
        pairs = pairs_of(host, ranks, channels)
        for a, b in pairs:
            if delay_ns := self.held_ns(self.path(b, a)):
                delays.setdefault(address_of(a), {})[address_of(b)] = delay_ns
        return pairs[0][0] if pairs else None, delays

    @property
    def control_dscp(self) -> int:
        """DSCP of what is to wait nowhere."""
        profile = self.profile
        if profile is None:
            return CONTROL_DSCP
        found = [dscp for dscp, item in enumerate(profile.class_of_dscp) if item == profile.control_class]
        return CONTROL_DSCP if CONTROL_DSCP in found or not found else found[0]

    def approximations(self) -> list[str]:
        if self._undeclared_ns > 0:
            return [
                f"The declared base RTT is {self._undeclared_ns / 1e6:.3g} ms (lab time) less than the longest path"
                " takes by its links alone. Transports go by the declared one."
            ]
        if not self.pipeline_ns:
            return []
        return [
            "Of the declared base RTT, what links do not have (NICs, switch pipelines:"
            f" {self.pipeline_ns / 1e6:.3g} ms each way in lab time) is added by the receiving endpoint, behind all"
            " queues."
        ]


def pairs_of(host: str, ranks: Sequence[PortPlan], channels: ChannelPlan) -> list[tuple[PortPlan, PortPlan]]:
    """Return the two NICs of each channel that begins or ends at a host, its own first; both ways in a channel."""
    ends = [(channel.source, channel.destination) for channel in channels.channels]
    both = [pair for near, far in ends for pair in ((near, far), (far, near))]
    return [(ranks[near], ranks[far]) for near, far in both if ranks[near].node == host]
