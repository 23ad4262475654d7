"""Faults of a subnet in virtual time: links go down and come back, and the subnet manager routes around them; credits
of lanes leak.

A link's change is known to both of its ends at once. So long after it as `convergence: {subnet: ...}` says, the tables
that OpenSM has for the fabric as it is then are in force, at all switches together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from testbed.base.errors import ScenarioError
from testbed.lab.core.model import InfinibandFabric
from testbed.lab.core.model.infiniband import hca_ends
from testbed.protocols.infiniband.data_path import circle_words
from testbed.protocols.infiniband.subnet import Channel, Subnet
from testbed.protocols.infiniband.tables import set_routes
from testbed.record.samples import RunEvent
from testbed.run.faults.acts import Act, plan_acts
from testbed.run.faults.kills import ManagerKill, NodeKill
from testbed.run.faults.lab_fault import LabFault
from testbed.run.faults.links import LinkDown
from testbed.run.faults.outcome import FaultOutcome
from testbed.run.faults.registry import lab_fault
from testbed.run.faults.subnet import CreditLeak
from testbed.run.measuring.measured import Measured
from testbed.run.measuring.subnet_loads import DEADLOCKED
from testbed.run.placed.subnet import ends_of
from testbed.run.schema.model import AtStep, Fault
from testbed.run.simulated.infiniband.carrier import SubnetCarrier
from testbed.run.simulated.infiniband.network import SubnetNetwork
from testbed.run.simulated.infiniband.subnets import rerouted

SUBNET_NS = 15_000_000
"""From a link's change until the tables are other ones: OpenSM over ibsim took 11 to 15 ms with 32 HCAs."""


def check_subnet_fault(fault: Fault, fabric: InfinibandFabric) -> None:
    """Raise `ScenarioError` for a fault that a subnet in virtual time does not have."""
    found = lab_fault(fault)
    if isinstance(fault.at, AtStep):
        raise ScenarioError(
            f"a fault of InfiniBand in virtual time waits for no step of a program, as {fault.kind} of {fault.target}"
            " does",
            hint="at: 20us",
        )
    if isinstance(found, ManagerKill):
        raise ScenarioError(
            f"OpenSM runs before a simulation and between its changes, so that none can be killed at {fault.target}",
            hint="a lab that is up, or the link of its HCA: down: true",
        )
    if found.of_scale_up or not isinstance(found, LinkDown | NodeKill | CreditLeak):
        raise ScenarioError(
            f"InfiniBand in virtual time has no {fault.kind}, and {fault.target} is to have it",
            hint="link: with down, flap or leak; node: with kill",
        )
    if isinstance(found, LinkDown | CreditLeak):
        parts = {str(end) for link in fabric.links for end in (link.a, link.b)}
    else:
        parts = {node.name for node in fabric.switches}
    if fault.target not in parts:
        raise ScenarioError(
            f"{fault.target} is no part of the InfiniBand back end, and a run over that has nothing else",
            hint="a fault of one of its links or switches",
        )


class SubnetHappening:
    """The faults of one run, from its begin to its end (`run.simulated.beside.Happening`)."""

    probes_sent = 0

    def __init__(
        self,
        faults: Sequence[Fault],
        carrier: SubnetCarrier,
        network: SubnetNetwork,
        fabric: InfinibandFabric,
        *,
        subnet_ns: int,
        begin_ns: int,
    ) -> None:
        self._carrier = carrier
        self._network = network
        self._fabric = fabric
        self._whole: Subnet = carrier.subnet
        self._subnet_ns = subnet_ns
        self._begin_ns = begin_ns
        self._ended_ns: int | None = None
        self._channels = {str(end): channel for channel, end in ends_of(fabric).items()}
        self._down: Counter[Channel] = Counter()
        """By one of its ends, a port of a switch, each link that is down, and of how many faults."""
        self._changes = 0
        self._events: list[RunEvent] = []
        self._faults = [lab_fault(fault) for fault in faults]
        self._acts = plan_acts(self._faults)
        self._done: set[int] = set()

    def begin(self) -> None:
        """The traffic begins. What is due at once has happened when this returns."""
        for act in self._acts:
            if act.at_ns:
                self._network.at(self._begin_ns + act.at_ns, partial(self._perform, act))
            else:
                self._perform(act, self._begin_ns)

    def end(self) -> None:
        """The traffic has ended: nothing more is done."""
        self._ended_ns = self._network.now

    def tell(self, measured: Measured) -> None:
        """Add what was done and seen to a run."""
        ended_ns = self._network.now if self._ended_ns is None else self._ended_ns
        lasted_s = (ended_ns - self._begin_ns) / 1e9
        if lanes := self._carrier.deadlock:
            assert self._carrier.deadlocked_ns is not None
            self._note(self._carrier.deadlocked_ns, DEADLOCKED, lanes[0].node, circle_words([*map(str, lanes)]))
        measured.events = [event for event in self._events if event.at_s <= lasted_s]
        if not self._faults:
            return
        missing = {id(act.fault): act for act in reversed(self._acts) if act.order not in self._done and not act.undo}
        measured.faults = FaultOutcome(
            planned=len(self._faults),
            acts=len(self._done),
            troubles=tuple(
                f"{act.name} at {act.due} never happened: the traffic ended after {lasted_s:.6f} s"
                for act in reversed(missing.values())
            ),
        )

    # --- acts --------------------------------------------------------------------------------------------

    def _perform(self, act: Act, now: int) -> None:
        if self._ended_ns is not None:
            return
        fault = act.fault
        self._note(now, f"undone-{fault.kind}" if act.undo else fault.kind, fault.target)
        self._done.add(act.order)
        self._carrier.path.pass_time(now)  # whoever waits has waited until now
        if isinstance(fault, CreditLeak):
            self._carrier.path.set_leak(*self._channels[fault.target], fault.vl, 0.0 if act.undo else fault.share)
            self._carrier.touch()
            return
        for link in dict.fromkeys(map(self._switch_end, self._channels_of(fault))):
            self._down[link] += -1 if act.undo else 1
            self._carrier.path.set_link(*link, self._down[link] <= 0)
        self._down = +self._down
        self._carrier.touch()
        self._changes += 1
        self._network.at(now + self._subnet_ns, partial(self._reroute, self._changes))

    def _channels_of(self, fault: LabFault) -> Iterator[Channel]:
        """The links that a fault is about, each by one of its ports."""
        if isinstance(fault, LinkDown):
            yield self._channels[fault.links]
            return
        for channel in self._channels.values():
            if channel[0] == fault.target:
                yield channel

    def _switch_end(self, channel: Channel) -> Channel:
        """The one port by which a link is known, whichever end was named: of a switch, where it has one."""
        ends = (channel, self._whole.peer(*channel) or channel)
        return min(ends, key=lambda end: (not self._whole.nodes[end[0]].is_switch, end))

    def _managed(self) -> InfinibandFabric | None:
        """The fabric with those managers alone whose HCA has its link; None where there is none."""
        settings, hcas = self._fabric.settings, {end.node: end for end in reversed(hca_ends(self._fabric))}
        able = tuple(host for host in settings.sm_hosts if self._switch_end((str(hcas[host]), 1)) not in self._down)
        return replace(self._fabric, settings=replace(settings, sm_hosts=able)) if able else None

    def _reroute(self, change: int, now: int) -> None:
        """The subnet manager's tables for the fabric as it is are in force, unless it has changed since."""
        if change != self._changes or self._ended_ns is not None:
            return
        managed = self._managed()
        if managed is None:
            self._note(now, "not-rerouted", self._whole.sm, "no HCA with a subnet manager has its link")
            return
        found = rerouted(self._whole, managed, self._down) if self._down else self._whole
        set_routes(self._carrier.path, found)
        self._carrier.change_subnet(found)
        self._carrier.touch()
        self._note(now, "rerouted", found.sm, found.engine)

    def _note(self, now: int, kind: str, target: str, detail: str = "") -> None:
        self._events.append(
            RunEvent(at_s=round((now - self._begin_ns) / 1e9, 9), kind=kind, target=target, detail=detail)
        )
