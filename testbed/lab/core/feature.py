"""A feature of a lab: something that it may have beside nodes, links, addresses, routing and QoS.

The core knows no feature. It asks all of them at the same places: what speaks against a deploy, what is started beside
routing, what a check looks at, what goes with a node's power and with the lab. `testbed.lab` names the features; the
module of one is imported when features are asked for the first time, and imports what it works with when it is asked.

What core and features make together, a topology file and a plan, is not asked here: `testbed.lab.core.assembly`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from testbed.base.linux.nftables import Table
    from testbed.lab.core.deploy.links.changes import LinkChange
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.core.deploy.records.journal import Journal
    from testbed.lab.core.deploy.records.lab_record import LabRecord
    from testbed.lab.core.deploy.records.state import StateDirectory
    from testbed.lab.core.deploy.runtime import Runtime
    from testbed.lab.core.deploy.steps import StepCallback
    from testbed.lab.core.deploy.watch.check import CheckResult
    from testbed.lab.core.deploy.watch.events import EventStream
    from testbed.lab.core.drivers.routing.frr import Elsewhere
    from testbed.lab.core.model import Lab
    from testbed.lab.core.plan.changes import ChangeRow
    from testbed.lab.core.plan.lab_plan import LabPlan

_modules: list[str] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A lab that is being deployed, once its ports are up. `directory` is its lab directory."""

    lab: Lab
    plan: LabPlan
    state: StateDirectory
    journal: Journal
    directory: Path
    await_directory: Callable[[], object]
    """Returns when the lab directory has been written."""

    @property
    def run(self) -> Path:
        """The lab's run directory."""
        return self.state.run_directory(self.lab.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changing:
    """A lab that is being changed: `running` is it as it was, `lab`, `plan` and `record` are what it becomes.

    `timeout_s` is how long routing may take to converge. `undoes`: it is the way back of a change that was begun, of
    which a part may not have been done.
    """

    running: RunningLab
    lab: Lab
    plan: LabPlan
    record: LabRecord
    timeout_s: float
    undoes: bool
    state: StateDirectory
    journal: Journal
    notify: StepCallback

    @property
    def run(self) -> Path:
        """The lab's run directory."""
        return self.state.run_directory(self.lab.name)


class FeatureChange:
    """The part of a feature in a change of a lab that is up, beside the operations of the plans.

    It is made before anything is touched, and its methods are called in their order; what each does is done already
    where an apply goes on that was killed, and must not be harmed by being done again.
    """

    def __init__(self, rows: Sequence[ChangeRow]) -> None:
        self.rows = tuple(rows)
        """All that the feature does, for who asks before."""

    @property
    def elsewhere(self) -> Mapping[str, Elsewhere]:
        """Return how the routing daemons of new nodes are started that are none of this machine's own, by node."""
        return {}

    def begin(self, changing: Changing) -> None:
        """Prepare it, while the lab is as it was. Raises `DriverError`, which ends the change."""

    def created(self, changing: Changing) -> None:
        """Go on once new nodes and VRFs are there, of which each is empty yet."""

    def linked(self, changing: Changing) -> None:
        """Go on once new nodes and links are there, and the kernel has what both plans have; nothing is routed there
        yet."""

    def routed(self, changing: Changing) -> None:
        """Go on once routing has converged, before links and nodes are removed that the lab has no more."""

    def removed(self, changing: Changing) -> None:
        """End it, when nothing is there any more that the new plan lacks.

        Raises `ConvergenceError` when that is done and routing has not converged once more.
        """


class Started:
    """Processes that a feature has started during a deploy."""

    def wait_links(self, timeout_s: float) -> None:
        """Return when links are as they make them, before whatever learns of hosts is waited for.

        Raises `ConvergenceError`.
        """

    def wait(self, timeout_s: float, notify: StepCallback) -> None:
        """Return when they are ready, once routing has converged. Raises `DriverError`."""

    def release(self) -> None:
        """Let them live on without this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A part of a deployed lab that is not there any more, in words, and what brings it back."""

    what: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedProcess:
    """A process of a feature that ended though the lab is up: `what` it is, on which node, and how it is started."""

    node: str
    what: str
    start: Callable[[], object]


class ScaleDemand(Protocol):
    """The demand of a feature on a lab's time scale, beside that of the packets of its networks."""

    @property
    def k(self) -> float:
        """The smallest time scale that serves it."""

    def load(self, k: float) -> float:
        """Return the share of the machine's CPUs that it uses at the time scale `k`."""

    def reason(self, k: float) -> str:
        """Say what it uses at the time scale `k`."""

    def complaint(self, k: float) -> str:
        """Say what is wrong at a time scale `k` that is too small for it."""


class LinksBeside(Protocol):
    """Links of a running lab that are none of its networks', and are changed by names of their own.

    Methods raise `TestbedError` for links that are not there, and for changes that they do not have.
    """

    def are_meant(self, place: str) -> bool:
        """Tell whether a text names such links, though it may be misspelt."""

    def prepare(self, place: str) -> None:
        """Open now what changing them will need."""

    def set(self, place: str, change: LinkChange) -> None:
        """Change links, in both directions."""

    def reset(self, place: str) -> None:
        """Bring links back to what the topology declares."""

    def reset_all(self) -> list[str]:
        """Bring back every link that was changed; their names come back."""


class Watch(Protocol):
    """A watch over what routing is to bring a feature."""

    def wait(self, deadline: float, notify: StepCallback, check_daemons: Callable[[], None]) -> Sequence[str]:
        """Wait until all is there, or the monotonic clock shows `deadline`: a line for each thing that is missing."""

    def close(self) -> None:
        """Stop watching."""


class Part(Protocol):
    """The part of a lab that is on this machine, where other machines have the rest of it."""

    def model(self, lab: Lab) -> Lab:
        """Return what is here of a whole lab: its nodes, and the links between these."""

    def plan(self, plan: LabPlan) -> LabPlan:
        """Return what this machine has to make of the plan of the whole lab."""

    def to_json(self) -> Mapping[str, Any]:
        """Return what the record of the lab says of it, from which `Feature.part` reads it."""


class Feature:
    """The questions that the core asks a feature. Every method does nothing by itself, and is called for labs without
    it, too."""

    def require(self, lab: Lab, state: StateDirectory) -> None:
        """Raise `CapabilityError` or `PlanError` for a lab that asks for what this machine cannot do."""

    def part(self, said: Mapping[str, Any]) -> Part | None:
        """Return the part of a lab of which its record says this; None where another feature wrote it.

        Raises `ValueError` for what another version wrote.
        """
        return None

    def namespaces(self, lab: Lab) -> Iterable[str]:
        """The nodes beside those of the topology that it makes namespaces for."""
        return ()

    def prepare(self, lab: Lab, plan: LabPlan) -> None:
        """Load modules of the kernel and compile programs, which stay. Raises `CapabilityError`, `DriverError`."""

    def runtimes(self) -> Mapping[str, Runtime]:
        """Ways of realising nodes, by the name that topology files give them."""
        return {}

    def filters(self) -> Mapping[type, Callable[[Any], Table]]:
        """The messages of operations that are transactions of nftables, by the class of the operation."""
        return {}

    def scale(self, lab: Lab, share: float) -> ScaleDemand | None:
        """The time scale that it needs where it may use a share of the machine; None where it needs none."""
        return None

    def links(self, lab: RunningLab) -> LinksBeside | None:
        """Return what changes the links that a lab has beside those of its networks."""
        return None

    def start(self, deployment: Deployment) -> Started | None:
        """Start what runs beside routing. Called in a thread of its own."""
        return None

    def kept(self, old: Lab, new: Lab) -> Lab:
        """Return `new` with the numbers that things have in `old`, the lab of its name that is up, where those would be
        others in a lab that is deployed anew."""
        return new

    def change(self, running: RunningLab, lab: Lab, plan: LabPlan) -> FeatureChange | None:
        """Return what makes its part of a lab that is up that of `lab`, planned as `plan`; None where nothing differs.

        Touches nothing. Raises `ChangeRefused` for what only a new deploy can bring about.
        """
        return None

    def before_routing(self, plan: LabPlan, run: Path, node: str) -> None:
        """Start what must run on a node before its routing daemons do, where it does not run."""

    def after_routing(self, plan: LabPlan, state: StateDirectory, node: str | None = None) -> None:
        """Start what works on routes, where it does not run: after the daemons of all nodes, or after those of one."""

    def set_links(self, lab: RunningLab, node: str, *, up: bool) -> None:
        """Bring links that a node has beside the topology's up or down, as its power does."""

    def set_hash_seeds(self, lab: RunningLab, run: int) -> None:
        """Have what chooses among links by a hash choose as in the run of this seed. Raises `DriverError`,
        `ConvergenceError`."""

    def start_node(self, lab: RunningLab, node: str) -> None:
        """Start what runs on a node beside routing, after it got its power back."""

    def broken(self, plan: LabPlan, run: Path) -> Sequence[Broken]:
        """Return the parts of the lab that do not run any more, beside its nodes."""
        return ()

    def ended(self, lab: RunningLab) -> Sequence[EndedProcess]:
        """Return its processes that ended, beside those which its nodes are known to run (`RunningLab.daemons`)."""
        return ()

    def node_remade(self, lab: RunningLab, node: str) -> None:
        """End what works in the namespace that a node had before it was made anew: `after_routing` and `start_node`
        start it again."""

    def checks(self, lab: RunningLab) -> Sequence[tuple[str, Callable[[RunningLab], CheckResult]]]:
        """The tests that `check` runs of a lab that has the feature, with their names."""
        return ()

    def watch(self, plan: LabPlan, run: Path) -> Watch | None:
        """Begin to watch what routing brings the feature, before the routing daemons start."""
        return None

    def subscribe(self, events: EventStream, lab: RunningLab) -> None:
        """Have the stream of a lab's events tell those of the feature, too; again where the lab has changed since."""

    def environment(self, plan: LabPlan, run: Path, node: str) -> Mapping[str, str]:
        """Return variables for the environment of commands in a node."""
        return {}

    def mounted(self, plan: LabPlan, run: Path, node: str) -> Iterable[Path]:
        """The files and directories of this machine that a node must see where it is a container."""
        return ()

    def remove(self, lab: str) -> None:
        """Remove what is left of a lab by this name outside of its namespaces. Raises `DriverError`."""


def register(*modules: str) -> None:
    """Make features known, in the order in which they are asked. Each module has its one as `FEATURE`."""
    _modules.extend(modules)
    features.cache_clear()
    filters.cache_clear()
    runtimes.cache_clear()


def keep(old: Lab, new: Lab) -> Lab:
    """Return `new` with what it keeps of `old`, the lab of its name that is up: the names of ports, the bridges of
    rails, and the numbers of all features."""
    from testbed.lab.core.fabric.kept_bridges import keep_bridges
    from testbed.lab.core.fabric.kept_ports import keep_ports

    new = keep_bridges(old, keep_ports(old, new))
    for feature in features():
        new = feature.kept(old, new)
    return new


def read_part(said: Mapping[str, Any]) -> Part:
    """Return the part of a lab that its record speaks of. Raises `ValueError` where no feature knows it."""
    for feature in features():
        if (part := feature.part(said)) is not None:
            return part
    raise ValueError(f"no feature knows the part {sorted(said)}")


@cache
def filters() -> Mapping[type, Callable[[Any], Table]]:
    """The messages of all features' operations that are transactions of nftables, by the class of the operation."""
    return {kind: make for feature in features() for kind, make in feature.filters().items()}


@cache
def runtimes() -> Mapping[str, Runtime]:
    """All ways of realising nodes that are more than a network namespace, by the name that topology files give them."""
    return {name: runtime for feature in features() for name, runtime in feature.runtimes().items()}


@cache
def features() -> tuple[Feature, ...]:
    """All features, in the order of their registration."""
    return tuple(cast(Feature, import_module(module).FEATURE) for module in _modules)
