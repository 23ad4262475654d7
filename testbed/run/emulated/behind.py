"""The ranks of a run that goes on which are furthest behind, and what each waits for: whoever watches wants to know.

Workers tell how many bytes have arrived, and the first step that has not ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from testbed.endpoints.worker.program import Program
from testbed.run.placed.placed_workload import PlacedWorkload
from testbed.run.sweep.progress import RankBehind
from testbed.workload.steps import Transfer

MOST_TOLD = 5
INTERVAL_S = 0.5


class RanksBehind:
    """Hears the workers of one run. `due` returns the hosts that are furthest behind, when it is time to tell them."""

    def __init__(self, placement: PlacedWorkload, programs: Mapping[str, Program]) -> None:
        self._placement = placement
        self._collectives = [(one.steps, f"{one.kind} ({one.algorithm})") for one in placement.workload.collectives]
        self._totals = {
            worker: sum(
                step.size_bytes
                for step in program.steps
                if step.channel is not None and step.destination in program.own
            )
            for worker, program in programs.items()
        }
        self._heard: dict[str, tuple[int, int]] = {}
        """By worker, the bytes that have arrived, and its step."""
        self._due_s = 0.0

    def hear(self, worker: str, event: Mapping[str, Any]) -> None:
        """Take in what a worker says of its progress."""
        self._heard[worker] = (int(event["bytes"]), int(event.get("step", -1)))

    def due(self, now_s: float) -> list[RankBehind] | None:
        """Return the hosts that are furthest behind, most first; None where they were told a moment ago."""
        if now_s < self._due_s:
            return None
        self._due_s = now_s + INTERVAL_S
        shares = [
            (min(1.0, self._heard.get(worker, (0, -1))[0] / total), worker)
            for worker, total in self._totals.items()
            if total
        ]
        return [self._told(worker, share) for share, worker in sorted(shares)[:MOST_TOLD]]

    def _told(self, worker: str, share: float) -> RankBehind:
        number = self._heard.get(worker, (0, -1))[1]
        host, steps = worker.partition(" over ")[0], self._placement.workload.steps
        if not 0 <= number < len(steps):
            return RankBehind(host=host, share=round(share, 4), step=-1)
        step = steps[number]
        collective = next((name for of, name in self._collectives if number in of), "")
        found = RankBehind(host=host, share=round(share, 4), step=number, label=step.label, collective=collective)
        return self._with_flow(found, step) if isinstance(step, Transfer) else found

    def _with_flow(self, found: RankBehind, step: Transfer) -> RankBehind:
        ranks, channels = self._placement.ranks, self._placement.channels
        index = channels.of_step.get(step.number)
        found = replace(found, source_rank=step.source, destination_rank=step.destination)
        if index is None:
            return found
        channel = channels.channels[index]
        source, destination = ranks[step.source], ranks[step.destination]
        return replace(
            found,
            source=f"{source.node}:{source.name}",
            destination=f"{destination.node}:{destination.name}",
            source_port=channel.source_port,
            destination_port=channel.destination_port,
        )
