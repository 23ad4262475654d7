"""The verb `schema`."""

from testbed.base.errors import TestbedError
from testbed.cli.command import argument, command


@command("schema")
@argument("kind", metavar="[topology|scenario|prices|record]", default="topology", help="Whose keys.")
def schema(kind: str) -> None:
    """Print the JSON Schema of a file: of those one writes, for editors, and of the records of runs."""
    from testbed.cli.output import emit_json

    if kind == "record":
        from testbed.record.json_schema import record_schema

        emit_json(record_schema())
        return
    from testbed.api.json_schema import SCHEMAS
    from testbed.base.names import choice_hint

    if kind not in SCHEMAS:
        raise TestbedError(f"there is no schema for {kind!r}", hint=choice_hint(kind, (*SCHEMAS, "record")))
    emit_json(SCHEMAS[kind]())
