"""Running workloads against a live lab, and judging what they measured."""

from testbed.scenario.placed.lab import LiveLab
from testbed.scenario.run.flow_processes import FlowFailed
from testbed.scenario.run.progress import Phase, Progress, ProgressListener
from testbed.scenario.sweep.runner import LabFactory, ScenarioStopped, run_sweep

__all__ = [
    "FlowFailed",
    "LabFactory",
    "LiveLab",
    "Phase",
    "Progress",
    "ProgressListener",
    "ScenarioStopped",
    "run_sweep",
]
