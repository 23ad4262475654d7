"""A source, which a page looks at: a lab that is up, or a run of a record that is played back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from testbed.api.console.counters.history import PortSeries
from testbed.api.console.counters.quantities import PortFrame
from testbed.api.console.sources.shape import LabShape
from testbed.api.console.sources.state import SeenState

if TYPE_CHECKING:
    from testbed.lab.core.deploy.live import RunningLab


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Moment:
    """All that is drawn of one moment."""

    frame: PortFrame
    state: SeenState

    def to_json(self) -> dict[str, Any]:
        """Return what a page gets of it."""
        return self.frame.to_json() | {"state": self.state.to_json()}


class Source(ABC):
    """Both kinds answer the same questions; all of this is called in readers' threads, or in that of the loop."""

    live: ClassVar[bool]
    clock: ClassVar[Literal["wall", "run"]]
    """The clock of all times `t`: seconds since the epoch, or since the begin of the run."""
    name: str
    """The name of the lab."""
    base: str
    """The address below which everything of it is, such as `/api/labs/demo`."""

    @property
    @abstractmethod
    def shape(self) -> LabShape:
        """The shape as it is now."""

    @property
    def lab(self) -> RunningLab:
        """The lab that is up. Raises `RefusedRequest` where it is a record."""
        from testbed.api.console.answers import RefusedRequest

        raise RefusedRequest(404, "this is a record: no lab is there", code="recorded")

    @property
    @abstractmethod
    def span(self) -> tuple[float, float] | None:
        """The times between which there are moments; None where there are none yet."""

    @abstractmethod
    def now(self) -> Moment:
        """Return the latest moment, or the first one of a run."""

    @abstractmethod
    def moment(self, t: float) -> Moment | None:
        """Return what was known at a time: the latest that is kept of no later; None before all that is kept."""

    @abstractmethod
    def series(self, names: Sequence[str], ports: Sequence[int], begin: float, end: float) -> PortSeries:
        """Return quantities of some ports between two times."""

    @abstractmethod
    def total(self, name: str, chosen: NDArray[np.bool_], begin: float, end: float) -> PortSeries:
        """Return one series of a quantity over all ports that are chosen (`history.summary`)."""

    @abstractmethod
    def events(self, begin: float, end: float) -> list[dict[str, Any]]:
        """Return what happened between two times, oldest first: the fields of `LabEvent`, and `t`."""

    def described(self) -> dict[str, Any]:
        """Return what a page gets of the shape, beside what is its own of a live lab or a record."""
        span = self.span
        return {
            **self.shape.document,
            "base": self.base,
            "live": self.live,
            "clock": self.clock,
            "span": None if self.live or span is None else list(span),
        }

    def node(self, name: str) -> Mapping[str, Any]:
        """Return what is known of a node. Raises `RefusedRequest`."""
        from testbed.api.console.answers import not_found
        from testbed.base.names import known_names_hint

        shape = self.shape
        number = shape.nodes.get(name)
        if number is None:
            raise not_found(f"{self.name} has no node {name!r}", known_names_hint(name, list(shape.nodes)))
        node, states = shape.model.nodes[number], self.now().state.nodes
        return {
            "name": name,
            "kind": node.kind.value,
            "role": node.role.value if node.role else "",
            "network": node.network,
            "runtime": node.runtime,
            "image": "" if node.container is None else node.container.image,
            "labels": dict(node.labels),
            "state": states[number] if number < len(states) else "",
            "ports": [at for place, at in shape.places.items() if place.partition(":")[0] == name],
        }
