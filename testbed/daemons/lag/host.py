"""The link groups of a host's NICs where the kernel has no bonding driver: LACP here, and frames by eBPF."""

from __future__ import annotations

from pathlib import Path

from testbed.base.datapath.lag import LagPrograms
from testbed.base.linux.traffic_control import CLSACT_INGRESS
from testbed.daemons.lag.configuration import HostAggregate, HostGroups, NodeConfiguration
from testbed.daemons.lag.kernel import CarrierChange, Kernel
from testbed.daemons.lag.node import GroupNode, GroupStatus, LagNodeStatus
from testbed.daemons.lag.ports import GroupPorts
from testbed.protocols.lacp.lacp import Aggregator, decode_lacpdu


class _Group:
    """One aggregate, with its programs: it has carrier while a member is in sync; what it sends leaves by one of those,
    by flow."""

    def __init__(self, aggregate: HostAggregate, kernel: Kernel) -> None:
        """Raises `CapabilityError`, `DriverError`, `OSError`."""
        self.nic = aggregate.nic
        self.members = {member.ifindex: member.name for member in aggregate.members}
        self._inner = aggregate.inner
        self._indexes = {name: ifindex for ifindex, name in self.members.items()}
        self._kernel = kernel
        self._programs = LagPrograms()
        self._programs.fix(aggregate.inner)
        self.seed = 0
        self.take_seed(aggregate.seed)
        kernel.put_programs(aggregate.inner, {CLSACT_INGRESS: self._programs.named("to_member")})
        for ifindex in self.members:
            kernel.put_programs(ifindex, {CLSACT_INGRESS: self._programs.named("from_member")})
        self.aggregator = Aggregator(
            system=aggregate.system,
            key=aggregate.key,
            members={member.name: member.number for member in aggregate.members},
        )
        self._active: tuple[str, ...] | None = None

    def take_seed(self, seed: int) -> None:
        """Choose members by hashes that begin with a seed."""
        self._programs.seed(seed)
        self.seed = seed

    def carrier(self, ifindex: int, up: bool, now: float) -> None:
        """Take note of the carrier of a member."""
        self.aggregator.carrier(self.members[ifindex], up, now)

    def act(self, now: float, ports: GroupPorts) -> float:
        """Send what is to be sent, by the members that are in sync; when to act again."""
        self.aggregator.time_out(now)
        active = self.aggregator.active
        if active != self._active:
            indexes = [self._indexes[name] for name in active]
            self._programs.distribute(indexes)
            self._programs.list_ports(indexes)
            self._kernel.set_link(self._inner, bool(active))
            self._active = active
        for name, pdu in self.aggregator.pdus(now):
            ports.send(self._indexes[name], pdu)
        return self.aggregator.next_due()

    def status(self) -> GroupStatus:
        """Return the state of its members."""
        return GroupStatus(name=self.nic, members=tuple(self.aggregator.status()), seed=self.seed)


class HostNode(GroupNode):
    """All link groups of a host."""

    def __init__(self, host: HostGroups, directory: Path) -> None:
        """Raises `CapabilityError`, `DriverError`, `OSError`."""
        names = {member.ifindex: member.name for one in host.aggregates for member in one.members}
        super().__init__(host.node, directory, Kernel(bridging=False), GroupPorts.slow_protocols(names))
        self._host = host
        self._groups = [_Group(one, self.kernel) for one in host.aggregates]
        self._group_of = {ifindex: group for group in self._groups for ifindex in group.members}
        for ifindex, up in self.kernel.links().items():
            if ifindex in self._group_of:
                self._group_of[ifindex].carrier(ifindex, up, 0.0)

    def arrived(self, ifindex: int, payload: bytes, now: float) -> None:
        if (pdu := decode_lacpdu(payload)) is not None:
            group = self._group_of[ifindex]
            group.aggregator.received(group.members[ifindex], pdu, now)

    def changed(self, now: float) -> None:
        for change in self.kernel.changes():
            if isinstance(change, CarrierChange) and change.ifindex in self._group_of:
                self._group_of[change.ifindex].carrier(change.ifindex, change.up, now)

    def become(self, configuration: NodeConfiguration, now: float) -> None:
        if not isinstance(configuration, HostGroups) or configuration.seeded(0) != self._host.seeded(0):
            raise ValueError(f"the link groups of {self._host.node} are others")
        for group, aggregate in zip(self._groups, configuration.aggregates, strict=True):
            group.take_seed(aggregate.seed)

    def act(self, now: float) -> float:
        return min(group.act(now, self.ports) for group in self._groups)

    def status(self, now: float) -> LagNodeStatus:
        return LagNodeStatus(node=self.node, groups=tuple(group.status() for group in self._groups))
