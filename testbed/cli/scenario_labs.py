"""The labs of a scenario's points: brought up when a point asks, kept while the next ones ask for the same."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from testbed.cli.scenario_scale import ScenarioScales
from testbed.deploy.lifecycle import DeployOptions, deploy_lab, destroy_lab
from testbed.deploy.live import RunningLab
from testbed.deploy.records.state import StateDirectory
from testbed.deploy.steps import StepCallback
from testbed.drivers.probing.machine_probe import clock
from testbed.errors import TestbedError
from testbed.model.scenario import TopologyRef
from testbed.scenario.sweep.points import topology_key
from testbed.spec.scenario.file import load_scenario_topology


class ScenarioLabs:
    """One lab at a time. A lab that was deployed before, unchanged, is used as it is and not removed at the end."""

    def __init__(
        self, state: StateDirectory, scales: ScenarioScales, *, timeout_s: float, keep: bool, notify: StepCallback
    ) -> None:
        self._state = state
        self._scales = scales
        self._timeout_s = timeout_s
        self._keep = keep
        self._notify = notify
        self._key = ""
        self._lab: RunningLab | None = None
        self._ours = False
        self.kept = ""
        """Name of the lab that is still there after the end, "" for none."""

    def __call__(self, topology: TopologyRef) -> RunningLab:
        key = topology_key(topology)
        if self._lab is not None and key == self._key:
            return self._lab
        self._remove()
        model = load_scenario_topology(topology)
        scale = self._scales(topology, model)
        if scale.warning and clock() == "virtual":
            # Its figures would be those of the processor, the same every time and wrong.
            hint = "fewer hosts, or slower NICs" if scale.slowest else "scale: {time: auto} lets it be chosen"
            raise TestbedError(f"refused in virtual time: {scale.warning}", hint=hint)
        if scale.warning:
            print(f"warning: {scale.warning}", file=sys.stderr)
        outcome = deploy_lab(model, self._state, DeployOptions(k=scale.k, timeout_s=self._timeout_s), self._notify)
        self._lab, self._key, self._ours = outcome.lab, key, outcome.changed
        return outcome.lab

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lab is not None and (self._keep or not self._ours):
            self.kept = self._lab.name if self._keep else ""
        else:
            self._remove()

    def _remove(self) -> None:
        lab, self._lab = self._lab, None
        if lab is not None and self._ours:
            destroy_lab(lab.name, self._state)
