"""Live tests of a deployed lab: is it what the plan says, and does it carry packets everywhere it should?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from testbed.base.datapath import pins
from testbed.base.datapath.load import PATHS
from testbed.base.errors import ExitCode, TestbedError
from testbed.base.linux.routes import are_weighted, difference, key_text, route_key, wanted_routes
from testbed.base.names import plane_letter
from testbed.base.rows import column, for_programs
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.journal import LabState
from testbed.lab.core.deploy.watch.loops import buffer_dependencies, find_cycle, short_lived, trace_routes
from testbed.lab.core.deploy.watch.probe import Probe, Prober
from testbed.lab.core.deploy.watch.sessions import missing_sessions
from testbed.lab.core.fabric.forwarding.links import largest_packets, planes_apart
from testbed.lab.core.fabric.graph import LabGraph
from testbed.lab.core.feature import features
from testbed.lab.core.model import BACKEND, OUT_OF_BAND, LinkKind, QosProfile
from testbed.lab.core.plan.lab_plan import ExpectedRoute, PortPlan

FAILURES_KEPT = 20
ENTROPY_SOCKETS = 16
"""Source ports for each black-hole test; over w equal paths one of them misses a given path with (1-1/w)^n."""


class CheckStatus(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One test. `count` things were looked at; `failures` are lines for a person, at most 20.

    `by_network` says how many of the things are in each network, where they are in one.
    """

    name: str = column("test")
    status: CheckStatus
    count: int = for_programs()
    detail: str
    failures: tuple[str, ...] = for_programs(default=())
    by_network: Mapping[str, int] = for_programs(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CheckReport:
    """All tests, true where each of them passed. `exit_code`: 0 pass, 1 fail, 2 cannot say.

    As text it has a line for each test that did not pass, and below it what was found; its representation, which
    pytest cuts at 240 characters, has their names and details.
    """

    lab: str
    results: tuple[CheckResult, ...]

    def __bool__(self) -> bool:
        return self.exit_code == 0

    def __str__(self) -> str:
        lines = [f"{self.lab}: {len(self.results) - len(self.not_passed)} of {len(self.results)} tests passed"]
        for result in self.not_passed:
            lines.append(f"{result.status:7}  {result.name}: {result.detail}")
            lines += (f"         {failure}" for failure in result.failures)
        return "\n".join(lines)

    def __repr__(self) -> str:
        found = "; ".join(f"{result.name} {result.status}: {result.detail}" for result in self.not_passed)
        return f"<{type(self).__name__} of {self.lab}: {found or 'pass'}>"

    @property
    def not_passed(self) -> tuple[CheckResult, ...]:
        """The tests that failed, or that could not say."""
        return tuple(result for result in self.results if result.status is not CheckStatus.PASS)

    @property
    def by_network(self) -> dict[str, int]:
        """Return the number of things looked at in each network, in all tests together."""
        found: Counter[str] = Counter()
        for result in self.results:
            found.update(result.by_network)
        return dict(found)

    @property
    def exit_code(self) -> int:
        statuses = {result.status for result in self.results}
        if CheckStatus.FAIL in statuses:
            return ExitCode.FAIL
        return ExitCode.INVALID if CheckStatus.UNKNOWN in statuses else ExitCode.PASS


def check_lab(lab: RunningLab, only: Collection[str] | None = None) -> CheckReport:
    """Run every test, or `only` those of these names. None of them raises: one that cannot run is "unknown" with its
    reason."""
    life_cycle = lab.life_cycle
    if life_cycle not in (LabState.RUNNING, LabState.FAILED):
        detail = f"the lab is {life_cycle.value if life_cycle else 'unknown'}"
        if life_cycle is LabState.CHANGING:
            detail += f"; unless somebody is at it, `testbed apply -n {lab.name}` ends the change that it is in"
        unknown = CheckResult(name="life cycle", status=CheckStatus.UNKNOWN, count=0, detail=detail)
        return CheckReport(lab=lab.name, results=(unknown,))
    tests = [(name, run) for name, run in _tests_of(lab) if only is None or name in only]
    return CheckReport(lab=lab.name, results=tuple(run() for _, run in tests))


def _tests_of(lab: RunningLab) -> Iterator[tuple[str, Callable[[], CheckResult]]]:
    """Yield the name of each test of a lab, and what runs it."""
    test: Callable[[RunningLab], CheckResult]
    own = (("nodes", _check_nodes), ("links", _check_links), ("sessions", _check_sessions), ("ecmp", _check_routes))
    for name, test in own:
        yield name, partial(_tried, name, test, lab)
    out_of_band = lab.model.design == OUT_OF_BAND
    for network in () if out_of_band else lab.model.data_networks or (BACKEND,):
        seen = lab.of_network(network)
        of = "" if network == BACKEND else f", {network}"
        tests: list[tuple[str, Callable[[RunningLab], CheckResult]]] = [
            ("subnets" if of else "rails", _check_rails),
            ("path mtu", _check_path_mtu),
            ("black holes", _check_black_holes),
            ("loops", _check_loops),
        ]
        if any(item.lossless for profile in _profiles(seen) for item in profile.classes):
            tests.append(("buffer cycles", _check_buffers))
        if seen.model.planes > 1:
            tests.append(("planes apart", _check_planes))
        for name, test in tests:
            yield f"{name}{of}", partial(_tried_of_network, f"{name}{of}", test, seen, network)
    if len(lab.model.data_networks) > 1:
        yield "networks apart", partial(_tried, "networks apart", _check_apart, lab)
    for feature in features():
        for name, test in feature.checks(lab):
            yield name, partial(_tried, name, test, lab)


def _tried_of_network(
    name: str, test: Callable[[RunningLab], CheckResult], lab: RunningLab, network: str
) -> CheckResult:
    """Run a test as `_tried` does, where all that it looks at is in one network, and say so."""
    result = _tried(name, test, lab)
    return replace(result, by_network={network: result.count})


def _tried(name: str, test: Callable[[RunningLab], CheckResult], lab: RunningLab) -> CheckResult:
    """Run a test and return its result under this name; that it cannot run is a result, too."""
    try:
        return replace(test(lab), name=name)
    except (TestbedError, OSError) as error:
        reason = error.message if isinstance(error, TestbedError) else str(error)
        return CheckResult(name=name, status=CheckStatus.UNKNOWN, count=0, detail=reason)


def judge(count: int, what: str, failures: Sequence[str], by_network: Mapping[str, int] | None = None) -> CheckResult:
    """The result of a test that has looked at `count` things, and fails where any of them did. `check_lab` names it."""
    detail = f"{count} {what}" if not failures else f"{len(failures)} of {count} {what} failed"
    return CheckResult(
        name="",
        status=CheckStatus.FAIL if failures else CheckStatus.PASS,
        count=count,
        detail=detail.rstrip(","),
        failures=tuple(failures[:FAILURES_KEPT]),
        by_network=dict(by_network or {}),
    )


def _check_nodes(lab: RunningLab) -> CheckResult:
    statuses = lab.status()
    failures = [
        f"{status.name} is {status.state}"
        + (f": {', '.join(status.missing_daemons)} not running" * bool(status.missing_daemons))
        for status in statuses
        if status.state != "running"
    ]
    return judge(len(statuses), "nodes", failures)


def _check_links(lab: RunningLab) -> CheckResult:
    states = lab.link_states()
    failures = [
        f"{port.node}:{port.name} is down" for port in lab.plan.ports if not states.get((port.node, port.name), False)
    ]
    by_network = Counter(port.network for port in lab.plan.ports)
    return judge(len(lab.plan.ports), "ports", failures, by_network)


def _check_sessions(lab: RunningLab) -> CheckResult:
    by_network: Counter[str] = Counter()
    for switch in lab.plan.speakers:
        by_network[switch.network] += len(switch.neighbors)
    failures = [
        line
        for switch in lab.plan.speakers
        for line in missing_sessions([switch], lab.run_directory(switch.node).parent)
    ]
    what = "BGP sessions and BFD peers" if lab.model.routing.bfd else "BGP sessions"
    return judge(by_network.total(), what, failures, by_network)


def _check_routes(lab: RunningLab) -> CheckResult:
    failures: list[str] = []
    by_network: Counter[str] = Counter()
    indexes = {(port.node, port.name): port.ifindex for port in lab.plan.ports}
    for switch in lab.plan.speakers:
        wanted = wanted_routes(lab.plan.expected_routes.get(switch.node, ()), indexes, switch.node)
        by_network[switch.network] += len(wanted)
        if wanted:
            weights = lab.bgp_weights(switch.node) if are_weighted(wanted) else {}
            mismatches = difference(wanted, lab.bgp_routes(switch.node), weights)
            failures += [f"{switch.node}: {key_text(key)} {mismatch}" for key, mismatch in mismatches.items()]
    asks_kernel = lab.plan.tables is not None and lab.plan.tables.asks_kernel
    if asks_kernel and not (pins.lab_directory(lab.processes_directory) / PATHS).exists():
        failures.append("switches cannot adapt or pin destinations: the program that knows all paths is gone")
    what = "routes with their planned next hops"
    widest = max((route for table in lab.plan.expected_routes.values() for route in table), key=_ways, default=None)
    if widest is not None and widest.width:
        what += f", {widest.width} of {_ways(widest)} equally short ways by routing.ecmp,"
    return judge(by_network.total(), what, failures, by_network)


def _ways(route: ExpectedRoute) -> int:
    return len(route.interfaces)


def _nics(lab: RunningLab) -> list[PortPlan]:
    """The NICs of networks as such: those of tenants in them have tests of their own."""
    return [
        nic for host in lab.plan.hosts for nic in host.nics if nic.address is not None and _is_of_no_tenant(lab, nic)
    ]


def _is_of_no_tenant(lab: RunningLab, port: PortPlan) -> bool:
    """A network that another one carries is a tenant as a whole, and its ports are in none."""
    return not port.tenant or port.network in lab.plan.carriers


def _by_subnet(nics: Sequence[PortPlan]) -> dict[str, list[PortPlan]]:
    """NICs by their subnets, of which the one of a network that another carries counts on each leaf by itself."""
    subnets: dict[str, list[PortPlan]] = {}
    for nic in nics:
        assert nic.address is not None
        on = f" on {_leaf(nic)}" if nic.tenant else ""
        subnets.setdefault(f"{nic.address.network}{on}", []).append(nic)
    return subnets


def _leaf(nic: PortPlan) -> str:
    """The switch that a NIC is on."""
    return nic.peer.partition(":")[0]


def _rotations(lab: RunningLab, nics: Sequence[PortPlan]) -> Iterator[tuple[PortPlan, PortPlan]]:
    """For every NIC one partner in every subnet it should reach, spread over that subnet's NICs."""
    subnets = _by_subnet(nics)
    names = list(subnets)
    for shift in range(len(names)):
        for number, own in enumerate(names):
            other = names[(number + shift) % len(names)]
            members, partners = subnets[own], subnets[other]
            if not should_reach(lab, members[0], partners[0]):
                continue
            for index, nic in enumerate(members):
                partner = _elsewhere(nic, partners, index + 1)
                if partner is not None:
                    yield nic, partner


def _rings(nics: Sequence[PortPlan]) -> Iterator[tuple[PortPlan, PortPlan]]:
    """For every NIC another one of its subnet, on another host."""
    for members in _by_subnet(nics).values():
        for index, nic in enumerate(members):
            if (partner := _elsewhere(nic, members, index + 1)) is not None:
                yield nic, partner


def _elsewhere(nic: PortPlan, partners: Sequence[PortPlan], start: int = 0) -> PortPlan | None:
    """The first NIC from `start` on, going round, of another host: what a host sends to itself crosses no wire."""
    turned = (partners[(start + step) % len(partners)] for step in range(len(partners)))
    return next((partner for partner in turned if partner.node != nic.node), None)


def _subnet_pairs(nics: Sequence[PortPlan]) -> list[tuple[PortPlan, PortPlan]]:
    """For each ordered pair of different subnets a NIC of each, on different hosts.

    In an order in which every subnet sends and receives once before any does so again.
    """
    subnets = list(_by_subnet(nics).values())
    count = len(subnets)
    turns = [(subnets[i], subnets[(i + shift) % count]) for shift in range(1, count) for i in range(count)]
    pairs = [(members[0], _elsewhere(members[0], partners)) for members, partners in turns]
    return [(a, b) for a, b in pairs if b is not None]


def should_reach(lab: RunningLab, nic: PortPlan, partner: PortPlan) -> bool:
    """Tell whether the design lets two NICs talk: isolated planes and rails do not."""
    assert nic.address is not None
    assert partner.address is not None
    if nic.address.network == partner.address.network:
        return True
    if lab.model.isolated_rails:
        return False
    first, second = _leaf(nic), _leaf(partner)
    if first == second:
        return True
    target = route_key(partner.address.network)
    return any(
        route_key(route.prefix) == target or partner.address.network.subnet_of(route.prefix)
        for route in lab.plan.expected_routes.get(first, ())
    )


def _check_rails(lab: RunningLab) -> CheckResult:
    nics = _nics(lab)
    with closing(Prober(lab.name, nics)) as prober:
        probes = [Probe(source=a, target=b) for a, b in _rotations(lab, nics)]
        failures = [f"{line} lost" for line in prober.paths_text(prober.lost(probes, lab.plan.most_loss))]
        count = len(probes)
        if lab.model.isolated_rails:
            crossings = _crossings(nics)
            arrived = len(prober.arrived(crossings))
            count += len(crossings)
            if arrived:
                failures.append(f"{arrived} datagrams crossed rails that the design isolates")
    return judge(count, "NIC pairs", failures)


def _crossings(nics: Sequence[PortPlan]) -> list[Probe]:
    """One probe from each subnet to each other one."""
    return [Probe(source=a, target=b) for a, b in _subnet_pairs(nics)]


def _check_planes(lab: RunningLab) -> CheckResult:
    """Check that no path crosses planes: by the links that there are, and by datagrams, none of which may arrive."""
    nics, plane_of = _nics(lab), planes_apart(lab.model)
    failures = [
        f"{link.a} to {link.b} joins plane {plane_letter(planes[0])} with plane {plane_letter(planes[1])}"
        for link in lab.model.links
        if link.kind is LinkKind.FABRIC
        for planes in [(plane_of.get(link.a.node, 0), plane_of.get(link.b.node, 0))]
        if all(planes) and planes[0] != planes[1]
    ]
    probes = [Probe(source=a, target=b) for a, b in _between_planes(nics, plane_of)]
    with closing(Prober(lab.name, nics)) as prober:
        failures += [f"{line} arrived" for line in prober.paths_text(prober.arrived(probes))]
    return judge(len(probes), "datagrams from plane to plane, none of which may arrive,", failures)


def _between_planes(nics: Sequence[PortPlan], plane_of: Mapping[str, int]) -> Iterator[tuple[PortPlan, PortPlan]]:
    """From a NIC of every subnet to one of each other plane, on another host: of its own rail, where there is one."""
    of_plane: dict[int, list[PortPlan]] = {}
    for nic in nics:
        of_plane.setdefault(plane_of.get(_leaf(nic), 0), []).append(nic)
    for members in _by_subnet(nics).values():
        source = members[0]
        own = plane_of.get(_leaf(source), 0)
        for plane, others in of_plane.items():
            if plane != own and own and plane:
                near = [nic for nic in others if nic.rail == source.rail] or others
                if (target := _elsewhere(source, near)) is not None:
                    yield source, target


def _profiles(lab: RunningLab) -> Sequence[QosProfile]:
    return () if lab.model.qos is None else lab.model.qos.profiles


def _check_loops(lab: RunningLab) -> CheckResult:
    """Follow the kernels' routes from each switch with NICs to each destination: no way comes to a switch twice. Hosts
    send with the time to live that they have of themselves."""
    traces = trace_routes(lab)
    failures = [line for trace in traces for line in trace.loops()]
    if limited := short_lived(lab):
        return judge(len(traces) + len(lab.plan.hosts), "destinations and hosts", [*failures, *limited])
    return judge(len(traces), "destinations, by the routes of all switches,", failures)


def _check_buffers(lab: RunningLab) -> CheckResult:
    """Check that the ports which wait for each other, as packets go on from one to the next, are no cycle: lossless
    classes could stop each other for ever (Dally and Seitz, IEEE Transactions on Computers, 1987)."""
    waits = buffer_dependencies(trace_routes(lab))
    cycle = find_cycle(waits)
    failures = [f"{' waits for '.join([*cycle, cycle[0]])}: a lossless class can deadlock"] if cycle else []
    return judge(sum(map(len, waits.values())), "dependencies between buffers", failures)


def _check_apart(lab: RunningLab) -> CheckResult:
    """Datagrams from a NIC of one network to NICs of the others, on other hosts: no host or switch may pass them on."""
    nics = _nics(lab)
    first: dict[str, PortPlan] = {}
    for nic in nics:
        first.setdefault(nic.network, nic)
    probes = [
        Probe(source=source, target=target)
        for source in first.values()
        for network in first
        if network != source.network
        and (target := _elsewhere(source, [nic for nic in nics if nic.network == network])) is not None
    ]
    with closing(Prober(lab.name, nics)) as prober:
        failures = [f"{line} arrived" for line in prober.paths_text(prober.arrived(probes))]
    by_network = Counter(probe.source.network for probe in probes)
    return judge(len(probes), "datagrams between networks, none of which may arrive,", failures, by_network)


def _far_pairs(lab: RunningLab, nics: Sequence[PortPlan]) -> list[tuple[PortPlan, PortPlan]]:
    """One pair for each ordered pair of subnets behind different switches that should reach each other."""
    return [(a, b) for a, b in _subnet_pairs(nics) if _leaf(a) != _leaf(b) and should_reach(lab, a, b)]


def _check_path_mtu(lab: RunningLab) -> CheckResult:
    """Check that packets as long as NICs may send pass unfragmented: between NICs, of which each sends, and over each
    link.

    Which of its equally short ways a packet takes is up to hashes, so each link is tried by itself, between neighbours.
    What is lost because a port is down says nothing of an MTU: `_check_links` names that port.
    """
    nics = _nics(lab)
    pairs = dict.fromkeys([*(_far_pairs(lab, nics) or _rotations(lab, nics)), *_rings(nics)])
    probes = [Probe(source=a, target=b, size_bytes=a.mtu_bytes) for a, b in pairs]
    between = list(_link_probes(lab))
    with closing(Prober(lab.name, nics)) as prober:
        lost = {probe: prober.path_text(probe) for probe in prober.lost(probes, lab.plan.most_loss)}
    ports = dict.fromkeys(probe.source for probe in between)
    with closing(Prober(lab.name, list(ports), link_local=True)) as prober:
        lost |= {probe: prober.path_text(probe) for probe in prober.lost(between, lab.plan.most_loss)}
    states = lab.link_states() if lost else {}
    narrow = {
        probe: path
        for probe, path in lost.items()
        if all(states.get((port.node, port.name), False) for port in (probe.source, probe.target))
    }
    sizes = sorted({probe.size_bytes for probe in (*probes, *between)}) or [0]
    size = " to ".join(dict.fromkeys((str(sizes[0]), str(sizes[-1]))))
    down = len(lost) - len(narrow)
    untried = f" {down} more untried as a port is down," if down else ""
    failures = [f"{path}: {probe.size_bytes} bytes did not pass" for probe, path in narrow.items()]
    return judge(len(probes) + len(between) - down, f"paths and links at {size} bytes, DF set,{untried}", failures)


def _link_probes(lab: RunningLab) -> Iterator[Probe]:
    """Over each unnumbered link, both ways, the largest packets that NICs send over it."""
    ports = {f"{port.node}:{port.name}": port for port in lab.plan.ports}
    for load in largest_packets(lab.model, LabGraph(lab.model)):
        ends = ports.get(str(load.link.a)), ports.get(str(load.link.b))
        if load.link.kind in (LinkKind.FABRIC, LinkKind.HOMED) and ends[0] is not None and ends[1] is not None:
            yield Probe(source=ends[0], target=ends[1], size_bytes=load.sent_bytes)
            yield Probe(source=ends[1], target=ends[0], size_bytes=load.sent_bytes)


def _check_black_holes(lab: RunningLab) -> CheckResult:
    """Many source ports between rail switches: each equal-cost path is tried, none may swallow packets."""
    nics = _nics(lab)
    pairs = _far_pairs(lab, nics)
    involved = {(nic.node, nic.name): nic for pair in pairs for nic in pair}
    with closing(Prober(lab.name, list(involved.values()), sockets_per_nic=ENTROPY_SOCKETS)) as prober:
        probes = [Probe(source=a, target=b, entropy=e) for e in range(ENTROPY_SOCKETS) for a, b in pairs]
        lost = prober.lost(probes, lab.plan.most_loss)
        failures = [f"{line}: some paths lose packets" for line in prober.paths_text(lost)]
    return judge(len(probes), f"probes over {len(pairs)} switch pairs", failures)
