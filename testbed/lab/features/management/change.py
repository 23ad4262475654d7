"""Services in a change of a lab that is up: which are started, told, started anew and ended, and the doing of it.

The files and programs of a service on a node are compared as both labs have them. A service that takes what differs
while it runs is told (`Service.rereads`), any other one ends and begins again. That needs nobody's leave: a service
carries nobody's traffic, and what is lost with it is said in its row. Log-ins and jobs that run are processes of their
own, and stay.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.steps import step
from testbed.lab.core.feature import Changing, FeatureChange
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.changes import ChangeRow, Effect
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.features.management.services.launcher import (
    ServiceLauncher,
    prepare,
    require_ports,
    running_programs,
    tell,
)
from testbed.lab.features.management.services.registry import REGISTRY
from testbed.lab.features.management.services.service import Place
from testbed.lab.features.management.services_apply import (
    end_places,
    require_services,
    service_places,
    without_power,
    write_for_people,
)

START_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Differing:
    """A service of a node that both labs have, with other files or another way of running: `what` differs, in words,
    and `told` are the files that it takes while it runs, () where that is not all that differs."""

    old: Place
    new: Place
    what: tuple[str, ...]
    told: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceChanges:
    """All that makes the services of one lab those of another. `ended` are on nodes that stay."""

    old: Sequence[Place]
    new: Sequence[Place]
    started: tuple[Place, ...] = ()
    ended: tuple[Place, ...] = ()
    differing: tuple[Differing, ...] = field(default=())

    def __bool__(self) -> bool:
        return bool(self.started or self.ended or self.differing) or _nodes(self.old) != _nodes(self.new)

    @property
    def rows(self) -> Iterator[ChangeRow]:
        """Yield a row for each service of a node that something is done to."""
        for place in self.started:
            yield ChangeRow(effect=Effect.MADE, node=place.node, what=_what(place))
        for each in self.differing:
            yield ChangeRow(
                effect=Effect.CHANGED if each.told else Effect.RESTARTED,
                node=each.new.node,
                what=_what(each.new),
                detail=", ".join(each.what),
                at_stake="" if each.told else "who asks it meanwhile",
            )
        for place in self.ended:
            yield ChangeRow(effect=Effect.REMOVED, node=place.node, what=_what(place))


def _what(place: Place) -> str:
    return f"service {place.service}"


def _key(place: Place) -> tuple[str, str]:
    return place.service, place.node


def _nodes(places: Sequence[Place]) -> set[str]:
    return {place.node for place in places}


def _runs(place: Place, pids: Mapping[str, int]) -> bool:
    """Tell whether all programs of a service run."""
    return {program.name for program in REGISTRY[place.service].programs(place)} <= pids.keys()


def compare_services(old: Sequence[Place], new: Sequence[Place]) -> ServiceChanges:
    """Return what makes services at the places `old` those at `new`; nothing is touched."""
    before, after = ({_key(place): place for place in places} for places in (old, new))
    kept = set(new[0].lab.namespaces) if new else set()
    both = [(before[key], place) for key, place in after.items() if key in before]
    same = bool(both) and both[0][0].lab == both[0][1].lab
    return ServiceChanges(
        old=old,
        new=new,
        started=tuple(place for key, place in after.items() if key not in before),
        ended=tuple(place for key, place in before.items() if key not in after and (not kept or place.node in kept)),
        differing=() if same else tuple(found for pair in both if (found := _difference(*pair)) is not None),
    )


def _difference(old: Place, new: Place) -> Differing | None:
    service = REGISTRY[new.service]
    if old.address != new.address:
        return Differing(old=old, new=new, what=("its address",))
    if service.programs(old) != service.programs(new):
        return Differing(old=old, new=new, what=("its programs",))
    try:
        before, after = service.files(old), service.files(new)
    except FileNotFoundError as error:  # a secret of it is made when the service is prepared for the new lab
        return Differing(old=old, new=new, what=(Path(error.filename or "its secrets").name,))
    changed = tuple(name for name in {**before, **after} if before.get(name) != after.get(name))
    if not changed:
        return None
    return Differing(old=old, new=new, what=changed, told=changed if set(changed) <= set(service.rereads) else ())


class ServicesChange(FeatureChange):
    """Starts, tells, restarts and ends services, once the nodes and their management ports are there."""

    def __init__(self, changes: ServiceChanges) -> None:
        super().__init__(tuple(changes.rows))
        self.changes = changes
        self._launcher: ServiceLauncher | None = None
        self._has_converged = False

    def linked(self, changing: Changing) -> None:
        changes, lab = self.changes, changing.running
        for service in dict.fromkeys(place.service for place in changes.new):
            prepare(service, changes.new[0].lab)  # the keys of new nodes, before somebody is told of them
        with step("services", changing.notify, f"{len(self.rows)} on nodes"):
            down = without_power(lab, changes.new)  # what is on them is started with their power
            running = running_programs([each.new for each in changes.differing], set(lab.identities.values()))
            told = [each for each in changes.differing if each.told and _runs(each.new, running[_key(each.new)])]
            spared = {_key(each.new) for each in told}
            wanted = {_key(place) for place in (*changes.started, *(each.new for each in changes.differing))} - spared
            starting = [place for place in changes.new if _key(place) in wanted and place.node not in down]
            # An apply that was killed may have started some.
            end_places(lab, [place for place in (*changes.ended, *starting) if place.node in lab.identities])
            require_ports(starting)
            for each in told:  # first: a server is to know a node when its services begin to speak
                if each.new.node not in down:
                    tell(each.new, each.told, running[_key(each.new)])
            self._launcher = ServiceLauncher()
            self._launcher.start(starting)

    def routed(self, changing: Changing) -> None:
        self._has_converged = True

    def removed(self, changing: Changing) -> None:
        """Wait until those answer that were started: the network of management may be one that is routed, and nodes may
        have had other addresses in it until now. Then write what people have of services, and remove what is no more.
        """
        if self._launcher is not None:
            try:
                if self._has_converged:
                    self._launcher.wait(START_TIMEOUT_S)
            finally:
                self._launcher.release()
        old, new = self.changes.old, self.changes.new
        directory = changing.running.directory
        write_for_people(new, directory, changing.journal)
        kept = {_key(place) for place in new}
        for place in old:
            if _key(place) not in kept:
                shutil.rmtree(place.directory, ignore_errors=True)
                with suppress(OSError):
                    place.directory.parent.rmdir()  # the node's, where that was its last
        for name in {place.service for place in old} - {place.service for place in new}:
            with suppress(OSError):
                for file_name in REGISTRY[name].for_people(old[0].lab):
                    (directory / file_name).unlink(missing_ok=True)
            shutil.rmtree(old[0].lab.directory / f".{name}", ignore_errors=True)
            with suppress(OSError):
                old[0].lab.directory.rmdir()  # where there is no service any more


def services_change(running: RunningLab, lab: Lab, plan: LabPlan) -> ServicesChange | None:
    """Return what makes the services of a lab that is up those of `lab`; None where nothing differs.

    Raises `PlanError` where packages of services are missing.
    """
    old = service_places(running.model, running.plan, running.state)
    new = service_places(lab, plan, running.state)
    if not old and not new:
        return None
    changes = compare_services(old, new)
    if not changes:
        return None
    require_services(lab)
    return ServicesChange(changes)
