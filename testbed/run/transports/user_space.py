"""What transports in user space have in common on a lab: endpoints that hold packets for delays, and turns in ticks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

from testbed.lab.core.fabric.base_rtt import declared_base_rtt, model_base_rtt
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.core.plan.link_delays import PathModel
from testbed.run.placed.channels import ChannelPlan
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
        own: PortPlan | None = None
        for channel in channels.channels:
            for near, far in ((channel.source, channel.destination), (channel.destination, channel.source)):
                a, b = ranks[near], ranks[far]
                if a.node == host:
                    own = own or a
                    delay_ns = self.held_ns(self.path(b, a))
                    if delay_ns:
                        delays.setdefault(address_of(a), {})[address_of(b)] = delay_ns
        return own, delays

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
