"""Deploying, watching, checking and removing labs on this machine."""

from testbed.deploy.lifecycle import DeployOptions, DeployOutcome, DestroyOutcome, deploy_lab, destroy_lab
from testbed.deploy.live import NodeStatus, RunningLab
from testbed.deploy.records.state import StateDirectory
from testbed.deploy.watch.check import CheckReport, CheckResult, CheckStatus, check_lab

__all__ = [
    "CheckReport",
    "CheckResult",
    "CheckStatus",
    "DeployOptions",
    "DeployOutcome",
    "DestroyOutcome",
    "NodeStatus",
    "RunningLab",
    "StateDirectory",
    "check_lab",
    "deploy_lab",
    "destroy_lab",
]
