"""Files beside the record of a run by which it can be played back without its lab: its labs, and samples of ports."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from testbed.base.errors import RecordError
from testbed.lab.core.deploy.records.lab_record import encode_lab, state_of
from testbed.lab.core.model import Lab
from testbed.record.port_samples import PortSamples, samples_path, write_port_samples
from testbed.record.store import RECORD_FILE, write_result

LABS = "labs"
"""The directory of the labs, each in a file that is called by its state (`LabSummary.state`)."""


def keep_labs(directory: Path | None, labs: Iterable[Lab]) -> None:
    """Keep the labs of a sweep beside its record. Raises `RecordError` where the disk does not take them."""
    if directory is None:
        return
    root = directory / LABS
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"cannot create {root}: {error.strerror}") from error
    for lab in labs:
        document = encode_lab(lab)
        path = root / f"{state_of(document)}.json"
        if not path.exists():
            write_result(json.dumps(document, separators=(",", ":")).encode(), path)


def keep_samples(directory: Path | None, point: str, run: int, samples: PortSamples | None) -> None:
    """Keep the samples of a run beside the record that will have it. Raises as `keep_labs`."""
    if directory is not None and samples is not None:
        write_port_samples(samples, samples_path(directory / RECORD_FILE, point, run))
