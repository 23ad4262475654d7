"""The JSON Schema of topology files agrees with the loader; every key of all schemas is described."""

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from testbed.api.json_schema import SCHEMAS, schema_text, topology_schema, write_schemas
from testbed.base.errors import SpecError
from testbed.base.yaml.reader import decode, load_document
from testbed.lab.core.schema.load import load_topology_text

TOPOLOGIES = sorted((Path(__file__).parents[2] / "topologies").glob("*.yml"))
BAD = sorted(Path(__file__).with_name("bad").glob("*.yml"))

REFUSED_BY_SCHEMA = frozenset({"unknown-key", "not-built", "unknown-design", "unknown-kind", "no-unit"})
"""Codes of problems that an editor with the schema shows too."""


@functools.cache
def _validator() -> Draft202012Validator:
    schema = topology_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    return _validator()


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_package_has_the_schema_that_is_printed(kind: str, tmp_path: Path) -> None:
    assert tmp_path / f"{kind}.schema.json" in write_schemas(tmp_path)
    assert (tmp_path / f"{kind}.schema.json").read_text() == schema_text(SCHEMAS[kind]())


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for entry in schema:
            yield from _references(entry)
    elif isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].removeprefix("#/$defs/")
        for entry in schema.values():
            yield from _references(entry)


@pytest.mark.parametrize("kind", SCHEMAS)
def test_every_definition_is_referred_to_and_every_reference_has_one(kind: str) -> None:
    schema = SCHEMAS[kind]()
    assert set(_references(schema)) == set(schema["$defs"])


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_key_that_several_sections_have_is_described_once(kind: str) -> None:
    schema = SCHEMAS[kind]()
    texts = [schema_text(entry) for section in _sections(schema) for entry in section["properties"].values()]
    texts = [text for text in texts if len(text) > 120]
    assert len(texts) > (10 if kind != "prices" else 1)
    assert sorted(texts) == sorted(set(texts))


def _sections(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, list):
        for entry in schema:
            yield from _sections(entry)
    elif isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict):
            yield schema
        for entry in schema.values():
            yield from _sections(entry)


@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.stem)
def test_shipped_topologies_are_valid(path: Path, validator: Draft202012Validator) -> None:
    errors = [error.message for error in validator.iter_errors(load_document(path.read_text(), path.name).data)]
    assert errors == []


@functools.cache
def _codes_and_data(path: Path) -> tuple[set[str], Any]:
    try:
        text = decode(path.read_bytes(), path.name)
        load_topology_text(text, file=path.name)
    except SpecError as error:
        codes = {problem.code for problem in error.problems}
    try:
        return codes, load_document(text, path.name).data
    except (SpecError, UnboundLocalError):
        return codes, None


@functools.cache
def _is_refused(path: Path) -> bool | None:
    """Tell whether the schema refuses a file; None of one that is no YAML."""
    data = _codes_and_data(path)[1]
    return None if data is None else not _validator().is_valid(data)


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_files_that_a_schema_can_refuse_are_refused(path: Path) -> None:
    codes, _ = _codes_and_data(path)
    if codes & REFUSED_BY_SCHEMA:
        assert _is_refused(path) in (True, None)


def test_enough_bad_files_are_refused_by_the_schema() -> None:
    assert sum(_is_refused(path) is True for path in BAD) >= 40


def _keys(schema: Any, definitions: dict[str, Any], at: str) -> Iterator[tuple[str, str]]:
    """Every key that a schema describes, and its description, which may stand where the key refers to."""
    if isinstance(schema, list):
        for index, entry in enumerate(schema):
            yield from _keys(entry, definitions, f"{at}[{index}]")
    elif isinstance(schema, dict):
        properties = schema.get("properties", {})
        for name, entry in properties.items():
            described = entry
            while "description" not in described and "$ref" in described:
                described = definitions[described["$ref"].removeprefix("#/$defs/")]
            yield f"{at}.{name}", described.get("description", "")
            yield from _keys(entry, definitions, f"{at}.{name}")
        for key, value in schema.items():
            if key != "properties":
                yield from _keys(value, definitions, f"{at}.{key}")


@pytest.mark.parametrize("kind", SCHEMAS)
def test_every_key_is_described_by_a_whole_sentence(kind: str) -> None:
    """A sentence whose subject is the key, so it begins with a verb: messages and docs/ are made of it."""
    schema = SCHEMAS[kind]()
    found = list(_keys(schema, schema["$defs"], ""))
    assert len(found) > (100 if kind != "prices" else 15)
    sentence = re.compile(r"[A-Z][a-z]+s,? [^\n]*\w[^\n]*\.")
    assert [(key, said) for key, said in found if not sentence.fullmatch(said) or ".." in said.rstrip(".")] == []


def test_sections_may_be_empty(validator: Draft202012Validator) -> None:
    text = "name: pod\nscale:\nfabric:\n  design: rail-optimized\n  nic:\ntopology:\n  defaults:\n  nodes:\n  links:\n"
    load_topology_text(text, file="x.yml")
    assert validator.is_valid(load_document(text, "x.yml").data)
