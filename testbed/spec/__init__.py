"""The files users write: strict YAML, validated, every problem with file:line:column."""

from testbed.spec.schema import model_schema, topology_schema
from testbed.spec.topology.load import (
    find_topology,
    load_topology,
    load_topology_text,
    parse_assignment,
    parse_scalar,
    place_plan_error,
)
from testbed.spec.topology.write import render_topology
from testbed.spec.validation.engine import validate_model
from testbed.spec.validation.model import SpecModel
from testbed.spec.yaml.document import OVERRIDE_FILE, Document
from testbed.spec.yaml.reader import load_document, read_document

__all__ = [
    "OVERRIDE_FILE",
    "Document",
    "SpecModel",
    "find_topology",
    "load_document",
    "load_topology",
    "load_topology_text",
    "model_schema",
    "parse_assignment",
    "parse_scalar",
    "place_plan_error",
    "read_document",
    "render_topology",
    "topology_schema",
    "validate_model",
]
