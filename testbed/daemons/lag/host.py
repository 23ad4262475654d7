"""The link group of a host's NIC where the kernel has no bonding driver: LACP here, and frames by eBPF."""

from __future__ import annotations

from pathlib import Path

from testbed.base.datapath.lag import LagPrograms
from testbed.base.linux.traffic_control import CLSACT_INGRESS
from testbed.daemons.lag.configuration import HostAggregate, NodeConfiguration
from testbed.daemons.lag.kernel import CarrierChange, Kernel
from testbed.daemons.lag.node import GroupNode, GroupStatus, LagNodeStatus
from testbed.daemons.lag.ports import GroupPorts
from testbed.protocols.lacp.lacp import Aggregator, decode_lacpdu


class HostNode(GroupNode):
    """The aggregate has carrier while a member is in sync; what it sends leaves by one of those, by flow."""

    def __init__(self, host: HostAggregate, directory: Path) -> None:
        """Raises `CapabilityError`, `DriverError`, `OSError`."""
        names = {member.ifindex: member.name for member in host.members}
        super().__init__(host.node, directory, Kernel(bridging=False), GroupPorts.slow_protocols(names))
        self._host = host
        self._members = names
        self._indexes = {name: ifindex for ifindex, name in names.items()}
        self._programs = LagPrograms()
        self._programs.fix(host.inner)
        self.kernel.put_programs(host.inner, {CLSACT_INGRESS: self._programs.named("to_member")})
        for ifindex in names:
            self.kernel.put_programs(ifindex, {CLSACT_INGRESS: self._programs.named("from_member")})
        self._aggregator = Aggregator(
            system=host.system, key=host.key, members={member.name: member.number for member in host.members}
        )
        self._active: tuple[str, ...] | None = None
        for ifindex, up in self.kernel.links().items():
            if ifindex in names:
                self._aggregator.carrier(names[ifindex], up, 0.0)

    def arrived(self, ifindex: int, payload: bytes, now: float) -> None:
        if (pdu := decode_lacpdu(payload)) is not None:
            self._aggregator.received(self._members[ifindex], pdu, now)

    def changed(self, now: float) -> None:
        for change in self.kernel.changes():
            if isinstance(change, CarrierChange) and change.ifindex in self._members:
                self._aggregator.carrier(self._members[change.ifindex], change.up, now)

    def become(self, configuration: NodeConfiguration, now: float) -> None:
        if configuration != self._host:
            raise ValueError(f"the link group of {self._host.node} is another one")

    def act(self, now: float) -> float:
        self._aggregator.time_out(now)
        active = self._aggregator.active
        if active != self._active:
            indexes = [self._indexes[name] for name in active]
            self._programs.distribute(indexes)
            self._programs.list_ports(indexes)
            self.kernel.set_link(self._host.inner, bool(active))
            self._active = active
        for name, pdu in self._aggregator.pdus(now):
            self.ports.send(self._indexes[name], pdu)
        return self._aggregator.next_due()

    def status(self, now: float) -> LagNodeStatus:
        group = GroupStatus(name=self._host.nic, members=tuple(self._aggregator.status()))
        return LagNodeStatus(node=self.node, groups=(group,))
