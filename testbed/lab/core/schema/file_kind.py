"""Telling a scenario from a topology by the keys of a file, some of which may be misspelt.

A file is read as what it is meant to be, so that a user hears of the misspelt key, and not of all the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.base.names import nearest

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
    if isinstance(topology, Mapping) and _OF_A_REFERENCE & topology.keys():
        of_scenarios += 1
    return of_scenarios > sum(key in TOPOLOGY_KEYS for key in meant)
