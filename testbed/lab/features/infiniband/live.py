"""The subnet of a lab that is up: its plane, read back, its links changed, its managers ended and started again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base.cleanup import on_failure
from testbed.base.errors import DriverError, TestbedError
from testbed.base.files import write_atomically
from testbed.base.names import SUBNET_NODE, all_names_hint, namespace_name
from testbed.daemons.subnetd.errors import WiresMissing
from testbed.lab.core.model import InfinibandFabric
from testbed.lab.core.model.end import End
from testbed.lab.core.model.infiniband import port_numbers, subnet_names
from testbed.lab.features.infiniband.configuration import PlannedSubnet, plan_subnet
from testbed.lab.features.infiniband.manager import Manager, count_sweeps, engine_sentence, managers_of
from testbed.lab.features.infiniband.plane import Plane
from testbed.lab.features.infiniband.reading import SubnetReader
from testbed.lab.features.infiniband.running import (
    SIMULATOR,
    StartedPlane,
    kill_manager,
    noted_pids,
    restart_manager,
    settle,
    start_plane,
)
from testbed.lab.features.infiniband.simulator import SimulatedNode, Simulator, is_in_force, reached_nodes
from testbed.lab.features.infiniband.tools import write_tools
from testbed.lab.features.infiniband.wires import MOST_HCAS, Reroute, describe_wires, has_wires, wires_of
from testbed.protocols.infiniband.subnet import Channel, Subnet, SubnetLink

if TYPE_CHECKING:
    from testbed.daemons.subnetd.client import SubnetWires
    from testbed.lab.core.deploy.links.changes import LinkChange
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.core.plan.lab_plan import InfinibandPlan

DIRECTORY_NAME = ".infiniband"
"""In the lab's run directory; no node can have this name."""
SWEEP_TIMEOUT_S = 60.0
_REROUTE = "reroute.json"
"""The last change of a link, in the plane's directory."""


class NoSubnet(TestbedError):
    """A lab whose back end is no InfiniBand, or no such link or manager."""


def plane_directory(run: Path) -> Path:
    """Return where a subnet's programs have their files, in the lab's run directory."""
    return run / DIRECTORY_NAME


def lab_plane(lab: str, run: Path) -> Plane:
    """Return the management plane of a lab of this name."""
    return Plane(directory=plane_directory(run), namespace=namespace_name(lab, SUBNET_NODE))


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetLinkState:
    """A link of the subnet as it is. `a` and `b` are its ends as the topology has them."""

    a: str
    b: str
    link: SubnetLink
    up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LinksChange:
    """Links, by their numbers, that went down or came back at a time (CLOCK_MONOTONIC), when managers had swept the
    subnet so often."""

    links: tuple[int, ...]
    begun_s: float
    sweeps: int


class LiveSubnet:
    """The subnet of a running lab. Methods raise `DriverError` where ibsim does not run."""

    def __init__(self, lab: RunningLab) -> None:
        """Raises `NoSubnet` for a lab whose back end is Ethernet."""
        fabric = lab.whole.model.infiniband
        if fabric is None:
            raise NoSubnet(
                f"the back end of {lab.name} is no InfiniBand", hint="fabric: {link_layer: infiniband} makes it one"
            )
        self.fabric: InfinibandFabric = fabric
        self.plane = lab_plane(lab.name, lab.processes_directory)
        self._k = lab.plan.k

    @cached_property
    def planned(self) -> PlannedSubnet:
        """The subnet as it was put into ibsim."""
        return plan_subnet(self.fabric)

    @cached_property
    def reader(self) -> SubnetReader:
        """Reads the subnet back from its nodes."""
        return SubnetReader(plane=self.plane, planned=self.planned)

    @property
    def simulator(self) -> Simulator:
        """The lab's ibsim."""
        return Simulator(plane=self.plane)

    @property
    def managers(self) -> list[Manager]:
        """The lab's managers, the one that is to be the master first."""
        return managers_of(self.plane, self.planned)

    def engine_sentence(self, nodes: dict[str, SimulatedNode] | None = None) -> str:
        """Say whose tables are in force where the first engine gave the fabric up; "" where it did not."""
        master = self.reader.master(self.simulator.dump() if nodes is None else nodes)
        log = next((each.read_log() for each in self.managers if each.node.name == master), None)
        return "" if log is None else engine_sentence(self.fabric.settings.routing, log)

    # ------------------------------------------------------------------ links

    @cached_property
    def _ends(self) -> dict[str, tuple[int, str, int]]:
        """The ports of the subnet by their names in the topology: number of the link, node and port there."""
        names, numbers = subnet_names(self.fabric), port_numbers(self.fabric)

        def port(end: End) -> tuple[str, int]:
            return names[end], numbers[end]

        return {
            str(end): (index, *port(end)) for index, link in enumerate(self.fabric.links) for end in (link.a, link.b)
        }

    def is_port(self, place: str) -> bool:
        """Tell whether a text names a port of the subnet, or one of a switch of it that there is not."""
        return place in self._ends or place.partition(":")[0] in self.planned.nodes

    def find_link(self, place: str) -> int:
        """Return the number of the link at a port. Raises `NoSubnet`."""
        if place not in self._ends:
            node = place.partition(":")[0]
            known = [name for name in self._ends if name.startswith(f"{node}:")] or list(self._ends)
            raise NoSubnet(f"the subnet has no port {place!r}", hint=all_names_hint(place, known))
        return self._ends[place][0]

    def links(self) -> Iterator[SubnetLinkState]:
        """Yield all links as they are."""
        nodes = self.simulator.dump()
        for written, link in zip(self.fabric.links, self.planned.links, strict=True):
            port = nodes[self.planned.nodes[link.a].identifier].ports[link.a_port]
            yield SubnetLinkState(a=str(written.a), b=str(written.b), link=link, up=bool(port.peer))

    def link(self, place: str) -> SubnetLinkState:
        """Return the link at a port as it is. Raises `NoSubnet`."""
        return list(self.links())[self.find_link(place)]

    def channel(self, place: str) -> Channel:
        """Return the node and the number, in the subnet, of a port by its name. Raises `NoSubnet`."""
        self.find_link(place)
        return self._ends[place][1:]

    def links_of(self, switch: str) -> list[int]:
        """Return the numbers of those links of a switch that are up."""
        return [
            index for index, state in enumerate(self.links()) if state.up and switch in (state.link.a, state.link.b)
        ]

    def set_link(self, place: str, *, up: bool) -> None:
        """Cut the link at a port, or join it again, and wait until the new tables are in force.

        Frames take the link, or are lost on it, from the first moment, and go around it once the tables are there.
        Raises `NoSubnet`, and `ConvergenceError` where no manager has swept the subnet.
        """
        if self.link(place).up != up:
            self.await_tables(self.change_links([self.find_link(place)], up=up))

    def change_links(self, links: Sequence[int], *, up: bool) -> LinksChange:
        """Cut links, by their numbers, or join them again, all at once for frames; `await_tables` is what follows. All
        have one node in common, as those of a switch that loses its power do."""
        found = [self.planned.links[index] for index in links]
        ends = [{(link.a, link.a_port), (link.b, link.b_port)} for link in found]
        node = next(name for name, _ in sorted(ends[0], reverse=True) if all(name in dict(pair) for pair in ends))
        ports = [dict(pair)[node] for pair in ends]
        begun = time.monotonic()
        if self.wires is not None:
            self.wires.set_links(node, ports, up=up)
        self.simulator.forget_dead()
        before = count_sweeps(self.managers)
        for port in ports:
            if up:
                self.simulator.relink(self.planned.nodes[node].identifier, port)
            else:
                self.simulator.unlink(self.planned.nodes[node].identifier, port)
        return LinksChange(links=tuple(links), begun_s=begun, sweeps=before)

    def no_change(self) -> LinksChange:
        """Return what `await_tables` is given where managers are to sweep though no link has changed."""
        return LinksChange(links=(), begun_s=time.monotonic(), sweeps=count_sweeps(self.managers))

    def await_tables(self, change: LinksChange) -> Reroute | None:
        """Wait until a manager has written tables for links as they are since a change, and have frames go by them;
        what that took comes back where frames are carried.

        Raises `ConvergenceError` where no manager has swept the subnet, and `DriverError` where none can.
        """
        swept, in_force = change.sweeps, False
        while not in_force and time.monotonic() - change.begun_s < SWEEP_TIMEOUT_S:
            self.await_sweep(swept)
            swept = count_sweeps(self.managers)
            nodes = self.simulator.dump()
            reached = reached_nodes(nodes, self._managers_linked(nodes))
            # not yet, where the sweep that has ended had begun before, or another manager is to take over
            in_force = all(is_in_force(nodes, self.planned, index, reached) for index in change.links)
        manager_s = time.monotonic() - change.begun_s
        if self.wires is None:
            return None
        self.wires.set_tables(self.reader.rerouted(self.wires.subnet()))
        lab_s = time.monotonic() - change.begun_s
        self.wires.set_tables(self.reader.read())  # a routing engine may have given paths other service levels
        scale = int(self.wires.status()["time_scale"])
        reroute = Reroute(manager_s=manager_s, lab_s=lab_s, time_scale=scale)
        told = {"links": list(change.links), **asdict(reroute)}
        write_atomically(self.plane.directory / _REROUTE, json.dumps(told), durable=False)
        return reroute

    def _managers_linked(self, nodes: Mapping[str, SimulatedNode]) -> list[str]:
        """The HCAs, by identifier, of the managers that run and have a link. Raises `DriverError` where none has."""
        ended = set(self.ended())
        found = [
            manager.identifier
            for manager in self.planned.managers
            if manager.name not in ended and nodes[manager.identifier].ports[1].peer
        ]
        if not found:
            raise DriverError(
                "no HCA with a subnet manager has its link: the tables stay as they are",
                operation="opensm",
                hint="`testbed link up` brings one back",
            )
        return found

    def last_reroute(self, place: str) -> Reroute | None:
        """Return the times of the last change of a link, where that was the one at this port; else None."""
        try:
            told = json.loads((self.plane.directory / _REROUTE).read_text())
        except FileNotFoundError:
            return None
        return Reroute(**told) if told.pop("links") == [self.find_link(place)] else None

    # ------------------------------------------------------------------ wires

    @cached_property
    def wires(self) -> SubnetWires | None:
        """The wires that carry frames; None for a subnet that is too large for any."""
        return wires_of(self.plane) if has_wires(self.fabric) else None

    def require_wires(self) -> SubnetWires:
        """Return the wires. Raises `NoSubnet` for a subnet that is too large for any."""
        if self.wires is None:
            raise NoSubnet(
                f"the subnet has more than {MOST_HCAS} HCAs, and no lab carries the frames of so many",
                hint="--backend simulation has subnets of any size",
            )
        return self.wires

    def start_wires(self) -> None:
        """Start the wires where they do not run."""
        if self.wires is not None and not self.wires.is_running():
            start_wires(self.plane, self.fabric, self._k)

    def await_sweep(self, before: int) -> None:
        """Wait until the managers have swept the subnet more often than `before`; one that missed why is told."""
        if sum(name != SIMULATOR for name in self.ended()) == len(self.planned.managers):
            raise DriverError(
                "no subnet manager runs: the tables stay as they are",
                operation="opensm",
                hint="`testbed apply --repair` starts it again",
            )
        settle(self.plane, self.planned, before, SWEEP_TIMEOUT_S)

    def open_hcas(self) -> int:
        """Return how many HCAs programs have open; none where no wires answer."""
        try:
            return 0 if self.wires is None else sum(hca["open"] for hca in self.wires.status()["hcas"].values())
        except WiresMissing:
            return 0

    # ------------------------------------------------------------------ managers

    def ended(self) -> list[str]:
        """Return what of the subnet does not run: "ibsim", or the HCAs of managers."""
        running = noted_pids(self.plane.directory)
        return [name for name in (SIMULATOR, *(node.name for node in self.planned.managers)) if name not in running]

    def kill_manager(self, name: str) -> None:
        """End the manager at an HCA by SIGKILL. Raises `NoSubnet` where none runs."""
        if not kill_manager(self.plane, name):
            known = [node.name for node in self.planned.managers]
            raise NoSubnet(f"no subnet manager runs at {name!r}", hint=all_names_hint(name, known))

    def restart_manager(self, name: str) -> None:
        """Start the manager at an HCA where it does not run; the tables that it writes are in force then."""
        restart_manager(self.plane, self.planned, name)
        if self.wires is not None and self.wires.is_running():
            self.wires.set_tables(self.reader.read())


def start_wires(plane: Plane, fabric: InfinibandFabric, k: float) -> None:
    """Start the wires of a subnet that is up, where it is small enough for any, in a lab of the time scale `k`.

    Raises `WiresError`, `DriverError`.
    """
    if not has_wires(fabric):
        return
    planned = plan_subnet(fabric)
    subnet: Subnet = SubnetReader(plane=plane, planned=planned).read()
    wires_of(plane).start(plane.namespace, describe_wires(fabric, planned, subnet, k), subnet)


def start_subnet(
    plane: Plane, plan: InfinibandPlan, fabric: InfinibandFabric, k: float, cut: Sequence[tuple[str, int]] = ()
) -> StartedPlane:
    """Start all of a subnet in the namespace of a lab's plane, and wait until it is up; hosts have the tools then.

    The links at the ports `cut`, by node and port, are cut. Raises `DriverError`, `ConvergenceError`, `WiresError`;
    what has been started until then ends with the namespace, as all of it does.
    """
    plane.make()
    write_tools(plane, plan, fabric)
    started = start_plane(plane, plan_subnet(fabric), cut=cut)
    with on_failure(started.release):
        started.start_managers()
        start_wires(plane, fabric, k)
    return started


class SubnetLinks:
    """Changes links of a lab's subnet by the names of their ports."""

    def __init__(self, lab: RunningLab) -> None:
        self._subnet = LiveSubnet(lab)

    def are_meant(self, place: str) -> bool:
        """Tell whether a text names a port of the subnet, or one of a switch of it that there is not."""
        return self._subnet.is_port(place)

    def prepare(self, place: str) -> None:
        """Make sure that the link is there."""
        self._subnet.find_link(place)

    def set(self, place: str, change: LinkChange) -> None:
        """Take a link down or bring it up. Raises `NoSubnet` for anything else."""
        asked = [
            name for name in ("rate", "lab_rate", "rate_share", "delay", "jitter", "loss") if getattr(change, name)
        ]
        asked += [name for name in ("loss_every", "burst", "corruption", "silent") if getattr(change, name) is not None]
        if change.up is None or asked:
            what = asked[0].replace("_", " ") if asked else "nothing"
            raise NoSubnet(
                f"{place}: a link of the subnet is up or down, and its {what} cannot be changed",
                hint=f"testbed link down {place}",
            )
        self._subnet.set_link(place, up=change.up)

    def reset(self, place: str) -> None:
        """Bring a link up again."""
        self._subnet.set_link(place, up=True)

    def reset_all(self) -> list[str]:
        """Bring up every link that is down; their names."""
        down = [state.a for state in self._subnet.links() if not state.up]
        for name in down:
            self._subnet.set_link(name, up=True)
        return down
