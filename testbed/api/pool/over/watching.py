"""The eyes of a run on a lab of which this machine has a part: it watches that, and says what it has seen."""

from __future__ import annotations

from contextlib import ExitStack, suppress

from testbed.api.pool.over.part_faults import fault_of
from testbed.api.pool.over.run_messages import (
    BY_BUFFER,
    BY_PORT,
    AwaitRouting,
    BeginFaults,
    FaultsBegun,
    FaultsSeen,
    Packed,
    PackedSamples,
    PartSeen,
    RoutingAwaited,
    UnwatchPart,
    Watching,
    WatchPart,
)
from testbed.base.errors import ScenarioError, TestbedError
from testbed.lab.core.deploy.hash_seeds import DEPLOYED, set_hash_seeds
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.watch.next_hops import resolve_next_hops
from testbed.run.faults.timeline import FaultTimeline, routing_changed
from testbed.run.machine.canary import Canary
from testbed.run.machine.cpu import SoftnetCounts, read_softnet
from testbed.run.measuring.observation import Observation, observe
from testbed.run.measuring.touches import read_touches
from testbed.run.sweep.labs import held
from testbed.run.trust.evidence import read_ports
from testbed.run.trust.ports import reset_reactions


class PartWatch:
    """Watches one run after the other, and the machine beside it."""

    def __init__(self, state: StateDirectory) -> None:
        self._state = state
        self._run = ExitStack()
        self._observing = ExitStack()
        self._timeline: FaultTimeline | None = None
        self._seeded: RunningLab | None = None
        self._canary: Canary | None = None
        self._watched: tuple[RunningLab, RunningLab] | None = None
        """The part, and the part as it is seen in the networks of the workload, while a run is watched."""
        self._found = Observation()
        self._softnet = SoftnetCounts(dropped=0, squeezed=0)

    def begin(self, asked: WatchPart) -> Watching:
        """Get the lab ready for the traffic of a run, and watch it from now on."""
        self._end_run()
        whole = self._seeded = RunningLab.open(asked.lab, self._state)
        self._run.enter_context(held(whole))
        seen = whole.of_network(*asked.networks)
        if self._canary is None:
            self._canary = Canary()
        set_hash_seeds(whole, asked.seed)
        silent = resolve_next_hops(whole.name, asked.hops)
        if asked.faults is not None:
            faults = [fault_of(part) for part in asked.faults]
            timeline = FaultTimeline(whole, faults, kill_worker=_no_worker, of_part=True)
            self._timeline = self._run.enter_context(timeline)
        reset_reactions(seen)
        self._found = self._observing.enter_context(observe(seen, whole))
        self._canary.read()
        self._softnet = read_softnet()
        self._watched = whole, seen
        return Watching(unresolved=tuple(f"{hop.place}: {hop.of}" for hop in silent))

    def begin_faults(self, asked: BeginFaults) -> FaultsBegun:
        """Do the faults of the run that is watched when they are due. Raises `TestbedError` where it has none."""
        if self._timeline is None:
            raise TestbedError("no run with faults is watched here")
        self._timeline.begin(asked.begin_ns)
        return FaultsBegun()

    def await_routing(self, asked: AwaitRouting) -> RoutingAwaited:
        """Wait until routing here is whole again."""
        return RoutingAwaited(changed=routing_changed(RunningLab.open(asked.lab, self._state)))

    def end(self, _asked: UnwatchPart) -> PartSeen:
        """Say what was seen since the run began, and undo what is left of its faults. Raises `TestbedError` where
        nothing is watched."""
        if self._canary is None or self._watched is None:
            raise TestbedError("no run is watched here")
        if self._timeline is not None:
            self._timeline.end()
        lateness, softnet = self._canary.read(), read_softnet()
        (whole, seen), found = self._watched, self._found
        self._watched = None
        self._observing.close()
        ports = read_ports(seen, found)
        timeline = self._timeline
        self._end_run()
        growth = found.growth
        return PartSeen(
            cpu=found.cpu,
            sent=tuple((*key, counters) for key, counters in found.sent.items()),
            dropped=tuple((*key, packets) for key, packets in found.dropped.items()),
            guarded=tuple((*key, packets) for key, packets in (found.guarded or {}).items()),
            seconds=found.elapsed_s,
            growth=None
            if growth is None
            else {name: Packed.of(getattr(growth, name)) for name in (*BY_PORT, BY_BUFFER)},
            samples=PackedSamples.of(found.samples),
            port_samples=PackedSamples.of(found.port_samples),
            marking=tuple(found.marking),
            lateness=lateness,
            softnet=SoftnetCounts(
                dropped=softnet.dropped - self._softnet.dropped, squeezed=softnet.squeezed - self._softnet.squeezed
            ),
            balance=None if ports is None else ports.balance,
            pausing=None if ports is None else ports.pausing,
            touches=tuple(read_touches(whole, found.begin_ns, found.elapsed_s)),
            faults=None if timeline is None else _seen_of(timeline),
        )

    def _end_run(self) -> None:
        """End what is watched, undo what is left of its faults, and let go of the lab."""
        self._observing.close()
        self._run.close()
        self._timeline = None

    def close(self) -> None:
        """End what is watched, and give switches the seeds of the deploy back."""
        with ExitStack() as stack:
            if self._canary is not None:
                stack.enter_context(self._canary)
            if self._seeded is not None:
                stack.enter_context(suppress(TestbedError))  # it may be gone
                stack.callback(set_hash_seeds, self._seeded, DEPLOYED)
            stack.callback(self._end_run)


def _seen_of(timeline: FaultTimeline) -> FaultsSeen:
    """Return what a timeline that has been left did and saw."""
    outcome = timeline.outcome()
    return FaultsSeen(
        acts=outcome.acts,
        latest_s=outcome.latest_s,
        troubles=outcome.troubles,
        left_changed=outcome.left_changed,
        disturbed=timeline.disturbed,
        events=tuple(timeline.events()),
    )


def _no_worker(host: str) -> None:
    raise ScenarioError(f"the worker of {host} is not ended on a lab over several machines")
