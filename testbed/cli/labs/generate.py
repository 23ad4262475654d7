"""The verb `generate`."""

import sys
from dataclasses import dataclass
from pathlib import Path

from testbed.base.errors import TestbedError
from testbed.cli import options
from testbed.cli.command import argument, command, option


@dataclass(frozen=True, slots=True)
class DesignRow:
    """A design of a fabric, and its parameters."""

    design: str
    figure: str
    summary: str


@command("generate")
@argument("design", required=False, metavar="[DESIGN]", help="A design; default: list them.")
@options.settings
@option("-n", "--name", default="lab", help="Lab name to write.")
@options.output
@options.format_option
def generate(design: str | None, set: tuple[str, ...], name: str, output: Path | None, format: options.Format) -> None:
    """Write a topology file for a design; without DESIGN, list the designs."""
    from testbed.base.names import choice_hint
    from testbed.cli.output import emit
    from testbed.lab.assembly.write import render_topology
    from testbed.lab.core.fabric import DESIGNS

    if design is None:
        rows = [DesignRow(design=item.name, figure=item.figure, summary=item.summary) for item in DESIGNS.values()]
        emit(rows, DesignRow, format)
        return
    if design not in DESIGNS:
        raise TestbedError(f"there is no design {design!r}", hint=choice_hint(design, DESIGNS))
    text = render_topology(name, design, set)
    if output is None:
        sys.stdout.write(text)
    else:
        with output.open("x") as stream:
            stream.write(text)
        print(f"wrote {output}")
