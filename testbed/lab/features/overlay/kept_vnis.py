"""The VNIs of a lab that is up, kept by a changed file that names none.

A VNI follows from where a tenant and its subnet stand in the file, so that one tenant more in front renumbers all that
follow. Tenants of a lab that is up keep theirs, by their names, and what is new takes the next one that is free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count

from testbed.lab.core.model import End, External, Lab, Link, Tenant
from testbed.lab.core.model.overlay import ROUTE_TARGET_AS, external_port

_Key = tuple[str, str]
"""A tenant, and its subnet: "" for the tenant's own VNI."""


def keep_vnis(before: Lab, lab: Lab) -> Lab:
    """Return a lab whose tenants and subnets have the VNIs of those of the same names `before`, unless the file names
    one."""
    if before.overlay is None or lab.overlay is None:
        return lab
    were = {key: vni for tenant in before.overlay.tenants for key, vni, _ in _vnis(tenant)}
    vnis = _kept(list(_all_vnis(lab.overlay.tenants)), were)
    tenants = tuple(_renumbered(tenant, vnis) for tenant in lab.overlay.tenants)
    if tenants == lab.overlay.tenants:
        return lab
    ports = {
        was.external.port: now.external.port
        for was, now in zip(lab.overlay.tenants, tenants, strict=True)
        if was.external is not None and now.external is not None
    }
    links = tuple(_moved(link, ports) for link in lab.links)
    return replace(lab, overlay=replace(lab.overlay, tenants=tenants), links=links)


def _vnis(tenant: Tenant) -> Iterator[tuple[_Key, int, bool]]:
    """Yield the VNIs of a tenant, each with its key and whether it follows from its place alone."""
    yield (tenant.name, ""), tenant.vni, tenant.numbered
    for subnet in tenant.subnets:
        yield (tenant.name, subnet.name), subnet.vni, subnet.numbered


def _all_vnis(tenants: tuple[Tenant, ...]) -> Iterator[tuple[_Key, int, bool]]:
    return (item for tenant in tenants for item in _vnis(tenant))


def _kept(items: list[tuple[_Key, int, bool]], were: Mapping[_Key, int]) -> dict[_Key, int]:
    found = {key: vni for key, vni, numbered in items if not numbered}
    taken = set(found.values())
    for key, _, numbered in items:
        if numbered and key in were and were[key] not in taken:
            found[key] = were[key]
            taken.add(were[key])
    for key, vni, _ in items:
        if key not in found:
            found[key] = next(number for number in count(vni) if number not in taken)
            taken.add(found[key])
    return found


def _renumbered(tenant: Tenant, vnis: Mapping[_Key, int]) -> Tenant:
    vni = vnis[tenant.name, ""]
    own = (f"{ROUTE_TARGET_AS}:{tenant.vni}",)
    alone = (f"{ROUTE_TARGET_AS}:{vni}",)
    return replace(
        tenant,
        vni=vni,
        imports=alone if tenant.imports == own else tenant.imports,
        exports=alone if tenant.exports == own else tenant.exports,
        subnets=tuple(replace(subnet, vni=vnis[tenant.name, subnet.name]) for subnet in tenant.subnets),
        external=None if tenant.external is None else _at(tenant.external, vni),
    )


def _at(external: External, vni: int) -> External:
    return replace(external, port=external_port(external.port.node, vni))


def _moved(link: Link, ports: Mapping[End, End]) -> Link:
    port = ports.get(link.b, link.b)
    return link if port == link.b else replace(link, b=port)
