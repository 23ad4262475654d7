"""The verb `report`."""

from pathlib import Path
from typing import Annotated

import typer

from testbed.base.errors import RecordError
from testbed.cli.options import RecordArgument
from testbed.cli.panels import SCENARIOS_AND_RESULTS

app = typer.Typer()


@app.command(rich_help_panel=SCENARIOS_AND_RESULTS)
def report(
    record: RecordArgument,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Directory to write into.")] = None,
) -> None:
    """Write the report of a record anew: one HTML page, and JSON, CSV and JUnit beside it."""
    from testbed.record.report import write_report_files
    from testbed.record.store import load_record

    content = load_record(record)
    directory = output or (record if record.is_dir() else record.parent)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"cannot create {directory}: {error.strerror}") from error
    print(write_report_files(content, directory))
