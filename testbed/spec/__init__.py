"""The files users write: strict YAML, validated, every problem with file:line:column."""

from testbed.spec.document import OVERRIDE_FILE, Document
from testbed.spec.load import find_topology, load_topology, load_topology_text, parse_assignment, parse_scalar
from testbed.spec.schema import model_schema, topology_schema
from testbed.spec.strict_yaml import load_document, read_document
from testbed.spec.validation import SpecModel, validate_model
from testbed.spec.write import render_topology

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
    "read_document",
    "render_topology",
    "topology_schema",
    "validate_model",
]
