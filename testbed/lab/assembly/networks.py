"""The `networks:` section: what becomes of the networks beside the back end.

Each has switches and links of its own, but for those that another one carries (`on:`), which have hosts' links alone;
hosts are those of the rest of the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from ipaddress import IPv4Network
from typing import Any

from testbed.base.errors import Problem
from testbed.base.names import known_names_hint
from testbed.base.units import Rate
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path, quote
from testbed.lab.assembly.homing import find_unbuilt, find_wrong_ports
from testbed.lab.assembly.network_spec import (
    DEFAULT_MTU,
    LONGEST_PREFIX,
    MLAG,
    ROUTED,
    SWITCHED_KEYS,
    NetworkSpec,
    located,
)
from testbed.lab.assembly.out_of_band import find_misplaced_keys, find_second
from testbed.lab.assembly.written_network import GENERATED_KEYS, WRITTEN_KEYS, WrittenNetwork
from testbed.lab.core.fabric import UplinkParams
from testbed.lab.core.fabric.carried import carry_network, check_carried
from testbed.lab.core.fabric.networks import (
    CARRIED,
    DEFAULT_PREFIXES,
    HAND_WRITTEN,
    MAX_NETWORKS,
    GeneratedNetwork,
    NetworkParams,
    check_network,
    generate_network,
)
from testbed.lab.core.fabric.sizing import check_sizing
from testbed.lab.core.model import BACKEND, OUT_OF_BAND, Lab, LagBy, LinkKind, NodeKind
from testbed.lab.core.schema.endpoints import SPECIAL_PREFIXES
from testbed.lab.core.schema.qos.layers import QosResolver
from testbed.lab.features.guards.schema import guards_of
from testbed.lab.features.management.fabric import server_name
from testbed.lab.features.management.services_schema import service_problems
from testbed.lab.features.targets.schema import find_taken_names, target_params

DEFAULT_RATE = Rate.parse("100G")
_OVERLAPPING = {
    "the back end's rails": IPv4Network("10.0.0.0/8"),
    "the lab's loopbacks": IPv4Network("172.16.0.0/12"),
    "routed links": IPv4Network("100.64.0.0/10"),
    **SPECIAL_PREFIXES,
}


def add_networks(
    document: Document, specs: Mapping[str, NetworkSpec], lab: Lab, overlaid: Collection[str]
) -> tuple[Lab, list[Problem]]:
    """The lab with its networks beside the back end, and what is wrong with them.

    `overlaid` are the networks that have an overlay. Those that others carry come last: they need those ones' leaves.
    The one of management ports is checked, and not made yet (`testbed.lab.assembly.out_of_band`).
    """
    if len(specs) > MAX_NETWORKS:
        path: Path = ("networks", list(specs)[MAX_NETWORKS])
        message = f"there are at most {MAX_NETWORKS} networks beside the back end"
        return lab, [document.problem("size", path, message, key=True)]
    problems = find_second(document, specs)
    spaces: dict[str, IPv4Network] = {}
    numbers = {name: number for number, name in enumerate(specs, 1)}
    for name in sorted(specs, key=lambda name: specs[name].on is not None):
        spec, number = specs[name], numbers[name]
        path = ("networks", name)
        found = [
            *_name_problems(document, name, path, lab),
            *_space_problems(document, name, spec, spec.prefix or DEFAULT_PREFIXES[number - 1], spaces),
        ]
        if spec.design == OUT_OF_BAND:
            problems += [*found, *find_misplaced_keys(document, name)]
            continue
        found += [
            *_misplaced_keys(document, name, spec),
            *(_carrier_problems(document, name, spec.on, specs, overlaid) if spec.on is not None else ()),
            *_services_elsewhere(document, name, spec),
            *find_unbuilt(document, name, spec, lab),
        ]
        params, unknown = _params(document, name, number, spec, lab)
        found += unknown
        made = None
        if not found and (not spec.on or spec.on in lab.switched_networks):
            make = _carry if spec.on else _write if params.design == HAND_WRITTEN else _generate
            made, found = make(document, spec, params, lab)
        if made is None or found:
            problems += found
            continue
        lab = replace(
            lab,
            nodes=(*lab.nodes, *made.nodes),
            links=(*lab.links, *made.links),
            rail_subnets=(*lab.rail_subnets, *made.rail_subnets),
            networks=(*lab.networks, made.network),
        )
    lab = replace(lab, networks=tuple(sorted(lab.networks, key=lambda network: network.number)))
    for name in lab.switched_networks[1:]:
        problems += [located(document, ("networks", name), error) for error in check_sizing(lab.on_switches_of(name))]
    return _with_qos(document, specs, lab, problems)


def _with_qos(
    document: Document, specs: Mapping[str, NetworkSpec], lab: Lab, problems: list[Problem]
) -> tuple[Lab, list[Problem]]:
    """The lab with the QoS of its networks beside the back end, and these problems with what is wrong with it."""
    networks = []
    for network in lab.networks:
        spec = specs[network.name].qos
        if spec is None:
            networks.append(network)
            continue
        resolver = QosResolver(document, spec, lab.on_switches_of(network.name), root=("networks", network.name, "qos"))
        networks.append(replace(network, qos=resolver.resolve()))
        problems += resolver.problems
    return replace(lab, networks=tuple(networks)), problems


def _services_elsewhere(document: Document, name: str, spec: NetworkSpec) -> list[Problem]:
    path: Path = ("networks", name, "services")
    if not document.has(path):
        return []
    if spec.on is not None:
        return service_problems(document, path)
    message = f"{name} carries data, and services are those of a management network"
    hint = f"design: {OUT_OF_BAND}, or on: a network with an overlay, which is in band"
    return [document.problem("contradiction", path, message, hint=hint, key=True)]


def _name_problems(document: Document, name: str, path: Path, lab: Lab) -> list[Problem]:
    if name == BACKEND:
        message = f"{name} is the network that fabric: describes"
        return [document.problem("name-taken", path, message, hint="frontend, storage, ...", key=True)]
    if not name.replace("-", "").isalnum() or not name.islower() or not name[0].isalpha() or len(name) > 20:
        message = f"{quote(name)} cannot name a network: lower-case letters, digits and '-', a letter first, at most 20"
        return [document.problem("bad-name", path, message, key=True)]
    if not lab.hosts:
        return [document.problem("no-hosts", path, "there are no hosts that could attach", key=True)]
    return []


def _carrier_problems(
    document: Document, name: str, carrier: str, specs: Mapping[str, NetworkSpec], overlaid: Collection[str]
) -> list[Problem]:
    """Find what is wrong with the network that is to carry another one."""
    path: Path = ("networks", name, "on")
    able = [one for one in specs if one in overlaid and one != name]
    instead = f"on: {able[0]}" if able else "remove the key, and the network has switches of its own"
    if carrier == name:
        return [document.problem("carrier", path, f"{name} would carry itself", hint=instead)]
    if carrier == BACKEND:
        message = "the back end carries no other network; storage that stands on it is fabric: {targets: ...}"
        return [document.problem("carrier", path, message, hint=instead)]
    if carrier not in specs:
        known = [one for one in specs if one != name]
        message = f"there is no network {quote(carrier)}"
        return [document.problem("unknown-network", path, message, hint=known_names_hint(carrier, known) or instead)]
    if specs[carrier].on is not None:
        message = f"{carrier} has no switches: it is on {specs[carrier].on} itself"
        return [document.problem("carrier", path, message, hint=instead)]
    if carrier not in overlaid:
        message = f"{carrier} has no overlay that could carry {name}"
        return [document.problem("no-overlay", path, message, hint=f"networks.{carrier}: {{overlay: evpn}}")]
    return []


def _space_problems(
    document: Document, name: str, spec: NetworkSpec, prefix: IPv4Network, spaces: dict[str, IPv4Network]
) -> list[Problem]:
    path: Path = ("networks", name, "prefix") if document.has(("networks", name, "prefix")) else ("networks", name)
    if spec.on is None and spec.design != OUT_OF_BAND and prefix.prefixlen > LONGEST_PREFIX:
        message = f"{prefix} is not between /8 and /{LONGEST_PREFIX}"
        return [document.problem("bad-prefix", path, message)]
    for owner, other in (*_OVERLAPPING.items(), *spaces.items()):
        if prefix.overlaps(other):
            message = f"{prefix} overlaps {other}, which is that of {owner}"
            hint = "a prefix in 192.168.0.0/16 that no other network has, or a public one"
            return [document.problem("overlap", path, message, hint=hint)]
    spaces[f"the network {name}"] = prefix
    return []


def _generate(
    document: Document, spec: NetworkSpec, params: NetworkParams, lab: Lab
) -> tuple[GeneratedNetwork | None, list[Problem]]:
    """The switches and links of a network that has a design, and what is wrong with it."""
    path: Path = ("networks", params.name)
    problems = find_wrong_ports(document, params.name, spec, params.ports)
    problems += [located(document, path, error) for error in check_network(params)]
    if problems:
        return None, problems
    made = generate_network(params)
    names = {node.name for node in lab.nodes}
    others = (*names, *(node.name for node in made.nodes if node.kind is not NodeKind.STORAGE))
    if problems := find_taken_names(document, path, spec.targets, others):
        return None, problems
    ports = {end for link in lab.links for end in (link.a, link.b)}
    taken = [node.name for node in made.nodes if node.name in names]
    taken += [str(end) for link in made.links for end in (link.a, link.b) if end in ports]
    if taken:
        message = f"{taken[0]} is there already"
        return None, [document.problem("name-taken", path, message, hint="short: another beginning", key=True)]
    return made, []


def _carry(
    document: Document, spec: NetworkSpec, params: NetworkParams, lab: Lab
) -> tuple[GeneratedNetwork | None, list[Problem]]:
    """The links of a network that another one carries, and what is wrong with it."""
    path: Path = ("networks", params.name)
    if spec.mtu is None:
        mtu = min((link.mtu_bytes for link in lab.links if link.network == params.carrier), default=params.mtu)
        params = replace(params, mtu=mtu)
    if problems := [located(document, path, error) for error in check_carried(params, lab)]:
        return None, problems
    made = carry_network(params, lab)
    services = () if spec.services is None else spec.services.services()
    return replace(made, network=replace(made.network, services=services)), []


def _write(
    document: Document, spec: NetworkSpec, params: NetworkParams, lab: Lab
) -> tuple[GeneratedNetwork | None, list[Problem]]:
    """The switches and links of a network that is written out, and what is wrong with it."""
    written = WrittenNetwork(document=document, spec=spec, params=params, lab=lab)
    made = written.resolve()
    ports: Counter[str] = Counter(link.a.node for link in made.links if link.kind is LinkKind.ACCESS)
    problems = written.problems or find_wrong_ports(document, params.name, spec, max(ports.values()))
    return made, problems


def _misplaced_keys(document: Document, name: str, spec: NetworkSpec) -> list[Problem]:
    """Keys of networks that are generated in one that is written out, and the other way round; those of switches in
    one that another network carries."""
    if spec.on is not None:
        return [
            document.problem(
                "design-fixes",
                ("networks", name, *keys),
                f"{'.'.join(keys)!r} has no meaning in a network that another one carries",
                hint=f"remove this key, or on: {spec.on}, and the network has switches of its own",
                key=True,
            )
            for keys in SWITCHED_KEYS
            if document.has(("networks", name, *keys))
        ]
    if document.has(("networks", name, "vni")):
        message = "'vni' is that of a network that another one carries"
        return [document.problem("design-fixes", ("networks", name, "vni"), message, hint="remove this key", key=True)]
    by_hand = spec.design == HAND_WRITTEN
    if by_hand and spec.targets:
        message = "storage targets stand in networks that are generated"
        path = ("networks", name, "targets")
        return [document.problem("design-fixes", path, message, hint="design: leaf-spine", key=True)]
    return [
        document.problem(
            "design-fixes",
            ("networks", name, *keys),
            f"{'.'.join(keys)!r} has no meaning in a network that {'is written out' if by_hand else 'is generated'}",
            hint="switches: and links: say it" if by_hand else "add the key design: hand-written, or remove this one",
            key=True,
        )
        for keys in (GENERATED_KEYS if by_hand else WRITTEN_KEYS)
        if document.has(("networks", name, *keys))
    ]


def _params(
    document: Document, name: str, number: int, spec: NetworkSpec, lab: Lab
) -> tuple[NetworkParams, list[Problem]]:
    known = [node.name for node in lab.hosts]
    problems = [
        document.problem(
            "unknown-host",
            ("networks", name, "hosts", index),
            f"no host is called {quote(pattern)}",
            hint=known_names_hint(pattern, known),
        )
        for index, pattern in enumerate(spec.hosts)
        if not any(fnmatchcase(host, pattern) for host in known)
    ]
    hosts = [host for host in known if not spec.hosts or any(fnmatchcase(host, pattern) for pattern in spec.hosts)]
    uplink = spec.uplink
    design = spec.design if spec.on is None else CARRIED
    given: dict[str, Any] = {} if design is None else {"design": design}
    return (
        NetworkParams(
            name=name,
            number=number,
            short=spec.short,
            leaves=spec.leaves,
            spines=spec.spines,
            ports=spec.nic.ports or 1,
            rate=spec.nic.rate or DEFAULT_RATE,
            hosts=tuple(hosts),
            targets=target_params(spec.targets),
            uplink=UplinkParams(
                rate=uplink.rate,
                count=uplink.count,
                delay=None if uplink.delay is None else uplink.delay.delay(),
            ),
            prefix=spec.prefix,
            routing=spec.routing.routing(),
            switch_radix=spec.switch_radix,
            mtu=DEFAULT_MTU if spec.mtu is None else spec.mtu,
            guards=guards_of(spec.guards),
            routed_hosts=spec.homing == ROUTED,
            link_groups=spec.homing == MLAG,
            carrier=spec.on or "",
            server=server_name(spec.short) if spec.on and spec.services is not None else "",
            lag_by=LagBy(spec.lag_by or LagBy.AUTO),
            **given,
        ),
        problems,
    )
