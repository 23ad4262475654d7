"""A lab over several machines as a run sees it: planned here as a whole, and up there in parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from testbed.api.pool.about import AboutMachine, decode_about
from testbed.api.pool.machines import with_each
from testbed.api.pool.over.machines import PartMachine
from testbed.api.pool.over.records import SpreadRecord, SpreadState
from testbed.api.pool.over.run_messages import AskLab, LabAnswer
from testbed.base.errors import ScenarioError
from testbed.base.linux.namespaces import NETNS_DIRECTORY
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.records.lab_record import decode_lab, encode_lab, say_the_same
from testbed.lab.core.model import DelayBy
from testbed.lab.core.plan.lab import plan_lab
from testbed.run.placed.lab import PlannedLab
from testbed.run.sweep.points import Sweep

CARRIED = ("roce", "uet")
"""The transports that runs on such labs have: their endpoints are processes of ours at each host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadLab(PlannedLab):
    """The whole of a lab, whose nodes have their namespaces on the machines that have them."""

    def of_network(self, *names: str) -> SpreadLab:
        """The lab as it is seen in some networks."""
        return SpreadLab(model=self.model.of_network(*names), plan=self.plan.of_network(*names), seen_of=self.whole)

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


def open_spread(record: SpreadRecord, parts: Sequence[PartMachine]) -> OpenedLab:
    """Plan the whole of a lab as its machines have it. Raises `ScenarioError` where it is not up as a whole."""
    if record.state is not SpreadState.RUNNING:
        raise ScenarioError(
            f"the lab {record.name} is {record.state} on its machines", hint=f"testbed destroy -n {record.name}"
        )
    answers = with_each(parts, lambda part: part.ask(AskLab(lab=record.name), LabAnswer))
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
    return OpenedLab(record=record, lab=SpreadLab(model=model, plan=plan), answer=told, machines=about)


def require_carried(sweep: Sweep, opened: OpenedLab) -> None:
    """Raise `ScenarioError` for the first thing of these points that such a lab does not have."""
    name = opened.record.name
    elsewhere = f"leave {name} out, and deploy it on one machine: testbed destroy -n {name}"
    for point in sweep.points:
        scenario, of = point.scenario, f" ({point.name})" if point.name else ""
        if not say_the_same(encode_lab(sweep.lab_of(point)), opened.answer.model):
            raise ScenarioError(
                f"the lab {name} that is up on {len(opened.machines)} machines is not the one of the scenario{of}",
                hint=f"testbed destroy -n {name}, and deploy the scenario's topology --over them",
            )
        kinds = [one.kind.value for one in scenario.transports]
        refused = {
            "programs": scenario.workload.is_program or scenario.by_programs,
            f"transport: {', '.join(kinds)}": any(kind not in CARRIED for kind in kinds),
            "faults": bool(scenario.faults),
            "probes": bool(scenario.probes.rate_pps or scenario.probes.ports),
        }
        if found := [what for what, is_asked in refused.items() if is_asked]:
            raise ScenarioError(
                f"{scenario.source}: {found[0]}{of}: a lab over several machines has none of it",
                hint=f"transport: {{kind: roce}} or uet, a workload of bytes, and no faults and probes; or {elsewhere}",
            )
