"""Which other tool a topology file was written for: containerlab (containerlab.dev) or netlab (netlab.tools).

A file of theirs that is given where one of ours is read has one problem, which says so and names `import`. A file in
which both ways of writing stand is one of ours that is being written: each of its words gets its own hint (`foreign`).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from enum import StrEnum

from testbed.base.errors import Problem, SpecError
from testbed.base.yaml.document import Document
from testbed.base.yaml.reader import load_document
from testbed.lab.core.model import NodeKind
from testbed.lab.core.schema import foreign

_OURS = frozenset({"fabric", "networks", "tenants", "qos", "scale", "workload"})
"""Keys that files of ours begin with, and no file of containerlab does."""
_ANYBODYS_KINDS = frozenset(
    {
        *("host", "switch", "router", "leaf", "spine", "tor", "rail", "server", "vm", "gpu", "node", "client"),
        *("container", "docker", "cumulus", "cumulus_nvue", "eos", "vyos", "routeros", "iosv", "nxos", "bird"),
    }
)
"""Words for a kind of node by which no file is told for containerlab's: ours, netlab's, and what people write."""
_CONTAINERLAB_KINDS = frozenset(foreign.KINDS) - _ANYBODYS_KINDS
_NETLAB_KEYS = frozenset({"nodes", "links", "module", "provider", "addressing", "defaults", "groups", "plugin"})
_STANDARD_INPUT = "<stdin>"


class OtherTool(StrEnum):
    """A tool whose topology files can be imported."""

    CONTAINERLAB = "containerlab"
    NETLAB = "netlab"


def find_other_tool(data: Mapping[str, object]) -> OtherTool | None:
    """Tell whose topology file these keys and values are; None for one of ours, and for what is none."""
    if "topology" in data:
        return OtherTool.CONTAINERLAB if _is_containerlab(data) else None
    first = {key.partition(".")[0] for key in data}
    if "workload" in first:
        return None
    if first & {"nodes", "links"} or ("plugin" in first and "fabric" in first):
        return OtherTool.NETLAB if first & _NETLAB_KEYS else None
    return None


def told_of_other_tool(error: SpecError, text: str, file: str) -> SpecError:
    """The error of a file that is none of ours: that it is another tool's where it is, else `error` itself."""
    try:
        document = load_document(text, file, lenient=True)
    except SpecError:
        return error
    problem = other_tool_problem(document)
    return error if problem is None else SpecError([problem])


def other_tool_problem(document: Document) -> Problem | None:
    """The problem of a file of another tool; None for any other."""
    tool = find_other_tool(document.data)
    if tool is None:
        return None
    file = "-" if document.file == _STANDARD_INPUT else shlex.quote(document.file)
    return document.problem(
        "other-tool",
        (),
        f"this is a topology of {tool}, not of testbed",
        hint=f"`testbed import {file} -o FILE.yml` makes one of testbed of it, and says what it cannot take over",
    )


def _is_containerlab(data: Mapping[str, object]) -> bool:
    """Tell whether a kind of containerlab's is named, which is vendor_system or one of a few, and no word of ours."""
    topology = data["topology"]
    if not isinstance(topology, Mapping) or _OURS & data.keys():
        return False
    nodes = topology.get("nodes")
    if not isinstance(nodes, Mapping) or not nodes:
        return False
    settings = list(_settings(topology))
    if any("role" in one for one in settings):
        return False
    kinds = {str(one["kind"]) for one in settings if one.get("kind") is not None}
    by_kind = topology.get("kinds")
    kinds |= {str(kind) for kind in by_kind} if isinstance(by_kind, Mapping) else set()
    return NodeKind.SWITCH not in kinds and any(kind in _CONTAINERLAB_KINDS or "_" in kind for kind in kinds)


def _settings(topology: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """The settings of nodes, of groups, and those that all nodes have."""
    sections: list[object] = [topology.get("defaults")]
    for section in (topology.get("nodes"), topology.get("groups"), topology.get("kinds")):
        sections += section.values() if isinstance(section, Mapping) else []
    yield from (one for one in sections if isinstance(one, Mapping))
