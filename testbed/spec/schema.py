"""The JSON Schema of the files users write. What is shipped, for editors: `SCHEMA_FILE`, `SCENARIO_SCHEMA_FILE`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic.json_schema import DEFAULT_REF_TEMPLATE

from testbed.spec.topology.spec import LabSpec
from testbed.spec.validation.model import SpecModel

SCHEMA_FILE = Path(__file__).with_name("topology.schema.json")
SCENARIO_SCHEMA_FILE = Path(__file__).with_name("scenario.schema.json")
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def topology_schema() -> dict[str, Any]:
    """The schema of topology files."""
    return model_schema(LabSpec, "A topology of the testbed")


def scenario_schema() -> dict[str, Any]:
    """The schema of scenario files."""
    from testbed.spec.scenario.spec import ScenarioSpec  # and with it every workload: topologies need none

    return model_schema(ScenarioSpec, "A scenario of the testbed")


def model_schema(model_class: type[SpecModel], title: str) -> dict[str, Any]:
    """The schema of files that `validate_model(model_class, ...)` accepts."""
    schema = model_class.model_json_schema(ref_template=DEFAULT_REF_TEMPLATE)
    return {"$schema": DIALECT, **_tidied(schema), "title": title}


def schema_text(schema: dict[str, Any]) -> str:
    """A schema as it is shipped."""
    return json.dumps(schema, indent=2, ensure_ascii=True) + "\n"


def _tidied(schema: Any) -> Any:
    """Without titles and the defaults of what is absent; mappings take no keys but those described."""
    if isinstance(schema, list):
        return [_tidied(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    tidy: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs") and isinstance(value, dict):
            tidy[key] = {name: _tidied(entry) for name, entry in value.items()}
        elif not (key == "title" or (key == "default" and (value is None or isinstance(value, dict | list)))):
            tidy[key] = _tidied(value)
    if "patternProperties" in tidy:
        tidy["additionalProperties"] = False
    return tidy
