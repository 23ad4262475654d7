"""The labs of a scenario's points: brought up when a point asks, kept while the next ones ask for the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from testbed.base.errors import CapabilityError, Finding, LabNotFound, TestbedError
from testbed.lab.core.deploy.interruption import uninterrupted
from testbed.lab.core.deploy.lifecycle import DEFAULT_TIMEOUT_S, DeployOptions, deploy_lab, destroy_lab
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.records.usage import using
from testbed.lab.core.deploy.steps import StepCallback, ignore_steps
from testbed.lab.core.drivers.probing.machine_probe import clock
from testbed.run.machine.load import keep_reading
from testbed.run.placed.lab import LiveLab
from testbed.run.placed.traffic import lab_transports
from testbed.run.schema.model import Scenario, TopologyRef, Transport
from testbed.run.sweep.points import Sweep, topology_key
from testbed.run.sweep.scales import ScenarioScales, without_scale
from testbed.run.transports.registry import transport_class


@dataclass(frozen=True, slots=True, kw_only=True)
class LabOptions:
    """The options by which the labs of a scenario are brought up, and who is told about it.

    `timeout_s` is how long routing may take to converge, in seconds of wall-clock time. With `keep` the last lab stays
    deployed. `notify` gets the steps of each deploy, `warn` a sentence for each lab that this machine may not carry,
    and for each thing that a scenario may have on it and hardly means.
    """

    timeout_s: float = DEFAULT_TIMEOUT_S
    keep: bool = False
    notify: StepCallback = ignore_steps
    warn: Callable[[str], None] = lambda _: None


@contextmanager
def held(lab: LiveLab) -> Iterator[None]:
    """Need a lab as it was opened: nobody changes it meanwhile.

    Raises `LabInUse` where it is being changed, and `TestbedError` where it was changed since it was opened.
    """
    if not isinstance(lab, RunningLab):
        yield
        return
    with using(lab.state_directory, lab.name):
        lab.state.require_finished(lab.name)
        if lab.state.read(lab.name) != lab.record:
            raise TestbedError(f"the lab {lab.name} was changed a moment ago, by another command", hint="run it again")
        yield


class ScenarioLabs:
    """Brings up one lab at a time. A lab that was deployed before, unchanged, is used as it is and not removed."""

    def __init__(self, sweep: Sweep, state: StateDirectory, options: LabOptions) -> None:
        self._points = sweep.points
        self._said: set[str] = set()
        self._reader = sweep.reader
        self._load = sweep.reader.load_topology
        self._scales = ScenarioScales(sweep.points, sweep.labs, state)
        self._state = state
        self._options = options
        self._key = ""
        self._lab: RunningLab | None = None
        self._ours = False
        self._held = ExitStack()
        """Keeps others from changing the lab that we measure on."""
        self._begun = ""
        """Name of a lab whose deploy has begun and of whose end we do not know, "" for none."""
        self._found: set[str] = set()
        """Names of labs that were up before us: their k stays."""
        self.kept = ""
        """Name of the lab that is still there after the end, "" for none."""

    def __call__(self, topology: TopologyRef) -> RunningLab:
        """The lab of this topology, up and converged. Raises the errors of loading and deploying it."""
        key = topology_key(topology)
        if self._lab is not None and key == self._key:
            return self._lab
        self._remove()
        self._check_machine(key)
        model = self._load(topology)
        scale = self._scales(topology, model)
        if scale.warning and clock() == "virtual":
            # Its figures would be those of the processor, the same every time and wrong.
            hint = "fewer hosts, or slower NICs" if scale.slowest else "scale: {time: auto} lets it be chosen"
            raise TestbedError(f"refused in virtual time: {scale.warning}", hint=hint)
        if scale.warning:
            self._options.warn(scale.warning)
        deploy_options = DeployOptions(k=scale.k, timeout_s=self._options.timeout_s)
        if not self._state.exists(model.name):
            self._begun = model.name
        declared = self._declared(topology)
        of_file = model if declared is topology else self._load(declared)
        outcome = deploy_lab(of_file, self._state, deploy_options, self._options.notify)
        self._lab, self._key, self._ours = outcome.lab, key, outcome.changed
        self._begun = ""
        if not outcome.changed:
            self._found.add(outcome.lab.name)
        self._held.enter_context(held(outcome.lab))
        self._warn_of_transports(outcome.lab)
        return outcome.lab

    def _declared(self, topology: TopologyRef) -> TopologyRef:
        """Return the topology of a further try as its point has it: the k that was chosen for it is none of the file's,
        and the next command takes the lab for the file's own. That of a point is itself, whatever its scale.
        """
        of_points = {topology_key(point.topology): point.topology for point in self._points}
        return topology if topology_key(topology) in of_points else of_points.get(without_scale(topology), topology)

    def _check_machine(self, key: str) -> None:
        """Raise `CapabilityError` where a point on this lab has a transport whose programs are not there."""
        for point in self._points:
            if topology_key(point.topology) == key:
                for transport in point.scenario.transports:
                    try:
                        transport_class(transport.kind).check_machine(transport)
                    except CapabilityError as error:
                        raise self._placed(error, point.scenario, transport) from None

    def _placed(self, error: CapabilityError, scenario: Scenario, transport: Transport) -> CapabilityError:
        """Return the error with its place in the scenario's file, where it is about the congestion control there."""
        if error.missing != transport.cc or transport != scenario.transport:
            return error
        message = f"this kernel has no congestion control {transport.cc!r}"
        finding = Finding(code="unfit", keys=("transport", "cc"), message=message, hint=error.hint)
        (problem,) = self._reader.explain([(scenario, finding)]).problems
        if problem.position is None:
            return error
        return CapabilityError(str(replace(problem, hint=None)), missing=error.missing, hint=error.hint)

    def _warn_of_transports(self, lab: RunningLab) -> None:
        """Tell what the points on this lab may have and hardly mean, each sentence once."""
        for point in self._points:
            if topology_key(point.topology) != self._key:
                continue
            seen = lab.of_network(*point.scenario.workload.ranks.networks_in(lab.model))
            for said in (line for one in lab_transports(point.scenario, seen) for line in one.warnings()):
                if said not in self._said:
                    self._said.add(said)
                    self._options.warn(said)

    def larger_k(self, topology: TopologyRef, k: float) -> float | None:
        """Return `k`, or the largest that leaves no port of this lab too slow; None where its k cannot be changed.

        A lab that was up before us stays as it is.
        """
        lab = self._load(topology)
        if lab.scale.time is not None or lab.name in self._found:
            return None
        now = self._scales(topology, lab).k
        most = min(k, self._scales.largest_k(lab))
        return most if most > now else None

    def __enter__(self) -> Self:
        self._scales.watch_others()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        interrupted = isinstance(error, KeyboardInterrupt)
        try:
            self._leave(interrupted)
        except KeyboardInterrupt:  # it came before signals were held back
            self._leave(interrupted=True)
            raise

    def _leave(self, interrupted: bool) -> None:
        """Remove the lab that is there. Further signals change nothing: half of a lab would stay."""
        with uninterrupted():
            self._held.close()
            if self._lab is not None and (self._options.keep or not self._ours):
                self.kept = self._lab.name if self._options.keep else ""
            else:
                self._remove()
            if interrupted and self._begun and self._state.exists(self._begun):
                destroy_lab(self._begun, self._state)
            if clock() != "virtual":
                keep_reading(self._state)

    def _remove(self) -> None:
        self._held.close()
        if self._lab is not None and self._ours:
            with suppress(LabNotFound):  # somebody else has destroyed it, or the interrupted try before this one
                destroy_lab(self._lab.name, self._state)
        self._lab = None
