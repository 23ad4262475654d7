"""The verb `report`."""

from pathlib import Path

from testbed.base.errors import RecordError
from testbed.cli import options
from testbed.cli.command import PATH, command, option


@command("report")
@options.record
@option("-o", "--output", type=PATH, help="Directory to write into.")
def report(record: Path, output: Path | None) -> None:
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
