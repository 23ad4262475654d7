"""The spread of a scenario's figures over several runs of it: what `run --steady` leaves beside the records of the
runs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter

from testbed.base.errors import RecordError
from testbed.record.record import Backend, Environment, ExpectationResult, Outcome, Record
from testbed.record.samples import Count
from testbed.record.store import RECORD_FILE, load_record, validated, write_result

STEADY_FILE = "steady.json"
STEADY_SCHEMA = 1
MAX_STEADY_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyRun:
    """One of the runs, in short. `directory` is that of its record, within the one of all runs."""

    directory: str
    seed: Count
    """The seed of the first repeat of each point."""
    verdict: Outcome
    reasons: list[str]
    expectations: list[ExpectationResult]
    untrusted: list[str] = field(default_factory=list)
    """The names of points that broke a trust check: figures of theirs say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steadiness:
    """All runs of one scenario. `planned` is how many there were to be; an interrupt leaves fewer."""

    schema: Count = STEADY_SCHEMA
    scenario: str
    backend: Backend
    environment: Environment
    started: str
    """UTC, ISO 8601."""
    planned: Count
    same_seed: bool
    """All runs had the seed that the scenario fixes; else each the ones after those of the run before."""
    runs: list[SteadyRun] = field(default_factory=list)


@cache
def _adapter() -> TypeAdapter[Steadiness]:
    return TypeAdapter(Steadiness)


def steady_run(record: Record, directory: str) -> SteadyRun:
    """Return a run in short."""
    return SteadyRun(
        directory=directory,
        seed=int(record.scenario.repeat.get("seed", 1)),
        verdict=record.verdict.outcome,
        reasons=list(record.verdict.reasons),
        expectations=list(record.expectations),
        untrusted=[point.name for point in record.points if not all(run.is_valid for run in point.runs)],
    )


def write_steadiness(content: Steadiness, directory: Path) -> None:
    """Write it into the directory of all runs, atomically. Raises `RecordError`."""
    write_result(_adapter().dump_json(content, indent=1) + b"\n", directory / STEADY_FILE)


def load_steadiness(path: Path) -> Steadiness:
    """Read a file, or the one in a directory. Raises `RecordError`."""
    file = path / STEADY_FILE if path.is_dir() else path
    try:
        if file.stat().st_size > MAX_STEADY_BYTES:
            raise RecordError(f"{file} is larger than any of its kind ({MAX_STEADY_BYTES >> 20} MiB)")
        document = json.loads(file.read_bytes())
    except OSError as error:
        raise RecordError(
            f"cannot read {file}: {error.strerror}", hint="testbed run SCENARIO.yml --steady 10 makes one"
        ) from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{file} is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("schema") != STEADY_SCHEMA:
        raise RecordError(f"{file} does not tell how steady a scenario is, or not to this version")
    return validated(_adapter(), document, f"{file} is not valid")


def find_steadiness(paths: list[Path]) -> list[Steadiness]:
    """Read all that these are, or that lie anywhere below them, in the order of their directories' names.

    Records below a directory that belong to no `run --steady` are the runs of their scenario, such as those of passes
    over all scenarios. Raises `RecordError`.
    """
    found: list[Path] = []
    records: list[Path] = []
    for path in paths:
        below = sorted(path.rglob(STEADY_FILE)) if path.is_dir() else []
        known = {file.parent for file in below}
        single = [file for file in sorted(path.rglob(RECORD_FILE)) if known.isdisjoint(file.parents)]
        records += single
        found += below or ([] if single else [path])
    return [*map(load_steadiness, dict.fromkeys(found)), *_gather(dict.fromkeys(records))]


def _gather(files: Iterable[Path]) -> list[Steadiness]:
    """Return the runs that these records are, by scenario and backend; the environment is that of the first."""
    found: dict[tuple[str, Backend], Steadiness] = {}
    for file in files:
        record = load_record(file)
        key = (record.scenario.name, record.environment.backend)
        one = found.get(key) or Steadiness(
            scenario=record.scenario.name,
            backend=record.environment.backend,
            environment=record.environment,
            started=record.started,
            planned=0,
            same_seed=True,
        )
        runs = [*one.runs, steady_run(record, str(file.parent))]
        found[key] = replace(one, planned=len(runs), runs=runs, same_seed=len({run.seed for run in runs}) == 1)
    return list(found.values())
