"""The services of a lab's management network: started with it, asked how they are, started again.

Their processes are in the namespaces of nodes, and go with them; their files are in the lab's run directory, and go
with that. So nothing has to be journalled but what the lab directory has for people.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.base.datapath.pins import lab_directory
from testbed.base.errors import DriverError, PlanError
from testbed.base.installation.packages import installation_of
from testbed.base.linux.inotify import IN_MOVED_TO
from testbed.base.linux.processes import package_environment, processes_in, terminate
from testbed.base.names import known_names_hint, namespace_name
from testbed.base.rows import for_programs
from testbed.lab.core.deploy.links.recorded import WireChange, read_link_state
from testbed.lab.core.deploy.live import NoSuchNode, RunningLab
from testbed.lab.core.deploy.power import WITH_POWER
from testbed.lab.core.deploy.records.journal import Journal, writing_state
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.watch.events import EventStream, LabEvent
from testbed.lab.core.model import BACKEND, NETNS, Lab, NodeKind
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.features.management.services.launcher import (
    PID_SUFFIX,
    ServiceLauncher,
    answers,
    last_lines,
    missing_programs,
    processes_of,
    require_ports,
    running_programs,
)
from testbed.lab.features.management.services.registry import REGISTRY
from testbed.lab.features.management.services.service import CountedPort, Place, Surroundings

LONGEST_DETAIL = 80
"""Characters of the last line of a dead service's log that its status shows."""
_HANDED_ON = ("PATH", "PYTHONPATH", "TESTBED_PURE")
"""The variables of our environment that a program of ours needs to be the same as we are."""


class NoSuchService(NoSuchNode):
    """The lab has no such service, or the node does not run it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """The state of a service on a node.

    `state`: running (it answers), silent (its programs run and do not answer) or dead (some do not run).
    `detail` is what it says of itself.
    """

    service: str
    node: str
    address: str
    ports: tuple[str, ...]
    state: str
    detail: str
    pids: Mapping[str, int] = for_programs()
    log: str = for_programs()


def require_services(lab: Lab) -> None:
    """Raise `PlanError` where services of the lab need packages that this machine does not have: with all of them."""
    network = lab.management
    if network is None:
        return
    found = {service.name: missing_programs(service.name) for service in network.services}
    lacking = [name for name, programs in found.items() if programs]
    missing = {program.package: program for programs in found.values() for program in programs}
    if not missing:
        return
    raise PlanError(
        f"the service{'s' * (len(lacking) > 1)} {_listed(lacking)} need{'s' * (len(lacking) == 1)} the"
        f" package{'s' * (len(missing) > 1)} {_listed(list(missing))}, which"
        f" {'is' if len(missing) == 1 else 'are'} not installed",
        field=f"networks.{network.name}.services",
        code="no-package",
        hint=installation_of(missing.values()),
    )


def _listed(names: Sequence[str]) -> str:
    """Names as a sentence has them: "ssh, dns and time"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def surroundings(lab: Lab, plan: LabPlan, state: StateDirectory) -> Surroundings:
    """Return what the services of a lab are told of it."""
    network, management = lab.management, plan.management
    if network is None or management is None:
        raise ValueError(f"{lab.name} has no management network")
    ports = {port.node: port for port in plan.ports if port.network == management.network and port.address is not None}
    data: dict[str, list[str]] = {}
    for port in plan.ports:
        if port.network != management.network and not port.vrf:
            data.setdefault(port.node, []).append(port.name)
    namespaces = {node.name for node in lab.nodes if node.runtime == NETNS}
    hosts = {node.name for node in lab.nodes if node.kind is NodeKind.HOST}
    environment = {key: value for key, value in package_environment().items() if key in _HANDED_ON}
    return Surroundings(
        lab=lab.name,
        server=management.server,
        network=management.prefix,
        addresses={node: address.ip for node, address in management.addresses.items()},
        macs={node: ports[node].mac for node in management.addresses},
        interfaces=dict.fromkeys(management.addresses, management.port),
        data_ports={node: tuple(names) for node, names in data.items()},
        routing=frozenset(speaker.node for speaker in plan.speakers if speaker.node in namespaces),
        hosts={
            host.node: tuple(nic.peer.partition(":")[0] for nic in host.nics if nic.network == BACKEND)
            for host in plan.hosts
            if host.node in namespaces and host.node in management.addresses and host.node in hosts
        },
        switches=tuple(switch.node for switch in plan.switches if switch.node in management.addresses),
        switchable=frozenset(node.name for node in lab.nodes if node.name in namespaces and node.kind in WITH_POWER),
        services={service.name: service for service in network.services},
        namespaces={node.name: namespace_name(lab.name, node.name) for node in lab.nodes},
        run=state.run_directory(lab.name),
        ports=tuple(_switch_ports(lab, plan)),
        data_path=lab_directory(state.run_directory(lab.name)) if plan.tables is not None else None,
        environment=environment | {"TESTBED_STATE_DIR": str(state.state), "TESTBED_RUN_DIR": str(state.run)},
    )


def _switch_ports(lab: Lab, plan: LabPlan) -> Iterator[CountedPort]:
    installs = {(item.node, item.name): item for item in plan.installs}
    profiles = plan.tables.profiles if plan.tables is not None else ()
    switches = {node.name for node in lab.switches}
    for port in plan.ports:
        if port.node in switches and not port.out_of_band:
            found = installs.get((port.node, port.name))
            yield CountedPort(
                node=port.node,
                name=port.name,
                ifindex=port.ifindex,
                namespace=namespace_name(lab.name, port.place),
                network=port.network,
                rate_bps=port.rate_bps,
                line_rate_bps=port.line_rate_bps,
                mtu_bytes=port.mtu_bytes,
                number=found.port if found is not None else 0,
                classes=()
                if found is None
                else tuple((item.priority, item.name) for item in profiles[found.profile].classes),
            )


def service_places(lab: Lab, plan: LabPlan, state: StateDirectory) -> list[Place]:
    """Every service on every node that runs it."""
    if not plan.services:
        return []
    known = surroundings(lab, plan, state)
    return [Place(service=item.service, node=item.node, address=item.address, lab=known) for item in plan.services]


def start_services(launcher: ServiceLauncher, places: Sequence[Place], directory: Path, journal: Journal) -> None:
    """Start services, and write into the lab directory what is there for people to use them.

    Raises `DriverError`, `CapabilityError`, `StateError`.
    """
    if not places:
        return
    launcher.start(places)
    write_for_people(places, directory, journal)


def write_for_people(places: Sequence[Place], directory: Path, journal: Journal) -> None:
    """Write into the lab directory what is there for people to use services. Raises `StateError`."""
    for name in dict.fromkeys(place.service for place in places):
        for file_name, text in REGISTRY[name].for_people(places[0].lab).items():
            path = directory / file_name
            if not path.exists():
                journal.path(path)
            with writing_state(path):
                path.write_text(text)


def read_services(lab: RunningLab) -> list[ServiceStatus]:
    """Return the state of every service of a lab, on every node that runs it."""
    places = service_places(lab.model, lab.plan, lab.state)
    running = running_programs(places, set(lab.identities.values()))
    said = answers([place for place in places if not _dead(place, running)])
    return [_status(place, running, said) for place in places]


def chosen_services(lab: RunningLab, wanted: Callable[[str], bool]) -> list[ServiceStatus]:
    """Return the state of every service on the nodes that are `wanted`."""
    return [status for status in read_services(lab) if wanted(status.node)]


def follow_services(events: EventStream, lab: RunningLab) -> None:
    """Have the ends and the begins of the programs of services told."""
    places = service_places(lab.model, lab.plan, lab.state)
    for place in places:
        _follow(events, place)
    for (service, node), pids in running_programs(places, set(lab.identities.values())).items():
        for program, pid in pids.items():
            events.watch_process(pid, node, "service-ended", service, program)


def _follow(events: EventStream, place: Place) -> None:
    def changed(path: Path) -> Iterator[LabEvent]:
        if path.suffix != PID_SUFFIX:
            return
        with contextlib.suppress(OSError, ValueError):
            events.watch_process(int(path.read_text()), place.node, "service-ended", place.service, path.stem)
            yield events.event(place.node, "service-started", place.service, path.stem)

    events.follow(place.directory, changed, IN_MOVED_TO)


def _dead(place: Place, running: Mapping[tuple[str, str], Mapping[str, int]]) -> tuple[str, ...]:
    there = running[place.service, place.node]
    return tuple(program.name for program in REGISTRY[place.service].programs(place) if program.name not in there)


def _status(
    place: Place,
    running: Mapping[tuple[str, str], Mapping[str, int]],
    said: Mapping[tuple[str, str], str | None],
) -> ServiceStatus:
    dead = _dead(place, running)
    answer = said.get((place.service, place.node))
    state, detail = "running", answer or ""
    if dead:
        state, detail = "dead", last_lines(place, 1)[:LONGEST_DETAIL]
    elif answer is None:
        state, detail = "silent", ""
    return ServiceStatus(
        service=place.service,
        node=place.node,
        address=str(place.address),
        ports=tuple(map(str, REGISTRY[place.service].ports(place))),
        state=state,
        detail=detail,
        pids=dict(running[place.service, place.node]),
        log=str(place.log),
    )


def missing_services(lab: RunningLab) -> list[str]:
    """A line for each service that does not answer."""
    return [
        f"{status.service} of {status.node} is {status.state}: its log is {status.log}"
        for status in read_services(lab)
        if status.state != "running"
    ]


def restart_services(lab: RunningLab, service: str, node: str | None = None) -> list[str]:
    """End a service, on one node or on all that run it, and start it again; returns the nodes.

    Raises `NoSuchService`, `NoSuchNode`, `StateBusy`, and `DriverError` where it does not come up.
    """
    with lab.state.lock_lab(lab.name):
        found = _with_power(lab, _chosen(lab, service, node))
        end_places(lab, found)
        start_places(found)
    return [place.node for place in found]


def end_places(lab: RunningLab, places: Sequence[Place]) -> None:
    """End the programs of services that run, those of a command among them that was killed before it had noted them."""
    identities = {lab.identities[place.node] for place in places}
    noted = {pid for programs in running_programs(places, identities).values() for pid in programs.values()}
    noted |= processes_of(places, identities)
    terminate([process for process in processes_in(identities) if process.pid in noted])


def start_places(places: Sequence[Place]) -> None:
    """Start services that do not run, and wait until they answer. Raises `DriverError`."""
    require_ports(places)
    launcher = ServiceLauncher()
    try:
        launcher.start(places)
        launcher.wait()
    finally:
        launcher.release()


def _with_power(lab: RunningLab, places: Sequence[Place]) -> list[Place]:
    """Return the places on nodes whose management ports are not down. Raises `DriverError` where there are none."""
    down = without_power(lab, places)
    found = [place for place in places if place.node not in down]
    if not found:
        raise DriverError(
            f"the management port of {', '.join(sorted(down))} is down",
            operation="service",
            hint=f"testbed power on {min(down)}",
        )
    return found


def without_power(lab: RunningLab, places: Sequence[Place]) -> set[str]:
    """Return the nodes of places whose management ports are down."""
    changes = read_link_state(lab.state_directory).changes
    return {place.node for place in places if _is_down(changes.get(f"{place.node}:{place.lab.interfaces[place.node]}"))}


def _is_down(change: WireChange | None) -> bool:
    return change is not None and change.up is False


def _chosen(lab: RunningLab, service: str, node: str | None) -> list[Place]:
    """The places of a service, on one node or on all."""
    places = service_places(lab.model, lab.plan, lab.state)
    found = [place for place in places if place.service == service]
    if not found:
        names = list(dict.fromkeys(place.service for place in places))
        hint = known_names_hint(service, names) or "networks.NAME: {design: out-of-band, services: [ssh]} has some"
        raise NoSuchService(f"{lab.name} has no service {service!r}", hint=hint)
    if node is not None:
        lab.node(node)
        found = [place for place in found if place.node == node]
        if not found:
            raise NoSuchService(f"{node} does not run {service}", hint="`testbed inspect services` says which nodes do")
    return found
