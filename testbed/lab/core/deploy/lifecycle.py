"""Deploying and destroying labs.

Whatever happens in between, the journal knows what exists: a deploy that fails or is interrupted undoes
itself, and one that was killed is undone by `destroy`, which needs nothing but the lab's name.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Container, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from testbed.base.datapath import pins
from testbed.base.errors import ConvergenceError, DriverError, LabNotFound, TestbedError
from testbed.base.linux.processes import Process, await_reaping, parents_text
from testbed.base.version import __version__
from testbed.daemons.portd.errors import PauseAgentError
from testbed.lab.core.deploy.configurations import require_taken
from testbed.lab.core.deploy.interruption import interrupted_once, signals_later, uninterrupted
from testbed.lab.core.deploy.links.wires import declare_wires
from testbed.lab.core.deploy.listing import recorded_daemons
from testbed.lab.core.deploy.live import RunningLab, environment_of, planned_daemons
from testbed.lab.core.deploy.mechanisms import choose_mechanisms, require_marker, require_password, require_rdma
from testbed.lab.core.deploy.node_files import release_memory, write_node_files
from testbed.lab.core.deploy.pausing.attachment import attach, detach
from testbed.lab.core.deploy.pausing.reaction import planned_reaction_ns, undo_killed_measurement
from testbed.lab.core.deploy.preparation import Agreed, PreparedLab, plan_at, prepare_lab, require_names
from testbed.lab.core.deploy.records.journal import Journal, JournalContent, LabState, StateError
from testbed.lab.core.deploy.records.lab_record import LabRecord, LabUnreadable, encode_lab, encode_written
from testbed.lab.core.deploy.records.labdir import remove_paths, write_lab_directory
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.routing import bgp_password, daemon_sets, start_daemons
from testbed.lab.core.deploy.runtime import DeployingNodes, NodesRemain, join_remaining
from testbed.lab.core.deploy.steps import StepCallback, ignore_steps, step
from testbed.lab.core.deploy.watch.converge import ConvergenceWatch
from testbed.lab.core.deploy.watch.running_config import await_files, note_configurations
from testbed.lab.core.drivers.netlink.port_programs import PortInstaller
from testbed.lab.core.drivers.nodes.netns import NetnsKernel
from testbed.lab.core.drivers.probing.machine import FrrInstallation, find_frr, require_root
from testbed.lab.core.drivers.routing.frr import DaemonLauncher, DaemonSet, remove_crash_directories
from testbed.lab.core.feature import Deployment, Started, features, keep, runtimes
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.management_plan import StartService
from testbed.lab.core.plan.operations import (
    CreateNode,
    CreateVeth,
    InstallPort,
    Operation,
    StartContainer,
    StartRouting,
)
from testbed.lab.core.plan.overlay_operations import CreateVrf
from testbed.lab.core.plan.stable import slot_for

DEFAULT_TIMEOUT_S = 120.0
NEIGHBOURS_PER_LINK = 4
"""An IPv4 and an IPv6 neighbour at each end, one of them stale."""
NEIGHBOURS_SPARE = 1024
"""The neighbours that the machine itself may have beside those of its labs."""


class LabExists(TestbedError):
    """A different lab of that name is deployed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployOptions:
    """`k` is the resolved time scale. `wait` False leaves without waiting for routing."""

    k: float
    timeout_s: float = DEFAULT_TIMEOUT_S
    reconfigure: bool = False
    keep_failed: bool = False
    wait: bool = True
    routing: bool = True
    """Start the routing daemons; False leaves bare nodes and links."""
    directory: Path | None = None
    """Parent of the lab directory `testbed-<lab>/`; the working directory by default."""
    runtime: str = "netns"
    """The runtime that the lab was deployed with, for its record: "netns", or "mininet" with `realised` making
    Mininet's objects."""
    realised: Callable[[Sequence[Operation]], None] | None = None
    """Told of operations once they are carried out, in their order; `CreateNode` once the nodes are published."""
    agreed: Agreed | None = None
    """The agreement of machines that have a part each of the lab; None: all of it is here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployOutcome:
    """`changed` is False when the lab was already as asked."""

    lab: RunningLab
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DestroyOutcome:
    """The things that a destroy removed, and those that stay.

    `unknown`: kinds of things in its journal that another version made, and that stay. `ended` are the processes that
    ended with it, `remaining` says in sentences what of it is still to be seen.
    """

    lab: str
    nodes: int
    unknown: tuple[str, ...] = ()
    ended: tuple[Process, ...] = ()
    remaining: tuple[str, ...] = ()


def preview(lab: Lab, state: StateDirectory, k: float) -> LabPlan:
    """The plan that `deploy` would carry out now. Touches nothing."""
    require_machine(lab, state)
    try:
        slot = state.read(lab.name).slot
    except LabNotFound:
        slot = state.take_slot(slot_for(lab.name), instead_of=lab.name)
    reaction_ns = planned_reaction_ns(lab, state, measure=False)
    return plan_at(lab, slot, k=k, by=choose_mechanisms(lab, state), reaction_ns=reaction_ns)


def require_machine(lab: Lab, state: StateDirectory) -> None:
    """Raise `CapabilityError` or `PlanError` where this machine cannot give a lab what it asks for."""
    require_marker(lab, state)
    require_password(lab, state)
    for feature in features():
        feature.require(lab, state)


def deploy_lab(
    lab: Lab, state: StateDirectory, options: DeployOptions, notify: StepCallback = ignore_steps
) -> DeployOutcome:
    """Bring a lab up and wait until its routing has converged.

    Deploying the lab that is already there changes nothing. Raises `LabExists` for another one of that
    name unless `reconfigure`; `NameInUse`, `CapabilityError`, `DriverError`; and `ConvergenceError`, which
    leaves the lab up for inspection. After any other error nothing of it is left. A lab that is replaced goes once
    all that the new one can be refused for has been looked at: a refusal leaves it up and untouched.
    """
    require_root()
    frr = find_frr() if any(node.container is None for node in lab.speakers) else None
    require_rdma(lab)
    require_machine(lab, state)
    with state.lock_lab(lab.name, unfinished=True):
        if state.exists(lab.name):
            running = _existing(lab, state, options)
            if running is not None:
                if options.wait and options.routing:
                    for feature in features():
                        feature.after_routing(running.plan, state)
                    await_convergence(running.plan, state, options.timeout_s, notify)
                    complete(running, state)
                return DeployOutcome(lab=running, changed=False)
        runtimes = _prepare_runtimes(lab, state)
        try:
            prepared = prepare_lab(lab, state, k=options.k, parent=options.directory, agreed=options.agreed)
            _destroy_locked(lab.name, state, notify)  # nothing speaks against the new one
            deploy = _Deploy(lab=lab, state=state, options=options, frr=frr, runtimes=runtimes, notify=notify)
            record = deploy.carry_out(prepared)
        finally:
            for nodes in runtimes:
                nodes.close()
        return DeployOutcome(lab=RunningLab(record, state), changed=True)


def adjust_machine(record: LabRecord, state: StateDirectory) -> None:
    """Change the machine's settings for all labs, that of `record` among them. Call with the machine locked."""
    state.adjust_machine(NEIGHBOURS_PER_LINK * state.count_links(record) + NEIGHBOURS_SPARE)


def _prepare_runtimes(lab: Lab, state: StateDirectory) -> list[DeployingNodes]:
    """Return what the runtimes of the lab's nodes need, checked. Raises `CapabilityError`, `NameInUse`."""
    run, journal = state.run_directory(lab.name), Journal(state.lab_directory(lab.name))
    found: list[DeployingNodes] = []
    try:
        for runtime in runtimes().values():
            if (nodes := runtime.prepare(lab, run, journal)) is not None:
                found.append(nodes)
    except BaseException:
        for nodes in found:
            nodes.close()
        raise
    return found


def complete(running: RunningLab, state: StateDirectory) -> None:
    """Do what a deploy that had timed out left undone, now that routing is there after all."""
    if running.life_cycle is LabState.FAILED:
        run_node_commands(running.model, running)
        Journal(state.lab_directory(running.name)).state(LabState.RUNNING)


def _existing(lab: Lab, state: StateDirectory, options: DeployOptions) -> RunningLab | None:
    """The lab as it stands if it is what is asked for; None if it must go first."""
    try:
        running = RunningLab.open(lab.name, state)
        life_cycle = running.life_cycle
    except LabUnreadable as error:
        if options.reconfigure:
            return None
        raise LabExists(error.message, hint=f"deploy --reconfigure replaces it; {error.hint}") from error
    except LabNotFound:
        return None
    if options.reconfigure:
        return None
    state.require_finished(lab.name)
    if life_cycle not in (LabState.RUNNING, LabState.FAILED):
        return None
    if running.record.part is not None:
        raise LabExists(
            f"this machine has a part of a lab {lab.name}, and other machines have the rest",
            hint=f"where it was deployed from: testbed destroy -n {lab.name}; -n gives the new one another name",
        )
    # The same lab may come from its file by another path.
    recorded = {**running.record.model, "source": lab.source}
    same = recorded == encode_lab(lab) or recorded == encode_lab(keep(running.model, lab))
    same = same and running.record.k == options.k
    if same and running.record.runtime != options.runtime:
        raise LabExists(
            f"the lab {lab.name} is deployed with runtime {running.record.runtime}",
            hint="`testbed mininet-cli` opens Mininet's prompt on any lab; deploy --reconfigure replaces it",
        )
    if not same:
        raise LabExists(
            f"a different lab named {lab.name} is deployed (from {running.record.source or 'an unnamed file'})",
            hint="testbed apply changes it where it is; deploy --reconfigure replaces it; -n gives the new one another"
            " name",
        )
    states = {node.name: node.state for node in running.status()}
    broken = [name for name, found in states.items() if found != "running"]
    lost = [part for feature in features() for part in feature.broken(running.plan, running.processes_directory)]
    if broken or lost:
        what = [*broken, *(part.what for part in lost)]
        hint = "deploy --reconfigure brings it up anew"
        if off := [name for name, found in states.items() if found == "off"]:
            hint = f"testbed power on {off[0]}; {hint}"
        raise LabExists(
            f"the lab {lab.name} is deployed but not whole: {', '.join(what[:5])}",
            hint=hint if broken else f"{lost[0].hint}; {hint}",
        )
    return running


@dataclass(frozen=True, slots=True, kw_only=True)
class _Deploy:
    """A deploy of a lab of whose name there is none, once nothing speaks against it.

    `runtimes` are those of its nodes that are containers, and `frr` is what its other switches run.
    """

    lab: Lab
    state: StateDirectory
    options: DeployOptions
    frr: FrrInstallation | None
    runtimes: Sequence[DeployingNodes]
    notify: StepCallback

    @property
    def journal(self) -> Journal:
        return Journal(self.state.lab_directory(self.lab.name))

    @property
    def here(self) -> Lab:
        """The lab, or the part of it that this machine has."""
        agreed = self.options.agreed
        return self.lab if agreed is None else agreed.part.model(self.lab)

    def carry_out(self, prepared: PreparedLab) -> LabRecord:
        """Deploy what is `prepared`. After any error but `ConvergenceError` nothing of it is left."""
        with interrupted_once():
            return self._carry_out_or_undo(prepared)

    def _carry_out_or_undo(self, prepared: PreparedLab) -> LabRecord:
        try:
            plan, record = self.register(prepared)
            if self.options.agreed is not None:
                self.options.agreed.claimed()
            write_node_files(self.here, plan, self.state.run_directory(self.lab.name))
            self.bring_up(plan, record)
        except ConvergenceError:
            self.journal.state(LabState.FAILED)
            raise
        except BaseException:
            if not self.options.keep_failed:
                with uninterrupted():
                    _destroy_locked(self.lab.name, self.state, self.notify)
            raise
        return record

    def register(self, prepared: PreparedLab) -> tuple[LabPlan, LabRecord]:
        """Claim the name and a slot, and record the lab."""
        lab, state, options = self.lab, self.state, self.options
        plan, by, reaction_ns, here = prepared.plan, prepared.by, prepared.reaction_ns, self.here
        with state.lock_machine():
            require_names(here, JournalContent())
            slot = state.take_slot(slot_for(lab.name) if options.agreed is None else plan.slot)
            if slot != plan.slot and options.agreed is not None:
                raise LabExists(f"another lab has taken the slot {plan.slot} meanwhile", hint="deploy it once more")
            if slot != plan.slot:  # another lab has taken it meanwhile
                plan = plan_at(lab, slot, k=options.k, by=by, reaction_ns=reaction_ns)
            frr = self.frr.version_text if self.frr is not None and options.routing else ""
            record = LabRecord(
                name=lab.name,
                slot=slot,
                k=options.k,
                version=__version__,
                created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                source=lab.source,
                directory=str(prepared.directory),
                model=encode_lab(lab),
                frr=frr,
                delay_by=by.delay_by.value if by.delay_by is not None else "",
                vrf_by=by.vrf_by.value if by.vrf_by is not None else "",
                lag_by=by.lag_by.value if by.lag_by is not None else "",
                reaction_ns=reaction_ns,
                runtime=options.runtime,
                daemons=recorded_daemons(here, plan, planned_daemons(plan, lambda _: frr)),
                environment=_environments(here, plan, state.run_directory(lab.name)),
                written=encode_written(lab),
                part=None if options.agreed is None else options.agreed.part.to_json(),
            )
            self.journal.state(LabState.DEPLOYING)
            state.write(record)
            adjust_machine(record, state)
        return plan, record

    def bring_up(self, plan: LabPlan, record: LabRecord) -> None:
        """Carry out the plan, wait until routing has converged, and run the commands of the nodes."""
        lab, state, options, notify = self.here, self.state, self.options, self.notify
        run = state.run_directory(lab.name)
        kernel = NetnsKernel(lab.name)
        realised = options.realised or (lambda _: None)
        watch: ConvergenceWatch | None = None
        launcher: DaemonLauncher | None = None
        starting: list[Future[Started | None]] = []
        try:
            created = self.create_nodes(plan, kernel)
            # What needs not the lock of the kernel's links is done beside the links, which are made on one CPU. It has
            # ended when the pool is left, whatever happens.
            with ThreadPoolExecutor(4, thread_name_prefix="deploy") as pool:
                with signals_later():
                    publishing = pool.submit(kernel.publish)
                    loading = pool.submit(_load_data_path, plan, run) if plan.tables is not None else None
                    beside = [pool.submit(write_lab_directory, lab, plan, Path(record.directory), self.journal)]
                    sets = self.prepare_routing(pool, plan) if plan.switches and options.routing else None
                links, ports = _links_and_ports(plan)
                with step("links", notify, f"{len(lab.links)} links"):
                    kernel.apply(links)
                    publishing.result()
                    realised([*created, *links])
                if loading is not None:
                    with step("data path", notify):
                        kernel.use_data_path(loading.result())
                    with signals_later():
                        beside.append(pool.submit(attach, plan, state.run, run, state.lab_directory(lab.name)))
                with step("ports", notify, f"{len(plan.ports)} ports"):
                    kernel.apply(ports)
                    realised(ports)
                starting += self.start_features(pool, plan, Path(record.directory), beside[0])
                if sets is not None:
                    with step("routing", notify, f"{len(plan.speakers)} nodes"):
                        watch = ConvergenceWatch(plan, run)
                        launcher = DaemonLauncher(self.frr)
                        start_daemons(launcher, sets.result(), plan, run)
                    with signals_later():  # routers may be lost from the first routes on
                        beside += [pool.submit(feature.after_routing, plan, state) for feature in features()]
                _await_all([*beside, *starting])
            if options.wait:
                self.wait(watch, launcher, _started(starting))
            run_node_commands(lab, RunningLab(record, state))
            self.journal.state(LabState.RUNNING)
        finally:
            for started in _started(starting):
                started.release()
            if launcher is not None:
                launcher.release()
            if watch is not None:
                watch.close()
            kernel.close()

    def prepare_routing(self, pool: ThreadPoolExecutor, plan: LabPlan) -> Future[list[DaemonSet]]:
        """Have the files of routing daemons written."""
        elsewhere = {node: how for nodes in self.runtimes for node, how in nodes.elsewhere.items()}
        password = bgp_password(plan, self.state.lab_directory(self.lab.name))
        run = self.state.run_directory(self.lab.name)
        return pool.submit(daemon_sets, self.here, plan, run, self.frr, elsewhere=elsewhere, password=password)

    def start_features(
        self, pool: ThreadPoolExecutor, plan: LabPlan, directory: Path, written: Future[None]
    ) -> list[Future[Started | None]]:
        """Have everything started that features run beside routing. `written`: the lab directory is there."""
        deployment = Deployment(
            lab=self.here,
            plan=plan,
            state=self.state,
            journal=self.journal,
            directory=directory,
            await_directory=written.result,
        )
        with signals_later():
            return [pool.submit(feature.start, deployment) for feature in features()]

    def wait(self, watch: ConvergenceWatch | None, launcher: DaemonLauncher | None, started: Sequence[Started]) -> None:
        """Wait until routing has converged, where there is any, features are ready, and all containers are healthy."""
        options, notify = self.options, self.notify
        if watch is not None and launcher is not None:

            def wait_links() -> None:
                for each in started:
                    each.wait_links(options.timeout_s)

            def check_daemons() -> None:
                launcher.check_alive()
                require_taken(watch.plan.speakers, self.state.run_directory(self.lab.name))

            with step("converge", notify):
                watch.wait(options.timeout_s, notify, check_daemons, wait_links)
            check_daemons()
            routes = watch.plan.expected_routes
            idle = {node: daemons for node, daemons in launcher.started.items() if not routes.get(node)}
            await_files(self.state.run_directory(self.lab.name), idle)  # of others routing has told
        for each in started:
            each.wait(options.timeout_s, notify)
        for nodes in self.runtimes:
            nodes.wait_healthy(options.timeout_s, notify)
        if launcher is not None:
            note_configurations(self.state.run_directory(self.lab.name), launcher.started)

    def create_nodes(self, plan: LabPlan, kernel: NetnsKernel) -> list[Operation]:
        """Make the nodes of all runtimes, journalled and not yet under their names; what was done comes back."""
        creations = [item for item in plan.operations if isinstance(item, CreateNode | CreateVrf)]
        with step("nodes", self.notify, f"{len(creations)} namespaces"):
            self.journal.nodes(kernel.create_nodes(creations))
        started = [item for nodes in self.runtimes for item in nodes.start(plan, kernel, self.notify)]
        return [*creations, *started]


def _environments(lab: Lab, plan: LabPlan, run: Path) -> dict[str, dict[str, str]]:
    """Return what features add to the environment of commands, by the nodes where they add anything."""
    return {node.name: more for node in lab.nodes if (more := environment_of(plan, run, node.name))}


def _await_all(work: Sequence[Future[Any]]) -> None:
    """Return when all of it has been done. Raises the error of the first that failed."""
    for item in work:
        item.result()


def _started(starting: Sequence[Future[Started | None]]) -> list[Started]:
    """Return the features that have been started, once nothing is being started any more."""
    ended = (work for work in starting if not work.cancelled() and work.exception() is None)
    return [started for work in ended if (started := work.result()) is not None]


def _load_data_path(plan: LabPlan, run: Path) -> PortInstaller:
    if plan.tables is None:
        raise ValueError(f"{plan.lab} has no qos")
    directory = pins.lab_directory(run)
    installs = [item for item in plan.operations if isinstance(item, InstallPort)]
    installer = PortInstaller.load(directory, plan.tables, installs)
    declare_wires(directory, plan)
    return installer


def _links_and_ports(plan: LabPlan) -> tuple[list[Operation], list[Operation]]:
    """The operations up to the links, all of them down, and those that follow."""
    elsewhere = CreateNode | CreateVrf | StartContainer | StartRouting | StartService
    operations: list[Operation] = [item for item in plan.operations if not isinstance(item, elsewhere)]
    end = max((index for index, item in enumerate(operations, 1) if isinstance(item, CreateVeth)), default=0)
    return operations[:end], operations[end:]


def run_node_commands(lab: Lab, running: RunningLab, only: Container[str] | None = None) -> None:
    """The `exec` lists of nodes, or of `only` those, once routing is there; a command that fails fails the deploy."""
    for node in lab.nodes:
        for argv in node.exec if only is None or node.name in only else ():
            result = running.run(node.name, argv)
            if result.returncode:
                ended = f"exec {' '.join(argv)} ended with status {result.returncode}"
                raise DriverError(f"{node.name}: {ended}: {result.stderr.strip()}", operation="exec")


def await_convergence(plan: LabPlan, state: StateDirectory, timeout_s: float, notify: StepCallback) -> None:
    """Wait until the routing of a lab that is up has converged. Raises `ConvergenceError`."""
    with contextlib.closing(ConvergenceWatch(plan, state.run_directory(plan.lab))) as watch, step("converge", notify):
        watch.wait(timeout_s, notify)


def destroy_lab(name: str, state: StateDirectory, notify: StepCallback = ignore_steps) -> DestroyOutcome:
    """Remove exactly what the lab created. Raises `LabNotFound`. May be repeated after an interruption.

    Returns when the processes that ended with it are gone from the process table, or says which stay there.
    """
    require_root()
    with state.lock_lab(name, unfinished=True):
        undo_killed_measurement(state)
        if not state.exists(name):
            with state.lock_machine():
                state.restore_machine()  # a destroy may have been cut short right before this
            raise state.not_found(name)
        outcome = _destroy_locked(name, state, notify)
    unreaped = await_reaping(outcome.ended)
    if not unreaped:
        return outcome
    said = (
        f"{len(unreaped)} ended processes stay in the process table, as {parents_text(unreaped)} does not reap them;"
        " a container with an init (docker run --init) does"
    )
    return replace(outcome, remaining=(*outcome.remaining, said))


def _destroy_locked(name: str, state: StateDirectory, notify: StepCallback) -> DestroyOutcome:
    if not state.exists(name):
        return DestroyOutcome(lab=name, nodes=0)
    journal = Journal(state.lab_directory(name))
    content = journal.read()
    if content.state is not LabState.DESTROYING:
        with suppress(StateError):  # the disk may be full, and removing needs no room
            journal.state(LabState.DESTROYING)
    ended: list[Process] = []
    remaining: list[str] = []
    with step("destroy", notify, f"{len(content.identities)} nodes"):
        try:
            ended += detach(name, state.run)  # the agent has sockets in the namespaces
        except PauseAgentError as error:  # one that hangs must not keep the lab
            remaining.append(error.message)
        remain: list[NodesRemain] = []
        for runtime in runtimes().values():
            try:
                runtime.remove(content)
            except NodesRemain as error:
                remain.append(error)  # all the rest can go
        for feature in features():
            feature.remove(name)
        removal = NetnsKernel(name).remove(content.identities)
        pins.unmount(pins.lab_directory(state.run_directory(name)))
        release_memory(state.run_directory(name))
        contained = {node for item in content.containers.values() for node in item.ids}
        directories = [path for path in state.run_directory(name).glob("*/") if path.name not in contained]
        remove_crash_directories(directories, removal.processes)
        remove_paths(content.paths)
    if remain:
        raise join_remaining(remain)
    with state.lock_machine():
        state.forget(name)
        state.restore_machine()
    return DestroyOutcome(
        lab=name,
        nodes=removal.nodes,
        unknown=tuple(dict.fromkeys(content.unknown)),
        ended=(*ended, *removal.processes),
        remaining=tuple(remaining),
    )
