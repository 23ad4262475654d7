"""The key `talks_to` of a tenant: as it is written, and resolved against the other tenants."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic.json_schema import JsonSchemaValue

from testbed.base.errors import Problem
from testbed.base.names import known_names_hint
from testbed.base.validation.fields import Checked
from testbed.base.validation.model import refusal
from testbed.base.yaml.paths import Path, quote
from testbed.lab.core.model import Service, ServiceProtocol, Talk, Tenant

MOST_SERVICES = 64
"""In one entry: they are meant for people."""
_SERVICE = re.compile(r"(tcp|udp)/(\d{1,5})|icmp")
_HINT = "[NAME], {NAME: all} or {NAME: [tcp/80, udp/53, icmp]}"


@dataclass(frozen=True, slots=True)
class Talks(Checked):
    """Names of tenants: a list, or a mapping from names to `all` or to lists of services."""

    def check(self, value: object) -> dict[str, tuple[Service, ...]]:
        if isinstance(value, list):
            return {self._name(item): () for item in value}
        if not isinstance(value, dict):
            raise refusal("wrong-type", f"must be a list of tenants or a mapping, not {quote(value)}", _HINT)
        return {self._name(name): self._services(services) for name, services in value.items()}

    def _name(self, value: object) -> str:
        if not isinstance(value, str):
            raise refusal("wrong-type", f"must have names of tenants, not {quote(value)}", _HINT)
        return value

    def _services(self, value: object) -> tuple[Service, ...]:
        if value == "all":
            return ()
        if not isinstance(value, list) or not value:
            raise refusal("unknown-value", f"a tenant has all or a list of services, not {quote(value)}", _HINT)
        if len(value) > MOST_SERVICES:
            raise refusal("out-of-range", f"has {len(value)} services, the most are {MOST_SERVICES}")
        return tuple(dict.fromkeys(_service(item) for item in value))

    def json_schema(self) -> JsonSchemaValue:
        services = {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": rf"^({_SERVICE.pattern})$"}}
        return {
            "anyOf": [
                {"type": "array", "items": {"type": "string"}},
                {"type": "object", "additionalProperties": {"anyOf": [{"const": "all"}, services]}},
            ]
        }


def _service(value: object) -> Service:
    match = _SERVICE.fullmatch(value) if isinstance(value, str) else None
    if match is None or (match[2] and not 0 < int(match[2]) < 1 << 16):
        raise refusal("bad-service", f"{quote(value)} is no service", "tcp/PORT, udp/PORT or icmp")
    if match[2] is None:
        return Service(protocol=ServiceProtocol.ICMP)
    return Service(protocol=ServiceProtocol(match[1]), port=int(match[2]))


def talks_of(written: Mapping[str, Sequence[Service]]) -> tuple[Talk, ...]:
    """Return the tenants that a `talks_to` names, each with the services that it may be asked for."""
    return tuple(Talk(tenant=name, services=tuple(services)) for name, services in written.items())


ProblemAt = Callable[[str, Path, str, str | None], Problem]
"""A problem by code, path, message and hint."""


def check_talks(tenants: Sequence[Tenant], problem: ProblemAt) -> Iterator[Problem]:
    """Find names and networks that nobody can talk to, and prefixes that one of the two could not tell apart."""
    by_name = {tenant.name: tenant for tenant in tenants}
    reached: dict[str, dict[str, None]] = {name: {} for name in by_name}
    for tenant in tenants:
        path: Path = ("tenants", tenant.name, "talks_to")
        for talk in tenant.talks_to:
            other = by_name.get(talk.tenant)
            if other is None:
                hint = known_names_hint(talk.tenant, [name for name in by_name if name != tenant.name])
                yield problem("unknown-tenant", path, f"there is no tenant {talk.tenant}", hint)
            elif other is tenant:
                yield problem("unknown-tenant", path, f"{tenant.name} reaches itself", "name other tenants")
            elif {s.network for s in tenant.subnets}.isdisjoint(s.network for s in other.subnets):
                message = f"{tenant.name} and {other.name} have no network in common"
                yield problem("no-common-network", path, message, "networks share hosts, and no routes")
            else:
                reached[tenant.name][other.name] = reached[other.name][tenant.name] = None
    for name, others in reached.items():
        yield from _overlaps(by_name[name], [by_name[other] for other in others], problem)


def _overlaps(tenant: Tenant, others: Sequence[Tenant], problem: ProblemAt) -> Iterator[Problem]:
    """All that a VRF has routes to must be apart: its own prefixes, and those of whom it talks to."""
    seen = [(subnet, tenant) for subnet in tenant.subnets]
    for other in others:
        for subnet in other.subnets:
            clash = next(
                (
                    (known, whose)
                    for known, whose in seen
                    if known.network == subnet.network and known.prefix.overlaps(subnet.prefix)
                ),
                None,
            )
            if clash is not None and (tenant.name < other.name or clash[1] is not tenant):
                known, whose = clash
                path: Path = ("tenants", other.name, "subnets", subnet.name, "prefix")
                message = f"{subnet.prefix} overlaps {known.prefix} of {whose.name}.{known.name}"
                if whose is not tenant:
                    message += f", and {tenant.name} talks to both"
                yield problem("overlap", path, message, "tenants that talk to each other need prefixes of their own")
        seen += [(subnet, other) for subnet in other.subnets]
