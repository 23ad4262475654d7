"""Bringing a lab up on several machines: looked at, measured, agreed on, claimed everywhere, then made everywhere."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from testbed.api.pool.machines import with_each
from testbed.api.pool.over import messages
from testbed.api.pool.over.agreement import SpreadAgreement, agree, as_spread, largest_packet, require_alike
from testbed.api.pool.over.live import NOT_REACHED, SpreadRemoval, destroy_locked, machine_rows
from testbed.api.pool.over.machines import ANSWER_S, PartMachine, reached
from testbed.api.pool.over.part_server import mark_of, new_key
from testbed.api.pool.over.records import SpreadExists, SpreadMachine, SpreadRecord, SpreadRecords, SpreadState
from testbed.base.errors import ConvergenceError, ExitCode, TestbedError
from testbed.base.version import __version__
from testbed.lab.core.deploy.interruption import interrupted_once, uninterrupted
from testbed.lab.core.deploy.records.lab_record import encode_lab, encode_written
from testbed.lab.core.deploy.steps import StepCallback, StepEvent, ignore_steps, step
from testbed.lab.core.model import Lab
from testbed.lab.core.model.machines import LabMachine
from testbed.lab.features.machines.places import CutShare, cut_links, place_nodes, require_cuttable


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadOptions:
    """The way in which a lab is brought up over several machines; as `DeployOptions` has them."""

    timeout_s: float
    wait: bool = True
    reconfigure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadOutcome:
    """A lab that is up. `nodes` are the numbers of nodes on each machine."""

    record: SpreadRecord
    agreement: SpreadAgreement
    cut: CutShare
    nodes: Mapping[str, int]


def preview_spread(lab: Lab, machines: Sequence[LabMachine]) -> tuple[dict[str, str], CutShare]:
    """Return which machine each node would be on, and what would be cut. Asks no machine. Raises `NotSpread`."""
    require_cuttable(lab)
    places = place_nodes(lab, machines)
    return places, cut_links(lab, places)


def deploy_spread(
    lab: Lab,
    machines: Sequence[LabMachine],
    records: SpreadRecords,
    options: SpreadOptions,
    notify: StepCallback = ignore_steps,
) -> SpreadOutcome:
    """Bring a lab up on these machines and wait until its routing has converged on all of them.

    Raises `NotSpread` and whatever a machine says before anything is made. After any later error nothing of it is left
    on any machine that answers, but for `ConvergenceError`, which leaves it up for inspection; the record of a lab
    stays as long as some machine may have a part of it. A lab that is replaced goes once all that the new one can be
    refused for has been looked at: a refusal leaves it up and untouched.
    """
    places, cut = preview_spread(lab, machines)
    with records.lock(lab.name):
        replaced = _find_replaced(lab.name, records, options) if records.exists(lab.name) else None
        with reached_with_step(as_spread(machines), notify) as parts:
            agreement = _agree(lab, places, cut, parts, replaced, notify)
            if replaced is not None:
                _require_gone(destroy_locked(replaced, records, notify))
            record = _record(lab, places, cut, parts, agreement)
            records.write(record)
            with interrupted_once():
                try:
                    nodes = _carry_out(lab, agreement, parts, options, notify)
                except ConvergenceError:
                    records.write(replace(record, state=SpreadState.FAILED))
                    raise
                except BaseException:
                    with uninterrupted():
                        _undo(record, parts, records)
                    raise
            record = replace(record, state=SpreadState.RUNNING)
            records.write(record)
    return SpreadOutcome(record=record, agreement=agreement, cut=cut, nodes=nodes)


@contextmanager
def reached_with_step(machines: Sequence[SpreadMachine], notify: StepCallback) -> Iterator[list[PartMachine]]:
    """All machines, connected, with a step that says so."""
    with reached(machines) as parts:
        with step("machines", notify, ", ".join(part.name for part in parts)):
            pass
        yield parts


def _find_replaced(name: str, records: SpreadRecords, options: SpreadOptions) -> SpreadRecord:
    """Return the lab of this name that is to make room. Raises `SpreadExists` where none is to, or a machine that has a
    part of it does not answer."""
    known = records.read(name)
    if not options.reconfigure:
        where = ", ".join(machine.name for machine in known.machines)
        raise SpreadExists(
            f"a lab {name} is on {where} ({known.state})",
            hint=f"testbed destroy -n {name}; deploy --reconfigure replaces it; -n gives the new one another name",
        )
    silent = {row.machine: "" for row in machine_rows(known) if row.state == NOT_REACHED}
    _require_gone(SpreadRemoval(lab=name, nodes=0, unreached=silent))
    return known


def _require_gone(removal: SpreadRemoval) -> None:
    if removal.unreached:
        where = ", ".join(removal.unreached)
        raise SpreadExists(f"{removal.lab} is still on {where}, which do not answer", hint=removal.hint)


def _agree(
    lab: Lab,
    places: Mapping[str, str],
    cut: CutShare,
    parts: Sequence[PartMachine],
    replaced: SpreadRecord | None,
    notify: StepCallback,
) -> SpreadAgreement:
    model = encode_lab(lab)
    underlay = {machine.name: machine.underlay for machine in lab.machines}
    looks: dict[str, messages.LookAnswer] = {}

    def look(part: PartMachine) -> messages.LookAnswer:
        asked = messages.Look(
            lab=model,
            machine=part.name,
            places=places,
            underlay=underlay.get(part.name, ""),
            reached=part.reached_at,
            replaces=None if replaced is None else replaced.mark,
        )
        return part.ask(asked, messages.LookAnswer)

    with step("look", notify, "what each machine can give"):
        looks = {part.name: answer for part, answer in zip(parts, with_each(parts, look), strict=True)}
        require_alike(looks, __version__)

    def reach(part: PartMachine) -> messages.ReachAnswer:
        others = {name: look.address for name, look in looks.items() if name != part.name}
        asked = messages.Reach(addresses=others, packet_bytes=largest_packet(cut))
        return part.ask(asked, messages.ReachAnswer)

    with step("underlay", notify, f"packets of {largest_packet(cut)} bytes"):
        reaches = {part.name: answer for part, answer in zip(parts, with_each(parts, reach), strict=True)}
        return replace(agree(lab, places, cut, looks, reaches), key=new_key())


def _record(
    lab: Lab, places: Mapping[str, str], cut: CutShare, parts: Sequence[PartMachine], agreement: SpreadAgreement
) -> SpreadRecord:
    return SpreadRecord(
        name=lab.name,
        state=SpreadState.DEPLOYING,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        source=lab.source,
        design=lab.design or "hand-written",
        machines=tuple(replace(part.machine, address=agreement.parts[part.name].address) for part in parts),
        places=places,
        hosts=len(lab.hosts),
        switches=len(lab.switches),
        links=len(lab.links),
        cut_links=len(cut.links),
        k=agreement.k,
        mark=mark_of(bytes.fromhex(agreement.key)),
    )


def _carry_out(
    lab: Lab, agreement: SpreadAgreement, parts: Sequence[PartMachine], options: SpreadOptions, notify: StepCallback
) -> dict[str, int]:
    """Have all machines claim the lab, and then make it; the number of nodes on each."""
    model, written = encode_lab(lab), encode_written(lab)
    for part in parts:
        part.tell(
            messages.Deploy(
                lab=model,
                written=written,
                part=agreement.parts[part.name].to_json(),
                k=agreement.k,
                slot=agreement.slot,
                delay_by=agreement.delay_by,
                reaction_ns=agreement.reaction_ns,
                key=agreement.key,
                timeout_s=options.timeout_s,
                wait=options.wait,
            )
        )
    with step("claim", notify, f"{lab.name} on {len(parts)} machines"):
        for part in parts:
            part.answer(messages.Claimed)
    for part in parts:
        part.tell(messages.Go())

    def finish(part: PartMachine) -> messages.Up | TestbedError:
        def tell(done: messages.PartStep) -> None:
            detail = f"{done.detail} on {part.name}".strip()
            notify(StepEvent(step=done.step, phase="stop", detail=detail, duration_s=done.seconds))

        try:
            return part.answer(messages.Up, tell, timeout_s=ANSWER_S + options.timeout_s)
        except TestbedError as error:
            failures.append(error)
            if not isinstance(error, ConvergenceError):
                for other in parts:
                    other.end()  # they need not go on, and say so after this one
            return error

    failures: list[TestbedError] = []
    outcomes = with_each(parts, finish)
    broken = [error for error in failures if not isinstance(error, ConvergenceError)]
    if broken:
        broken[0].exit_code = ExitCode.INVALID
    for error in (*broken, *failures):
        raise error
    ups = zip(parts, outcomes, strict=True)
    return {part.name: outcome.nodes for part, outcome in ups if isinstance(outcome, messages.Up)}


def _undo(record: SpreadRecord, parts: Sequence[PartMachine], records: SpreadRecords) -> None:
    """Have every machine remove what it has made, and forget the lab where all have."""
    for part in parts:
        part.end()
    for part in parts:
        part.close()
    destroy_locked(record, records, ignore_steps)
