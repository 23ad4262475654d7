"""A scenario against its lab: whether the hosts, ports, rails and classes that it names are there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from testbed.base.errors import Finding, Problem, WorkloadError
from testbed.base.names import known_names_hint, plane_letter
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path, quote
from testbed.lab.core.fabric.forwarding.links import planes_apart
from testbed.lab.core.model import BACKEND, Lab, QosPolicy, ScaleUpBy, Tenant
from testbed.run.schema.expectations import unknown_selections, unmeasured_metrics
from testbed.run.schema.file import ScenarioFile
from testbed.run.schema.model import NO_TENANT, Fault, Ranks, Scenario, Transport
from testbed.run.schema.oracles import unpredicted
from testbed.run.schema.tenant_transports import transport_places
from testbed.run.schema.transport_rules import ROCE_HEADER_BYTES, ROCE_MTUS, UET_BYTES
from testbed.run.schema.transports import TRANSPORTS

FaultFindings = Callable[[Sequence[Fault], Lab], Iterable[tuple[int, Finding]]]
"""Finds what faults ask of a lab that it does not have, as `testbed.run.faults.registry.findings_of_all` does."""


def check_against(file: ScenarioFile, point: Scenario, lab: Lab, fault_findings: FaultFindings) -> list[Problem]:
    """Return what a scenario, or one of its variants, asks of `lab` that it does not have; in the order of the file."""
    document = file.document_at(point)
    if unknown := [*_unknown_places(document, point, lab)]:
        return unknown
    seen = lab.of_network(*point.workload.ranks.networks_in(lab))
    problems = [*_ranks(document, point, seen), *_channel(document, point, lab)]
    for path, transport in transport_places(document, point):
        problems += _transport_in_tenants(document, point, lab, path, transport)
        problems += _traffic_class(document, path, transport, lab, _policies(point, lab, seen))
        problems += _scale_up(document, path, transport, lab)
        problems += _link_layer(document, point, lab, path, transport)
        if not point.tenant_transports:  # tenants take some of the ranks, which are not known before they are placed
            problems += _protocol_of_targets(document, point, lab, path, transport)
        if not point.tenant_transports:  # a tenant's transport meets the MTU of its own networks alone
            problems += _packet_size(document, path, transport, seen)
    found = fault_findings(point.faults, lab)
    problems += [_problem(document, ("faults", index), finding) for index, finding in found]
    problems += [*unknown_selections(document, point, lab), *unmeasured_metrics(document, point, lab)]
    return [*problems, *unpredicted(document, point, lab)]


def workload_problem(file: ScenarioFile, point: Scenario, error: WorkloadError) -> Problem:
    """A fault that a generator found, at the parameter it is about."""
    document = file.document_at(point)
    inner: Path = ("workload", *(int(key) if key.isdigit() else key for key in error.field.split(".")))
    path: Path = inner if document.has(inner) else ("workload",)
    return document.problem("workload", path, error.message, hint=error.hint, key=True)


def _unknown_places(document: Document, point: Scenario, lab: Lab) -> Iterator[Problem]:
    """Names of networks and tenants that `lab` does not have, and tenants without NICs in the networks."""
    ranks = point.workload.ranks
    tenants = {tenant.name: tenant for tenant in _tenants(lab)}
    for index, network in enumerate(ranks.networks):
        if network != BACKEND and network not in lab.data_networks:
            where = _item("network", index, ranks.networks)
            yield _unknown(
                document, "unknown-network", where, f"{lab.name} has no data network", network, lab.data_networks
            )
    for index, name in enumerate(ranks.tenants):
        if name == NO_TENANT or (ranks.tenants == ranks.externals and name not in tenants):
            continue
        where = _item("tenant", index, ranks.tenants)
        if name not in tenants:
            yield _unknown(document, "unknown-tenant", where, f"{lab.name} has no tenant", name, tenants)
            continue
        networks = dict.fromkeys(subnet.network for subnet in tenants[name].subnets)
        if ranks.networks and not any(network in networks for network in ranks.networks):
            message = f"the tenant {name} has no NIC in the network {' or '.join(ranks.networks)}"
            yield document.problem("no-nics", where, message, hint=f"network: {next(iter(networks))}, or no network")
    yield from _unknown_externals(document, ranks, lab)


def _unknown_externals(document: Document, ranks: Ranks, lab: Lab) -> Iterator[Problem]:
    """Routers outside that are not there, or not in a network of the ranks."""
    tenants = {tenant.name: tenant for tenant in _tenants(lab)}
    networks = ranks.networks_in(lab)
    for index, name in enumerate(ranks.externals):
        where = _item("external", index, ranks.externals)
        if name not in tenants:
            yield _unknown(document, "unknown-tenant", where, f"{lab.name} has no tenant", name, tenants)
            continue
        external = tenants[name].external
        if external is None:
            able = [tenant for tenant, one in tenants.items() if one.external is not None]
            hint = f"external: {' or '.join(able)}" if able else f"tenants.{name}.external in the topology"
            message = f"the tenant {name} has no router outside"
            yield document.problem("no-external", where, message, hint=hint)
        elif external.network not in networks:
            message = f"the router outside of {name} is in the network {external.network}, which the ranks are not in"
            yield document.problem("no-external", where, message, hint=f"ranks that are in {external.network}")


def _item(key: str, index: int, names: Sequence[str]) -> Path:
    """The place of a name in a key of `ranks`, which has one or a list."""
    where: Path = ("workload", "ranks", key)
    return (*where, index) if len(names) > 1 else where


def _ranks(document: Document, point: Scenario, lab: Lab) -> Iterator[Problem]:
    ranks, path = point.workload.ranks, ("workload", "ranks")
    names = [node.name for node in lab.hosts]
    for index, pattern in enumerate(ranks.hosts):
        if not any(fnmatchcase(name, pattern) for name in names):
            where: Path = (*path, "hosts", index)
            yield _unknown(document, "unknown-host", where, f"{lab.name} has no host", pattern, names)
    yield from _unknown_targets(document, ranks, lab)
    if ranks.pool and lab.scale_up.pool is None:
        message = f"the scale-up domains of {lab.name} have no pooled memory"
        hint = "fabric: {scale_up: {by: packets, pool: {devices: 4}}} in the topology"
        yield document.problem("no-pool", (*path, "pool"), message, hint=hint, key=True)
    rails = sorted({link.rail for link in lab.links if link.rail})
    for index, rail in enumerate(ranks.rails):
        if rail not in rails:
            known = f"its rails are {rails[0]} to {rails[-1]}" if rails else "it has no rails"
            yield document.problem(
                "unknown-rail", (*path, "rails", index), f"{lab.name} has no rail {rail}", hint=known
            )
    for index, plane in enumerate(ranks.planes):
        if plane > lab.planes:
            known = f"its planes are a to {plane_letter(lab.planes)}" if lab.planes > 1 else "fabric: {planes: 2}"
            message = f"{lab.name} has no plane {plane_letter(plane)}"
            yield document.problem("unknown-plane", (*path, "planes", index), message, hint=known)
    planes = planes_apart(lab)
    ports = [
        link.nic if end == link.a else end
        for link in lab.links
        for end in (link.a, link.b)
        if end.node in names
        and (not ranks.hosts or any(fnmatchcase(end.node, pattern) for pattern in ranks.hosts))
        and (not ranks.rails or link.rail in ranks.rails)
        and (not ranks.planes or planes.get(link.b.node, 0) in ranks.planes)
    ]
    chosen = list(dict.fromkeys(ports))
    tenants = {end: tenant.name for tenant in _tenants(lab) for subnet in tenant.subnets for end in subnet.nics}
    taken = [end for end in chosen if ranks.may_take(tenants.get(end, ""), lab)]
    if not ranks.tenants and len(taken) < len(chosen):
        inside = next(end for end in chosen if end in tenants)
        message = f"{inside} is in the tenant {tenants[inside]}, and the ranks are in none"
        hint = f"ranks: {{tenant: {tenants[inside]}}}, or {{tenant: {NO_TENANT}}} for NICs that are in no tenant"
        place = path if document.has(path) else ("workload",)
        yield document.problem("nic-in-tenant", place, message, hint=hint, key=True)
    elif chosen and not taken:
        yield document.problem(
            "no-nics",
            (*path, "tenant"),
            f"no NIC of those hosts and rails is in {_either(ranks.tenants)}",
            hint="./lab inspect tenants shows which NICs a tenant has",
        )
    elif ranks.count is not None and 0 < len(taken) < ranks.count:
        message = f"{ranks.count} ranks are asked for; there are {len(taken)} NICs"
        yield document.problem("out-of-range", (*path, "count"), message, hint="fewer, or a larger topology")


def _unknown_targets(document: Document, ranks: Ranks, lab: Lab) -> Iterator[Problem]:
    """Storage targets that none of the ranks' networks has."""
    networks = ranks.networks_in(lab)
    names = [node.name for node in lab.targets if node.network in networks]
    elsewhere = dict.fromkeys(node.network for node in lab.targets)
    for index, pattern in enumerate(ranks.targets):
        if any(fnmatchcase(name, pattern) for name in names):
            continue
        where: Path = ("workload", "ranks", "targets", index)
        if names:
            yield _unknown(document, "unknown-target", where, f"{lab.name} has no storage target", pattern, names)
            continue
        message = f"the network {' or '.join(networks)} has no storage target"
        hint = "fabric.targets, or networks.NAME.targets, in the topology"
        if elsewhere:
            hint = f"network: {next(iter(elsewhere))}"
        yield document.problem("unknown-target", where, message, hint=hint)


def _protocol_of_targets(
    document: Document, point: Scenario, lab: Lab, path: Path, transport: Transport
) -> Iterator[Problem]:
    """A transport to storage targets of which one that is chosen does not speak its protocol.

    Transports that know no commands carry bytes to any target.
    """
    kind = transport.kind.value
    if not TRANSPORTS[kind].to_targets:
        return
    networks = point.workload.ranks.networks_in(lab)
    for index, pattern in enumerate(point.workload.ranks.targets):
        for node in lab.targets:
            if node.target is None or node.network not in networks or not fnmatchcase(node.name, pattern):
                continue
            spoken = [protocol.value for protocol in node.target.protocols]
            if kind in spoken:
                continue
            key, where = (*path, "kind"), ("workload", "ranks", "targets", index)
            able = " or ".join(spoken)
            message = f"the storage target {node.name} speaks {' and '.join(spoken)}, and the transport is {kind}"
            hint = f"transport: {{kind: {able}}}, other targets, or protocol: {kind} at the target in the topology"
            yield document.problem("protocol-of-target", key if document.has(key) else where, message, hint=hint)
            return


def _transport_in_tenants(
    document: Document, point: Scenario, lab: Lab, path: Path, transport: Transport
) -> Iterator[Problem]:
    """A transport that tenants do not carry, or not on these switches.

    A trimmed packet has 64 bytes from the outer IP header on; 50 of them are VXLAN's. The leaf drops the rest, which
    has no whole IP header, and who waits to hear of it waits for a time-out.
    """
    if all(name == NO_TENANT for name in point.workload.ranks.tenants_in(lab)):
        return
    elsewhere = f", or ranks: {{tenant: {NO_TENANT}}}" if point.workload.ranks.tenants else ""  # a carried network
    kind = transport.kind.value
    declared, written = TRANSPORTS[kind], (*path, "kind")
    place = written if document.has(written) else ("workload", "ranks", "tenant")
    if not declared.in_tenants:
        able = [name for name, one in TRANSPORTS.items() if one.in_tenants]
        message = f"ranks in tenants have no transport {kind}, which is not known to pass VXLAN"
        hint = f"{' or '.join(able)}{elsewhere}"
        yield document.problem("transport-in-tenant", place, message, hint=hint)
        return
    if point.workload.ranks.externals and not declared.routed_by_kernel:
        able = [name for name, one in TRANSPORTS.items() if one.routed_by_kernel]
        message = f"the port of a router outside has no address that {kind} could send from"
        yield document.problem("transport-in-tenant", place, message, hint=f"transport: {{kind: {' or '.join(able)}}}")
    policies = [lab.qos_of(network) for network in point.workload.ranks.networks_in(lab)]
    if declared.hears_of_trimmed and any(one.trimming for policy in policies if policy for one in policy.profiles):
        message = f"the switches of {lab.name} trim packets, and {kind} does not hear of one that was wrapped in VXLAN"
        hint = f"trimming: false in qos{',' if elsewhere else ' or'} another transport{elsewhere}"
        yield document.problem("transport-in-tenant", place, message, hint=hint)


def _either(tenants: Sequence[str]) -> str:
    return " or ".join("no tenant" if name == NO_TENANT else f"the tenant {name}" for name in tenants)


def _tenants(lab: Lab) -> tuple[Tenant, ...]:
    return () if lab.overlay is None else lab.overlay.tenants


def _policies(point: Scenario, lab: Lab, seen: Lab) -> list[QosPolicy]:
    """The QoS that packets may meet: that of the first network of the ranks, or of any where tenants have transports of
    their own."""
    if not point.tenant_transports:
        return [] if seen.qos is None else [seen.qos]
    found = (lab.qos_of(network) for network in point.workload.ranks.networks_in(lab))
    return [one for one in found if one is not None]


def _traffic_class(
    document: Document, place: Path, transport: Transport, lab: Lab, policies: Sequence[QosPolicy]
) -> Iterator[Problem]:
    wanted = transport.traffic_class
    if wanted is None:
        return
    path = (*place, "traffic_class")
    if not policies:
        message = f"{lab.name} has no qos, so no traffic classes"
        yield document.problem("unknown-class", path, message, hint="remove the key, or add `qos: {preset: uec}`")
        return
    names = list(dict.fromkeys(item.name for one in policies for item in one.profiles[0].classes))
    if wanted not in names:
        yield _unknown(document, "unknown-class", path, f"{lab.name} has no traffic class", wanted, names)


def _scale_up(document: Document, place: Path, transport: Transport, lab: Lab) -> Iterator[Problem]:
    """Packets inside scale-up domains of a lab that has no switches for them."""
    by = lab.scale_up.by
    if transport.scale_up == ScaleUpBy.PACKETS and by is not ScaleUpBy.PACKETS:
        message = f"the scale-up domains of {lab.name} have no switch for packets: its transfers take their time"
        hint = "fabric: {scale_up: {preset: h100, by: packets}} in the topology, or scale_up: time"
        yield document.problem("no-packets", (*place, "scale_up"), message, hint=hint)


def _link_layer(document: Document, point: Scenario, lab: Lab, path: Path, transport: Transport) -> Iterator[Problem]:
    """A transport of InfiniBand elsewhere than in the back end, or another one over InfiniBand."""
    networks = point.workload.ranks.networks_in(lab)
    if TRANSPORTS[transport.kind.value].over_subnet:
        if all(network == BACKEND for network in networks):
            return  # a back end of Ethernet is InfiniBand's for such a run, which is one in virtual time
        message = f"kind ib goes over the back end alone, and ranks of {lab.name} are in another network"
        hint = "ranks without a network, or transport: {kind: roce}"
    elif lab.infiniband is None or BACKEND not in networks:
        return
    else:
        message = f"the back end of {lab.name} is InfiniBand, which {transport.kind.value} does not go over"
        hint = "transport: {kind: ib}, or ranks: {network: NAME} of a network beside it"
    key = (*path, "kind")
    yield document.problem("link-layer", key if document.has(key) else ("workload",), message, hint=hint)


def _channel(document: Document, point: Scenario, lab: Lab) -> Iterator[Problem]:
    """A virtual channel that links of the lab's scale-up domains do not have."""
    wanted, path = point.workload.parameters.get("victim_vc"), ("workload", "victim_vc")
    if not isinstance(wanted, int) or wanted < lab.scale_up.vcs or lab.scale_up.by is not ScaleUpBy.PACKETS:
        return
    message = f"links of scale-up domains have {lab.scale_up.vcs} virtual channels, which count from 0"
    hint = f"fabric.scale_up.vcs: {wanted + 1} in the topology"
    yield document.problem("out-of-range", path if document.has(path) else ("workload",), message, hint=hint)


def _packet_size(document: Document, place: Path, transport: Transport, lab: Lab) -> Iterator[Problem]:
    """A payload of full packets that does not fit into the MTU of a NIC's link."""
    key, headers = ("path_mtu", ROCE_HEADER_BYTES) if "path_mtu" in transport.options else ("payload_bytes", UET_BYTES)
    wanted = transport.options.get(key)
    hosts = {node.name for node in lab.hosts}
    links = [link for link in lab.links if link.a.node in hosts or link.b.node in hosts]
    if wanted is None or not links or TRANSPORTS[transport.kind.value].over_subnet:  # InfiniBand has 4,096 anywhere
        return
    least = min(links, key=lambda link: link.mtu_bytes)
    room = least.mtu_bytes - headers
    if int(wanted) > room:
        nic = least.a if least.a.node in hosts else least.b
        fitting = next((mtu for mtu in ROCE_MTUS if mtu <= room), None) if key == "path_mtu" else room
        yield document.problem(
            "out-of-range",
            (*place, key),
            f"{wanted} bytes do not fit into the MTU of {nic}, {least.mtu_bytes} bytes, which leaves {room} beside the"
            " headers",
            hint=f"{key}: {fitting}, or a larger fabric.mtu" if fitting else "a larger fabric.mtu",
        )


def _problem(document: Document, path: Path, finding: Finding) -> Problem:
    where = (*path, *finding.keys)
    return document.problem(finding.code, where, finding.message, hint=finding.hint, key=finding.at_key)


def _unknown(document: Document, code: str, path: Path, message: str, name: str, known: Iterable[str]) -> Problem:
    return document.problem(code, path, f"{message} {quote(name)}", hint=known_names_hint(name, list(known)))
