"""The section `tenants:` and the key `fabric.overlay` as they are written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Annotated

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from testbed.model import Service
from testbed.names import check_tenant_name
from testbed.spec.topology.endpoints import EndpointField, Prefix
from testbed.spec.topology.talks import Talks
from testbed.spec.validation.fields import Checked, Entries, Name, NodeName, Section, TrueOrFalse, Whole, Written
from testbed.spec.validation.model import SpecModel, refusal
from testbed.spec.yaml.paths import quote

MAX_VNI = 16_777_215
"""24 bits (RFC 7348 section 5)."""
_ROUTE_TARGET = re.compile(r"(\d{1,10}):(\d{1,10})")

TenantName = Annotated[str, Name(check_tenant_name, r"^[a-z][a-z0-9-]{0,14}$")]
Vni = Annotated[int, Whole(1, MAX_VNI)]


@dataclass(frozen=True, slots=True)
class _RouteTarget(Checked):
    """A route target, `AS:NUMBER` (RFC 4360 section 4, RFC 5668 for an AS of four bytes)."""

    def check(self, value: object) -> str:
        match = _ROUTE_TARGET.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise refusal(
                "bad-route-target",
                f'must be a route target such as "65000:50001", not {quote(value)}',
                "put it in quotes",
            )
        asn, number = int(match[1]), int(match[2])
        if not 0 < asn < 1 << 32 or number >= (1 << 32 if asn < 1 << 16 else 1 << 16):
            raise refusal(
                "bad-route-target",
                f"{quote(value)} does not fit a route target",
                "AS up to 65535 with a number of 32 bits, or AS up to 4294967295 with a number of 16",
            )
        return f"{asn}:{number}"

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "string", "pattern": rf"^{_ROUTE_TARGET.pattern}$", "examples": ["65000:50001"]}


class SubnetSpec(SpecModel):
    """An entry of `tenants.NAME.subnets`."""

    prefix: Annotated[IPv4Network, Prefix(30, "has no room for a gateway and a NIC")] = Field(
        description="Gives the subnet, such as 10.1.0.0/24; its first address is the gateway."
    )
    vni: Written[Vni] = Field(
        default=None, description="Gives the VNI of the subnet (L2VNI); by default the plan does."
    )
    hosts: Entries[list[NodeName]] = Field(default=[], description="Lists hosts that are in it with all their NICs.")
    nics: Entries[list[EndpointField]] = Field(
        default=[], description='Lists NICs that are in it, such as ["p1-s1-h1:rail1"].'
    )


class TenantSpec(SpecModel):
    """An entry of `tenants:`."""

    LATER = {  # noqa: RUF012  # a ClassVar of the base
        "external": "a border leaf with an external peer is not built yet",
    }

    vni: Written[Vni] = Field(
        default=None, description="Gives the VNI of what is routed (L3VNI); by default the plan does."
    )
    route_target: Written[Annotated[str, _RouteTarget()]] = Field(
        default=None,
        description='Gives the route target that its VRF exports and imports; by default it is "65000:VNI".',
    )
    talks_to: Written[Annotated[dict[str, tuple[Service, ...]], Talks()]] = Field(
        default=None,
        description="Lists other tenants that it reaches, or maps them to all or to services such as [tcp/80, icmp].",
    )
    subnets: Section[dict[TenantName, Section[SubnetSpec]]] = Field(
        default={}, description="Lists its subnets by name."
    )


class EvpnSpec(SpecModel):
    """`fabric.overlay.evpn`."""

    mtu: Written[Annotated[int, Whole(576, 9166)]] = Field(
        default=None,
        description="Gives the MTU of tenants' NICs in bytes; by default it is 50 less than that of the fabric.",
    )
    rt_filter: Written[Annotated[bool, TrueOrFalse()]] = Field(
        default=None,
        description="Has spines take no route of a leaf with the route target of a tenant that has no VRF there.",
    )


class OverlaySpec(SpecModel):
    """`fabric.overlay`: `{evpn: {...}}`; `evpn` for short."""

    LATER = {"vxlan": "VXLAN without EVPN is not built: write overlay: evpn"}  # noqa: RUF012  # a ClassVar of the base

    evpn: Section[EvpnSpec] = Field(description="Has VXLAN with BGP EVPN; tenants: says who is in it.")


@dataclass(frozen=True, slots=True)
class _OrWord:
    """A mapping, or one of the words `none` (result None) and `evpn`."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: object, read_mapping: core_schema.ValidatorFunctionWrapHandler) -> object:
            if isinstance(value, dict):
                return read_mapping(value)
            if value == "none":
                return None
            if value == "evpn":
                return OverlaySpec(evpn=EvpnSpec())
            if value == "vxlan":
                raise refusal("not-built", "VXLAN without EVPN is not built", "write evpn, or remove the key")
            raise refusal("unknown-value", f"must be none, evpn or {{evpn: {{...}}}}, not {quote(value)}")

        return core_schema.no_info_wrap_validator_function(read, handler.generate_schema(OverlaySpec))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"enum": ["none", "evpn"]}, handler(schema)]}


OverlayField = Annotated[OverlaySpec | None, _OrWord()]
