"""The part of a lab that a scenario needs, and nothing more. `deploy` provides one that runs; tests fake it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from testbed.base.linux.port_counters import PlainQueue, PortCounters
from testbed.lab.core.model import BACKEND, InfinibandFabric, InfinibandSettings, Lab, whole_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.run.schema.model import Transport
from testbed.run.schema.transports import TRANSPORTS

if TYPE_CHECKING:
    import subprocess

    from testbed.base.datapath.maps import LabMaps
    from testbed.daemons.portd.client import PauseAgent


class LiveLab(Protocol):
    """A lab that is up and has converged."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> Lab: ...

    @property
    def plan(self) -> LabPlan: ...

    @property
    def whole(self) -> LiveLab:
        """Returns the lab as it is seen in all its networks."""

    def of_network(self, *names: str) -> LiveLab:
        """Returns the lab as it is seen in some networks: `model` and `plan` have nothing of the others."""

    def spawn(self, node: str, argv: Sequence[str], **popen_kwargs: Any) -> subprocess.Popen[bytes]:
        """Starts a program inside a node. Options are those of `subprocess.Popen`, and `own_sysfs`."""

    def namespace_file(self, node: str) -> str | None:
        """Returns the path of a node's network namespace; None for a node whose programs are to run inside it."""

    @property
    def processes_directory(self) -> Path | None:
        """Returns where the lab's own processes have their files on this machine; None where it has none."""

    def counters(self) -> Mapping[tuple[str, str], PortCounters]:
        """Reads every port's counters, by (node, interface)."""

    def plain_queues(self) -> Mapping[tuple[str, str], PlainQueue]:
        """Reads the queue of every port without QoS, by (node, interface)."""

    def maps(self, *, writable: bool = False) -> LabMaps:
        """Opens the data path's counters, for a lab whose plan has `qos`."""

    @property
    def pause_agent(self) -> PauseAgent:
        """The agent that pauses the lab's lossless classes."""


def lab_of_transports(lab: Lab, transports: Iterable[Transport]) -> Lab:
    """Return a lab whose back end is InfiniBand where a transport is, though its file says Ethernet: the same switches
    and links under a subnet manager that is told nothing, and no QoS. That is for virtual time, and for comparing."""
    if lab.infiniband is not None or not go_over_subnet(transports):
        return lab
    switches = tuple(node for node in lab.switches if node.network == BACKEND)
    names = {node.name for node in switches}
    links = tuple(link for link in lab.links if link.network == BACKEND)
    joined = {end.node for link in links for end in (link.a, link.b)}
    fabric = InfinibandFabric(
        settings=InfinibandSettings(sm_hosts=tuple(node.name for node in lab.hosts if node.name in joined)[:1]),
        switches=switches,
        links=links,
        rail_subnets=tuple(subnet for subnet in lab.rail_subnets if subnet.switch in names),
    )
    return replace(lab, infiniband=fabric, qos=None)


def go_over_subnet(transports: Iterable[Transport]) -> bool:
    """Tell whether one of these is InfiniBand's. Others go by the networks beside an InfiniBand back end."""
    return any(TRANSPORTS[one.kind.value].over_subnet for one in transports)


_FIRST_AS = 4_280_000_000
"""From here on are the numbers of switches of InfiniBand: private ones (RFC 6996), behind those of Ethernet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLab:
    """A lab as far as it is without being there: what a `LiveLab` says of itself, and nothing that it does."""

    model: Lab
    plan: LabPlan
    seen_of: PlannedLab | None = None
    """The whole lab, of which this is what is seen in some networks; None: this is the whole."""

    @property
    def whole(self) -> PlannedLab:
        return self.seen_of or self

    @property
    def name(self) -> str:
        return self.model.name

    def of_network(self, *names: str) -> PlannedLab:
        """The lab as it is seen in some networks."""
        return PlannedLab(model=self.model.of_network(*names), plan=self.plan.of_network(*names), seen_of=self.whole)

    def spawn(self, node: str, argv: Sequence[str], **popen_kwargs: Any) -> subprocess.Popen[bytes]:
        _refuse()

    def namespace_file(self, node: str) -> str | None:
        _refuse()

    def congestion_controls(self, hosts: Iterable[str]) -> dict[str, str] | None:
        """Return what TCP has in these hosts, where somebody knows."""
        return None

    @property
    def processes_directory(self) -> Path | None:
        return None

    def counters(self) -> Mapping[tuple[str, str], PortCounters]:
        _refuse()

    def plain_queues(self) -> Mapping[tuple[str, str], PlainQueue]:
        _refuse()

    def maps(self, *, writable: bool = False) -> LabMaps:
        _refuse()

    @property
    def pause_agent(self) -> PauseAgent:
        _refuse()


def congestion_controls(lab: LiveLab, hosts: Iterable[str]) -> dict[str, str] | None:
    """Return the congestion control that TCP has in each of these hosts where nothing else is said, by host; None for a
    lab that is only planned. Raises `DriverError`."""
    from testbed.lab.core.deploy.congestion_control import read_congestion_controls
    from testbed.lab.core.deploy.live import RunningLab

    if isinstance(lab, RunningLab):
        return read_congestion_controls(lab, hosts)
    return lab.congestion_controls(hosts) if isinstance(lab, PlannedLab) else None


def lab_of_runs(lab: Lab) -> Lab:
    """Return a lab as runs see it: with the switches and links of an InfiniBand back end in place, which a deployed lab
    has no wires for, and what its subnet manager is told beside.

    Switches of InfiniBand may stand in a ring. Since the plan of a lab has BGP between all switches of its back end,
    each of these is an AS of its own.
    """
    fabric = lab.infiniband
    if fabric is None:
        return lab
    numbered = tuple(replace(node, asn=_FIRST_AS + number) for number, node in enumerate(fabric.switches))
    return replace(whole_lab(replace(lab, infiniband=replace(fabric, switches=numbered))), infiniband=fabric)


def _refuse() -> NoReturn:
    raise RuntimeError("this lab is only planned")
