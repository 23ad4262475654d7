"""The protocol of a driver. The real driver (`netns`) and the fake one of the tests pass the same contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from testbed.base.linux.processes import Process
from testbed.lab.core.plan.operations import CreateNode, Operation
from testbed.lab.core.plan.overlay_operations import CreateVrf


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The account of a removal: how many of the nodes were there, and the processes that it ended."""

    nodes: int
    processes: tuple[Process, ...] = ()


class NodeKernel(Protocol):
    """Applies operations to the nodes of one lab."""

    def create_nodes(self, operations: Sequence[CreateNode | CreateVrf]) -> Mapping[str, int]:
        """Make the nodes, invisible to others; their identities come back, for the journal."""

    def publish(self) -> None:
        """Give the created nodes their names. Raises `NameInUse` and publishes no further."""

    def apply(self, operations: Sequence[Operation]) -> None:
        """Apply operations in order; raises `DriverError` for the first the kernel refuses."""

    def remove(self, identities: Mapping[str, int]) -> Removal:
        """End every process of these nodes and remove them; one of another identity is left alone."""

    def close(self) -> None:
        """Let go of descriptors; the nodes stay."""
