"""The verb `export`: a topology for other tools, or the curves of a record."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base.errors import TestbedError
from testbed.cli import options
from testbed.cli.command import PATH, argument, command, option

if TYPE_CHECKING:
    from testbed.lab.core.model import Lab
    from testbed.lab.formats.exported import ExportedFile

FORMATS = ("containerlab", "netlab", "drawio", "mermaid", "dot")


@command("export")
@argument("record", required=False, metavar="[RECORD]", type=PATH, help="A record, or its directory: its curves.")
@options.topology
@option("--to", help=f"Of a topology: {', '.join(FORMATS)}.")
@option("--series", metavar="NAME,...", help="Of a record: only these of queue,cwnd,rate,alpha,rtt.")
@option(
    "-o",
    "--output",
    metavar="FILE",
    type=PATH,
    callback=options.parse_output,
    help="File to write; of a record x.csv or x.parquet.",
)
@option("-n", "--name", help="Lab name to write; default: that of the file.")
@options.settings
@options.format_option
def export(
    record: Path | None,
    topology: str | None,
    to: str | None,
    series: str | None,
    output: Path | None,
    name: str | None,
    set: tuple[str, ...],
    format: options.Format,
) -> None:
    """Write a topology (-t FILE --to FORMAT) as one of containerlab or netlab, or as a drawing; or the curves of a
    RECORD (queues, windows, rates, round trips) as one table. Without -o a topology is printed, and curves are listed.

    With -o, containerlab gets what its nodes need beside it: addresses, routes, FRR's configuration."""
    if record is None:
        if series is not None:
            raise TestbedError("--series is for the curves of a record", hint="export results/DIR --series queue")
        _export_topology(topology, to, output, name, set)
        return
    if to is not None or topology is not None:
        from testbed.base.yaml.reader import SUFFIXES

        hint = f"export {record}, or -t FILE --to"
        if topology is None and record.suffix in SUFFIXES:
            raise TestbedError(f"{record} is no record", hint=f"export -t {record} --to {to}")
        raise TestbedError("a record and a topology are not exported at once", hint=hint)
    from testbed.cli.scenarios.curves import export_curves

    export_curves(record, series, output, format)


def _export_topology(
    topology: str | None, to: str | None, output: Path | None, name: str | None, set: tuple[str, ...]
) -> None:
    from testbed.base.names import choice_hint
    from testbed.cli.lab_choice import placed_plan_errors, read_topology

    if to not in FORMATS:
        said = "--to is missing" if to is None else f"cannot export to {to!r}"
        raise TestbedError(said, hint=choice_hint(to or "", FORMATS, f"--to {', '.join(FORMATS)}"))
    lab = read_topology(topology, name, set)
    with placed_plan_errors(topology, name, set):
        exported = _exported(lab, to, output)
    for sentence in exported.left_out:
        print(f"not in it: {sentence}", file=sys.stderr)
    if output is None:
        sys.stdout.write(exported.text)
        return
    with output.open("x") as stream:
        stream.write(exported.text)
    for path, text in exported.files.items():
        beside = output.parent / path
        beside.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text)
    more = f" and {len(exported.files)} files in {output.parent / _folder(output)}/" if exported.files else ""
    print(f"wrote {output}{more}")


def _exported(lab: "Lab", to: str, output: Path | None) -> "ExportedFile":
    """Write the lab in one of the formats. Raises `PlanError` where its plan is needed and cannot be made."""
    from testbed.lab.formats.exported import ExportedFile

    if to == "containerlab":
        from testbed.lab.formats.containerlab_file import write_containerlab

        return write_containerlab(lab, beside="" if output is None else _folder(output))
    if to == "netlab":
        from testbed.lab.formats.netlab_file import write_netlab

        return write_netlab(lab)
    from testbed.lab.graph import render_dot, render_drawio, render_mermaid

    render = {"drawio": render_drawio, "mermaid": render_mermaid, "dot": render_dot}[to]
    return ExportedFile(text=render(lab))


def _folder(output: Path) -> str:
    """Return the name of the folder for files beside an exported one: fabric.clab.yml has fabric-files."""
    return f"{output.name.partition('.')[0]}-files"
