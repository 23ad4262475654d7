"""The verb `schema`."""

from typing import Annotated

import typer

from testbed.base.errors import TestbedError
from testbed.cli.panels import LABS

app = typer.Typer()


@app.command(rich_help_panel=LABS)
def schema(
    kind: Annotated[str, typer.Argument(metavar="[topology|scenario]", help="Whose keys.")] = "topology",
) -> None:
    """Print the JSON Schema of a file, for editors."""
    from testbed.api.json_schema import scenario_schema, topology_schema
    from testbed.cli.output import emit_json

    if kind == "topology":
        emit_json(topology_schema())
    elif kind == "scenario":
        emit_json(scenario_schema())
    else:
        raise TestbedError(f"there is no schema for {kind!r}", hint="topology or scenario")
