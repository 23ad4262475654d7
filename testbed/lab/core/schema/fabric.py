"""Parts of the `fabric:` section as they are written, some of which networks beside the back end have, too.

Only shape, type and unit of each value are checked here; what a design makes of them is checked by
`testbed.lab.core.fabric.check_params`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field
from pydantic.json_schema import JsonSchemaValue

from testbed.base.units import BYTES, Duration
from testbed.base.validation.fields import (
    AutoOff,
    Checked,
    OneOf,
    OrShort,
    Quantity,
    Share,
    TrueOrFalse,
    Whole,
    Written,
    switch_word,
)
from testbed.base.validation.model import SpecModel, refusal
from testbed.base.validation.quantities import FabricTime, FabricTimeField
from testbed.base.validation.sections import Types, declared_by, written
from testbed.lab.core.fabric import NicParams, RailParams, UplinkParams
from testbed.lab.core.fabric.forwarding.next_hops import MAX_ECMP
from testbed.lab.core.fabric.params import MOST
from testbed.lab.core.model import Bfd, Delay, DelayBy, Protocol, Rdma, Role, Routing
from testbed.lab.core.schema import foreign

MTU_REASON = "IPv6, which unnumbered BGP runs on, needs links of at least 1280 bytes (RFC 8200 section 5)"

Count = Annotated[int, Whole(0, MOST)]
Positive = Annotated[int, Whole(1, MOST)]
Mtu = Annotated[int, Whole(1280, 9216, MTU_REASON, BYTES.counted_in("B").called("MTU", "9000B"))]


RdmaKind = Annotated[str, OneOf(tuple(Rdma))]


class DelaySpec(SpecModel):
    """`delay: {value: 500ns, jitter: 50ns, by: auto}`; `delay: 500ns` for short."""

    value: FabricTimeField = Field(description="Gives the one-way delay of the real link, such as 500ns.")
    by: Annotated[Literal["auto", "kernel", "endpoint", "ignore"], OneOf(tuple(DelayBy))] = Field(
        default="auto", description="Says who realises the delay."
    )
    jitter: Written[FabricTimeField] = Field(
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


_TIME = FabricTime()


class _OrDuration(OrShort):
    """A mapping, or just a duration for its `value`."""

    model = DelaySpec

    def read(self, value: object) -> object:
        return DelaySpec.model_construct(value=_TIME.check(value))

    def short_schema(self) -> list[JsonSchemaValue]:
        return [_TIME.json_schema()]


DelayField = Annotated[DelaySpec, _OrDuration()]
LossField = Annotated[float, Share()]


_TYPES: Types = {Delay: lambda _: written(DelayField)}


@declared_by(NicParams, _TYPES)
class NicSpec(SpecModel):
    """`fabric.nic`: the NICs of a host."""


@declared_by(RailParams, _TYPES)
class RailsSpec(SpecModel):
    """`fabric.rails`: how rails lie on rail switches."""


class RadixSpec(SpecModel):
    """`switch_radix: {rail: 128, spine: 64, super_spine: 64}`; `switch_radix: 64` for short."""

    rail: Written[Positive] = Field(default=None, description="Gives the ports of a rail switch.")
    spine: Written[Positive] = Field(default=None, description="Gives the ports of a spine.")
    super_spine: Written[Positive] = Field(default=None, description="Gives the ports of a super-spine.")

    def radix(self) -> dict[Role, int]:
        """Return what is said, by role."""
        written = {Role.RAIL: self.rail, Role.SPINE: self.spine, Role.SUPER_SPINE: self.super_spine}
        return {role: ports for role, ports in written.items() if ports is not None}


_PORTS = Whole(1, MOST)


class _OrPorts(OrShort):
    """A mapping by tier, or just a number for all."""

    model = RadixSpec

    def read(self, value: object) -> object:
        return _PORTS.check(value)

    def short_schema(self) -> list[JsonSchemaValue]:
        return [_PORTS.json_schema()]


RadixField = Annotated[RadixSpec | int, _OrPorts()]


def radix_of(written: RadixSpec | int | None) -> int | dict[Role, int] | None:
    """Return the ports of a switch: of all, or by role where that is written; None where nothing is."""
    return written.radix() or None if isinstance(written, RadixSpec) else written


@dataclass(frozen=True, slots=True)
class _Hosts(Checked):
    """A number for all segments, or a list with one for each; as a value of a matrix that is one text with commas."""

    def check(self, value: object) -> int | tuple[int, ...]:
        words = value.split(",") if isinstance(value, str) else []
        if len(words) > 1 and all(word.strip().isdecimal() for word in words):
            value = [int(word) for word in words]
        if not isinstance(value, list):
            return _COUNT.check(value)
        if not value:
            raise refusal("wrong-type", "lists no segment", "hosts: [32, 32, 32, 31] gives the hosts of four segments")
        return tuple(_COUNT.check(entry) for entry in value)

    def json_schema(self) -> JsonSchemaValue:
        several = {"type": "array", "items": _COUNT.json_schema(), "minItems": 1}
        text = {"type": "string", "pattern": r"^\s*\d+\s*(,\s*\d+\s*)+$"}
        return {"anyOf": [_COUNT.json_schema(), several, text]}


_COUNT = Whole(0, MOST)
HostsField = Annotated[int | tuple[int, ...], _Hosts()]


@declared_by(UplinkParams, _TYPES)
class UplinkSpec(SpecModel):
    """`fabric.uplink` (rail switch to spine, and above unless `core_uplink` differs) and `fabric.core_uplink`."""

    def params(self) -> UplinkParams:
        said = dict(self)
        return UplinkParams(**said | {"delay": said["delay"] and said["delay"].delay()})


@dataclass(frozen=True, slots=True)
class Generated(TrueOrFalse):
    """Says that there is a secret, which is in no file that a user writes, and is not quoted if it is."""

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
    weighted: Written[Annotated[bool, TrueOrFalse()]] = Field(
        default=None,
        description="Says whether paths have shares by the bandwidth behind them, which BGP tells (RFC 10005).",
    )

    def routing(self) -> Routing:
        """Return the routing that is written, with defaults for the rest. How "auto" decides is up to the whole lab."""
        defaults, bfd = Routing(), self.bfd
        return Routing(
            protocol=defaults.protocol if self.protocol is None else Protocol(self.protocol),
            ecmp=defaults.ecmp if self.ecmp is None else self.ecmp,
            bfd=Bfd(interval=bfd.interval, multiplier=bfd.multiplier) if isinstance(bfd, BfdSpec) else None,
            bfd_auto=bfd in (None, "auto"),
            password=bool(self.password),
            ttl_security=bool(self.ttl_security),
            weighted=bool(self.weighted),
        )


DEFAULT_MTU = 4500
"""4 KiB payloads with headers and security fit."""
