"""The JSON Schemas of the files users write, for editors and for the reference of the documentation.

They follow from the models. `testbed schema` prints them; a package has them as files beside this one, which `setup.py`
writes when it is built. What occurs more than once stands in `$defs`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic.json_schema import DEFAULT_REF_TEMPLATE, CoreRef, GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from testbed.base.validation.by_kind import KindReader
from testbed.base.validation.fields import TYPE_NAME
from testbed.base.validation.model import SpecModel
from testbed.lab.assembly.spec import LabSpec

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SHORT = 70
"""Characters of a schema that is shorter than a reference is worth."""
_OF_A_KEY = ("description", "default")
"""The parts of a key's schema that describe it, beside its type."""

Schema = dict[str, Any]


def topology_schema() -> Schema:
    """The schema of topology files."""
    return model_schema(LabSpec, "A topology of the testbed")


def scenario_schema() -> Schema:
    """The schema of scenario files."""
    from testbed.run.schema.spec import ScenarioSpec  # and with it every workload: topologies need none

    return model_schema(ScenarioSpec, "A scenario of the testbed")


def prices_schema() -> Schema:
    """The schema of price lists."""
    from testbed.lab.core.schema.prices import PricesSpec  # of which nothing else has need

    return model_schema(PricesSpec, "A price list of the testbed")


SCHEMAS: Mapping[str, Callable[[], Schema]] = MappingProxyType(
    {"topology": topology_schema, "scenario": scenario_schema, "prices": prices_schema}
)
"""The schema of each kind of file."""


def write_schemas(directory: Path) -> list[Path]:
    """Write each schema as `<kind>.schema.json` into `directory`, and return the paths. For building a package."""
    paths = []
    for kind, schema in SCHEMAS.items():
        path = directory / f"{kind}.schema.json"
        path.write_text(schema_text(schema()))
        paths.append(path)
    return paths


def model_schema(model_class: type[SpecModel], title: str) -> Schema:
    """The schema of files that `validate_model(model_class, ...)` accepts."""
    schema = _tidied(model_class.model_json_schema(ref_template=DEFAULT_REF_TEMPLATE, schema_generator=KindsJsonSchema))
    definitions = schema.pop("$defs", {})
    schema = _share_types(schema, definitions)
    schema = _share_keys(schema, definitions)
    return {"$schema": DIALECT, "title": title, **schema, "$defs": dict(sorted(definitions.items()))}


class KindsJsonSchema(GenerateJsonSchema):
    """Makes JSON Schemas of sections, those that `KindReader`s read by models of their own among them."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._begun: set[type[SpecModel]] = set()
        """The models whose schemas have been begun: sections may nest."""

    def function_plain_schema(self, schema: core_schema.PlainValidatorFunctionSchema) -> JsonSchemaValue:
        """Return the schema of a kind, or a reference to it where it has been begun."""
        reader = schema["function"]["function"]
        if not isinstance(reader, KindReader):
            return super().function_plain_schema(schema)
        model = reader.model
        model.model_rebuild()
        own: Any = model.__pydantic_core_schema__
        if model in self._begun:
            _, reference = self.get_cache_defs_ref_schema(_ref_of(own))
            return reference
        self._begun.add(model)
        return self.generate_inner(own)


def _ref_of(schema: Any) -> CoreRef:
    """Return the name that pydantic has for the model of a schema."""
    while schema["type"] == "definitions":
        schema = schema["schema"]
    return CoreRef(schema["ref"] if "ref" in schema else schema["schema_ref"])


def schema_text(schema: Schema) -> str:
    """A schema as it is shipped."""
    return json.dumps(schema, indent=2, ensure_ascii=True) + "\n"


def _tidied(schema: Any) -> Any:
    """Without titles and the defaults of what is absent; mappings take no keys but those described."""
    if isinstance(schema, list):
        return [_tidied(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    tidy: Schema = {}
    for key, value in schema.items():
        if key in ("properties", "$defs") and isinstance(value, dict):
            tidy[key] = {name: _tidied(entry) for name, entry in value.items()}
        elif not (key == "title" or (key == "default" and (value is None or isinstance(value, dict | list)))):
            tidy[key] = _tidied(value)
    if "patternProperties" in tidy:
        tidy["additionalProperties"] = False
    return tidy


def _share_types(schema: Schema, definitions: dict[str, Any]) -> Schema:
    """The schema with a reference for each type of value that it, or one of its definitions, has twice."""
    seen = Counter(_text(_type_of(one)) for one in _named(schema, definitions))
    names: dict[str, str] = {}

    def shared(one: Schema) -> Schema:
        body = _type_of(one)
        name, text = body.pop(TYPE_NAME), _text(body | {TYPE_NAME: one[TYPE_NAME]})
        own = {key: one[key] for key in _OF_A_KEY if key in one}
        if seen[text] < 2 or len(_text(body)) < _SHORT:
            return body | own
        if text not in names:
            names[text] = _free_name(str(name), definitions)
            definitions[names[text]] = body
        return {"$ref": f"#/$defs/{names[text]}"} | own

    return _rewritten(schema, definitions, lambda name, one: shared(one) if TYPE_NAME in one else one)


def _share_keys(schema: Schema, definitions: dict[str, Any]) -> Schema:
    """The schema with a reference for each key that several sections have with one meaning."""
    seen = Counter(_text(one) for _, one in _keys(schema, definitions))
    names: dict[str, str] = {}

    def shared(name: str | None, one: Schema) -> Schema:
        text = _text(one)
        if name is None or seen[text] < 2 or len(text) < _SHORT:
            return one
        if text not in names:
            names[text] = _free_name(name, definitions)
            definitions[names[text]] = one
        return {"$ref": f"#/$defs/{names[text]}"}

    return _rewritten(schema, definitions, shared)


def _text(schema: Schema) -> str:
    return json.dumps(schema, sort_keys=True)


def _type_of(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key not in _OF_A_KEY}


def _free_name(name: str, definitions: Mapping[str, Any]) -> str:
    return next(
        one for number in range(1, 1000) if (one := name if number == 1 else f"{name}-{number}") not in definitions
    )


def _rewritten(schema: Schema, definitions: dict[str, Any], change: Callable[[str | None, Schema], Schema]) -> Schema:
    """The schema, and in place its definitions, with every schema inside changed from the innermost on.

    `change` is told the key of which a schema is, if it is one's.
    """

    def inside(value: Any, *, name: str | None = None) -> Any:
        if isinstance(value, list):
            return [inside(entry) for entry in value]
        if not isinstance(value, dict):
            return value
        found = {
            key: {one: inside(entry, name=one) for one, entry in part.items()} if key == "properties" else inside(part)
            for key, part in value.items()
        }
        return change(name, found)

    for definition in list(definitions):
        definitions[definition] = inside(definitions[definition])
    return dict(inside(schema))


def _named(*schemas: Any) -> Iterator[Schema]:
    """Yield every schema inside that a type of value has given its name."""
    for schema in schemas:
        if isinstance(schema, list):
            yield from _named(*schema)
        elif isinstance(schema, dict):
            if isinstance(schema.get(TYPE_NAME), str):
                yield schema
            yield from _named(*schema.values())


def _keys(*schemas: Any) -> Iterator[tuple[str, Schema]]:
    """Yield every key that a schema inside describes, and how."""
    for schema in schemas:
        if isinstance(schema, list):
            yield from _keys(*schema)
        elif isinstance(schema, dict):
            if isinstance(schema.get("properties"), dict):
                yield from schema["properties"].items()
            yield from _keys(*schema.values())
