"""`inspect scale-up`: the scale-up domains of a deployed lab or of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.base.errors import LabNotFound, TestbedError
from testbed.cli.lab_choice import open_lab, read_topology
from testbed.cli.options import Format
from testbed.cli.output import emit, emit_json
from testbed.lab.core.model import Lab
from testbed.lab.features.scale_up.view import (
    ScaleUpRow,
    scale_up_document,
    scale_up_rows,
    switch_document,
    switch_row,
)

if TYPE_CHECKING:
    from testbed.lab.core.deploy.live import RunningLab


def inspect_scale_up(name: str | None, topology: str | None, form: Format) -> None:
    """Show the scale-up domains of a deployed lab or of a file. Raises `TestbedError` for a lab without GPUs."""
    from testbed.lab.features.scale_up.apply import domain_states

    lab, k, running = _lab_and_scale(name, topology)
    document = scale_up_document(lab, k)
    states = [] if running is None else domain_states(running)
    document["switches"] = [switch_document(state) for state in states]
    if not document["domains"]:
        raise TestbedError(
            f"{lab.name} has no GPUs that a domain could join", hint="GPUs come with NICs of the back end"
        )
    if form is Format.JSON:
        emit_json(document)
        return
    at = "" if k is None else f", k = {k:g}"
    rows = [*scale_up_rows(lab, k), *map(switch_row, states)]
    emit(rows, ScaleUpRow, form, title=f"{lab.name}: scale-up{at}, all rates per direction")
    if form is Format.TABLE and k is None:
        print("  lab units: of a deployed lab, or of a file with a fixed time scale")


def _lab_and_scale(name: str | None, topology: str | None) -> tuple[Lab, float | None, RunningLab | None]:
    """The lab, its time scale where that is known: of a deployed one, or where the file fixes it; and the deployed."""
    if topology is None:
        running = open_lab(name)
        return running.model, running.record.k, running
    lab = read_topology(topology, name)
    try:
        running = open_lab(lab.name)
    except LabNotFound:
        return lab, lab.scale.time, None
    return running.model, running.record.k, running
