"""Telling a scenario from a topology by the keys of a file, some of which may be misspelt.

A file is read as what it is meant to be, so that a user hears of the misspelt key, and not of all the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.base.errors import Problem
from testbed.base.names import nearest
from testbed.base.yaml.document import Document

SCENARIO_KEYS = frozenset(
    {"transport", "transports", "workload", "matrix", "faults", "convergence", "repeat", "probes", "expect"}
)
"""The keys that only a scenario has."""
TOPOLOGY_KEYS = frozenset({"scale", "fabric", "machines", "networks", "tenants", "qos"})
"""The keys that only a topology has."""
_OF_A_REFERENCE = frozenset({"file", "inline", "set"})
"""The keys of a scenario's `topology`, which has nodes and links in a topology file."""


def is_scenario(data: Mapping[str, Any]) -> bool:
    """Tell whether a file with this content is meant as a scenario: it has a workload, or more of what only scenarios
    have than of what only topologies have. A key that is neither counts as the one that it comes near to."""
    if "workload" in data:
        return True
    meant = [
        key if key in SCENARIO_KEYS | TOPOLOGY_KEYS else nearest(key, SCENARIO_KEYS | TOPOLOGY_KEYS) for key in data
    ]
    of_scenarios = sum(key in SCENARIO_KEYS for key in meant)
    topology = data.get("topology")
    described = 0
    if isinstance(topology, Mapping):
        of_scenarios += bool(_OF_A_REFERENCE & topology.keys())
        described = len({"nodes", "links"} & topology.keys())
    return of_scenarios > described + sum(key in TOPOLOGY_KEYS for key in meant)


def scenario_problem(document: Document) -> Problem | None:
    """The problem of a scenario that is read as a topology; None for any other file."""
    if not is_scenario(document.data):
        return None
    hint = "`testbed run` runs it, on the topology that it names in `topology`"
    return document.problem("other-kind", (), "this is a scenario, not a topology", hint=hint)


def topology_problem(document: Document) -> Problem | None:
    """The problem of a topology that is read as a scenario; None for any other file, also where keys of both stand in
    one."""
    data = document.data
    described = TOPOLOGY_KEYS & data.keys() or isinstance(data.get("topology"), Mapping)
    if not described or SCENARIO_KEYS & data.keys() or is_scenario(data):
        return None
    hint = "`testbed deploy -t` brings it up; a scenario names it, as in topology: {file: FILE}, and has a workload"
    return document.problem("other-kind", (), "this is a topology, not a scenario", hint=hint)
