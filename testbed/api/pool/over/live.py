"""A lab over several machines while it lives: how it is, tests of it, and its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from testbed.api.pool.machines import with_each
from testbed.api.pool.over import messages
from testbed.api.pool.over.machines import PartMachine, reached
from testbed.api.pool.over.records import SpreadMachine, SpreadRecord, SpreadRecords, SpreadState
from testbed.base.errors import TestbedError
from testbed.base.rows import column, if_known
from testbed.lab.core.deploy.listing import ListedLab
from testbed.lab.core.deploy.steps import StepCallback, ignore_steps, step
from testbed.lab.core.deploy.watch.check import CheckReport, CheckResult, CheckStatus, judge
from testbed.lab.features.machines.watch import CutCounts

_Answer = TypeVar("_Answer")
NOT_REACHED = "not reached"
"""The state of a part whose machine does not answer."""
TRIES = 3
"""The number of readings of which one must show that nothing is lost: control packets are under way at any time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRow:
    """A machine of a lab and how its part is."""

    machine: str
    ssh: str
    address: str
    state: str
    nodes: int | None = if_known()
    cut_links: int | None = column("cut links", default=None)
    k: float | None = if_known()
    hears: str = ""
    silent: str = ""
    down: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadRemoval:
    """The end of a lab: the machines that do not answer still have their parts. `remaining` are sentences."""

    lab: str
    nodes: int
    unreached: Mapping[str, str]
    remaining: tuple[str, ...] = ()

    @property
    def hint(self) -> str:
        """Return what helps where machines did not answer."""
        return f"testbed destroy -n {self.lab} once more when they do"


def destroy_spread(name: str, records: SpreadRecords, notify: StepCallback = ignore_steps) -> SpreadRemoval:
    """Remove a lab from all its machines. One that does not answer keeps its part, and stays in the record.

    Raises `LabNotFound`.
    """
    records.read(name)
    with records.lock(name):
        return destroy_locked(records.read(name), records, notify)


def destroy_locked(record: SpreadRecord, records: SpreadRecords, notify: StepCallback) -> SpreadRemoval:
    """Do as `destroy_spread`, for a lab that is held already."""
    records.write(replace(record, state=SpreadState.DESTROYING))
    asked = messages.Destroy(lab=record.name, mark=record.mark)
    with step("destroy", notify, f"on {len(record.machines)} machines"):
        found = _ask_each(record.machines, lambda part: part.ask(asked, messages.Removed))
    unreached = {name: why.message for name, why in found.items() if isinstance(why, TestbedError)}
    removed = {name: done for name, done in found.items() if isinstance(done, messages.Removed)}
    if unreached:
        left = tuple(machine for machine in record.machines if machine.name in unreached)
        records.write(replace(record, state=SpreadState.DESTROYING, machines=left))
    else:
        records.forget(record.name)
    return SpreadRemoval(
        lab=record.name,
        nodes=sum(done.nodes for done in removed.values()),
        unreached=unreached,
        remaining=tuple(f"{name}: {said}" for name, done in removed.items() for said in done.remaining),
    )


def _ask_each(
    machines: Sequence[SpreadMachine], ask: Callable[[PartMachine], _Answer]
) -> dict[str, _Answer | TestbedError]:
    """Ask each machine by itself: its answer, or why there is none."""

    def answered(machine: SpreadMachine) -> _Answer | TestbedError:
        try:
            with reached([machine]) as [part]:
                return ask(part)
        except TestbedError as error:
            return error

    return {machine.name: answer for machine, answer in zip(machines, with_each(machines, answered), strict=True)}


def machine_rows(record: SpreadRecord) -> list[PartRow]:
    """Return how the parts of a lab are, machine by machine."""
    found = _ask_each(record.machines, lambda part: part.ask(messages.AskState(lab=record.name), messages.StateAnswer))
    return [_row(machine, found[machine.name]) for machine in record.machines]


def _row(machine: SpreadMachine, answer: messages.StateAnswer | TestbedError) -> PartRow:
    if isinstance(answer, TestbedError):
        return PartRow(machine=machine.name, ssh=machine.ssh, address=machine.address, state=NOT_REACHED)
    return PartRow(
        machine=machine.name,
        ssh=machine.ssh,
        address=machine.address,
        state=answer.state,
        nodes=answer.nodes,
        cut_links=answer.cut_links,
        k=answer.k or None,
        hears=", ".join(answer.heard),
        silent=", ".join(answer.silent),
        down=", ".join(answer.down),
    )


def listed_spread(records: SpreadRecords) -> Iterator[ListedLab]:
    """Yield a line of the list of labs for each that is over several machines. Its state is that of the worst part."""
    for name in records.names():
        try:
            record = records.read(name)
        except TestbedError:
            yield ListedLab(name=name)
            continue
        yield ListedLab(
            name=name,
            state=_state(record),
            design=record.design,
            hosts=record.hosts,
            switches=record.switches,
            links=record.links,
            k=record.k,
            created=record.created,
            topology=record.source,
            machines=", ".join(machine.name for machine in record.machines),
        )


def _state(record: SpreadRecord) -> str:
    if record.state is not SpreadState.RUNNING:
        return record.state.value
    states = {row.state for row in machine_rows(record)}
    worst = next((word for word in (NOT_REACHED, "gone") if word in states), "degraded")
    return "running" if states == {"running"} else worst


def check_spread(record: SpreadRecord) -> CheckReport:
    """Test every part of a lab as `check_lab` does, and then what crosses from one to another.

    Raises `TestbedError` where a machine is not reached.
    """
    with reached(record.machines) as parts:
        asked = messages.AskCheck(lab=record.name)
        answers = dict(zip(parts, with_each(parts, lambda part: part.ask(asked, messages.CheckAnswer)), strict=True))
        results = [_result(part.name, result) for part, answer in answers.items() for result in answer.results]
        results.append(replace(_check_crossings(record, answers), name="across machines"))
        results.append(replace(check_cut_links(record, parts), name="cut links"))
    return CheckReport(lab=record.name, results=tuple(results))


def _result(machine: str, told: messages.Result) -> CheckResult:
    return CheckResult(
        name=f"{told.name} on {machine}",
        status=CheckStatus(told.status),
        count=told.count,
        detail=told.detail,
        failures=told.failures,
        by_network=told.by_network,
    )


def _check_crossings(record: SpreadRecord, answers: Mapping[PartMachine, messages.CheckAnswer]) -> CheckResult:
    """Have each host ping one of every other machine, on each rail that it has."""
    asked: dict[PartMachine, list[tuple[str, str]]] = {}
    for part, answer in answers.items():
        for other, theirs in answers.items():
            if other is part:
                continue
            for place, hosts in answer.nics.items():
                targets = list(theirs.nics.get(place, {}).values())
                for number, host in enumerate(hosts):
                    if targets:
                        asked.setdefault(part, []).append((host, targets[number % len(targets)]))

    def lost(item: tuple[PartMachine, list[tuple[str, str]]]) -> list[str]:
        part, pairs = item
        found = part.ask(messages.AskPing(lab=record.name, pairs=tuple(pairs)), messages.PingAnswer)
        return [f"{host} on {part.name} to {address} lost" for host, address in found.lost]

    failures = [line for lines in with_each(asked.items(), lost) for line in lines]
    return judge(sum(map(len, asked.values())), "pairs of hosts", failures)


def check_cut_links(record: SpreadRecord, parts: Sequence[PartMachine]) -> CheckResult:
    """Compare what left each end of a cut link with what came in at the other.

    Packets of routing are always under way, and machines are not read at one moment: what left one end by a reading
    must be no less than what came in before it, and no more than what has come in after it, with what came to a link
    that was down, pause frames too. In classes that rest, the three are equal.
    """
    complaints: list[str] = []
    for _ in range(TRIES):
        before, middle, after = (_counts(record, parts) for _ in range(3))
        complaints = list(_unequal(before, middle, after))
        if not complaints:
            break
    ends = len(before)
    return judge(ends, "ends of cut links, by what left and came in", complaints)


def _counts(record: SpreadRecord, parts: Sequence[PartMachine]) -> dict[str, CutCounts]:
    asked = messages.AskCount(lab=record.name)
    answers = with_each(parts, lambda part: part.ask(asked, messages.CountAnswer))
    return {port.port: port for answer in answers for port in answer.ports}


def _unequal(
    before: Mapping[str, CutCounts], middle: Mapping[str, CutCounts], after: Mapping[str, CutCounts]
) -> Iterator[str]:
    for port, counted in middle.items():
        peer = counted.peer
        if peer not in before or peer not in after:
            yield f"{port}: nothing is known of {peer}"
            continue
        for name, out in counted.out.items():
            least, most = before[peer].came.get(name, 0), after[peer].came.get(name, 0)
            if not least <= out <= most + after[peer].dropped:
                yield f"{port} to {peer}: {out} packets of class {name} left, and {least} to {most} came in"
        if not before[peer].paused <= counted.pausing <= after[peer].paused + after[peer].dropped:
            yield f"{port} to {peer}: {counted.pausing} pause frames were sent, and {after[peer].paused} came in"
