"""The events of scale-up domains: what their switches say of their links, and that their processes end and begin."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from testbed.daemons.switchd.errors import SwitchError
from testbed.daemons.switchd.process import EVENTS_NAME
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.events import EventStream, LabEvent
from testbed.lab.core.plan.domain_plan import DomainPlan
from testbed.lab.features.scale_up.watch_switches import domain_switch


def follow_switches(events: EventStream, lab: RunningLab) -> None:
    """Have the ends and the begins of the domains' switches told, and what they say of their links."""
    for domain in lab.plan.scale_up_domains:
        _follow(events, domain, lab.processes_directory)


def _follow(events: EventStream, domain: DomainPlan, run: Path) -> None:
    switch = domain_switch(run, domain.name)

    def changed(path: Path) -> Iterator[LabEvent]:
        if path.name != EVENTS_NAME:
            return
        for line in events.added_lines(path):
            said = json.loads(line)
            if "pid" in said:
                events.watch_process(said["pid"], domain.node, "switch-ended", domain.name)
                yield events.event(domain.node, "switch-started", domain.name)
                continue
            wire = domain.wires[said["plane"] * domain.ends + said["gpu"]]
            yield events.event(wire.host, "plane-up" if said["up"] else "plane-down", wire.interface)

    events.read_on(switch.run_directory / EVENTS_NAME)
    events.follow(switch.run_directory, changed)
    with contextlib.suppress(SwitchError):
        events.watch_process(switch.status()["pid"], domain.node, "switch-ended", domain.name)
