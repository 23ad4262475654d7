"""The JSON Schema of `record.json`: its shape, and what each field means, from the types and docstrings of records."""

from __future__ import annotations

import ast
import inspect
from functools import cache
from types import ModuleType
from typing import Any

from pydantic import TypeAdapter

from testbed.record import record, samples, subnet_counters
from testbed.record.record import SCHEMA, Record

DIALECT = "https://json-schema.org/draft/2020-12/schema"


@cache
def record_schema() -> dict[str, Any]:
    """Return the schema of a record of this version; a record may have more fields than it names.

    Columns of one table are equally long, and times are seconds from the begin of a run's workload: a schema cannot say
    so.
    """
    schema = TypeAdapter(Record).json_schema()
    definitions: dict[str, Any] = schema.pop("$defs")
    definitions[Record.__name__] = schema
    described = _docs(record) | _docs(samples) | _docs(subnet_counters)
    for name, definition in definitions.items():
        definition.pop("title", None)
        definition["description"] = described.get((name, _ITSELF), "")
        for key, value in definition.get("properties", {}).items():
            value.pop("title", None)
            if text := described.get((name, key), ""):
                value["description"] = text
    root = definitions.pop(Record.__name__)
    root["properties"]["schema"] = {"const": SCHEMA, "description": described[Record.__name__, "schema"]}
    root["required"] = ["schema", *root["required"]]
    return {"$schema": DIALECT, "title": "A record of the testbed", **root, "$defs": dict(sorted(definitions.items()))}


_ITSELF = ""
"""In place of a field: the class."""


def _docs(module: ModuleType) -> dict[tuple[str, str], str]:
    """By class and field, the docstring below the field."""
    found: dict[tuple[str, str], str] = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if not isinstance(node, ast.ClassDef):
            continue
        found[node.name, _ITSELF] = ast.get_docstring(node) or ""
        for field, after in zip(node.body, node.body[1:], strict=False):
            match field, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[node.name, name] = inspect.cleandoc(text)
    return found
