"""The interface of a runtime: it starts nodes during a deploy, serves them while the lab runs, and removes them.

A node of every runtime has a network namespace of this machine, which the driver of namespaces wires up alike. A
node without a runtime of its own ("netns") is that namespace and nothing more, and no runtime is asked about it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from testbed.base.errors import DriverError, ExitCode, TestbedError
from testbed.lab.core.deploy.records.journal import Journal, JournalContent
from testbed.lab.core.deploy.steps import StepCallback
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import StartContainer

if TYPE_CHECKING:
    from testbed.lab.core.drivers.nodes.netns import NetnsKernel
    from testbed.lab.core.drivers.routing.frr import Elsewhere


class NodesRemain(TestbedError):
    """Nodes of a lab could not be removed: the lab stays recorded until they are."""

    exit_code = ExitCode.INVALID


def join_remaining(errors: Sequence[NodesRemain]) -> NodesRemain:
    """One error for the nodes that several runtimes left: it has what each of them says, and what to do about it."""
    first, *others = errors
    if not others:
        return first
    hints = dict.fromkeys(error.hint for error in errors if error.hint)
    return NodesRemain("; ".join(error.message for error in errors), hint="; ".join(hints) or None)


def not_started(node: str) -> DriverError:
    """The error for a node that a lab should have, and whose container its deploy did not come to start."""
    return DriverError(f"{node}: its container was not started", hint="`testbed destroy` removes what is left")


class DeployingNodes(Protocol):
    """The nodes of one runtime in a lab that is being deployed."""

    @property
    def elsewhere(self) -> Mapping[str, Elsewhere]:
        """Return how the routing daemons of those that are switches are started, by node. Known once `start` has
        returned. What they leave in FRR's crash directory (`testbed.lab.core.drivers.routing.frr.CRASH_DIRECTORY`) is
        theirs: their process numbers may be those of the node alone, and nobody else removes it."""

    def start(self, plan: LabPlan, kernel: NetnsKernel, notify: StepCallback) -> Sequence[StartContainer]:
        """Start all nodes, journalled first, and give their namespaces to `kernel`; what was started comes back.

        Raises `NameInUse`, `DriverError`, and `CapabilityError` for a switch without FRR.
        """

    def wait_healthy(self, timeout_s: float, notify: StepCallback) -> None:
        """Return when every node that can tell says that it is well. Raises `DriverError` for one that is not."""

    def close(self) -> None:
        """Let go of the connection to whatever makes the nodes. The nodes stay."""


class RenewingNodes(DeployingNodes, Protocol):
    """Nodes of one runtime that are added to a lab that is up, or one of it that is started anew."""

    def renew(self, plan: LabPlan, kernel: NetnsKernel, *, keep: bool) -> Mapping[str, int]:
        """Start the one node that is meant anew, and give its namespace, which is another one, to `kernel`.

        `keep`: its files stay as they are, where it is there still; else it is made of its image. Its identity comes
        back, which is not journalled yet. Raises `DriverError`.
        """


class LiveNodes(Protocol):
    """The nodes of one runtime in a lab that runs."""

    def spawn(self, node: str, argv: Sequence[str], options: dict[str, Any]) -> subprocess.Popen[bytes]:
        """Start a command in a node; `options` are those of `subprocess.Popen`. Raises `DriverError`.

        `env` is added to the node's own environment. `own_sysfs` asks for a /sys of the node's network: a node that
        has one anyway leaves it unheeded.
        """

    def logs(self, node: str, *, follow: bool) -> Iterator[bytes]:
        """Return what the node's own first process printed, in pieces; with `follow` until it ends. Raises
        `DriverError`."""

    def states(self) -> Mapping[str, str]:
        """The state of each node in a word: "running", or what it is instead. One that is not listed is gone."""

    def frr_version(self, node: str) -> str:
        """The version of a switch's FRR as it was found at the deploy; "" where it has none."""


class Runtime(Protocol):
    """One way of realising nodes. Its name in topology files is the key of `testbed.lab.core.feature.runtimes`."""

    def prepare(self, lab: Lab, run: Path, journal: Journal) -> DeployingNodes | None:
        """Check that this machine can realise the lab's nodes of this runtime; None for a lab without any.

        `run` is the lab's run directory, and `journal` that of the lab that it replaces, where there is one: it is up,
        and goes if nothing speaks against the new one. Changes nothing. Raises `CapabilityError`, `NameInUse`.
        """

    def extend(self, lab: Lab, run: Path, journal: Journal, nodes: Collection[str]) -> RenewingNodes:
        """Prepare nodes that are added to a lab that is up, or started anew. Raises `CapabilityError`, `NameInUse`."""

    def live(self, content: JournalContent) -> LiveNodes | None:
        """The nodes of this runtime in a deployed lab; None where its journal knows of none."""

    def remove(self, content: JournalContent) -> None:
        """Remove every node of this runtime that a lab's journal speaks of. Raises `NodesRemain`."""
