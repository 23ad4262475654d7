"""The preview of a scenario that `run --dry-run` and `validate` print, without touching anything."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.base.errors import SpecError
from testbed.base.rows import column
from testbed.base.units import ByteCount
from testbed.cli.options import Format
from testbed.cli.output import duration, emit
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.scale import ScaleResolution
from testbed.run.schema.model import Scenario
from testbed.run.sweep.outlook import PointOutlook, deploy_estimate_s, estimate_s, expect_busy, foresee_sweep
from testbed.run.sweep.points import Sweep, topology_key
from testbed.run.sweep.scales import MachineWatch, ScenarioScales


@dataclass(frozen=True, slots=True, kw_only=True)
class PointRow:
    """A point of a scenario as it is foreseen."""

    file: str = column(in_table=False)
    scenario: str
    point: str
    lab: str
    nodes: str
    k: str
    workload: str
    ranks: int
    transfers: int
    bytes: str
    fabric_bytes: str
    ideal: str
    runs: int
    estimate: str


def print_dry_run(
    sweeps: Sequence[Sweep],
    form: Format,
    before: Sequence[dict[str, Any]] = (),
    *,
    refused: Callable[[SpecError], None] | None = None,
) -> None:
    """Print points, labs, ranks, bytes and times; JSON has the documents `before` first. Raises `SpecError` where a lab
    cannot carry its workload; `refused` is told instead where it is given, and the other sweeps are printed. There a
    fabric that is too large for a lab is a warning, as flows run on it: JSON has what there is to say without a lab."""
    before = list(before)
    foreseen: list[tuple[Sweep, list[PointOutlook]]] = []
    scales: list[ScenarioScales] = []
    for sweep, its_scales in zip(sweeps, scales_to_foresee(sweeps), strict=True):
        try:
            foreseen.append((sweep, foresee(sweep, its_scales)))
        except SpecError as error:
            if refused is None:
                raise
            if is_too_large(error):
                warn_too_large(sweep, error)
                before.append(_document(sweep, [], {}))
            else:
                refused(error)
        else:
            scales.append(its_scales)
    rows = [_row(sweep, one) for sweep, points in foreseen for one in points]
    explained = [_scales_of(sweep, scale) for (sweep, _), scale in zip(foreseen, scales, strict=True)]
    document = [_document(sweep, points, whys) for (sweep, points), whys in zip(foreseen, explained, strict=True)]
    document = [*before, *document]
    emit(rows, PointRow, form, document=document)
    if form is Format.TABLE:
        for (sweep, _), whys in zip(foreseen, explained, strict=True):
            for line in dict.fromkeys(_explanation(scale) for scale in whys.values()):
                print(f"{sweep.scenario.name}: {line}")
            for said in dict.fromkeys(expect_busy(scale).sentence for scale in whys.values()):
                print(f"{sweep.scenario.name}: {said}")
        for sweep, ones in foreseen:
            for said in warnings_of(ones):
                print(f"{sweep.scenario.name}: warning: {said}")
        points = sum(len(ones) for _, ones in foreseen)
        labs = sum(len(sweep.labs) for sweep, _ in foreseen)
        runs = sum(one.runs for _, ones in foreseen for one in ones)
        total_s = sum(estimate_s(sweep, ones) for sweep, ones in foreseen)
        print(
            f"{_count(points, 'point')} on {_count(labs, 'lab')}, {_count(runs, 'run')}, about {duration(total_s)}"
            " where the fabric is as good as ideal; nothing was touched"
        )


def warnings_of(points: Sequence[PointOutlook]) -> list[str]:
    """Return what is allowed at some point, and hardly meant, each sentence once."""
    return list(dict.fromkeys(said for one in points for said in one.warnings))


def is_too_large(error: SpecError) -> bool:
    """Tell whether all that is wrong with a scenario is that its fabric is too large for a lab."""
    return {problem.code for problem in error.problems} == {"too-many-ports"}


def warn_too_large(sweep: Sweep, error: SpecError) -> None:
    """Say on standard error that a scenario's fabric is too large for a lab, and how the scenario runs all the same."""
    large = error.problems[0]
    print(f"{sweep.scenario.source}: warning: {large.message}; {large.hint}", file=sys.stderr)


def foresee(sweep: Sweep, scales: ScenarioScales | None = None) -> list[PointOutlook]:
    """Foresee every point on this machine, which is not measured for it. Raises `SpecError`."""
    return foresee_sweep(sweep, scales or scales_to_foresee([sweep])[0])


def scales_to_foresee(sweeps: Sequence[Sweep]) -> list[ScenarioScales]:
    """Return the scales of the labs of each sweep, on this machine as it is in one moment, which is not measured."""
    state = StateDirectory()
    watch = MachineWatch(state, keep=False)
    return [ScenarioScales(one.points, one.labs, state, measure=False, watch=watch) for one in sweeps]


def describe_sweep(sweep: Sweep) -> str:
    """Say in one line what a valid scenario consists of, for `validate`."""
    scenario = sweep.scenario
    return (
        f"{scenario.source}: valid: {scenario.workload.kind} over {_kinds(scenario)},"
        f" {_count(len(sweep.points), 'point')} on {_count(len(sweep.labs), 'lab')}, {_count(sweep.runs, 'run')},"
        f" {_count(len(scenario.expect), 'expectation')}"
    )


def _kinds(scenario: Scenario) -> str:
    """Name the transports that carry a scenario's workload."""
    return " and ".join(dict.fromkeys(one.kind.value for one in scenario.transports))


def _row(sweep: Sweep, one: PointOutlook) -> PointRow:
    workload = sweep.scenario.workload
    unknown = "its own" if workload.is_program else "timed" if workload.duration is not None else ""
    return PointRow(
        file=sweep.scenario.source,
        scenario=sweep.scenario.name,
        point=one.name,
        lab=one.lab,
        nodes=f"{one.hosts} + {one.switches}",
        k=f"{one.k:g}",
        workload=one.workload,
        ranks=one.ranks,
        transfers=one.transfers,
        bytes=unknown or str(ByteCount(one.bytes)),
        fabric_bytes=unknown or str(ByteCount(one.fabric_bytes)),
        ideal="" if one.traffic_s is None else f"{one.traffic_s:.3g} s",
        runs=one.runs,
        estimate=duration(one.estimated_s),
    )


def _scales_of(sweep: Sweep, scales: ScenarioScales) -> dict[str, ScaleResolution]:
    """Tell the time scale of each lab by its `topology_key`."""
    return {topology_key(point.topology): scales(point.topology, sweep.lab_of(point)) for point in sweep.points}


def _explanation(scale: ScaleResolution) -> str:
    return f"warning: {scale.warning}" if scale.warning else f"k = {scale.k:g}: {scale.reason}"


def _document(sweep: Sweep, points: Sequence[PointOutlook], scales: Mapping[str, ScaleResolution]) -> dict[str, Any]:
    """Return what JSON has of a scenario; without points and scales, of one whose fabrics are too large for labs."""
    return {
        "scenario": sweep.scenario.name,
        "file": sweep.scenario.source,
        "labs": [
            {
                "name": lab.name,
                "hosts": len(lab.hosts),
                "switches": len(lab.switches),
                "links": len(lab.links),
                "deploy_s": deploy_estimate_s(lab) if scales else None,
                **(_scale_document(scales[key]) if scales else {}),
            }
            for key, lab in sweep.labs.items()
        ],
        "points": [one.as_json() for one in points],
        "runs": sweep.runs,
        "estimated_s": estimate_s(sweep, points) if points else None,
    }


def _scale_document(scale: ScaleResolution) -> dict[str, Any]:
    return {
        "k": scale.k,
        "k_reason": scale.reason,
        "k_warning": scale.warning,
        "expected": expect_busy(scale).as_json(),
    }


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
