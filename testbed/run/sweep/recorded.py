"""Running a sweep with its record on disk: points are kept as they are done, so that none is lost and it can go on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.record.journal import RecordJournal
from testbed.record.record import Record
from testbed.record.store import RECORD_FILE, keep_record
from testbed.run.emulated.progress import ProgressListener, ignore_progress
from testbed.run.sweep.labs import LabOptions, ScenarioLabs
from testbed.run.sweep.prepared import Sweep
from testbed.run.sweep.runner import LabFactory, ScenarioStopped, run_sweep
from testbed.run.sweep.scale_proof import at_twice_the_scale, compare_scales, with_proof


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions:
    """What is recorded, and where.

    `directory` is where `record.json` goes; None writes nothing. `previous` is a record to go on with: points that it
    has whole are not run again. `prove_scale` runs everything once more at twice the time scale, which needs labs that
    can be brought up anew. `command` is what repeats the run, for the report.
    """

    directory: Path | None = None
    previous: Record | None = None
    prove_scale: bool = False
    command: tuple[str, ...] = ()

    def journal(self) -> RecordJournal | None:
        """Return what keeps the record on disk; None where nothing is written."""
        return None if self.directory is None else keep_record(self.directory / RECORD_FILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOutcome:
    """What a sweep left: its record, the name of the lab that is still deployed ("" for none), and why it stopped."""

    record: Record
    kept: str = ""
    failure: ScenarioStopped | None = None


def run_recorded(
    sweep: Sweep, labs: LabFactory, options: RecordOptions, on_progress: ProgressListener = ignore_progress
) -> Record:
    """Run every point on the labs that `labs` brings up, and keep the record of those done on disk.

    An interrupt returns a record whose `incomplete` says so. Raises `ScenarioStopped`, after writing what was measured,
    when a run fails or a lab breaks.
    """

    journal = options.journal()

    def write(record: Record) -> None:
        if journal is not None:
            journal.write(record)

    try:
        record = run_sweep(
            sweep.scenario,
            sweep.points,
            labs,
            previous=options.previous,
            on_progress=on_progress,
            journal=journal,
            command=options.command,
        )
        if options.prove_scale and not record.incomplete:
            write(record)
            twice = at_twice_the_scale(sweep.points, record)
            slower = run_sweep(sweep.scenario, twice, labs, on_progress=on_progress, command=options.command)
            record = with_proof(record, compare_scales(record, slower))
    except ScenarioStopped as stopped:
        write(stopped.record)
        raise
    write(record)
    return record


def run_on_own_labs(
    sweep: Sweep,
    state: StateDirectory,
    lab_options: LabOptions,
    record_options: RecordOptions,
    on_progress: ProgressListener = ignore_progress,
) -> SweepOutcome:
    """Run every point on a lab that is deployed for it and removed afterwards.

    What stops the scenario on the way is handed back as `failure` beside the record, so that the caller can still show
    what was measured; errors before anything was measured are raised.
    """
    failure: ScenarioStopped | None = None
    with ScenarioLabs(sweep, state, lab_options) as labs:
        try:
            record = run_recorded(sweep, labs, record_options, on_progress)
        except ScenarioStopped as stopped:
            record, failure = stopped.record, stopped
    return SweepOutcome(record=record, kept=labs.kept, failure=failure)
