"""The part of a lab that a scenario needs, and nothing more. `deploy` provides one that runs; tests fake it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from testbed.base.linux.port_counters import PlainQueue, PortCounters
from testbed.lab.core.model import Lab, whole_lab
from testbed.lab.core.plan.lab_plan import LabPlan

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
        ...

    def of_network(self, *names: str) -> LiveLab:
        """Returns the lab as it is seen in some networks: `model` and `plan` have nothing of the others."""
        ...

    def spawn(self, node: str, argv: Sequence[str], **popen_kwargs: Any) -> subprocess.Popen[bytes]:
        """Starts a program inside a node. Options are those of `subprocess.Popen`, and `own_sysfs`."""
        ...

    def namespace_file(self, node: str) -> str | None:
        """Returns the path of a node's network namespace; None for a node whose programs are to run inside it."""
        ...

    @property
    def processes_directory(self) -> Path | None:
        """Returns where the lab's own processes have their files on this machine; None where it has none."""
        ...

    def counters(self) -> Mapping[tuple[str, str], PortCounters]:
        """Reads every port's counters, by (node, interface)."""
        ...

    def plain_queues(self) -> Mapping[tuple[str, str], PlainQueue]:
        """Reads the queue of every port without QoS, by (node, interface)."""
        ...

    def maps(self, *, writable: bool = False) -> LabMaps:
        """Opens the data path's counters, for a lab whose plan has `qos`."""
        ...

    @property
    def pause_agent(self) -> PauseAgent:
        """The agent that pauses the lab's lossless classes."""
        ...


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


def lab_of_runs(lab: Lab) -> Lab:
    """Return a lab as runs see it: with the switches and links of an InfiniBand back end in place, which a deployed lab
    has no wires for, and what its subnet manager is told beside."""
    return lab if lab.infiniband is None else replace(whole_lab(lab), infiniband=lab.infiniband)


def _refuse() -> NoReturn:
    raise RuntimeError("this lab is only planned")
