"""Importing a file: whose it is, what it says, and the topology of ours that is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from testbed.base.errors import Problem, SpecError
from testbed.base.yaml.document import Document
from testbed.base.yaml.reader import load_document
from testbed.lab.core.schema.other_tools import OtherTool, find_other_tool
from testbed.lab.formats.containerlab import read_containerlab
from testbed.lab.formats.imported import ImportedLab, Remark
from testbed.lab.formats.netlab import read_netlab
from testbed.lab.formats.topology_text import write_imported

_TEMPLATE_MARK = "{{"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTopology:
    """A topology file of ours, and what of the file that it was made of is not there as it was."""

    tool: OtherTool
    name: str
    text: str
    remarks: tuple[Remark, ...]
    containers: int
    """The number of nodes that are containers."""


def import_topology(
    text: str, file: str, *, directory: Path, runtime: str, environment: Mapping[str, str], name: str | None = None
) -> ImportedTopology:
    """Make a topology of ours of the text of a file of containerlab or netlab.

    `directory` is that of the file, which its relative paths begin at; `runtime` says whether nodes with an image stay
    containers ("docker") or become network namespaces ("netns"); `environment` has the variables that it may name.
    Raises `SpecError` for what is no such file, or leaves no lab.
    """
    document = _read(text, file)
    tool = find_other_tool(document.data)
    if tool is None:
        raise SpecError([_not_to_import(document)])
    read = {OtherTool.CONTAINERLAB: read_containerlab, OtherTool.NETLAB: read_netlab}[tool]
    lab: ImportedLab = read(document, directory=directory, runtime=runtime, environment=environment)
    if name is not None:
        lab.name = name
    written = write_imported(lab, file)
    containers = sum(node.settings.get("runtime") == "docker" for node in lab.nodes.values())
    return ImportedTopology(
        tool=tool, name=lab.name, text=written, remarks=tuple(lab.remarks.rows()), containers=containers
    )


def _read(text: str, file: str) -> Document:
    try:
        return load_document(text, file, lenient=True)
    except SpecError as error:
        if _TEMPLATE_MARK not in text:
            raise
        first, *rest = error.problems
        message = f"{first.message}; the file is a template of Go, which containerlab fills in before it reads it"
        hint = "fill it in first, such as with gomplate, and import what comes out"
        raise SpecError([replace(first, message=message, hint=hint), *rest]) from error


def _not_to_import(document: Document) -> Problem:
    """Say what the file is instead."""
    data = document.data
    if "workload" in data:
        return document.problem("not-to-import", (), "this is a scenario", hint="`testbed run` runs it")
    if {"fabric", "topology"} & data.keys():
        hint = "`testbed validate -t FILE` checks it; it needs no import"
        return document.problem("not-to-import", (), "this is a topology of testbed, or meant to be one", hint=hint)
    message = "this is no topology of containerlab (topology.nodes) or netlab (nodes, links)"
    return document.problem("not-to-import", (), message, hint="those two can be imported")
