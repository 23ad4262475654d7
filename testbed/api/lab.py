"""Deployed labs and their nodes: `with Lab.deploy("topologies/x.yml") as lab: lab.node("p1-s1-h1").run(["id"])`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from testbed.base.errors import TestbedError
from testbed.base.linux.port_counters import PortCounters
from testbed.lab.core.deploy.lifecycle import DEFAULT_TIMEOUT_S, DeployOptions, deploy_lab, destroy_lab
from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl
from testbed.lab.core.deploy.live import NodeStatus, RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.scale import resolve_scale
from testbed.lab.core.deploy.steps import StepCallback, ignore_steps
from testbed.lab.core.deploy.watch.check import CheckReport, check_lab
from testbed.lab.core.model import Lab as LabModel
from testbed.lab.core.model import Node as NodeModel
from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan
from testbed.lab.core.schema.load import load_topology, load_topology_text
from testbed.lab.features.scale_up.planes import PlaneControl, PlaneLink
from testbed.run.sweep.progress import ProgressListener, ignore_progress

if TYPE_CHECKING:
    from testbed.api.changes import Changes
    from testbed.api.scenarios import ScenarioResult
    from testbed.run.launch import LaunchOptions, LaunchResult, RankLine


def load_model(topology: str | Path, *, name: str | None, overrides: Mapping[str, object] | None) -> LabModel:
    """Read the lab of a topology file, or of YAML text if it has a line break; `name` replaces the file's.

    Raises `SpecError`.
    """
    chosen = dict(overrides or {})
    if name is not None:
        chosen["name"] = name
    if "\n" in str(topology):
        return load_topology_text(str(topology), file="<text>", overrides=chosen)
    return load_topology(Path(topology), overrides=chosen)


class DeployKeywords(TypedDict, total=False):
    """The options of a deploy, as keyword arguments, each of which may be left out.

    `timeout_s` is how long routing may take to converge, `reconfigure` replaces another lab of that name, `directory`
    is the parent of the lab directory, `state` where deployed labs are recorded, and `notify` is called with every
    step.
    """

    timeout_s: float
    reconfigure: bool
    directory: Path | None
    state: StateDirectory | None
    notify: StepCallback


class CommandFailed(TestbedError):
    """A command in a node ended with another status than 0. `result` has what it printed."""

    def __init__(self, node: str, result: subprocess.CompletedProcess[str]) -> None:
        super().__init__(
            f"{node}: {' '.join(result.args)} ended with status {result.returncode}: {result.stderr.strip()}"
        )
        self.result = result


class Node:
    """A node of a deployed lab."""

    def __init__(self, lab: RunningLab, name: str) -> None:
        self._lab = lab
        self.model: NodeModel = lab.node(name)
        self.name = name

    def run(
        self, argv: Sequence[str], *, check: bool = True, timeout_s: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; raises `CommandFailed` for a status other than 0 unless `check` is False."""
        result = self._lab.run(self.name, argv, timeout_s=timeout_s)
        if check and result.returncode:
            raise CommandFailed(self.name, result)
        return result

    def spawn(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start a command and go on; it ends with the lab at the latest."""
        return self._lab.spawn(self.name, argv, **options)

    @property
    def nics(self) -> tuple[PortPlan, ...]:
        """The NIC ports of a host, in rail order; empty for a switch."""
        return next((host.nics for host in self._lab.plan.hosts if host.node == self.name), ())

    def address(self, interface: str) -> str:
        """The IPv4 address of an interface. Raises `TestbedError` if it has none."""
        port = self._lab.port(self.name, interface)
        if port.address is None:
            raise TestbedError(f"{self.name}:{interface} has no IPv4 address")
        return str(port.address.ip)

    def address6(self, interface: str) -> str:
        """The IPv6 address of a NIC in a subnet with `prefix6`. Raises `TestbedError` if it has none."""
        port = self._lab.port(self.name, interface)
        if port.address6 is None:
            raise TestbedError(f"{self.name}:{interface} has no IPv6 address")
        return str(port.address6.ip)


class Lab:
    """A deployed lab. As a context manager it is destroyed at the end."""

    def __init__(self, running: RunningLab, state: StateDirectory) -> None:
        self._running = running
        self._state = state
        self.name = running.name
        self.last_check: CheckReport | None = None
        """The report of the last `check`."""

    @classmethod
    def deploy(
        cls,
        topology: str | Path,
        *,
        name: str | None = None,
        overrides: Mapping[str, object] | None = None,
        **how: Unpack[DeployKeywords],
    ) -> Self:
        """Deploy a topology file, or YAML text if it has a line break, and wait until routing has converged.

        `overrides` replaces keys of the file ({"fabric.hosts": 4}); the other keyword arguments are those of
        `DeployKeywords`. Raises the errors of `testbed.base.errors`.
        """
        return cls.deploy_model(load_model(topology, name=name, overrides=overrides), **how)

    @classmethod
    def deploy_model(
        cls,
        model: LabModel,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        reconfigure: bool = False,
        directory: Path | None = None,
        state: StateDirectory | None = None,
        notify: StepCallback = ignore_steps,
    ) -> Self:
        """Deploy a resolved model, as `deploy` does with what it has read."""
        state = state or StateDirectory()
        k = resolve_scale(model, state, replaces=reconfigure).k
        options = DeployOptions(k=k, timeout_s=timeout_s, reconfigure=reconfigure, directory=directory)
        return cls(deploy_lab(model, state, options, notify).lab, state)

    @classmethod
    def open(cls, name: str, *, state: StateDirectory | None = None) -> Self:
        """Open a lab that is deployed already. Raises `LabNotFound`."""
        state = state or StateDirectory()
        return cls(RunningLab.open(name, state), state)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def destroy(self) -> None:
        """Remove the lab."""
        destroy_lab(self.name, self._state)

    def diff(self, topology: str | Path | None = None, *, overrides: Mapping[str, object] | None = None) -> Changes:
        """Return what `apply` would do with the same arguments, and touch nothing. It is true where that is anything.

        Its `rows` have a reason each, with the keys of the file and their lines; `groups` are those that `testbed diff`
        prints, and `to_json` is for programs. Raises what `apply` does before it touches anything.
        """
        from testbed.api.changes import changes_to

        return changes_to(self._target(topology, overrides), self._state)

    def apply(
        self,
        topology: str | Path | None = None,
        *,
        overrides: Mapping[str, object] | None = None,
        allow: Collection[str] = (),
        repair: bool = False,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        notify: StepCallback = ignore_steps,
    ) -> Changes:
        """Change the lab into what a topology says now, and nothing else; wait until its routing has converged.

        `topology` is a file, or YAML text if it has a line break; without one it is the file that the lab came from,
        with the overrides of its deploy, which `overrides` add to. `allow` may have "restart" and "recreate". With
        `repair` what was changed by hand, or ended, is brought back first. What was changed comes back; the nodes of
        this object are those of the changed lab. Raises `SpecError`, `PlanError` and `ChangeRefused` before anything is
        touched, and `DriverError`, `ConvergenceError`.
        """
        from testbed.api.changes import apply_changes

        target = self._target(topology, overrides)
        try:
            return apply_changes(target, self._state, allow=allow, repair=repair, timeout_s=timeout_s, notify=notify)
        finally:
            self._running = RunningLab.open(self.name, self._state)

    def _target(self, topology: str | Path | None, overrides: Mapping[str, object] | None) -> LabModel:
        from testbed.api.changes import read_target

        if topology is not None and "\n" in str(topology):
            return read_target("<text>", name=self.name, overrides=overrides, state=self._state, text=str(topology))
        return read_target(topology, name=self.name, overrides=overrides, state=self._state)

    def node(self, name: str) -> Node:
        """Find a node by its name. Raises `NoSuchNode` with the nearest name as a hint."""
        return Node(self._running, name)

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(Node(self._running, node.name) for node in self._running.model.nodes)

    @property
    def running(self) -> RunningLab:
        """The lab as scenarios see it."""
        return self._running

    @property
    def model(self) -> LabModel:
        return self._running.model

    @property
    def plan(self) -> LabPlan:
        return self._running.plan

    def restart_node(self, node: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """End all that runs in a node, start what the lab has there, and wait until routing has converged.

        Its links stay up. Raises `NoSuchNode`, `NodeRefused`, `DriverError`, `ConvergenceError`.
        """
        from testbed.lab.core.deploy.changing.node import restart_node

        try:
            restart_node(self._running, node, timeout_s=timeout_s)
        finally:
            self._running = RunningLab.open(self.name, self._state)

    def recreate_node(self, node: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Make a node anew, and wait until routing has converged; its neighbours keep their ends of its links.

        Raises as `restart_node`.
        """
        from testbed.lab.core.deploy.changing.node import recreate_node

        try:
            recreate_node(self._running, node, timeout_s=timeout_s)
        finally:
            self._running = RunningLab.open(self.name, self._state)

    def status(self) -> list[NodeStatus]:
        return self._running.status()

    def check(self) -> CheckReport:
        """Run the live tests of `testbed check`. The report is true where all passed: `assert lab.check()`."""
        self.last_check = check_lab(self._running)
        return self.last_check

    def run(
        self,
        scenario: str | Path,
        *,
        overrides: Mapping[str, object] | None = None,
        only: Mapping[str, object] | None = None,
        results: Path | None = None,
        report: bool = False,
        on_progress: ProgressListener = ignore_progress,
    ) -> ScenarioResult:
        """Run a scenario file, or YAML text if it has a line break, on this lab, which stays up.

        The topology that the scenario names is not used: this lab takes its place, for every point of the matrix. The
        record, and with `report` the HTML page, go into a new directory below `results`; without it, nothing is
        written. `overrides`, `only`, `on_progress` and the errors are those of `testbed.run_scenario`; `ScenarioError`
        is also raised where the matrix or `overrides` would change the topology.
        """
        from testbed.api.scenarios import run_on_lab

        return run_on_lab(
            self._running,
            scenario,
            overrides=overrides,
            only=only,
            results=results,
            report=report,
            on_progress=on_progress,
        )

    def launch(
        self,
        command: Sequence[str],
        *,
        options: LaunchOptions | None = None,
        on_line: Callable[[RankLine], None] | None = None,
    ) -> LaunchResult:
        """Start a program as ranks on the hosts of this lab, and return what came of it when the last has ended.

        `options` says where, how many and in which order; without them each host has one rank. `on_line` is called with
        every line that a rank prints. Raises `LaunchRefused` before a rank was started; how ranks ended, and who failed
        first, is in the result.
        """
        from testbed.run.launch.launcher import ignore_lines, launch_ranks
        from testbed.run.launch.options import LaunchOptions

        return launch_ranks(self._running, command, options or LaunchOptions(), on_line=on_line or ignore_lines)

    def counters(self) -> Mapping[tuple[str, str], PortCounters]:
        """Read the kernel's port counters, by (node, interface)."""
        return self._running.counters()

    def set_link(self, node: str, interface: str, *, up: bool) -> None:
        """Take one end of a link down or up; or links of scale-up domains, as `testbed link down` and `up` do.

        The latter are those of a GPU or a host, or switch chips: ("p1-s1-h1.gpu1", "plane2"), ("p1-s1-h1", "planes"),
        ("p1-s1", "plane3"). Up brings back a switch that has died, too. Raises `NoSuchNode`, `NoSuchScaleUpLink`,
        `SwitchError`.
        """
        link = f"{node}:{interface}"
        with LinkControl(self._running) as control:
            if control.is_beside(link):
                control.set(link, LinkChange(up=up))
                return
        self._running.set_link(node, interface, up=up)

    def change_link(self, link: str, change: LinkChange, *, both: bool = False) -> None:
        """Change a link as `testbed link set` does: `change_link("p1-s1-h1.gpu1:plane2", LinkChange(loss=1e-3))`.

        `link` is a port ("p1-s1-h1:rail1"), of which what it sends is changed, and with `both` what its other end
        sends; or it names links of scale-up domains, which change in both directions. Rates and delays are those of
        the real fabric. Raises what `LinkControl.set` does.
        """
        with LinkControl(self._running) as control:
            control.set(link, change, both=both)

    def reset_link(self, link: str | None = None) -> None:
        """Bring a link back to what the topology declares; without a name, all that `change_link` has changed."""
        with LinkControl(self._running) as control:
            if link is None:
                control.reset_all()
            else:
                control.reset(link)

    def plane_links(self, place: str) -> list[PlaneLink]:
        """The links of scale-up domains that a name means, as they are now. Raises `NoSuchScaleUpLink`."""
        return PlaneControl(self._running).show(place)
