"""A lab over several machines as a run sees it: planned here as a whole, and up there in parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO

from testbed.api.pool.about import AboutMachine, decode_about
from testbed.api.pool.machines import with_each
from testbed.api.pool.over.machines import PartMachine
from testbed.api.pool.over.part_faults import fault_findings
from testbed.api.pool.over.programs import RemoteProgram, RemotePrograms
from testbed.api.pool.over.records import SpreadRecord, SpreadState
from testbed.api.pool.over.run_messages import AskLab, LabAnswer
from testbed.base.errors import CapabilityError, Finding, ScenarioError
from testbed.base.linux.namespaces import NETNS_DIRECTORY
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.records.lab_record import decode_lab, encode_lab, say_the_same
from testbed.lab.core.model import DelayBy, Lab
from testbed.lab.core.plan.lab import plan_lab
from testbed.run.placed.lab import PlannedLab
from testbed.run.schema.model import Scenario
from testbed.run.sweep.points import Sweep

TCP = "tcp"
CARRIED = ("roce", "uet", TCP)
"""The transports that runs on such labs have: their endpoints are processes of ours at each host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadLab(PlannedLab):
    """The whole of a lab, whose nodes have their namespaces on the machines that have them. `controls` are the
    congestion controls that TCP has in its hosts; `programs` starts programs there."""

    controls: Mapping[str, str]
    programs: RemotePrograms

    def of_network(self, *names: str) -> SpreadLab:
        """The lab as it is seen in some networks."""
        return SpreadLab(
            model=self.model.of_network(*names),
            plan=self.plan.of_network(*names),
            seen_of=self.whole,
            controls=self.controls,
            programs=self.programs,
        )

    def start_program(self, node: str, argv: Sequence[str], output: IO[bytes] | int | None) -> RemoteProgram:
        """Start a program in a host, on its machine."""
        return self.programs.start(node, argv, output)

    def congestion_controls(self, hosts: Iterable[str]) -> dict[str, str] | None:
        """Return what its machines say of these hosts."""
        return {host: self.controls[host] for host in hosts}

    def namespace_file(self, node: str) -> str | None:
        """Return the path of a node's network namespace on its machine."""
        return str(NETNS_DIRECTORY / namespace_name(self.name, node))


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedLab:
    """A lab that is up, with what its machines say of it and of themselves."""

    record: SpreadRecord
    lab: SpreadLab
    answer: LabAnswer
    """The answer that all machines give about the lab; times of the underlay are the longest."""
    machines: Mapping[str, AboutMachine]
    lacking: Mapping[str, Sequence[str]]
    """The congestion controls that were asked for and that a machine lacks, by the machine; those that lack none are
    left out."""


def open_spread(record: SpreadRecord, parts: Sequence[PartMachine], controls: tuple[str, ...] = ()) -> OpenedLab:
    """Plan the whole of a lab as its machines have it, and ask them for congestion controls of TCP.

    Raises `ScenarioError` where it is not up as a whole.
    """
    if record.state is not SpreadState.RUNNING:
        raise ScenarioError(
            f"the lab {record.name} is {record.state} on its machines", hint=f"testbed destroy -n {record.name}"
        )
    asked = AskLab(lab=record.name, congestion_controls=controls)
    answers = with_each(parts, lambda part: part.ask(asked, LabAnswer))
    first = answers[0]
    same = ("model", "revision", "slot", "k", "delay_by", "reaction_ns")
    for part, answer in zip(parts, answers, strict=True):
        if other := [name for name in same if getattr(answer, name) != getattr(first, name)]:
            raise ScenarioError(
                f"{part.name} has another {other[0]} of {record.name} than {parts[0].name}",
                hint=f"testbed destroy -n {record.name}, and deploy it again",
            )
    model = decode_lab(first.model)
    plan = plan_lab(
        model,
        slot=first.slot,
        k=first.k,
        auto_delay=DelayBy(first.delay_by or DelayBy.ENDPOINT),
        reaction_ns=first.reaction_ns,
    )
    about = {
        part.name: decode_about(answer.about.encode(), part.name) for part, answer in zip(parts, answers, strict=True)
    }
    longest = max(answer.underlay_ns for answer in answers)
    told = replace(first, about="", underlay_ns=longest)
    known = {host: control for answer in answers for host, control in answer.controls.items()}
    lacking = {part.name: answer.lacking for part, answer in zip(parts, answers, strict=True) if answer.lacking}
    programs = RemotePrograms(record.name, parts, record.places)
    lab = SpreadLab(model=model, plan=plan, controls=known, programs=programs)
    return OpenedLab(record=record, lab=lab, answer=told, machines=about, lacking=lacking)


def require_carried(sweep: Sweep, opened: OpenedLab) -> None:
    """Raise `ScenarioError` where points are of another lab than the one that is up, `SpecError` for what such a lab
    does not have of them, and `CapabilityError` for what a machine lacks."""
    name = opened.record.name
    for point in sweep.points:
        of = f" ({point.name})" if point.name else ""
        if not say_the_same(encode_lab(sweep.lab_of(point)), opened.answer.model):
            raise ScenarioError(
                f"the lab {name} that is up on {len(opened.machines)} machines is not the one of the scenario{of}",
                hint=f"testbed destroy -n {name}, and deploy the scenario's topology --over them",
            )
    unfit = [
        (point.scenario, finding)
        for point in sweep.points
        for finding in _findings(point.scenario, opened.lab.model, opened.record.places)
    ]
    if unfit:
        raise sweep.reader.explain(unfit)
    for machine, missing in opened.lacking.items():
        raise CapabilityError(
            f"transport.cc: the kernel of {machine} has no congestion control {missing[0]!r}",
            missing=missing[0],
            hint=f"testbed --on ssh://{machine} doctor lists what it has",
        )


def controls_asked(sweep: Sweep) -> tuple[str, ...]:
    """Return the congestion controls of TCP that scenarios name, which each machine's kernel must have."""
    transports = (one for point in sweep.points for one in point.scenario.transports)
    return tuple(dict.fromkeys(one.cc for one in transports if one.cc and one.kind.value == TCP))


def _findings(scenario: Scenario, lab: Lab, places: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what such a lab does not have of a scenario, at its keys."""
    if scenario.workload.is_program:
        yield _finding(("workload",), "no host runs a program of yours", "a workload of bytes")
    elif scenario.by_programs and any(one.kind.value != TCP for one in scenario.transports):
        what = "programs other than iperf3, which sends over TCP for a duration, are not started there"
        yield _finding(("workload",), what, "bytes: 64bdp, or transport: {kind: tcp}")
    for kind in dict.fromkeys(one.kind.value for one in scenario.transports):
        if kind not in CARRIED:
            has = f"transport: {{kind: {CARRIED[0]}}}, {' or '.join(CARRIED[1:])}"
            yield _finding(("transport",), f"transport: {kind} is none that its workers have", has)
    for index, finding in fault_findings(scenario.faults, lab, places):
        yield replace(finding, keys=("faults", index, *finding.keys))
    if scenario.probes.rate_pps or scenario.probes.ports:
        yield _finding(("probes",), "no machine has both ends of a probe", "leave them out")


def _finding(keys: tuple[str, ...], what: str, hint: str) -> Finding:
    return Finding(code="spread-lab", keys=keys, message=f"a lab over several machines: {what}", hint=hint)
