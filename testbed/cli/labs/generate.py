"""The verb `generate`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from testbed.base.errors import TestbedError
from testbed.cli.options import FormatOption, Settings, parse_format
from testbed.cli.panels import LABS

app = typer.Typer()


@app.command(rich_help_panel=LABS)
def generate(
    design: Annotated[str | None, typer.Argument(metavar="[DESIGN]", help="A design; default: list them.")] = None,
    set: Settings = None,
    name: Annotated[str, typer.Option("-n", "--name", help="Lab name to write.")] = "lab",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="File to write; default: print.")] = None,
    format: FormatOption = "table",
) -> None:
    """Write a topology file for a design; without DESIGN, list the designs."""
    from testbed.base.names import nearest
    from testbed.cli.output import emit_rows
    from testbed.lab.core.fabric import DESIGNS
    from testbed.lab.core.schema.write import render_topology

    form = parse_format(format)
    if design is None:
        rows = [{"design": item.name, "figure": item.figure, "summary": item.summary} for item in DESIGNS.values()]
        emit_rows(rows, ["design", "figure", "summary"], form)
        return
    if design not in DESIGNS:
        guess = nearest(design, DESIGNS)
        raise TestbedError(
            f"there is no design {design!r}", hint=f"did you mean {guess}?" if guess else f"one of {', '.join(DESIGNS)}"
        )
    text = render_topology(name, design, set or [])
    if output is None:
        sys.stdout.write(text)
    else:
        with output.open("x") as stream:
            stream.write(text)
        print(f"wrote {output}")
