"""The `fabric:` section as it is written, and what of it becomes `FabricParams`.

Only shape, type and unit of each value are checked here; what a design makes of them is checked by
`testbed.lab.core.fabric.check_params`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from testbed.base.units import BYTES, Duration
from testbed.base.validation.fields import (
    MAX_DURATION,
    AutoOff,
    DurationField,
    OneOf,
    Quantity,
    RateField,
    Section,
    Share,
    TrueOrFalse,
    Whole,
    Written,
    parse_quantity,
    switch_word,
)
from testbed.base.validation.model import SpecModel, refusal
from testbed.lab.core.fabric import (
    DESIGNS,
    PORT_MAPS,
    FabricParams,
    NicParams,
    RailParams,
    UplinkParams,
)
from testbed.lab.core.fabric.forwarding.next_hops import MAX_ECMP
from testbed.lab.core.model import Bfd, Delay, DelayBy, Protocol, Rdma, Routing
from testbed.lab.core.schema import foreign
from testbed.lab.features.guards.schema import GuardsField
from testbed.lab.features.overlay.schema.tenant_spec import OverlayField
from testbed.lab.features.scale_up.schema import ScaleUpSpec
from testbed.lab.features.targets.schema import BackendTargetsField

MTU_REASON = "IPv6, which unnumbered BGP runs on, needs links of at least 1280 bytes (RFC 8200 section 5)"

Count = Annotated[int, Whole(0, 1_000_000)]
Positive = Annotated[int, Whole(1, 1_000_000)]
Mtu = Annotated[int, Whole(1280, 9216, MTU_REASON, BYTES.counted_in("B").called("MTU", "9000B"))]


RdmaKind = Annotated[str, OneOf(tuple(Rdma))]


class DelaySpec(SpecModel):
    """`delay: {value: 500ns, jitter: 50ns, by: auto}`; `delay: 500ns` for short."""

    value: DurationField = Field(description="Gives the one-way delay of the real link, such as 500ns.")
    by: Annotated[Literal["auto", "kernel", "endpoint", "ignore"], OneOf(tuple(DelayBy))] = Field(
        default="auto", description="Says who realises the delay."
    )
    jitter: Written[DurationField] = Field(
        default=None, description="Says how much the delay varies either way, such as 50ns."
    )

    def delay(self) -> Delay:
        return Delay(value=self.value, by=DelayBy(self.by), jitter=self.jitter or Duration(0))


class BfdSpec(SpecModel):
    """`bfd: {interval: 300ms, multiplier: 3}`, in lab time."""

    interval: Annotated[Duration, Quantity(Duration, Duration.parse("60s"), Duration.parse("10ms"))] = Field(
        description="Gives the time between two packets, in lab time, such as 300ms."
    )
    multiplier: Annotated[int, Whole(2, 255)] = Field(
        default=3, description="Says how many packets are missed until a session is down."
    )


@dataclass(frozen=True, slots=True)
class _OrDuration:
    """A mapping, or just a duration for its `value`."""

    def __get_pydantic_core_schema__(self, source: type[DelaySpec], handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: object, read_mapping: core_schema.ValidatorFunctionWrapHandler) -> object:
            if isinstance(value, dict):
                return read_mapping(value)
            return DelaySpec.model_construct(value=parse_quantity(value, Duration, MAX_DURATION))

        return core_schema.no_info_wrap_validator_function(read, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [Quantity(Duration, MAX_DURATION).json_schema(), handler(schema)]}


DelayField = Annotated[DelaySpec, _OrDuration()]
LossField = Annotated[float, Share()]


class NicSpec(SpecModel):
    """`fabric.nic`: the NICs of a host."""

    per: Written[Annotated[str, OneOf(("gpu", "host"))]] = Field(
        default=None, description="Says whether each GPU has a NIC (gpu), or a host's GPUs share NICs (host)."
    )
    ports: Written[Annotated[int, OneOf((1, 2, 4))]] = Field(
        default=None, description="Says how many ports a NIC has, each on its own plane of switches."
    )
    rate: Written[RateField] = Field(default=None, description="Gives the rate of a port, such as 400G.")
    count: Written[Positive] = Field(default=None, description="Says how many NICs a host has, with per: host.")
    multihoming: Written[
        Annotated[
            str,
            OneOf(
                ("subnets",),
                later={
                    "mlag": "MLAG of dual-port NICs is not built yet; each port has a subnet of its own",
                    "evpn": "EVPN multihoming of dual-port NICs is not built yet; each port has a subnet of its own",
                },
            ),
        ]
    ] = Field(default=None, description="Says how the ports of a NIC are joined.")
    rdma: Written[RdmaKind] = Field(
        default=None, description="Gives each NIC port a soft RoCEv2 device (rxe, from Linux 7.1 on)."
    )


class RailsSpec(SpecModel):
    """`fabric.rails`: how rails lie on rail switches."""

    per_switch: Written[Annotated[int, OneOf((1, 2, 4, 8))]] = Field(
        default=None, description="Says how many rails are on a rail switch."
    )
    port_map: Written[Annotated[str, OneOf(tuple(PORT_MAPS))]] = Field(
        default=None, description="Names the figure whose numbering of switch ports is used."
    )
    prefix_length: Written[Annotated[int, Whole(8, 30)]] = Field(
        default=None, description="Gives the length of a rail's prefix on one switch."
    )


class UplinkSpec(SpecModel):
    """`fabric.uplink` (rail switch to spine, and above unless `core_uplink` differs) and `fabric.core_uplink`."""

    rate: Written[RateField] = Field(default=None, description="Gives the rate of a link, such as 400G.")
    count: Written[Positive] = Field(
        default=None, description="Says how many parallel links there are between two switches."
    )
    delay: Written[DelayField] = Field(
        default=None, description="Gives the one-way delay: 500ns, or {value: 500ns, by: auto}."
    )
    loss: Written[LossField] = Field(
        default=None, description="Gives the share of packets lost each way, such as 0.1%."
    )

    def params(self) -> UplinkParams:
        delay = None if self.delay is None else self.delay.delay()
        return UplinkParams(rate=self.rate, count=self.count, delay=delay, loss=self.loss)


@dataclass(frozen=True, slots=True)
class Generated(TrueOrFalse):
    """Whether there is a secret. The secret itself is in no file that a user writes, and is not quoted if it is."""

    def check(self, value: object) -> bool:
        said = switch_word(value)
        if said is None:
            raise refusal("wrong-type", "must be true or false: each deploy makes a password of its own", "write true")
        return said


class RoutingSpec(SpecModel):
    """`fabric.routing`."""

    protocol: Written[
        Annotated[
            str,
            OneOf(
                tuple(Protocol),
                later={"evpn": "EVPN is an overlay: write overlay: evpn beside routing"},
                hints=foreign.PROTOCOLS,
            ),
        ]
    ] = Field(
        default=None, description="Chooses AS numbers after RFC 7938 (ebgp), or one AS with route reflection (ibgp)."
    )
    unnumbered: Written[Annotated[bool, TrueOrFalse("numbered BGP sessions are not built yet")]] = Field(
        default=None, description="Says whether sessions run over IPv6 link-local addresses (RFC 5549)."
    )
    bfd: Written[
        Annotated[
            BfdSpec | str,
            AutoOff(BfdSpec, "interval", on_hint="write {interval: 300ms, multiplier: 3} to switch it on"),
        ]
    ] = Field(
        default=None,
        description="Says whether BFD watches the sessions: auto, off, or {interval: 300ms, multiplier: 3}.",
    )
    ecmp: Written[Annotated[int, Whole(1, MAX_ECMP)]] = Field(
        default=None, description="Limits the next hops of a route; the default is 64."
    )
    password: Written[Annotated[bool, Generated()]] = Field(
        default=None, description="Says whether BGP sessions have a password (RFC 2385), which each deploy makes."
    )
    ttl_security: Written[Annotated[bool, TrueOrFalse()]] = Field(
        default=None, description="Says whether BGP takes packets from its own link alone (GTSM, RFC 5082)."
    )

    def routing(self) -> Routing:
        """What is written, with the defaults of the rest. How "auto" decides is up to the whole lab."""
        defaults, bfd = Routing(), self.bfd
        return Routing(
            protocol=defaults.protocol if self.protocol is None else Protocol(self.protocol),
            ecmp=defaults.ecmp if self.ecmp is None else self.ecmp,
            bfd=Bfd(interval=bfd.interval, multiplier=bfd.multiplier) if isinstance(bfd, BfdSpec) else None,
            bfd_auto=bfd in (None, "auto"),
            password=bool(self.password),
            ttl_security=bool(self.ttl_security),
        )


class FabricSpec(SpecModel):
    """The `fabric:` section. Without `design` it sets `routing`, `mtu` and `switch_radix` of a hand-written lab."""

    ELSEWHERE = {  # noqa: RUF012  # a ClassVar of the base
        "qos": "the section qos stands beside fabric, not in it",
        **dict.fromkeys(("nvlink", "nvswitch", "scaleup"), "write scale_up: {preset: h100}"),
        "oversubscription": "choose spines, uplink: {rate: 400G} and uplink: {count: 1}; validate prints what it is",
        **dict.fromkeys(("leaves", "leafs"), "write segments: 4: each has rail switches, which are its leaves"),
        **{key: f"{key} belongs to a class: qos: {{classes: {{rdma: {{{key}: ...}}}}}}" for key in ("ecn", "pfc")},
        **{
            key: f"write it in the section qos: {{{key}: ...}}"
            for key in ("buffer", "load_balancing", "trimming", "watchdog")
        },
    }

    design: Written[Annotated[str, OneOf(tuple(DESIGNS), noun="design", hints=foreign.DESIGNS)]] = Field(
        default=None, description="Names the design of the fabric that is generated."
    )
    pods: Written[Count] = Field(default=None, description="Says how many pods there are.")
    segments: Written[Count] = Field(default=None, description="Says how many segments (scalable units) a pod has.")
    hosts: Written[Count] = Field(default=None, description="Says how many hosts a segment has.")
    gpus: Written[Count] = Field(default=None, description="Says how many GPUs a host has.")
    nic: Section[NicSpec] = Field(default=NicSpec(), description="Describes the NICs of a host.")
    rails: Section[RailsSpec] = Field(default=RailsSpec(), description="Says how rails lie on rail switches.")
    spines: Written[Count] = Field(default=None, description="Says how many spines a pod has.")
    super_spines: Written[Count] = Field(default=None, description="Says how many super-spines join the pods.")
    super_spine_groups: Written[Positive] = Field(
        default=None, description="Says in how many equal groups the super-spines stand."
    )
    uplink: Section[UplinkSpec] = Field(
        default=UplinkSpec(), description="Describes the links from rail switches to spines."
    )
    core_uplink: Section[UplinkSpec] = Field(
        default=UplinkSpec(),
        description="Describes the links from spines to super-spines, which are as uplink where nothing else is said.",
    )
    switch_radix: Written[Positive] = Field(
        default=None, description="Gives the ports of a switch, which sizing is checked against."
    )
    routing: Section[RoutingSpec] = Field(default=RoutingSpec(), description="Describes routing: BGP and BFD.")
    overlay: OverlayField = Field(
        default=None, description="Names the overlay: none, evpn, or {evpn: {mtu: 4400}}; by default there is none."
    )
    mtu: Written[Mtu] = Field(default=None, description="Gives the MTU of every link in bytes; the default is 4500.")
    guards: Written[GuardsField] = Field(
        default=None,
        description="Says how ports of switches guard against their hosts: on, off, or {storm: false}.",
    )
    scale_up: Written[ScaleUpSpec] = Field(
        default=None,
        description="Describes what joins the GPUs of a host or a segment beside the fabric, such as NVLink; by"
        " default transfers inside a host take the rate of an H100's.",
    )
    targets: BackendTargetsField = Field(
        default={},
        description="Lists storage targets by name, which stand on rails as hosts do: nodes that serve their medium.",
    )

    def params(self, design: str) -> FabricParams:
        """Return what the generator is given."""
        counts = ("pods", "segments", "hosts", "gpus", "spines", "super_spines", "super_spine_groups", "switch_radix")
        rdma = None if self.nic.rdma is None else Rdma(self.nic.rdma)
        return FabricParams(
            design=design,
            nic=NicParams(**dict(self.nic) | {"rdma": rdma}),
            rails=RailParams(**dict(self.rails)),
            uplink=self.uplink.params(),
            core_uplink=self.core_uplink.params(),
            routing=self.routing.routing(),
            mtu=DEFAULT_MTU if self.mtu is None else self.mtu,
            **{key: getattr(self, key) for key in counts},
        )


DEFAULT_MTU = 4500
"""4 KiB payloads with headers and security fit."""
