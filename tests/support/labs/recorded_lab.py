"""A lab that is recorded as if it were up, though nothing of it is there: for what reads records alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from testbed.lab.core.deploy.records.journal import Journal, LabState
from testbed.lab.core.deploy.records.lab_record import LabRecord, encode_lab, encode_written
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.plan.stable import slot_for
from testbed.lab.core.schema.load import load_topology


def record_lab(
    state: StateDirectory, file: Path, overrides: Mapping[str, object] | None = None, *, k: float = 1000.0
) -> LabRecord:
    """Record the lab of a file as deployed."""
    lab = load_topology(file, overrides=overrides)
    record = LabRecord(
        name=lab.name,
        slot=slot_for(lab.name),
        k=k if lab.scale.time is None else lab.scale.time,
        version="0",
        created="2026-11-28T20:00:00+00:00",
        source=lab.source,
        directory=str(file.parent / f"testbed-{lab.name}"),
        model=encode_lab(lab),
        frr="8.4.4",
        written=encode_written(lab),
    )
    state.prepare()
    state.write(record)
    Journal(state.lab_directory(lab.name)).state(LabState.RUNNING)
    return record
