"""The base of transports in user space on a lab: endpoints that hold packets for delays, and turns in ticks."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar

from testbed.base.errors import ScenarioError
from testbed.base.units import Duration
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.core.plan.link_delays import PathModel
from testbed.lab.core.plan.user_space.marks import control_dscp
from testbed.lab.core.plan.user_space.times import EndpointTimes
from testbed.protocols.errors import UsageError
from testbed.run.placed.channels import ChannelPlan
from testbed.run.placed.lab import LiveLab
from testbed.run.schema.model import Transport
from testbed.run.transports.lab_transport import LabTransport, address_of

NicPair = tuple[PortPlan, PortPlan]
"""A host's own NIC, and that of a peer."""


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
                what, _, bounds = str(error).partition("; it can be ")
                if what.startswith("base_rtt_ns ") and bounds:
                    raise self._beyond_base_rtt(bounds) from None
                raise ScenarioError(f"transport: {error}") from None

    def _beyond_base_rtt(self, bounds: str) -> ScenarioError:
        """Return the error about a base RTT that the transport cannot have in the lab; `bounds` are "LEAST to MOST"."""
        k, kind = self.lab.plan.k, self.transport.kind
        least, most = (int(bound) for bound in bounds.split(" to "))
        taken = f"{Duration(least)} to {Duration(most)}"
        message = f"the base RTT is {Duration(self.base_rtt_ns)} in lab time (k = {k:g}); {kind} takes {taken}"
        longest = str(Duration(int(most / k))).replace(" ", "")
        hint = f"at this k, qos.base_rtt of the topology can be {longest} at most; or a smaller scale.time"
        if self.base_rtt_ns < least:
            hint = f"qos.base_rtt of the topology can be {str(Duration(-int(-least // k))).replace(' ', '')} at least"
        return ScenarioError(message, hint=hint, keys=("topology",))

    @abstractmethod
    def check_config(self, nic: PortPlan) -> None:
        """Raise `UsageError` or `TypeError` where the endpoint of a NIC cannot be configured so."""

    @cached_property
    def _times(self) -> EndpointTimes:
        return EndpointTimes(self.lab.model, self.lab.plan.k)

    @property
    def tick_ns(self) -> int:
        """Return the least time between two turns of a worker, in ns of lab time; 0 where a round trip is short."""
        return self._times.tick_ns()

    @cached_property
    def base_rtt_ns(self) -> int:
        return self._times.base_rtt_ns

    @cached_property
    def pipeline_ns(self) -> int:
        return self._times.pipeline_ns

    def held_ns(self, path: PathModel) -> int:
        return self._times.held_ns(path)

    def own_nic_and_delays(self, pairs: Sequence[NicPair]) -> tuple[PortPlan | None, dict[str, dict[str, int]]]:
        """Return the first NIC of a host that a channel begins or ends at, and what its datagrams are held for (ns),
        by own address and the peer's. `pairs` are those of the host."""
        delays: dict[str, dict[str, int]] = {}
        for a, b in pairs:
            if delay_ns := self.held_ns(self.path(b, a)):
                delays.setdefault(address_of(a), {})[address_of(b)] = delay_ns
        return pairs[0][0] if pairs else None, delays

    @property
    def control_dscp(self) -> int:
        """DSCP of what is to wait nowhere."""
        return control_dscp(self.profile)

    def approximations(self) -> list[str]:
        if self._times.undeclared_ns > 0:
            return [
                f"The declared base RTT is {self._times.undeclared_ns / 1e6:.3g} ms (lab time) less than the longest"
                " path takes by its links alone. Transports go by the declared one."
            ]
        if not self.pipeline_ns:
            return []
        return [
            "Of the declared base RTT, what links do not have (NICs, switch pipelines:"
            f" {self.pipeline_ns / 1e6:.3g} ms each way in lab time) is added by the receiving endpoint, behind all"
            " queues."
        ]


def pairs_by_host(ranks: Sequence[PortPlan], channels: ChannelPlan) -> Mapping[str, Sequence[NicPair]]:
    """Return, by host, the two NICs of each channel that begins or ends there, its own first; both ways in a
    channel."""
    found: defaultdict[str, list[NicPair]] = defaultdict(list)
    for channel in channels.channels:
        a, b = ranks[channel.source], ranks[channel.destination]
        found[a.node].append((a, b))
        found[b.node].append((b, a))
    return found
