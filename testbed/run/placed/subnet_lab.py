"""A lab that is up as runs over its InfiniBand back end see it: HCAs with their rails, and the wires between them.

A deployed lab has no ports for its back end, since frames go over a process. Here they are in place, planned at the
time scale of the wires, and what is asked of ports comes from these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from testbed.base.errors import ScenarioError
from testbed.base.linux.port_counters import PlainQueue, PortCounters
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.model import BACKEND, DelayBy, InfinibandFabric, Lab
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.features.infiniband.live import LiveSubnet
from testbed.lab.features.infiniband.wires import MOST_HCAS, has_wires
from testbed.run.placed.lab import lab_of_runs
from testbed.run.placed.subnet import ends_of, port_counters

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from testbed.base.datapath.maps import LabMaps
    from testbed.daemons.portd.client import PauseAgent
    from testbed.daemons.subnetd.client import SubnetWires

_INSTEAD = "--backend simulation, which has subnets of any size and of Ethernet's switches"


def require_wires(lab: Lab) -> InfinibandFabric:
    """Return the InfiniBand back end of a lab whose frames are carried while it is up. Raises `ScenarioError`."""
    fabric = lab.infiniband
    if fabric is None:
        raise ScenarioError(
            f"transport: kind ib goes over a subnet, and the back end of {lab.name} is Ethernet",
            hint=f"fabric: {{link_layer: infiniband}}, or {_INSTEAD}",
        )
    if not has_wires(fabric):
        raise ScenarioError(
            f"the subnet of {lab.name} has more than {MOST_HCAS} HCAs, and no lab carries the frames of so many",
            hint=_INSTEAD,
        )
    return fabric


class SubnetLab:
    """The InfiniBand back end of a lab that is up (`LiveLab`)."""

    def __init__(self, running: RunningLab) -> None:
        """Raises `ScenarioError` for a lab whose back end has no wires, and `WiresMissing` where they do not run."""
        self.running = running.whole
        self.fabric = require_wires(self.running.model)
        self.name = running.name
        whole, k = lab_of_runs(self.running.model), float(self.wires.status()["time_scale"])
        self.model: Lab = whole.of_network(BACKEND)
        self.plan = plan_lab(whole, k=k, auto_delay=DelayBy.KERNEL, any_size=True).of_network(BACKEND)

    @property
    def whole(self) -> SubnetLab:
        """Return itself: the run has nothing else."""
        return self

    def of_network(self, *names: str) -> SubnetLab:
        """Return itself: it is seen in the back end."""
        return self

    @cached_property
    def wires(self) -> SubnetWires:
        """The wires that carry its frames."""
        found = LiveSubnet(self.running).wires
        assert found is not None
        return found

    def spawn(self, node: str, argv: Sequence[str], **popen_kwargs: Any) -> subprocess.Popen[bytes]:
        """Start a program inside a node."""
        return self.running.spawn(node, argv, **popen_kwargs)

    def namespace_file(self, node: str) -> str | None:
        """Return the path of a node's network namespace."""
        return self.running.namespace_file(node)

    @property
    def processes_directory(self) -> Path:
        """Return where the lab's own processes have their files."""
        return self.running.processes_directory

    def counters(self) -> Mapping[tuple[str, str], PortCounters]:
        """Read what every port has sent and discarded."""
        return port_counters(self.wires.counters().ports, ends_of(self.fabric))

    def plain_queues(self) -> Mapping[tuple[str, str], PlainQueue]:
        """Return none: ports of a subnet have credits, and no queue that drops."""
        return {}

    def maps(self, *, writable: bool = False) -> LabMaps:
        """Refuse: ports of a subnet have no eBPF data path."""
        _refuse()

    @property
    def pause_agent(self) -> PauseAgent:
        """Refuse: nobody pauses InfiniBand."""
        _refuse()


def _refuse() -> NoReturn:
    raise RuntimeError("a subnet has credits, and no data path of Ethernet")
