"""A validated file becomes a lab: generate the fabric, add the hand-written part, check the whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from testbed.base.errors import FabricError, Problem, SpecError
from testbed.base.validation.engine import ready_to_show, validate_model
from testbed.base.yaml.document import Document
from testbed.lab.assembly.hand_written import HandWritten, find_unlinked_hosts
from testbed.lab.assembly.homing import check_contained
from testbed.lab.assembly.networks import add_networks
from testbed.lab.assembly.out_of_band import add_out_of_band
from testbed.lab.assembly.spec import FabricSpec, LabSpec
from testbed.lab.core.fabric import check_params, check_sizing, generate_fabric, resolve_routing
from testbed.lab.core.fabric.shape import MLAG
from testbed.lab.core.model import BACKEND, Lab, LinkKind, Routing, Scale
from testbed.lab.core.schema.fabric import DEFAULT_MTU, radix_of
from testbed.lab.core.schema.qos.layers import QosResolver
from testbed.lab.core.schema.startup import KEY as STARTUP_KEY
from testbed.lab.features.guards.schema import guards_of
from testbed.lab.features.infiniband.fabric import resolve_back_end
from testbed.lab.features.machines.schema import resolve_machines
from testbed.lab.features.overlay.schema.resolver import TenantResolver
from testbed.lab.features.overlay.schema.tenant_spec import OverlaySpec
from testbed.lab.features.scale_up.schema import resolve_scale_up
from testbed.lab.features.scale_up.sizing import check_scale_up
from testbed.lab.features.targets.fabric import attach_backend_targets, check_backend_targets
from testbed.lab.features.targets.schema import find_taken_names, target_params

_WITHOUT_DESIGN = frozenset(
    {"routing", "mtu", "switch_radix", "overlay", "guards", "scale_up", "link_layer", "infiniband"}
)
"""Keys of `fabric:` that mean something to a lab that is hand-written whole."""


def resolve_lab(document: Document) -> Lab:
    """The lab that a topology file describes. Pure.

    Raises `SpecError` with all problems of the first stage that has any: the keys and values of the file,
    the design of its fabric, its nodes and links, the size of the whole, the QoS of its ports.
    """
    spec = validate_model(LabSpec, document)
    _raise_any(_beside_link_groups(document, spec))
    generated = _generate(document, spec)
    fabric = spec.fabric or FabricSpec()
    scale_up, errors = resolve_scale_up(fabric.scale_up)
    _raise_any(_located(document, errors))
    lab = replace(generated, scale=Scale(time=spec.scale.time), guards=guards_of(fabric.guards), scale_up=scale_up)
    if spec.topology is not None:
        mtu_bytes = DEFAULT_MTU if fabric.mtu is None else fabric.mtu
        written = HandWritten(
            document=document,
            spec=spec.topology,
            generated=generated,
            mtu_bytes=mtu_bytes,
            has_networks=bool(spec.networks),
        )
        nodes, links = written.resolve()
        generated_nodes = written.realise_generated()
        _raise_any(written.problems)
        lab = replace(lab, nodes=(*generated_nodes, *nodes), links=(*lab.links, *links))
        sessions = sum(link.kind is LinkKind.FABRIC for link in lab.links)
        routing = resolve_routing(lab.routing, sessions, aggregate=lab.routing.aggregate, mixed=_mixed_switches(lab))
        lab = replace(lab, routing=routing)
    _raise_any(_located(document, (*check_sizing(lab), *check_scale_up(lab))))
    if spec.qos is None:
        _raise_any(_losses_without_qos(document) if any(link.loss for link in lab.links) else ())
    else:
        resolver = QosResolver(document, spec.qos, lab)
        policy = resolver.resolve()
        _raise_any(resolver.problems)
        lab = replace(lab, qos=policy)
    if spec.networks:
        lab, problems = add_networks(document, spec.networks, lab, _overlays(spec))
        _raise_any(problems)
        if spec.topology is not None:
            _raise_any(find_unlinked_hosts(document, spec.topology, lab))
            added = tuple(node for node in lab.nodes if node.network != BACKEND)
            realised = HandWritten(document=document, spec=spec.topology, generated=replace(lab, nodes=added))
            lab = replace(lab, nodes=(*lab.nodes[: len(lab.nodes) - len(added)], *realised.realise_generated()))
            _raise_any(realised.problems)
        lab = _share_bfd(lab)
        lab, problems = add_out_of_band(document, spec.networks, lab)
        _raise_any(problems)
    _raise_any(check_contained(document, lab))
    _raise_any(_configured_in_vain(document, lab))
    _raise_any(_overlay_of_planes(document, lab))
    lab = _with_overlay(document, spec, _configured_where_routed(lab))
    lab, problems = resolve_back_end(document, fabric.link_layer, fabric.infiniband, lab)
    _raise_any(problems)
    machines, problems = resolve_machines(document, spec.machines, lab)
    _raise_any(problems)
    return replace(lab, machines=machines)


def _configured_where_routed(lab: Lab) -> Lab:
    """The lab in which nodes that do not route have taken nothing for FRR of their kind or the defaults."""
    speakers = {node.name for node in lab.speakers}
    if all(node.startup is None or node.name in speakers for node in lab.nodes):
        return lab
    nodes = tuple(node if node.name in speakers else replace(node, startup=None) for node in lab.nodes)
    return replace(lab, nodes=nodes)


def _configured_in_vain(document: Document, lab: Lab) -> Iterator[Problem]:
    """The nodes that have a configuration of FRR under their own name, and do not route."""
    speakers = {node.name for node in lab.speakers}
    for node in lab.nodes:
        path = ("topology", "nodes", node.name, STARTUP_KEY)
        if node.startup is not None and node.name not in speakers and document.has(path):
            yield document.problem(
                "startup-of-host",
                path,
                f"{node.name!r} gets a configuration of FRR, and does not route",
                hint="switches route, and hosts of a network with homing: routed",
                key=True,
            )


def _overlay_of_planes(document: Document, lab: Lab) -> Iterator[Problem]:
    """The overlay of a back end of several planes: its VTEPs would not reach each other."""
    written = document.get("fabric.overlay")
    if lab.planes > 1 and written not in (None, "none"):
        message = f"the VTEPs of {lab.planes} planes do not reach each other: no overlay joins what shares no switch"
        hint = "planes: 1, or tenants in a network beside the fabric"
        yield document.problem("contradiction", ("fabric", "overlay"), message, hint=hint)


def _beside_link_groups(document: Document, spec: LabSpec) -> Iterator[Problem]:
    """Keys of the back end that do not go with link groups of its NICs."""
    fabric = spec.fabric or FabricSpec()
    if document.get("fabric.nic.multihoming") != MLAG:
        return
    for key, written in (("overlay", fabric.overlay is not None), ("targets", bool(fabric.targets))):
        if written:
            message = f"multihoming {MLAG}: {key} of a back end with link groups is not built"
            yield document.problem("not-built", ("fabric", key), message, hint="nic: {multihoming: subnets}")


def _overlays(spec: LabSpec) -> dict[str, OverlaySpec]:
    """The overlays of the networks that have one."""
    fabric = spec.fabric or FabricSpec()
    written = {BACKEND: fabric.overlay} | {name: network.overlay for name, network in spec.networks.items()}
    return {name: overlay for name, overlay in written.items() if overlay is not None}


def _with_overlay(document: Document, spec: LabSpec, lab: Lab) -> Lab:
    """The lab with its tenants, where a network has an overlay."""
    mtu_bytes = DEFAULT_MTU if spec.fabric is None or spec.fabric.mtu is None else spec.fabric.mtu
    carried = {name: network for name, network in spec.networks.items() if network.on is not None}
    tenants = TenantResolver(document, _overlays(spec), spec.tenants, carried, lab, mtu_bytes)
    lab = tenants.resolve()
    _raise_any(tenants.problems)
    return lab


def _share_bfd(lab: Lab) -> Lab:
    """The lab whose networks, where "auto" gave them BFD, have what it gives to all their sessions together."""
    sessions = sum(link.kind is LinkKind.FABRIC for link in lab.links)

    def shared(routing: Routing) -> Routing:
        if not routing.bfd_auto or routing.bfd is None:
            return routing
        return resolve_routing(routing, sessions, aggregate=routing.aggregate)

    networks = tuple(replace(network, routing=shared(network.routing)) for network in lab.networks)
    return replace(lab, routing=shared(lab.routing), networks=networks)


def _mixed_switches(lab: Lab) -> bool:
    """Tell whether some switches are containers and others not, or have other images: their FRR may differ."""
    return len({switch.container.image if switch.container else "" for switch in lab.switches}) > 1


def _generate(document: Document, spec: LabSpec) -> Lab:
    """The lab that the `fabric:` section makes: without nodes where it names no design."""
    fabric, name, source = spec.fabric, spec.name, document.file
    if fabric is not None and fabric.design is not None:
        params = fabric.params(fabric.design)
        _raise_any(_located(document, check_params(params)))
        lab = generate_fabric(params, name=name, source=source)
        return _with_targets(document, fabric, lab) if fabric.targets else lab
    if spec.topology is None or not spec.topology.nodes:
        message = "the file describes no fabric and no nodes"
        hint = "fabric: {design: rail-optimized} generates one; topology: {nodes: ..., links: ...} lists nodes"
        if fabric is not None:
            message, hint = "the fabric has no design", "design: rail-optimized, for example"
        raise SpecError([document.problem("missing-key", ("fabric", "design"), message, hint=hint, key=True)])
    if fabric is None:
        return Lab(name=name, nodes=(), links=(), source=source)
    _raise_any(
        document.problem(
            "missing-key",
            ("fabric", key),
            f"{key!r} has no meaning without a design",
            hint="add the key design, such as design: rail-optimized, or remove this one",
            key=True,
        )
        for key in document.get("fabric") or {}
        if key not in _WITHOUT_DESIGN
    )
    routing, radix = fabric.routing.routing(), radix_of(fabric.switch_radix)
    of_tier = {role.value: ports for role, ports in radix.items()} if isinstance(radix, dict) else {}
    of_all = None if isinstance(radix, dict) else radix
    return Lab(name=name, nodes=(), links=(), routing=routing, switch_radix=of_all, tier_radix=of_tier, source=source)


def _with_targets(document: Document, fabric: FabricSpec, lab: Lab) -> Lab:
    """The back end with its storage targets."""
    _raise_any(find_taken_names(document, ("fabric",), fabric.targets, (node.name for node in lab.nodes)))
    targets = target_params(fabric.targets)
    _raise_any(_located(document, check_backend_targets(lab, targets)))
    return attach_backend_targets(lab, targets)


def _losses_without_qos(document: Document) -> Iterator[Problem]:
    """The eBPF data path loses packets, and only `qos:` brings it."""
    links = document.get("topology.links") or ()
    places: list[tuple[str | int, ...]] = [("fabric", "uplink"), ("fabric", "core_uplink")]
    places += [("topology", "links", number) for number in range(len(links))]
    for place in places:
        if document.get((*place, "loss")):
            message = "loss on the wire needs the eBPF data path, which qos: brings"
            yield document.problem("loss-without-qos", (*place, "loss"), message, hint="add `qos: {preset: uec}`")


def _located(document: Document, errors: Iterable[FabricError]) -> list[Problem]:
    """Errors of a fabric as problems of the keys they are about."""
    return [document.problem(error.code, f"fabric.{error.field}", error.message, hint=error.hint) for error in errors]


def _raise_any(problems: Iterable[Problem]) -> None:
    found = ready_to_show(problems)
    if found:
        raise SpecError(found)
