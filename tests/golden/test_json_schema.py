"""The shipped JSON Schema is the generated one, and agrees with the loader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from testbed.errors import SpecError
from testbed.spec import load_document, load_topology_text, topology_schema
from testbed.spec.schema import SCHEMA_FILE, schema_text
from testbed.spec.yaml.reader import decode

TOPOLOGIES = sorted((Path(__file__).parents[2] / "topologies").glob("*.yml"))
BAD = sorted(Path(__file__).with_name("bad").glob("*.yml"))

REFUSED_BY_SCHEMA = frozenset({"unknown-key", "not-built", "unknown-design", "unknown-kind", "no-unit"})
"""Codes of problems that an editor with the schema shows too."""


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema = json.loads(SCHEMA_FILE.read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def test_the_shipped_schema_is_the_generated_one() -> None:
    assert SCHEMA_FILE.read_text() == schema_text(topology_schema()), "run python tests/golden/regenerate.py"


@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.stem)
def test_shipped_topologies_are_valid(path: Path, validator: Draft202012Validator) -> None:
    errors = [error.message for error in validator.iter_errors(load_document(path.read_text(), path.name).data)]
    assert errors == []


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


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_files_that_a_schema_can_refuse_are_refused(path: Path, validator: Draft202012Validator) -> None:
    codes, data = _codes_and_data(path)
    if data is not None and codes & REFUSED_BY_SCHEMA:
        assert not validator.is_valid(data)


def test_enough_bad_files_are_refused_by_the_schema(validator: Draft202012Validator) -> None:
    refused = [
        path for path in BAD if (found := _codes_and_data(path)[1]) is not None and not validator.is_valid(found)
    ]
    assert len(refused) >= 40


def test_every_key_is_described_for_the_editor() -> None:
    def undescribed(schema: Any, at: str) -> list[str]:
        found = []
        for key, value in (schema.get("properties") or {}).items():
            if not value.get("description"):
                found.append(f"{at}.{key}")
        for name, definition in (schema.get("$defs") or {}).items():
            found += undescribed(definition, name)
        return found

    assert undescribed(topology_schema(), "") == []


def test_sections_may_be_empty(validator: Draft202012Validator) -> None:
    text = "name: pod\nscale:\nfabric:\n  design: rail-optimized\n  nic:\ntopology:\n  defaults:\n  nodes:\n  links:\n"
    load_topology_text(text, file="x.yml")
    assert validator.is_valid(load_document(text, "x.yml").data)
