"""A lab of a few ports that is there for pages, and nowhere else."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from testbed.api.console.counters.history import TICK_S, History, PortSeries
from testbed.api.console.counters.quantities import QUANTITIES, UNKNOWN, PortFrame
from testbed.api.console.sources.shape import LabShape, shape_of
from testbed.api.console.sources.source import Moment, Source
from testbed.api.console.sources.state import SeenState
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text

TOPOLOGY = """
name: demo
scale: {time: 1000}
fabric:
  design: rail-optimized
  hosts: 4
  gpus: 2
  nic: {per: gpu, ports: 1, rate: 400G}
  spines: 2
"""


class FakeSource(Source):
    """It has been looked at for a minute, at every tick: port 0 sends at a rising rate, and all links are up."""

    live = True
    clock = "wall"
    name = "demo"
    base = "/api/labs/demo"

    def __init__(self, *, live: bool = True, text: str = TOPOLOGY) -> None:
        model = load_topology_text(text, file="demo.yml", overrides={})
        self.live = live  # type: ignore[misc]  # of this one alone
        self._plan = plan_lab(model, slot=0, k=1000.0)
        self._shape = shape_of(model, self._plan, k=1000.0, revision="r1", created="now")
        ports = self._shape.ports
        self._history = History(ports)
        for tick in range(120):
            columns = {name: np.zeros(ports, np.int32) for name in QUANTITIES}
            columns["use"][0] = tick
            columns["queue"][1] = 640
            columns["marks"][:] = UNKNOWN
            self._frame = PortFrame(t=1_000.0 + tick * TICK_S, dt=TICK_S, columns=columns)
            self._history.append(self._frame)

    @property
    def shape(self) -> LabShape:
        return self._shape

    @property
    def lab(self) -> RunningLab:
        return cast(RunningLab, SimpleNamespace(name="demo", plan=self._plan, model=self._shape.model))

    @property
    def span(self) -> tuple[float, float] | None:
        return self._history.span

    def now(self) -> Moment:
        return Moment(frame=self._frame, state=self._state())

    def _state(self) -> SeenState:
        conditions = {next(iter(self._shape.places)): "loss 1%"}
        return SeenState(
            nodes=("running",) * len(self._shape.nodes),
            links=(2, *(1,) * (self._shape.ports - 1)),
            conditions=conditions,
        )

    def moment(self, t: float) -> Moment | None:
        frame = self._history.moment(t)
        return None if frame is None else Moment(frame=frame, state=self._state())

    def series(self, names: Sequence[str], ports: Sequence[int], begin: float, end: float) -> PortSeries:
        return self._history.series(names, ports, begin, end)

    def total(self, name: str, chosen: NDArray[Any], begin: float, end: float) -> PortSeries:
        return self._history.total(name, chosen, begin, end)

    def events(self, begin: float, end: float) -> list[dict[str, Any]]:
        return [
            {"t": 1_010.0, "kind": "link-down", "node": "p1-s1-h1", "subject": "rail1", "detail": "", "lab": "demo"}
        ]
