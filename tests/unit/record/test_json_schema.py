"""The JSON Schema of records holds for records, refuses what is none, and says what each field means."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from recorded import RECORDS

from testbed.record.json_schema import record_schema
from testbed.record.record import SCHEMA, Record
from testbed.record.store import encode_record

FILES = sorted(RECORDS.glob("*.json"))


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema = record_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_records_are_as_the_schema_says(path: Path, validator: Draft202012Validator) -> None:
    validator.validate(json.loads(path.read_bytes()))


def test_what_is_written_is_as_the_schema_says(record: Record, validator: Draft202012Validator) -> None:
    validator.validate(json.loads(encode_record(record)))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema",), SCHEMA + 1),
        (("points", 0, "lab", "k"), "4000"),
        (("points", 0, "runs", 0, "channels", 0, "samples", "cwnd_bytes"), [1.5]),
        (("points", 0, "runs", 0, "transfers", "end_s"), None),
        (("verdict", "outcome"), "passed"),
        (("environment", "backend"), 1),
    ],
)
def test_what_is_no_record_is_refused(
    path: tuple[str | int, ...], value: object, validator: Draft202012Validator
) -> None:
    document: Any = json.loads((RECORDS / "permutation-lb.json").read_bytes())
    place = document
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    assert not validator.is_valid(document)


def test_descriptions_are_the_docstrings() -> None:
    schema = record_schema()
    run = schema["$defs"]["RunResult"]["properties"]
    assert run["scale_up"]["description"].startswith("The scale-up domains whose transfers were frames")
    assert schema["properties"]["points"]["items"] == {"$ref": "#/$defs/PointResult"}
    assert schema["$defs"]["ChannelSamples"]["properties"]["rate_bps"]["description"]
    assert schema["$defs"]["Check"]["description"].startswith("One trust check")


def test_every_field_is_described() -> None:
    schema = record_schema()
    silent = [
        f"{name}.{key}"
        for name, definition in [(Record.__name__, schema), *schema["$defs"].items()]
        for key, value in definition.get("properties", {}).items()
        if not value.get("description")
    ]
    assert silent == []
