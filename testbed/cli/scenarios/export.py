"""The verb `export`: the curves of a record as one table for other programs."""

from pathlib import Path

from testbed.cli import options
from testbed.cli.command import PATH, command, option


@command("export")
@options.record
@option("--series", metavar="NAME,...", help="Only these: queue,cwnd,rate,alpha,rtt. Default: all.")
@option("-o", "--output", metavar="FILE", type=PATH, help="x.csv or x.parquet; without it, say which series there are.")
@options.format_option
def export(record: Path, series: str | None, output: Path | None, format: options.Format) -> None:
    """Write the curves of a record (queues, windows, rates, round trips) as one table, or list them."""
    from testbed.cli.scenarios.curves import export_curves

    export_curves(record, series, output, format)
