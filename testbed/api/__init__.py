"""The Python API: deploy labs, run commands in their nodes, and run scenarios on them.

with Lab.deploy("topologies/demo.yml") as lab:
    lab.node("p1-s1-h1").run(["ip", "addr"])
    print(lab.run("scenarios/rail-permutation.yml").metric("aggregate_share").median)
"""

from testbed.api.lab import CommandFailed, DeployKeywords, Lab, Node, load_model
from testbed.api.scenarios import RunOptions, ScenarioResult, run_scenario
from testbed.lab.core.deploy.links.changes import LinkChange

__all__ = [
    "CommandFailed",
    "DeployKeywords",
    "Lab",
    "LinkChange",
    "Node",
    "RunOptions",
    "ScenarioResult",
    "load_model",
    "run_scenario",
]
