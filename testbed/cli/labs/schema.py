"""The verb `schema`."""

from testbed.base.errors import TestbedError
from testbed.cli.command import argument, command


@command("schema")
@argument("kind", metavar="[topology|scenario|prices]", default="topology", help="Whose keys.")
def schema(kind: str) -> None:
    """Print the JSON Schema of a file, for editors."""
    from testbed.api.json_schema import SCHEMAS
    from testbed.cli.output import emit_json

    if kind not in SCHEMAS:
        raise TestbedError(f"there is no schema for {kind!r}", hint=f"one of {', '.join(SCHEMAS)}")
    emit_json(SCHEMAS[kind]())
