"""Running workloads against a live lab, and judging what they measured."""

from testbed.scenario.flow_processes import FlowFailed
from testbed.scenario.lab import LiveLab
from testbed.scenario.progress import Phase, Progress, ProgressListener
from testbed.scenario.run import LabFactory, ScenarioStopped, run_sweep

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
