"""The section `tenants:` and the key `fabric.overlay` as they are written."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Literal

from pydantic import Field
from pydantic.json_schema import JsonSchemaValue

from testbed.base.names import check_tenant_name
from testbed.base.units import BYTES
from testbed.base.validation.fields import (
    Entries,
    Name,
    NodeName,
    OneOf,
    OrShort,
    RateField,
    Section,
    TrueOrFalse,
    Whole,
    Written,
    switch_schema,
    switch_word,
)
from testbed.base.validation.model import SpecModel, refusal
from testbed.base.yaml.paths import quote
from testbed.lab.core.model import Service, VrfBy
from testbed.lab.core.schema.endpoints import EndpointField, Prefix, Prefix6
from testbed.lab.core.schema.qos.spec import ClassName
from testbed.lab.features.overlay.schema.route_targets import (
    RouteDistinguishersField,
    RouteTargetField,
    RouteTargets,
    RouteTargetsField,
)
from testbed.lab.features.overlay.schema.talks import Talks

MAX_VNI = 16_777_215
"""24 bits (RFC 7348 section 5)."""

TenantName = Annotated[str, Name(check_tenant_name, r"^[a-z][a-z0-9-]{0,14}$")]
Vni = Annotated[int, Whole(1, MAX_VNI)]


class SubnetSpec(SpecModel):
    """An entry of `tenants.NAME.subnets`."""

    prefix: Annotated[IPv4Network, Prefix(30, "has no room for a gateway and a NIC")] = Field(
        description="Gives the subnet, such as 10.1.0.0/24; its first address is the gateway."
    )
    prefix6: Written[Annotated[IPv6Network, Prefix6()]] = Field(
        default=None,
        description="Gives it IPv6 beside IPv4, by a prefix such as fd00:1::/64; its first address is the gateway.",
    )
    vni: Written[Vni] = Field(
        default=None, description="Gives the VNI of the subnet (L2VNI); by default the plan does."
    )
    hosts: Entries[list[NodeName]] = Field(default=[], description="Lists hosts that are in it with all their NICs.")
    nics: Entries[list[EndpointField]] = Field(
        default=[], description='Lists NICs that are in it, such as ["p1-s1-h1:rail1"].'
    )


class ExternalSpec(SpecModel):
    """`tenants.NAME.external`."""

    leaf: NodeName = Field(description="Names the leaf that the router is on.")
    asn: Annotated[int, Whole(1, 4_294_967_294)] = Field(description="Gives the AS number of the router.")
    prefixes: list[Annotated[IPv4Network, Prefix(32)]] = Field(
        description="Lists the prefixes that it may announce, and announces; the router has the first address of each."
    )
    rate: RateField = Field(description="Gives the rate of the link between the two.")


class TenantSpec(SpecModel):
    """An entry of `tenants:`."""

    vni: Written[Vni] = Field(
        default=None, description="Gives the VNI of what is routed (L3VNI); by default the plan does."
    )
    route_target: Written[Annotated[str, RouteTargetField()]] = Field(
        default=None,
        description='Gives the route target that its VRF exports and imports; by default it is "65000:VNI".',
    )
    route_targets: Written[Annotated[RouteTargets, RouteTargetsField()]] = Field(
        default=None,
        description='Gives several, such as {import: ["65000:7", "65000:8"], export: ["65000:7"]}.',
    )
    rd: Written[Annotated[dict[str, str], RouteDistinguishersField()]] = Field(
        default=None,
        description='Gives the route distinguishers of its VRFs by leaf; by default each is "LOOPBACK:VNI".',
    )
    talks_to: Written[Annotated[dict[str, tuple[Service, ...]], Talks()]] = Field(
        default=None,
        description="Lists other tenants that it reaches, or maps them to all or to services such as [tcp/80, icmp].",
    )
    external: Written[ExternalSpec] = Field(
        default=None, description="Has a router outside of the fabric, by BGP in the tenant's VRF on one leaf."
    )
    cap: Written[RateField] = Field(
        default=None, description="Gives the most that each of its NICs may send and receive; what is above is dropped."
    )
    traffic_class: Written[ClassName] = Field(
        default=None,
        description="Names the class of qos that leaves put its packets into; the weight of the class is guaranteed.",
    )
    subnets: Section[dict[TenantName, Section[SubnetSpec]]] = Field(
        default={}, description="Lists its subnets by name."
    )


class EvpnSpec(SpecModel):
    """`fabric.overlay.evpn`."""

    mtu: Written[Annotated[int, Whole(576, 9166, measure=BYTES.counted_in("B").called("MTU", "4400B"))]] = Field(
        default=None,
        description="Gives the MTU of tenants' NICs in bytes; by default it is 50 less than that of the fabric.",
    )
    rt_filter: Written[Annotated[bool, TrueOrFalse()]] = Field(
        default=None,
        description="Has spines take no route of a leaf with the route target of a tenant that has no VRF there.",
    )
    vrf_by: Annotated[Literal["auto", "device", "namespace"], OneOf(tuple(VrfBy))] = Field(
        default="auto",
        description="Tells what VRFs are: VRF devices of the kernel, or namespaces; auto: devices where it has them.",
    )


class OverlaySpec(SpecModel):
    """`fabric.overlay`: `{evpn: {...}}`; `evpn` for short."""

    LATER = {"vxlan": "VXLAN without EVPN is not built: write overlay: evpn"}  # noqa: RUF012  # a ClassVar of the base

    evpn: Section[EvpnSpec] = Field(description="Has VXLAN with BGP EVPN; tenants: says who is in it.")


class _OrWord(OrShort):
    """A mapping, or one of the words `none` (result None) and `evpn`."""

    model = OverlaySpec

    def read(self, value: object) -> object:
        if value == "none" or switch_word(value) is False:
            return None
        if value == "evpn":
            return OverlaySpec(evpn=EvpnSpec())
        if value == "vxlan":
            raise refusal("not-built", "VXLAN without EVPN is not built", "write evpn, or remove the key")
        hint = "write evpn" if switch_word(value) else None
        raise refusal("unknown-value", f"must be none, evpn or {{evpn: {{...}}}}, not {quote(value)}", hint)

    def short_schema(self) -> list[JsonSchemaValue]:
        return [{"enum": ["none", "evpn"]}, switch_schema(False)]


OverlayField = Annotated[OverlaySpec | None, _OrWord()]
