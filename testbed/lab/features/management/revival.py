"""Services that are started again, because they ended or because a node that they look into was made anew."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from testbed.base.linux.processes import processes_in, terminate
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.feature import EndedProcess
from testbed.lab.features.management.services.launcher import running_programs
from testbed.lab.features.management.services.registry import REGISTRY
from testbed.lab.features.management.services.service import Place
from testbed.lab.features.management.services_apply import service_places, start_places


def ended_services(lab: RunningLab) -> list[EndedProcess]:
    """The services that have lost a program, and how each is started again."""
    places = service_places(lab.model, lab.plan, lab.state)
    running = running_programs(places, set(lab.identities.values()))
    return [
        EndedProcess(
            node=place.node, what=f"service {place.service}, which ended", start=partial(_restart, lab, [place])
        )
        for place in places
        if len(running[place.service, place.node]) < len(REGISTRY[place.service].programs(place))
    ]


def restart_looking_in(lab: RunningLab, node: str) -> None:
    """Restart services of other nodes that have sockets in the namespaces of all: they still see the former one."""
    places = [place for place in service_places(lab.model, lab.plan, lab.state) if place.node != node]
    running = running_programs(places, set(lab.identities.values()))
    looking = [place for place in places if REGISTRY[place.service].looks_into_nodes]
    _restart(lab, [place for place in looking if running[place.service, place.node]])


def _restart(lab: RunningLab, places: Sequence[Place]) -> None:
    if not places:
        return
    running = running_programs(places, set(lab.identities.values()))
    pids = {pid for programs in running.values() for pid in programs.values()}
    identities = {lab.identities[place.node] for place in places}
    terminate([process for process in processes_in(identities) if process.pid in pids])
    start_places(places)
