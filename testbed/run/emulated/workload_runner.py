"""Runs a workload on a live lab: programs go to the hosts' workers, and what they measured comes back.

    with WorkloadRunner(lab, transport) as runner:
        result = runner.run(workload, ranks, WorkloadRunOptions(seed=1))

Workers stay between runs, so that a run costs little beyond its traffic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Self

from testbed.base.cleanup import on_failure
from testbed.base.errors import TestbedError
from testbed.base.interrupt import Interrupt
from testbed.endpoints.worker.program import Program
from testbed.endpoints.worker.program_json import encode_program
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.emulated.behind import RanksBehind
from testbed.run.emulated.workers import (
    PATIENCE_S,
    Answers,
    Event,
    HasFileno,
    SharedWorkers,
    WorkerFailed,
    Workers,
    WorkerSeat,
)
from testbed.run.measuring.measured import Measured, TimeLimitReached
from testbed.run.measuring.mixed_parts import CarriedPart, MixedParts
from testbed.run.measuring.reports import put_together, settle_digests
from testbed.run.measuring.storage import not_safe_text
from testbed.run.placed.channels import ChannelPlan, join_channels
from testbed.run.placed.lab import LiveLab
from testbed.run.placed.placed_workload import DATA_LIMIT_BYTES, PlacedWorkload, choose_checked, compile_programs
from testbed.run.placed.traffic_parts import TrafficPart, split_traffic
from testbed.run.scale_up.domains import carried_domains
from testbed.run.schema.model import Transport
from testbed.run.sweep.progress import RankBehind
from testbed.run.transports.lab_transport import LabTransport
from testbed.run.transports.registry import transport_class, transport_on
from testbed.workload.steps import Workload

SETUP_TIMEOUT_S = REPORT_TIMEOUT_S = PATIENCE_S
LEAD_S = 0.002
LEAD_PER_HOST_S = 0.0003
"""The time by which the common start lies ahead, for each host: the time in which every worker has been told."""
SAMPLE_NS = 25_000_000


Around = Callable[[], AbstractContextManager[object]]
OnProgress = Callable[[float], None]
OnBehind = Callable[[Sequence[RankBehind]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRunOptions:
    """The options by which one workload is run, and who is told of its course."""

    seed: int = 1
    """It draws the ports of channels and the data of collectives."""
    k: float | None = None
    """The factor of the workload's times; None: the lab's time scale."""
    check: bool = True
    """Collectives carry data, as far as it fits into `data_limit_bytes`, and wrong elements are counted."""
    data_limit_bytes: int = DATA_LIMIT_BYTES
    lead_s: float = LEAD_S
    """The common start lies so far ahead, and more for each host."""
    limit_s: float = 60.0
    """The wall-clock time after which the run is ended."""
    interrupt: Interrupt | None = None
    """The interrupt that ends it early; None: the runner's own."""
    over: HasFileno | None = None
    """It is readable once nothing more can come: the run ends then, as by its time limit."""
    around: Around = nullcontext
    """It is entered when every host is ready, and left when all are done."""
    on_progress: OnProgress = lambda share: None
    """It gets the share of bytes that have arrived."""
    on_behind: OnBehind = lambda behind: None
    """It gets the ranks that are furthest behind, twice a second at most."""


class WorkloadRunner:
    """Runs workloads with the workers of one lab, over one transport or one for each of the workload's tenants. A
    context: leaving it ends the workers.

    Raises `ScenarioError` for a transport that this lab cannot have, and `CapabilityError` where this machine lacks a
    program that it needs.
    """

    def __init__(
        self,
        lab: LiveLab,
        transport: Transport,
        hosts: Sequence[str] = (),
        *,
        interrupt: Interrupt | None = None,
        shared: SharedWorkers | None = None,
        alone: Collection[str] = (),
        of_tenants: Sequence[Transport] = (),
    ) -> None:
        """`hosts` are those whose workers are started on entering. `shared` are processes for all hosts that can share
        one, but those that are to be `alone`: their worker may be killed. `of_tenants` are the transports of the
        tenants of workloads, in their order; without, `transport` carries all."""
        self._lab = lab
        self._transport = transport
        self._of_tenants = tuple(of_tenants)
        self._transports: list[tuple[TrafficPart, LabTransport]] = []
        """The transports that have carried something, each with a part of the traffic that it did."""
        kinds = {transport_class(one.kind) for one in self._of_tenants or (transport,)}
        own_sysfs = any(kind.workers_own_sysfs for kind in kinds)
        shares = all(kind.shares_workers for kind in kinds)
        self._workers = Workers(
            lab, transport=transport.kind.value, own_sysfs=own_sysfs, shared=shared if shares else None, alone=alone
        )
        self._here = shared is None or shared.here
        if not self._of_tenants:
            self._made(lab, transport)  # refuses what cannot be, before a worker is started
        self._hosts = tuple(hosts)
        self._interrupt = interrupt

    def __enter__(self) -> Self:
        """Starts the workers of the hosts given; others are started when a run first needs them."""
        with on_failure(self._workers.close):
            answers = self._workers.start(self._hosts, self._interrupt)
            if answers.failure is not None:
                raise answers.failure
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.close()

    def pid(self, host: str) -> int | None:
        """The process of a host's worker; None where the host has none."""
        worker = self._workers.workers.get(host)
        return None if worker is None else worker.process.pid

    def kill(self, host: str) -> None:
        """Ends the worker of a host at once. Raises `ScenarioError` where it has none, or it has ended already."""
        self._workers.kill(host)

    def plan_channels(self, workload: Workload, ranks: Sequence[PortPlan], *, seed: int) -> ChannelPlan:
        """The channels that `run` will use with this seed."""
        carried = self._carry(workload, ranks, WorkloadRunOptions(seed=seed))
        return join_channels([(one.placement.channels, one.part.steps) for one in carried])

    def _carry(
        self, workload: Workload, ranks: Sequence[PortPlan], options: WorkloadRunOptions
    ) -> tuple[CarriedPart, ...]:
        """Split a workload into the parts that its transports carry, each with channels of its own."""
        found = []
        k = self._lab.plan.k if options.k is None else options.k
        for part in split_traffic(self._lab, workload, ranks, self._transport, self._of_tenants):
            transport = self._transport_of(part)
            placement = PlacedWorkload(
                workload=part.workload,
                ranks=ranks,
                channels=transport.plan_channels(part.workload, ranks, seed=options.seed),
                k=k,
                seed=options.seed,
                domains=carried_domains(
                    self._lab.model, self._lab.plan, part.transport, k, self._lab.processes_directory
                ),
            )
            found.append(CarriedPart(part=part, transport=transport, placement=placement))
        return tuple(found)

    def _transport_of(self, part: TrafficPart) -> LabTransport:
        """Return the transport of a part, the same one from run to run: some count their runs."""
        for known, transport in self._transports:
            if (known.transport, known.networks) == (part.transport, part.networks):
                return transport
        made = self._made(part.view(self._lab), part.transport)
        self._transports.append((part, made))
        return made

    def _made(self, lab: LiveLab, transport: Transport) -> LabTransport:
        """Return a transport, after a look whether this machine has what it needs, where its workers are here."""
        made = transport_on(lab, transport)
        if self._here:
            made.check_machine(transport)
        return made

    def run(
        self,
        workload: Workload,
        ranks: Sequence[PortPlan],
        options: WorkloadRunOptions | None = None,
        measured: Measured | None = None,
    ) -> Measured:
        """Runs a workload whose rank i is the NIC `ranks[i]`, and puts what came of it into `measured`, or a new one.

        Whatever happens to the traffic is told by it; `ScenarioError` is raised for a workload that does not
        fit the ranks.
        """
        options = options or WorkloadRunOptions()
        carried = self._carry(workload, ranks, options)
        mixed = MixedParts(workload, ranks, carried)
        placement = mixed.placement
        checked = choose_checked(workload, options.data_limit_bytes) if options.check else ()
        programs = compile_programs(
            placement,
            mixed.settings(lambda one: one.transport.worker_settings(one.placement)),
            pulled=lambda step: mixed.transport(step.source).pulls(step, ranks),
            checked=checked,
            sample_ns=SAMPLE_NS,
        )
        seats = {
            name: WorkerSeat(host=host, transport=one.transport.transport.kind.value)
            for name, (host, one) in mixed.workers().items()
        }
        self._workers.join_domains(
            {name: program.scale_up.domain for name, program in programs.items() if program.scale_up.neighbours},
            seats,
        )
        observers = [one.transport.observe_run(ranks) for one in carried]
        run = _Run(
            workers=self._workers,
            programs=programs,
            behind=RanksBehind(placement, programs),
            seats=seats,
            interrupt=options.interrupt or self._interrupt,
            options=options,
        )
        run.execute()
        measured = put_together(placement, run.reports, checked, mixed.ideals(), measured)
        for add_observed in observers:
            add_observed(measured)
        measured.interrupted, measured.failure = run.interrupted, run.failure
        measured.begin_monotonic_ns, measured.elapsed_s = run.begin_ns, run.elapsed_s
        if run.out_of_time:
            left = {host: left for host, left in measured.steps_left.items() if left}
            measured.failure = TimeLimitReached(options.limit_s, left)
        if measured.failure is not None and (not_safe := not_safe_text(placement, run.reports)):
            measured.failure.message += f"; {not_safe}"
        return measured


class _Run:
    """One execution, phase by phase. What ends it early is in `failure`, `interrupted` or `out_of_time`."""

    def __init__(
        self,
        *,
        workers: Workers,
        programs: Mapping[str, Program],
        behind: RanksBehind,
        seats: Mapping[str, WorkerSeat],
        interrupt: Interrupt | None,
        options: WorkloadRunOptions,
    ) -> None:
        self._behind = behind
        self.failure: TestbedError | None = None
        self.interrupted = False
        self.out_of_time = False
        self.begin_ns = 0
        self.elapsed_s = 0.0
        self.reports: dict[str, Event] = {}
        self._workers = workers
        self._programs = programs
        self._hosts = tuple(programs)
        """The names of the workers."""
        self._seats = seats
        self._interrupt = interrupt
        self._options = options
        self._arrived: dict[str, int] = {}
        self._total = sum(
            step.size_bytes
            for program in programs.values()
            for step in program.steps
            if step.channel is not None and step.destination in program.own
        ) + sum(
            one.tokens * one.chunk_bytes
            for program in programs.values()
            for one in program.requests
            if one.client in program.own
        )

    def execute(self) -> None:
        try:
            if not self._note(self._workers.start(self._hosts, self._interrupt, self._seats)):
                if self.interrupted:
                    self._workers.discard(self._hosts)  # they may be busy with their own start
                return
            commands = {
                host: {"do": "prepare", "program": encode_program(program)} for host, program in self._programs.items()
            }
            if self._set_up("listening", commands) and self._set_up("ready", dict.fromkeys(self._hosts, _CONNECT)):
                self._move()
            self._collect()
        finally:
            self._workers.tell(dict.fromkeys(self._hosts, _RELEASE))

    def _set_up(self, expected: str, commands: Mapping[str, Mapping[str, Any]]) -> bool:
        self._workers.tell(commands)
        answers = self._workers.wait(self._hosts, expected, time.monotonic() + SETUP_TIMEOUT_S, self._interrupt)
        if answers.late:
            self.failure = WorkerFailed(answers.late[0], f"it is not {expected} after {SETUP_TIMEOUT_S:.0f} s")
        return self._note(answers)

    def _move(self) -> None:
        """Moves the traffic. What goes wrong around it ends the run, and loses nothing of what was measured."""
        try:
            self._move_inside()
        except TestbedError as error:
            self.failure = self.failure or error

    def _move_inside(self) -> None:
        with self._options.around():
            lead_s = self._options.lead_s + LEAD_PER_HOST_S * len(self._hosts)
            self.begin_ns = time.monotonic_ns() + round(lead_s * 1e9)
            start = {"do": "start", "at_ns": self.begin_ns}
            self._workers.tell(dict.fromkeys(self._hosts, start))
            deadline = self.begin_ns / 1e9 + self._options.limit_s
            answers = self._workers.wait(
                self._hosts, "done", deadline, self._interrupt, self._on_event, over=self._options.over
            )
            self.elapsed_s = max(0.0, (time.monotonic_ns() - self.begin_ns) / 1e9)
            self.out_of_time = bool(answers.late)
            self._note(answers)

    def _on_event(self, host: str, event: Event) -> None:
        if event.get("event") == "progress":
            self._arrived[host] = event["bytes"]
            self._options.on_progress(min(1.0, sum(self._arrived.values()) / self._total) if self._total else 1.0)
            self._behind.hear(host, event)
            if (behind := self._behind.due(time.monotonic())) is not None:
                self._options.on_behind(behind)

    def _collect(self) -> None:
        """Collects what the workers have measured, of all that are left."""
        if self.interrupted and not self.begin_ns:
            # Nothing has moved, and whoever fills its buffers hears nothing until they are full.
            self._workers.discard(self._hosts)
            return
        hosts = [host for host in self._hosts if host in self._workers.workers]
        self._workers.tell(dict.fromkeys(hosts, _STOP))
        answers = self._workers.wait(hosts, "report", time.monotonic() + REPORT_TIMEOUT_S, None, tolerant=True)
        self.reports = answers.events
        if answers.late:
            self._workers.discard(answers.late)
            answers.failure = WorkerFailed(answers.late[0], f"it has not answered for {REPORT_TIMEOUT_S:.0f} s")
        self._settle_checks()
        self._note_late_failures()
        if self.failure is None or (answers.failure is not None and answers.failure.is_death):
            self.failure = answers.failure  # whatever else broke, a death found late is the reason

    def _note_late_failures(self) -> None:
        """Has a run that went to its end fail where data that was looked at afterwards is wrong."""
        if self.failure is None and not self.interrupted and not self.out_of_time:
            found = ((host, report["failure"]) for host, report in self.reports.items() if report["failure"])
            self.failure = next((WorkerFailed(host, reason) for host, reason in found), None)

    def _settle_checks(self) -> None:
        """Has counted by the workers what digests alone do not settle."""
        open_questions = settle_digests(self.reports)
        if not open_questions:
            return
        self._workers.tell({host: {"do": "count", "of": pairs} for host, pairs in open_questions.items()})
        hosts = list(open_questions)
        answers = self._workers.wait(hosts, "counted", time.monotonic() + REPORT_TIMEOUT_S, None, tolerant=True)
        for host, event in answers.events.items():
            self.reports[host]["wrong"] += event["wrong"]

    def _note(self, answers: Answers) -> bool:
        self.failure = self.failure or answers.failure
        self.interrupted = self.interrupted or answers.interrupted
        return answers.complete


_CONNECT = {"do": "connect"}
_STOP = {"do": "stop"}
_RELEASE = {"do": "release"}
