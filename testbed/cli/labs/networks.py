"""`inspect --all-networks`: a line for each network of a deployed lab, and one for all of them."""

from __future__ import annotations

from dataclasses import fields

from testbed.base.rows import row_json, text_of
from testbed.cli.options import Format
from testbed.cli.output import emit
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.observe.networks import (
    TABLE,
    NetworkRow,
    network_rows,
    planned_sessions,
    read_live,
    scale_up_line,
    scale_up_summary,
    total_row,
)


def show_networks(lab: RunningLab, form: Format) -> None:
    """Print every network of a deployed lab in a line, and all of them in one. Raises `TestbedError` where its counters
    cannot be read."""
    planned = {name: planned_sessions(lab, name) for name in lab.model.network_names}
    rows = network_rows(lab.model, read_live(lab), planned)
    total = total_row(lab.model, rows)
    if form is Format.TABLE:
        every = [*rows, total]
        items = {item.name: item for item in fields(NetworkRow)}
        columns = [name for name in TABLE if any(text_of(row, items[name]) for row in every)]
        title = f"{lab.name}: {len(rows)} networks, k = {lab.record.k:g}"
        emit(every, NetworkRow, form, title=title, columns=columns)
        if line := scale_up_line(lab.model):
            print(line)
        return
    document = {
        "lab": lab.name,
        "k": lab.record.k,
        "networks": list(map(row_json, rows)),
        "total": row_json(total),
        "scale_up": scale_up_summary(lab.model),
    }
    emit(rows, NetworkRow, form, document=document)
