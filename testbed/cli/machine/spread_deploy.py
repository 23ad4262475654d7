"""`deploy --over`: a lab brought up over several machines, and what it would be."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.api.pool.over.agreement import parse_over
from testbed.api.pool.over.deploy import SpreadOptions, SpreadOutcome, deploy_spread, preview_spread
from testbed.api.pool.over.records import SpreadRecords
from testbed.base.rows import column
from testbed.cli.options import Format
from testbed.cli.output import console, emit, emit_json, warn
from testbed.cli.progress import StepDisplay
from testbed.cli.signals import stand_by_the_outcome
from testbed.lab.core.model import Lab
from testbed.lab.core.model.machines import LabMachine
from testbed.lab.features.machines.places import CutShare


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRow:
    """A node and the machine that it would be on."""

    node: str
    kind: str
    machine: str
    cut: str = column("links to other machines")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadDeploy:
    """A lab that is to be brought up over machines."""

    lab: Lab
    machines: Sequence[LabMachine]
    options: SpreadOptions

    @classmethod
    def of(cls, lab: Lab, over: str | None, *, timeout_s: float, wait: bool, reconfigure: bool) -> SpreadDeploy:
        """`over` is what --over says, which replaces the machines of the file. Raises `TestbedError`."""
        machines = lab.machines if over is None else parse_over(over)
        options = SpreadOptions(timeout_s=timeout_s, wait=wait, reconfigure=reconfigure)
        return cls(lab=lab, machines=machines, options=options)

    def show(self, form: Format) -> None:
        """Print which machine each node would be on, and what would be cut. Touches nothing."""
        places, cut = preview_spread(self.lab, self.machines)
        crossing: dict[str, list[str]] = {}
        for link in cut.links:
            for end in (link.a, link.b):
                crossing.setdefault(end.node, []).append(end.interface)
        rows = [
            PlaceRow(
                node=node.name,
                kind=node.role.value if node.role else node.kind.value,
                machine=places[node.name],
                cut=", ".join(crossing.get(node.name, ())),
            )
            for node in self.lab.nodes
        ]
        emit(rows, PlaceRow, form)
        if form is Format.TABLE:
            console().print(_of_cut(cut), highlight=False)

    def deploy(self, form: Format, *, quiet: bool) -> None:
        """Bring it up, and say what is up now. Raises `TestbedError`."""
        started = time.monotonic()
        with StepDisplay(quiet=quiet) as display:
            outcome = deploy_spread(self.lab, self.machines, SpreadRecords(), self.options, display)
            stand_by_the_outcome()
        for said in outcome.agreement.warnings:
            warn(said)
        self._print(outcome, time.monotonic() - started, form)

    def _print(self, outcome: SpreadOutcome, elapsed_s: float, form: Format) -> None:
        record, agreement = outcome.record, outcome.agreement
        if form is Format.JSON:
            emit_json(
                {
                    "lab": record.name,
                    "seconds": round(elapsed_s, 3),
                    "machines": dict(outcome.nodes),
                    "links": record.links,
                    "cut_links": record.cut_links,
                    "scale": {"time": agreement.k, "reason": agreement.reason},
                }
            )
            return
        ready = "routing converged" if self.options.wait and record.switches else "up"
        parts = ", ".join(f"{count} nodes on {name}" for name, count in outcome.nodes.items())
        console().print(f"{record.name}: {parts}; {ready} in {elapsed_s:.1f} s", highlight=False)
        console().print(_of_cut(outcome.cut), highlight=False)
        console().print(f"time scale k = {agreement.k:g} ({agreement.reason})", highlight=False)


def _of_cut(cut: CutShare) -> str:
    count = len(cut.links)
    return (
        f"{count} link{'' if count == 1 else 's'} between machines, {cut.share:.0%} of the rate of all links between"
        " switches"
    )
