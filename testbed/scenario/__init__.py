"""Running workloads against a live lab, and judging what they measured."""

from testbed.scenario.lab import LiveLab
from testbed.scenario.progress import Phase, Progress, ProgressListener
from testbed.scenario.run import ScenarioStopped, run_scenario
from testbed.scenario.tcp_traffic import FlowFailed

__all__ = ["FlowFailed", "LiveLab", "Phase", "Progress", "ProgressListener", "ScenarioStopped", "run_scenario"]
