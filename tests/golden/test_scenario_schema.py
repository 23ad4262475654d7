"""The JSON Schema of scenario files agrees with the loader."""

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from testbed.api.json_schema import scenario_schema
from testbed.base.errors import SpecError
from testbed.base.yaml.reader import load_document, read_text
from testbed.run.schema.file import load_scenario
from testbed.workload.registry import KINDS

SCENARIOS = sorted((Path(__file__).parents[2] / "scenarios").glob("*.yml"))
BAD = sorted((Path(__file__).parent / "bad_scenarios").glob("*.yml"))

REFUSED_BY_SCHEMA = frozenset({"unknown-key", "unknown-workload", "unknown-transport", "unknown-metric", "no-unit"})
"""Codes of problems that an editor with the schema shows too."""
BY_MEANING = frozenset({"matrix-keys"})
"""Keys of a matrix are dotted: which of them mean something, no schema can say."""


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema = scenario_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def data_of(path: Path) -> dict[str, Any]:
    return load_document(read_text(path), path.name).data


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_shipped_scenarios_are_valid(path: Path, validator: Draft202012Validator) -> None:
    assert [error.message for error in validator.iter_errors(data_of(path))] == []


def test_every_kind_with_its_defaults_written_out_is_valid(validator: Draft202012Validator) -> None:
    for kind in KINDS.values():
        written = {
            one["name"]: one["default"]
            for one in kind.as_json()["parameters"]
            if one["default"] is not None and "with a model" not in one["description"]
        }
        if kind.name == "trace":
            written["file"] = "a.cm"
        if kind.name == "program":
            written["command"] = ["a"]
        data = {"name": "x", "topology": {"file": "x.yml"}, "workload": {"kind": kind.name, **written}}
        assert [error.message for error in validator.iter_errors(data)] == [], kind.name


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_files_that_a_schema_can_refuse_are_refused(path: Path, validator: Draft202012Validator) -> None:
    try:
        load_scenario(path)
    except SpecError as error:
        codes = {problem.code for problem in error.problems if not problem.path.startswith(("matrix", "expect"))}
    else:
        codes = set()
    if codes & REFUSED_BY_SCHEMA and path.stem not in BY_MEANING:
        assert not validator.is_valid(data_of(path))


def test_enough_bad_files_are_refused_by_the_schema(validator: Draft202012Validator) -> None:
    assert sum(not validator.is_valid(data_of(path)) for path in BAD) >= 20


def test_the_workload_of_a_tenant_is_checked_too(validator: Draft202012Validator) -> None:
    def scenario(workload: dict[str, Any]) -> dict[str, Any]:
        tenants = {"kind": "tenants", "tenants": [{"workload": workload}]}
        return {"name": "x", "topology": {"file": "x.yml"}, "workload": tenants}

    assert validator.is_valid(scenario({"kind": "incast", "senders": 3}))
    assert not validator.is_valid(scenario({"kind": "incast", "sender": 3}))
    assert not validator.is_valid(scenario({"kind": "incast", "ranks": {"count": 2}})), "ranks are the tenant's"
    assert validator.is_valid(scenario({"kind": "tenants", "tenants": [{"workload": {"kind": "mice"}}]}))
