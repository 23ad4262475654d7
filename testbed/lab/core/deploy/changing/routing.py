"""The routing daemons of a lab that is up: told what differs between two renderings of their configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from testbed.base.linux import vty
from testbed.lab.core.deploy.changing.refusal import ChangeRefused
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.routing import bgp_password
from testbed.lab.core.plan.lab_plan import LabPlan, SwitchPlan
from testbed.lab.core.render import FrrVersion, render_switch
from testbed.lab.core.render.difference import difference

AFTERWARDS = "no interface "
"""The commands that daemons refuse as long as the interface is there."""


def routing_changes(running: RunningLab, old: LabPlan, new: LabPlan) -> dict[str, dict[str, Sequence[str]]]:
    """The commands for the daemons of nodes that route in both plans. Raises `ChangeRefused`."""
    before = {speaker.node: speaker for speaker in old.speakers}
    found: dict[str, dict[str, Sequence[str]]] = {}
    for speaker in new.speakers:
        was = before.get(speaker.node)
        if was is None or was == speaker:
            continue
        configs = [_render(running, plan, each) for plan, each in ((old, was), (new, speaker))]
        if configs[0].keys() != configs[1].keys():
            raise ChangeRefused(
                f"{speaker.node} would run other daemons: {', '.join(configs[1])} instead of {', '.join(configs[0])}",
                hint="deploy --reconfigure replaces the lab",
            )
        commands: dict[str, Sequence[str]] = {
            daemon: lines for daemon, text in configs[1].items() if (lines := difference(configs[0][daemon], text))
        }
        if commands:
            found[speaker.node] = commands
    return found


def _render(running: RunningLab, plan: LabPlan, speaker: SwitchPlan) -> Mapping[str, str]:
    return render_switch(
        speaker,
        lab=plan.lab,
        version=FrrVersion.parse(running.frr_version(speaker.node)),
        log_directory=str(running.processes_directory / speaker.node),
        password=bgp_password(plan, running.state_directory),
    ).daemons


def tell(
    routing: Mapping[str, Mapping[str, Sequence[str]]],
    run: Path,
    is_meant: Callable[[str], bool],
    *,
    again: bool = False,
) -> None:
    """Have daemons carry out those of their commands that are meant. `again`: some may have been carried out before."""
    for node, daemons in routing.items():
        for daemon, commands in daemons.items():
            if meant := [command for command in commands if is_meant(command)]:
                vty.configure(run / node, daemon, meant, again=again)
