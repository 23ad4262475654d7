"""Records of points that were run apart, as by the jobs of a Slurm array, put together: one record, judged anew.

It is the record that one run of all points would have made: of simulations it is the same to the byte.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from testbed.base.errors import RecordError
from testbed.record.record import Backend, Environment, MachinePart, PointResult, Record
from testbed.run.schema.matrix import locate_key
from testbed.run.schema.model import same_value
from testbed.run.schema.written import expectation_read_back
from testbed.run.sweep.points import judgeable
from testbed.run.sweep.retries import tries_told
from testbed.run.sweep.runner import comparability, identity
from testbed.run.sweep.verdict import decide_verdict, evaluate_expectations

Matrix = Mapping[str, Sequence[object]]
Found = tuple[str, PointResult]
"""A point with the directory that it is from."""


def merge_records(parts: Mapping[str, Record]) -> Record:
    """Return the record of all points that these have, judged anew; they are called by their directories.

    Where points of the matrix are missing, its `incomplete` says how many. A point that is in two of them counts once:
    the first that ran to its end. Raises `RecordError` for records that are not of one scenario, or of one backend, and
    for two simulations of one point that differ.
    """
    (first_name, first), *others = parts.items()
    for name, record in others:
        _check_alike(first_name, first, name, record)
    points: dict[str, Found] = {}
    for directory, record in parts.items():
        for point in record.points:
            points[point.name] = _chosen(points.get(point.name), (directory, point), first.environment.backend)
    results = sorted((point for _, point in points.values()), key=_order_of(first.scenario.matrix))
    if not results:
        raise RecordError("these records have no points", hint="name the directories that run --point has made")
    of_point = {point.name: parts[directory] for directory, point in points.values()}
    environment = _environment([of_point[point.name] for point in results])
    expect = judgeable([expectation_read_back(one) for one in first.scenario.expect], results)
    expectations = evaluate_expectations(expect, results)
    incomplete = _missing(first.scenario.matrix, results)
    if not incomplete and not all(len(one.runs) >= first.scenario.repeat["runs"] and _is_whole(one) for one in results):
        incomplete = _broken(parts)
    return replace(
        first,
        environment=environment,
        started=min(record.started for record in parts.values()),
        finished=max(record.finished for record in parts.values()),
        incomplete=incomplete,
        points=results,
        expectations=expectations,
        verdict=decide_verdict(
            results,
            expectations,
            incomplete=incomplete,
            tries=tries_told(results),
            backend=first.environment.backend,
        ),
        wall_s=None,
        earlier=list(chain.from_iterable(record.earlier for record in parts.values())),
        machines=_machines(parts, points),
        comparability=comparability(first.scenario, results, environment),
    )


def _check_alike(name: str, record: Record, other_name: str, other: Record) -> None:
    """Raise `RecordError` for two records that are not parts of one run."""
    ours, theirs = (
        {
            "scenario, or of other parameters": (identity(one.scenario), one.scenario.expect),
            "backend": one.environment.backend,
            "clock": one.environment.clock,
            "version of testbed": one.environment.testbed,
        }
        for one in (record, other)
    )
    for what, known in ours.items():
        if known != theirs[what]:
            raise RecordError(
                f"{other_name} is of another {what} than {name}", hint="merge what one scenario's points have left"
            )


def _chosen(have: Found | None, new: Found, backend: Backend) -> Found:
    """Return which of two measurements of a point counts."""
    if have is None or not _is_whole(have[1]):
        return new
    if backend is Backend.SIMULATION and _is_whole(new[1]) and have[1] != new[1]:
        raise RecordError(
            f"{have[0]} and {new[0]} simulated the point {have[1].name!r} and differ",
            hint="a simulation is the same everywhere: was testbed changed between the two?",
        )
    return have


def _is_whole(point: PointResult) -> bool:
    return bool(point.runs) and all(run.complete for run in point.runs)


def _order_of(matrix: Matrix) -> Callable[[PointResult], tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the key by which points are in the order in which one run has them: those of a topology together."""
    of_topology = {key: locate_key(key)[0] == "topology" for key in matrix}

    def place(point: PointResult) -> tuple[tuple[int, ...], tuple[int, ...]]:
        places = {
            key: next((n for n, value in enumerate(values) if same_value(value, point.values.get(key))), len(values))
            for key, values in matrix.items()
        }
        return tuple(n if of_topology[key] else 0 for key, n in places.items()), tuple(places.values())

    return place


def _missing(matrix: Matrix, results: Sequence[PointResult]) -> str:
    """Say how many points there are not; "" where all are there."""
    whole = math.prod(len(values) for values in matrix.values())
    return "" if len(results) >= whole else f"{whole - len(results)} of {whole} points are missing"


def _broken(parts: Mapping[str, Record]) -> str:
    """Say which part ended early; "" where none did."""
    return next((f"{name}: {record.incomplete}" for name, record in parts.items() if record.incomplete), "")


def _environment(records: Sequence[Record]) -> Environment:
    """Return what the first point ran on, with what is said of all."""
    said = chain.from_iterable(record.environment.approximations for record in records)
    return replace(records[0].environment, approximations=list(dict.fromkeys(said)))


def _machines(parts: Mapping[str, Record], points: Mapping[str, Found]) -> list[MachinePart]:
    """Return the machines that measured them, told apart by what they are; none where they are one."""
    found: list[MachinePart] = []
    measured: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for name, (directory, _) in points.items():
        measured[directory][name] = None
    for directory, record in parts.items():
        names = measured[directory]
        if record.machines:
            found += [replace(one, points=[name for name in one.points if name in names]) for one in record.machines]
            continue
        environment = replace(record.environment, approximations=[])
        known = next((one for one in found if one.environment == environment), None)
        if known is not None:
            known.points.extend(names)
        else:
            found.append(MachinePart(name=directory, environment=environment, points=list(names)))
    return found if len(found) > 1 else []
