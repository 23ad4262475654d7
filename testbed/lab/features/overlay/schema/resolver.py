"""The section `tenants:` resolved: which NIC is in which subnet, and VNIs and route targets where the file has none.

VNIs by rule, in the order of the file and passing over those that are taken: tenant n (from 1) has the L3VNI 50000 + n,
its subnet m the L2VNI 10000 + 100 n + m. A network that another one carries is a tenant of that one's overlay with one
subnet; it has the L3VNI 60000 + n and the L2VNI 20000 + n, being the n-th of `networks:`. The route target of a VNI is
65000:VNI on every switch, whatever its AS, so that a VTEP imports what another one exports.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network
from typing import Protocol

from testbed.base.errors import Problem
from testbed.base.names import check_tenant_name, known_names_hint, vrf_node_name
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path, format_path
from testbed.lab.core.model import (
    BACKEND,
    NETNS,
    End,
    Lab,
    Link,
    LinkKind,
    Network,
    NodeKind,
    Overlay,
    Tenant,
    TenantSubnet,
    VrfBy,
)
from testbed.lab.core.model.overlay import ROUTE_TARGET_AS, VXLAN_BYTES
from testbed.lab.features.overlay.schema.external import (
    check_externals,
    check_leaf,
    external_of,
    router_link,
    router_node,
)
from testbed.lab.features.overlay.schema.prefixes6 import check_prefixes6
from testbed.lab.features.overlay.schema.route_targets import RouteTargets, TargetsOf, check_route_targets, targets_of
from testbed.lab.features.overlay.schema.shares import capped, check_shares
from testbed.lab.features.overlay.schema.talks import check_talks, talks_of
from testbed.lab.features.overlay.schema.tenant_spec import OverlaySpec, SubnetSpec, TenantSpec

_FIRST_L3VNI = 50_000
_FIRST_L2VNI = 10_000
_SUBNETS_PER_TENANT = 100
_FIRST_CARRIED_L3VNI = 60_000
_FIRST_CARRIED_L2VNI = 20_000
_HOSTS = (NodeKind.HOST, NodeKind.SERVER)
_ATTACHED = (*_HOSTS, NodeKind.SWITCH, NodeKind.STORAGE)
"""The kinds of nodes with ports in a carried network; switches and targets are in the one of management alone."""


class CarriedNetwork(Protocol):
    """An entry of `networks:` that another network carries, as it is written."""

    @property
    def on(self) -> str | None:
        """The network that carries it."""

    @property
    def vni(self) -> int | None:
        """The VNI of its subnet, where one is written."""

    @property
    def mtu(self) -> int | None:
        """The MTU of its links, where one is written."""


def _section(network: str) -> tuple[str, ...]:
    """The section of the file that describes a network."""
    return ("fabric",) if network == BACKEND else ("networks", network)


def _called(tenant: Tenant, subnet: TenantSubnet) -> str:
    """Return the name of a subnet in messages: a network that another one carries has but one, with its name."""
    return f"the network {tenant.network}" if tenant.network else f"{tenant.name}.{subnet.name}"


@dataclass(slots=True)
class TenantResolver:
    """Gives `lab` its overlay. `problems` has what is wrong with it."""

    document: Document
    overlays: dict[str, OverlaySpec]
    """The networks that have an overlay, the back end among them."""
    tenants: dict[str, TenantSpec]
    carried: Mapping[str, CarriedNetwork]
    """The networks that others carry."""
    lab: Lab
    mtu_bytes: int
    """That of the back end's links, where it has none between switches."""
    problems: list[Problem] = field(default_factory=list)
    _vnis: dict[int, str] = field(default_factory=dict)
    _repeated: set[int] = field(default_factory=set)
    _subnet_targets: dict[str, Path] = field(default_factory=dict)
    """Route targets of L2VNIs, by rule."""
    _targets: list[TargetsOf] = field(default_factory=list)
    _owners: dict[End, Path] = field(default_factory=dict)
    """The place at which each NIC that is in a subnet was named."""
    _found: dict[End, Link] = field(default_factory=dict)

    def resolve(self) -> Lab:
        """Return the lab with the overlay, and with its tenants' links as such."""
        if not self.overlays:
            if self.tenants:
                self._problem(
                    "no-overlay",
                    ("tenants",),
                    "there are tenants, but no overlay",
                    "add overlay: evpn to fabric: or to the network in networks: that their NICs are in",
                    key=True,
                )
            return self.lab
        self._take_written_vnis()
        tenants = tuple(self._tenant(number, name, spec) for number, (name, spec) in enumerate(self.tenants.items(), 1))
        tenants += tuple(self._whole(network) for network in self.lab.networks if network.carrier)
        mtus = {network: self._mtu_bytes(network, spec) for network, spec in self.overlays.items()}
        self._check_written_links(mtus)
        mtus |= {
            network.name: self._carried_mtu_bytes(network, mtus) for network in self.lab.networks if network.carrier
        }
        filtered = frozenset(network for network, spec in self.overlays.items() if spec.evpn.rt_filter)
        vrf_by = {
            network: by for network, spec in self.overlays.items() if (by := VrfBy(spec.evpn.vrf_by)) is not VrfBy.AUTO
        }
        overlay = Overlay(mtu_bytes=mtus, tenants=tenants, rt_filter=filtered, vrf_by=vrf_by)
        self._check_prefixes_of_hosts(overlay)
        self._check_talks(overlay)
        self.problems += check_shares(overlay.tenants, self.lab, self._problem_at)
        self.problems += check_prefixes6(overlay.tenants, mtus, self._problem_at)
        self._check_names(overlay)
        if self.problems:
            return self.lab
        routers = [(one.external, self.tenants[one.name].external) for one in overlay.tenants if not one.network]
        made = [(external, spec.rate) for external, spec in routers if external is not None and spec is not None]
        nodes = (*self.lab.nodes, *(router_node(external) for external, _ in made))
        links = [router_link(external, rate, mtus[external.network]) for external, rate in made]
        return replace(self.lab, overlay=overlay, nodes=nodes, links=(*self._links(overlay), *links))

    # ------------------------------------------------------------------ numbers

    def _take_written_vnis(self) -> None:
        written: list[tuple[int | None, Path]] = []
        for name, tenant in self.tenants.items():
            written.append((tenant.vni, ("tenants", name, "vni")))
            written += [(s.vni, ("tenants", name, "subnets", sub, "vni")) for sub, s in tenant.subnets.items()]
        written += [(network.vni, ("networks", name, "vni")) for name, network in self.carried.items()]
        for vni, path in written:
            if vni is None:
                continue
            if vni in self._vnis:
                self._repeated.add(vni)
                self._problem("duplicate-vni", path, f"the VNI {vni} is that of {self._vnis[vni]}, too")
            else:
                self._vnis[vni] = format_path(path)

    def _vni(self, first: int, path: Path) -> int:
        """The first free VNI from `first` on."""
        while first in self._vnis:
            first += 1
        self._vnis[first] = format_path(path)
        return first

    def _tenant(self, number: int, name: str, spec: TenantSpec) -> Tenant:
        path: Path = ("tenants", name)
        vni = spec.vni or self._vni(_FIRST_L3VNI + number, (*path, "vni"))
        subnets = []
        for position, (sub, one) in enumerate(spec.subnets.items(), 1):
            here: Path = (*path, "subnets", sub)
            l2vni = one.vni or self._vni(_FIRST_L2VNI + _SUBNETS_PER_TENANT * number + position, (*here, "vni"))
            if l2vni not in self._repeated:
                self._subnet_targets[f"{ROUTE_TARGET_AS}:{l2vni}"] = here
            nics = tuple(self._nics(one, here))
            room = one.prefix.num_addresses - 3
            if len(nics) > room:
                self._problem(
                    "prefix-too-small",
                    (*here, "prefix"),
                    f"{one.prefix} has room for {room} NIC{'s' * (room > 1)} beside its gateway, not for {len(nics)}",
                )
            network = self._network(nics, here)
            subnets.append(
                TenantSubnet(
                    name=sub,
                    network=network,
                    prefix=one.prefix,
                    vni=l2vni,
                    nics=nics,
                    prefix6=one.prefix6,
                    numbered=one.vni is None,
                )
            )
        self._check_prefixes(path, subnets)
        if not spec.subnets:
            self._problem(
                "no-subnets", path, f"the tenant {name} has no subnets", "add subnets: {NAME: {...}}", key=True
            )
        alone = (spec.route_target or f"{ROUTE_TARGET_AS}:{vni}",)
        targets = spec.route_targets or RouteTargets(imports=alone, exports=alone)
        tenant = Tenant(
            name=name,
            vni=vni,
            imports=targets.imports,
            exports=targets.exports,
            subnets=tuple(subnets),
            talks_to=talks_of(spec.talks_to or {}),
            rds=spec.rd or {},
            external=None if spec.external is None else external_of(name, vni, spec.external, self.lab),
            cap=spec.cap,
            traffic_class=spec.traffic_class or "",
            numbered=spec.vni is None,
        )
        if spec.external is not None:
            self.problems += check_leaf(name, spec.external, self.lab, list(self.overlays), self._problem_at)
        written = next((key for key in ("route_targets", "route_target") if self.document.has((*path, key))), None)
        self._targets.append(targets_of(tenant, written=written, doubtful=vni in self._repeated))
        self._check_given(path, spec)
        return tenant

    def _whole(self, network: Network) -> Tenant:
        """A network that another one carries, as a tenant with one subnet."""
        name, path = network.name, ("networks", network.name)
        try:
            check_tenant_name(name)
        except ValueError as error:
            self._problem("bad-name", path, f"a network that another one carries has a VRF: {error}", key=True)
        if name in self.tenants:
            message = f"{name} is the network that {network.carrier} carries, which is a tenant of this name"
            self._problem("name-taken", ("tenants", name), message, "choose another name", key=True)
        vni = self._vni(_FIRST_CARRIED_L3VNI + network.number, path)
        l2vni = self.carried[name].vni or self._vni(_FIRST_CARRIED_L2VNI + network.number, path)
        nics = tuple(link.a for link in self.lab.links if link.network == name and self._take(link.a, path))
        numbered = self.carried[name].vni is None
        subnet = TenantSubnet(name=name, network=name, prefix=network.prefix, vni=l2vni, nics=nics, numbered=numbered)
        if l2vni not in self._repeated:
            self._subnet_targets[f"{ROUTE_TARGET_AS}:{l2vni}"] = path
        targets = (f"{ROUTE_TARGET_AS}:{vni}",)
        tenant = Tenant(
            name=name, vni=vni, imports=targets, exports=targets, subnets=(subnet,), network=name, numbered=True
        )
        self._targets.append(TargetsOf(tenant=tenant, import_path=path, export_path=path))
        return tenant

    def _check_given(self, path: Path, spec: TenantSpec) -> None:
        """One way of giving route targets; and distinguishers of switches that are there."""
        if spec.route_target is not None and spec.route_targets is not None:
            message = "route_target and route_targets are both given"
            self._problem("contradiction", (*path, "route_target"), message, "remove one of them", key=True)
        switches = [node.name for node in self.lab.switches]
        for switch in spec.rd or ():
            if switch not in switches:
                hint = known_names_hint(switch, switches)
                self._problem("unknown-switch", (*path, "rd", switch), f"there is no switch {switch}", hint, key=True)

    def _check_prefixes(self, path: Path, subnets: Iterable[TenantSubnet]) -> None:
        """Subnets of one tenant must not overlap; those of different tenants may."""
        seen: list[TenantSubnet] = []
        for subnet in subnets:
            for other in seen:
                if subnet.prefix.overlaps(other.prefix):
                    self._problem(
                        "overlap",
                        (*path, "subnets", subnet.name, "prefix"),
                        f"{subnet.prefix} overlaps {other.prefix}, the subnet {other.name} of the same tenant",
                        "subnets of different tenants may overlap, those of one tenant not",
                    )
            seen.append(subnet)

    # ------------------------------------------------------------------ NICs

    def _nics(self, spec: SubnetSpec, path: Path) -> Iterator[End]:
        for index, host in enumerate(spec.hosts):
            here: Path = (*path, "hosts", index)
            if not self._is_host(host, here):
                continue
            nics = [end for end, link in self._ports().items() if end.node == host and link.network in self.overlays]
            if not nics:
                self._problem("unknown-interface", here, f"{host} has no NICs in a network with an overlay")
            for end in nics:
                if self._take(end, here):
                    yield end
        for index, end in enumerate(spec.nics):
            here = (*path, "nics", index)
            if not self._is_host(end.node, here):
                continue
            if end not in self._ports():
                known = [str(one) for one in self._ports() if one.node == end.node]
                message = f"{end.node} has no NIC {end.interface} on a switch"
                self._problem("unknown-interface", here, message, known_names_hint(str(end), known))
            elif (network := self._ports()[end].network) in self.carried:
                carrier = self.carried[network].on
                message = f"{end} is in the network {network}, which {carrier} carries: it is a tenant as a whole"
                hint = f"another NIC of {end.node}, or a network without on: {carrier}"
                self._problem("nic-in-two-subnets", here, message, hint)
            elif network not in self.overlays:
                message = f"{end} is in the network {network}, which has no overlay"
                self._problem("no-overlay", here, message, f"{'.'.join(_section(network))}: {{overlay: evpn}}")
            elif self._take(end, here):
                yield end

    def _network(self, nics: Sequence[End], path: Path) -> str:
        """The network that all NICs of a subnet are in."""
        found = list(dict.fromkeys(self._ports()[end].network for end in nics))
        if len(found) > 1:
            message = f"its NICs are in several networks: {', '.join(found)}"
            self._problem("subnet-in-networks", path, message, "give each network a subnet of its own", key=True)
        return found[0] if found else next(iter(self.overlays))

    def _is_host(self, name: str, path: Path) -> bool:
        kinds = {node.name: node.kind for node in self.lab.nodes}
        if name not in kinds:
            hosts = [host for host, kind in kinds.items() if kind is NodeKind.HOST]
            self._problem("unknown-host", path, f"there is no host {name}", known_names_hint(name, hosts))
            return False
        if kinds[name] is not NodeKind.HOST:
            self._problem("unknown-host", path, f"{name} is a switch: tenants have hosts and NICs of hosts")
            return False
        return True

    def _ports(self) -> dict[End, Link]:
        """The links of all NICs that are on a switch."""
        if not self._found:
            kinds = {node.name: node.kind for node in self.lab.nodes}
            for link in self.lab.links:
                for end, other in ((link.a, link.b), (link.b, link.a)):
                    if (
                        kinds.get(other.node) is NodeKind.SWITCH
                        and kinds.get(end.node) in _ATTACHED
                        and (kinds[end.node] in _HOSTS or (end is link.a and link.network in self.carried))
                    ):
                        self._found.setdefault(link.nic if link.kind is LinkKind.MEMBER else end, link)
        return self._found

    def _take(self, end: End, path: Path) -> bool:
        if (other := self._owners.get(end)) is not None:
            message = f"{end} is in {format_path(other[:4])} already"
            self._problem("nic-in-two-subnets", path, message, "a NIC is in one subnet of one tenant")
            return False
        self._owners[end] = path
        link = self._ports()[end]
        switch = link.a.node if link.b == end else link.b.node
        if any(node.name == switch and node.runtime != NETNS for node in self.lab.nodes):
            message = f"{end} is on {switch}, a container: VRFs are built in switches that are namespaces alone"
            self._problem("not-built", path, message)
        return True

    def _check_prefixes_of_hosts(self, overlay: Overlay) -> None:
        """Refuse hosts whose subnets overlap: they could not tell their addresses apart."""
        management = self.lab.out_of_band
        own = [] if management is None else [(management.prefix, f"the network {management.name}")]
        seen: dict[str, list[tuple[IPv4Network, str]]] = {}
        for tenant in overlay.tenants:
            for index, outside in enumerate(() if tenant.external is None else tenant.external.prefixes):
                for prefix, where in own:
                    if prefix.overlaps(outside):
                        path: Path = ("tenants", tenant.name, "external", "prefixes", index)
                        message = f"{outside} overlaps {prefix} of {where}, which hosts of {tenant.name} are in"
                        self._problem("overlap", path, message, "a prefix that is neither a host's nor the lab's")
            for subnet in tenant.subnets:
                for end in subnet.nics:
                    for prefix, where in seen.setdefault(end.node, [*own]):
                        if where != (here := _called(tenant, subnet)) and prefix.overlaps(subnet.prefix):
                            self._problem(
                                "overlap",
                                self._owners[end],
                                f"{end.node} would be in {prefix} of {where} and in {subnet.prefix} of {here}",
                                "a host's NICs need prefixes that do not overlap, whatever their tenants",
                            )
                            break
                    seen[end.node].append((subnet.prefix, _called(tenant, subnet)))

    def _check_talks(self, overlay: Overlay) -> None:
        self.problems += check_talks([one for one in overlay.tenants if not one.network], self._problem_at)
        self.problems += check_route_targets(self._targets, self._subnet_targets, self._problem_at)
        if not self.problems:
            self.problems += check_externals(overlay.tenants, self.lab, self._problem_at)

    def _check_names(self, overlay: Overlay) -> None:
        """The VRF of a tenant on a switch is a namespace beside those of nodes."""
        nodes = {node.name for node in self.lab.nodes}
        switches = [node.name for node in self.lab.switches]
        for tenant in overlay.tenants:
            for switch in switches:
                if (name := vrf_node_name(switch, tenant.name)) in nodes:
                    self._problem(
                        "duplicate-node",
                        ("networks" if tenant.network else "tenants", tenant.name),
                        f"the VRF of {tenant.name} on {switch} would have the name of the node {name}",
                        "give it another name",
                        key=True,
                    )

    # ------------------------------------------------------------------ MTU and links

    def _underlay_bytes(self, network: str) -> int:
        """The MTU of the smallest link between switches of a network."""
        links = [link for link in self.lab.links if link.network == network]
        fabric = [link for link in links if link.kind is LinkKind.FABRIC] or (links if network != BACKEND else [])
        return min((link.mtu_bytes for link in fabric), default=self.mtu_bytes)

    def _carried_mtu_bytes(self, network: Network, mtus: Mapping[str, int]) -> int:
        """The MTU of a network that another one carries: as written, or that of tenants there."""
        written = self.carried[network.name].mtu
        if written is None:
            return mtus[network.carrier]
        underlay = self._underlay_bytes(network.carrier)
        if written > underlay - VXLAN_BYTES:
            section = ".".join(_section(network.carrier))
            self._problem(
                "mtu-too-small",
                ("networks", network.name, "mtu"),
                f"an MTU of {written} does not fit the {underlay} of {network.carrier}: VXLAN adds {VXLAN_BYTES} bytes",
                f"at most {underlay - VXLAN_BYTES} here, or {section}: {{mtu: {written + VXLAN_BYTES}}}",
            )
        return written

    def _mtu_bytes(self, network: str, spec: OverlaySpec) -> int:
        """The MTU of tenants in a network: as written, or what VXLAN leaves of its smallest link between switches."""
        underlay = self._underlay_bytes(network)
        room = underlay - VXLAN_BYTES
        written = spec.evpn.mtu
        if written is not None and written > room:
            place = "fabric" if network == BACKEND else f"networks.{network}"
            self._problem(
                "mtu-too-small",
                (*_section(network), "overlay", "evpn", "mtu"),
                f"an MTU of {written} does not fit the {underlay} of the links: VXLAN adds {VXLAN_BYTES} bytes",
                f"at most {room} here, or {place}: {{mtu: {written + VXLAN_BYTES}}}",
            )
        return room if written is None else written

    def _check_written_links(self, mtus: Mapping[str, int]) -> None:
        """The MTU that a hand-written link of a tenant's NIC has must fit, too."""
        ends = {str(end) for end in self._owners}
        places: dict[str, Path] = {network: (*_section(network), "links") for network in mtus if network != BACKEND}
        for network, place in {BACKEND: ("topology", "links"), **places}.items():
            for index, link in enumerate(self.document.get(place) or ()):
                path: Path = (*place, index, "mtu")
                if ends.isdisjoint(link.get("endpoints") or ()) or not self.document.has(path):
                    continue
                if link["mtu"] > (mtu := mtus.get(network, link["mtu"])):
                    self._problem(
                        "mtu-too-small",
                        path,
                        f"an MTU of {link['mtu']} does not fit a tenant's {mtu}: VXLAN adds {VXLAN_BYTES} bytes",
                        f"at most {mtu} here",
                    )

    def _links(self, overlay: Overlay) -> Iterator[Link]:
        """All links; those of NICs in tenants from the host up, with the tenants' MTU, no faster than their caps."""
        for link in self.lab.links:
            mtu_bytes = overlay.mtu_bytes.get(link.network, link.mtu_bytes)
            if link.kind is LinkKind.MEMBER:
                yield self._capped(replace(link, mtu_bytes=mtu_bytes)) if link.nic in self._owners else link
            elif link.a in self._owners:
                yield self._tenant_link(link, link.a, link.b, mtu_bytes)
            elif link.b in self._owners:
                yield self._tenant_link(link, link.b, link.a, mtu_bytes)
            else:
                yield link

    def _tenant_link(self, link: Link, nic: End, port: End, mtu_bytes: int) -> Link:
        return self._capped(replace(link, a=nic, b=port, kind=LinkKind.TENANT, mtu_bytes=mtu_bytes))

    def _capped(self, link: Link) -> Link:
        """The link of a tenant's NIC, under the cap of the tenant."""
        spec = self.tenants.get(str(self._owners[link.nic][1]))  # a network that another one carries has none
        return link if spec is None else capped(link, spec.cap)

    def _problem_at(self, code: str, path: Path, message: str, hint: str | None) -> Problem:
        return self.document.problem(code, path, message, hint=hint)

    def _problem(self, code: str, path: Path, message: str, hint: str | None = None, *, key: bool = False) -> None:
        self.problems.append(self.document.problem(code, path, message, hint=hint, key=key))
