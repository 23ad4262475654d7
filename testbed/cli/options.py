"""Options and arguments that several verbs share, each declared once. What only one verb takes stands with the verb."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.base.errors import TestbedError

if TYPE_CHECKING:
    from testbed.cli.output import Format

# --- which lab, and what of it -----------------------------------------------------------------------

Topology = Annotated[
    str | None,
    typer.Option("-t", "--topology", help="Topology file, '-' for standard input; default: the only one here."),
]
LabName = Annotated[str | None, typer.Option("-n", "--name", help="Lab name; default: the only lab deployed.")]
NetworkName = Annotated[str | None, typer.Option("--network", help="Only this network: backend, frontend, ...")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Override a key: --set fabric.hosts=4.")]
ConvergenceTimeout = Annotated[float, typer.Option("--timeout", help="Seconds to wait for routing to converge.")]
NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="A node of the lab.")]
PortArgument = Annotated[str, typer.Argument(metavar="NODE:IF", help="An interface of a node.")]
PacketCount = Annotated[int | None, typer.Option("-c", "--count", help="Stop after so many packets.")]
RecordArgument = Annotated[
    Path, typer.Argument(metavar="DIR|RECORD.json", help="A record, or the directory of its run.")
]

# --- how the answer is shown -------------------------------------------------------------------------

FormatOption = Annotated[str, typer.Option("-f", "--format", help="table, json or csv.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")]


def parse_format(text: str) -> "Format":
    """Find the format that `--format` names. Raises `TestbedError` for a word that names none."""
    from testbed.cli.output import Format

    try:
        return Format(text)
    except ValueError as error:
        raise TestbedError(f"--format {text}: expected table, json or csv") from error
