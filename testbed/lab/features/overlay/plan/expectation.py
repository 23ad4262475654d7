"""The entries that EVPN must bring into the tables of each VRF: FDB entries, neighbours and routes that a deploy waits
for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network, ip_network

from testbed.daemons.keeper.entries import ANY_MAC, BEYOND, EntryKind, EvpnRoute, ExpectedEntry
from testbed.lab.core.model import End, Tenant, TenantSubnet
from testbed.lab.core.plan.overlay_plan import ExternalPeer, VniPlan, VrfPlan

_Address = IPv4Address | IPv6Address
_Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantNic:
    """A tenant's NIC with its address, and the port of the switch that it is on; those of a link group are two."""

    end: End
    ports: tuple[End, ...]
    tenant: Tenant
    subnet: TenantSubnet
    address: IPv4Interface
    gateway: IPv4Address
    address6: IPv6Interface | None = None

    @property
    def pairs(self) -> tuple[tuple[_Address, _Address], ...]:
        """Its addresses, each with the gateway's of that family."""
        first: tuple[_Address, _Address] = (self.address.ip, self.gateway)
        gateway6 = self.subnet.gateway6
        return (first,) if self.address6 is None or gateway6 is None else (first, (self.address6.ip, gateway6.ip))

    @property
    def addresses(self) -> tuple[_Address, ...]:
        return tuple(address for address, _ in self.pairs)


class OverlayExpectation:
    """The entries that the VRFs of a lab must have of each other and of the NICs of their tenants.

    `macs` are those of NICs, `indexes` the interface indexes of each node.
    """

    def __init__(
        self,
        vrfs: Sequence[VrfPlan],
        nics: Sequence[TenantNic],
        macs: Mapping[tuple[str, str], str],
        indexes: Mapping[str, Mapping[str, int]],
    ) -> None:
        self._vrfs = vrfs
        self._nics = nics
        self._macs = macs
        self._indexes = indexes

    def entries(self, reachable: Mapping[str, set[IPv4Address]]) -> dict[str, tuple[ExpectedEntry, ...]]:
        """The entries of each VRF by its node; `reachable` are the VTEPs that the underlay of each switch has a route
        to."""
        found = {}
        for vrf in self._vrfs:
            others: dict[IPv4Address, list[VrfPlan]] = {}
            for other in self._vrfs:
                if (
                    other.tenant == vrf.tenant
                    and (other.l2 or other.external is not None)
                    and other.vtep != vrf.vtep
                    and other.vtep in reachable.get(vrf.switch, ())
                ):
                    others.setdefault(other.vtep, []).append(other)
            found[vrf.node] = tuple(self._expect(vrf, list(others.values())))
        return found

    def _expect(self, vrf: VrfPlan, vteps: Sequence[Sequence[VrfPlan]]) -> list[ExpectedEntry]:
        """Return the entries that a VRF must have, of itself and of the other VTEPs: the tenant's VRF of each, two of a
        pair of leaves."""
        local = {vni.vni: vni for vni in vrf.l2}
        l3 = vrf.l3
        entries = []
        prefixes: dict[_Network, list[VrfPlan]] = {}
        for nic in self._nics_of(vrf):
            vni = local[nic.subnet.vni]
            entries += [
                _neighbour(EntryKind.HEARD, vni, address, self._mac(nic), str(nic.end), vrf)
                for address in nic.addresses
            ]
        if vrf.external is not None:
            ifindex = self._indexes[vrf.switch][vrf.external.interface]
            entries += [_outside(vrf, vrf.external, ifindex, prefix) for prefix in vrf.external.accepts]
        for alike in vteps:
            other = alike[0]
            rds: dict[int, list[str]] = defaultdict(list)
            for vni in (vni for one in alike for vni in one.l2):
                rds[vni.vni].append(vni.rd)
            name = f"the router of {other.switch}"
            entries.append(_fdb(EntryKind.MAC, l3, other.l3.mac, name, other))
            entries += [
                _neighbour(EntryKind.NEIGHBOUR, l3, address, other.l3.mac, name, other)
                for address in ((other.vtep, mapped(other.vtep)) if _has_ipv6(other) else (other.vtep,))
            ]
            for vni in other.l2:
                if vni.vni in local:
                    flood = [EvpnRoute(rd=rd, prefix=f"[3]:[0]:[32]:[{other.vtep}]") for rd in rds[vni.vni]]
                    entries.append(_fdb(EntryKind.FLOOD, local[vni.vni], ANY_MAC, other.switch, other, flood))
                else:
                    for gateway in (vni.gateway, vni.gateway6):
                        if gateway is not None:
                            prefixes.setdefault(gateway.network, []).extend(alike)
            for border in alike:  # one leaf of a pair alone has the router
                for accepted in () if border.external is None else border.external.accepts:
                    prefixes.setdefault(accepted, []).append(border)
            for nic in self._nics_of(other):
                of, mac = str(nic.end), self._mac(nic)
                ours = rds[nic.subnet.vni]
                if (shared := local.get(nic.subnet.vni)) is not None:
                    bare = [EvpnRoute(rd=rd, prefix=f"[2]:[0]:[48]:[{mac}]") for rd in ours]
                    entries.append(_fdb(EntryKind.MAC, shared, mac, of, other, bare))
                for address in nic.addresses:
                    bits = address.max_prefixlen
                    macip = [EvpnRoute(rd=rd, prefix=f"[2]:[0]:[48]:[{mac}]:[{bits}]:[{address}]") for rd in ours]
                    if shared is not None:
                        entries.append(_neighbour(EntryKind.NEIGHBOUR, shared, address, mac, of, other, macip))
                    entries.append(_route(l3, ip_network(address), of, alike, macip))
        for prefix, holders in prefixes.items():
            subnet = f"[5]:[0]:[{prefix.prefixlen}]:[{prefix.network_address}]"
            routes = [EvpnRoute(rd=holder.l3.rd, prefix=subnet) for holder in holders]
            of = next((one.external.remote for one in holders if one.external is not None), "a subnet")
            entries.append(_route(l3, prefix, of, holders, routes))
        return entries

    def _nics_of(self, vrf: VrfPlan) -> list[TenantNic]:
        return [
            nic
            for nic in self._nics
            if nic.tenant.name == vrf.tenant and any(port.node == vrf.switch for port in nic.ports)
        ]

    def _mac(self, nic: TenantNic) -> str:
        return self._macs[nic.end.node, nic.end.interface]


def mapped(vtep: IPv4Address) -> IPv6Address:
    """The next hop of IPv6 that stands for a VTEP of IPv4, as zebra gives it to the kernel (RFC 4291, 2.5.5.2)."""
    return IPv6Address(b"\0" * 10 + b"\xff\xff" + vtep.packed)


def _has_ipv6(vrf: VrfPlan) -> bool:
    """Tell whether a VRF announces routes of IPv6."""
    return any(vni.gateway6 is not None for vni in vrf.l2)


def _outside(vrf: VrfPlan, external: ExternalPeer, ifindex: int, prefix: IPv4Network) -> ExpectedEntry:
    """The route of a border to the router outside: over its link-local address, which the kernel has as `BEYOND`."""
    return ExpectedEntry(
        kind=EntryKind.ROUTE,
        vni=vrf.l3.vni,
        ifindex=ifindex,
        prefix=prefix,
        of=external.remote,
        switch=vrf.switch,
        vteps=(BEYOND,),
    )


def _fdb(
    kind: EntryKind, vni: VniPlan, mac: str, of: str, other: VrfPlan, routes: Sequence[EvpnRoute] = ()
) -> ExpectedEntry:
    return ExpectedEntry(
        kind=kind,
        vni=vni.vni,
        ifindex=vni.vxlan_ifindex,
        mac=mac,
        of=of,
        switch=other.switch,
        vteps=(other.vtep,),
        routes=tuple(routes),
    )


def _neighbour(
    kind: EntryKind,
    vni: VniPlan,
    address: _Address,
    mac: str,
    of: str,
    other: VrfPlan,
    routes: Sequence[EvpnRoute] = (),
) -> ExpectedEntry:
    return ExpectedEntry(
        kind=kind,
        vni=vni.vni,
        ifindex=vni.bridge_ifindex,
        mac=mac,
        address=address,
        of=of,
        switch=other.switch,
        vteps=() if kind is EntryKind.HEARD else (other.vtep,),
        routes=tuple(routes),
    )


def _route(
    l3: VniPlan, prefix: _Network, of: str, holders: Sequence[VrfPlan], routes: Sequence[EvpnRoute]
) -> ExpectedEntry:
    return ExpectedEntry(
        kind=EntryKind.ROUTE,
        vni=l3.vni,
        ifindex=l3.bridge_ifindex,
        prefix=prefix,
        of=of,
        switch=" or ".join(holder.switch for holder in holders),
        vteps=tuple(dict.fromkeys(holder.vtep for holder in holders)),
        routes=tuple(routes),
    )
