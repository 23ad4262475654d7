"""The verb `schema`."""

from testbed.base.errors import TestbedError
from testbed.cli.command import argument, command


@command("schema")
@argument("kind", metavar="[topology|scenario]", default="topology", help="Whose keys.")
def schema(kind: str) -> None:
    """Print the JSON Schema of a file, for editors."""
    from testbed.api.json_schema import scenario_schema, topology_schema
    from testbed.cli.output import emit_json

    if kind == "topology":
        emit_json(topology_schema())
    elif kind == "scenario":
        emit_json(scenario_schema())
    else:
        raise TestbedError(f"there is no schema for {kind!r}", hint="topology or scenario")
