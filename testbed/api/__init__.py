"""The Python API: deploy labs, run commands in nodes, run scenarios; the console; and pools of machines.

with Lab.deploy("topologies/demo.yml") as lab:
    lab.node("p1-s1-h1").run(["ip", "addr"])
    print(lab.run("scenarios/rail-permutation.yml").metric("aggregate_share").median)
    print(lab.apply(overrides={"fabric.hosts": 8}).summary)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.api.changes import Changes
    from testbed.api.lab import CommandFailed, DeployKeywords, Lab, Node, load_model
    from testbed.api.scenarios import RunOptions, ScenarioResult, run_scenario
    from testbed.lab.core.deploy.links.changes import LinkChange
    from testbed.run.launch import LaunchOptions, LaunchOrder, LaunchResult

__all__ = [
    "Changes",
    "CommandFailed",
    "DeployKeywords",
    "Lab",
    "LaunchOptions",
    "LaunchOrder",
    "LaunchResult",
    "LinkChange",
    "Node",
    "RunOptions",
    "ScenarioResult",
    "load_model",
    "run_scenario",
]
_MODULES = {
    **dict.fromkeys(("CommandFailed", "DeployKeywords", "Lab", "Node", "load_model"), "testbed.api.lab"),
    **dict.fromkeys(("RunOptions", "ScenarioResult", "run_scenario"), "testbed.api.scenarios"),
    "Changes": "testbed.api.changes",
    "LinkChange": "testbed.lab.core.deploy.links.changes",
    **dict.fromkeys(("LaunchOptions", "LaunchOrder", "LaunchResult"), "testbed.run.launch"),
}


def __getattr__(name: str) -> object:
    """Load what is asked for: the command line reads files by modules of this package, and runs nothing for that."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'testbed.api' has no attribute {name!r}")
