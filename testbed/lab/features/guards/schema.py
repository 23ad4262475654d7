"""`guards:` of a network: which defences its access ports have."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic.json_schema import JsonSchemaValue

from testbed.base.units import PACKETS_A_SECOND
from testbed.base.validation.fields import OrShort, TrueOrFalse, Whole, Written, switch_schema, switch_word
from testbed.base.validation.model import SpecModel, refusal
from testbed.base.yaml.paths import quote
from testbed.lab.core.model import NO_GUARDS, Guard, Guards
from testbed.lab.core.model.guards import STORM_PPS

Switched = Annotated[bool, TrueOrFalse()]


class GuardsSpec(SpecModel):
    """`guards: {storm: false}`: all guards but those that are false. `guards: on` and `guards: off` for short."""

    LATER = {  # noqa: RUF012  # a ClassVar of the base
        "bgp": "BGP from hosts is kept away by the guard control, with all else that is meant for a switch",
        "dhcp": "DHCP answers are dropped by the guard servers",
        "ra": "router advertisements are dropped by the guard servers",
    }

    source: Switched = Field(default=True, description="Drops IPv4 packets whose source is not the port's host.")
    mac: Switched = Field(default=True, description="Drops frames whose source MAC is not that of the port's host.")
    arp: Switched = Field(default=True, description="Drops ARP packets whose sender is not the port's host.")
    servers: Switched = Field(
        default=True, description="Drops what hosts do not say: DHCP answers, router advertisements and redirects."
    )
    control: Switched = Field(
        default=True, description="Drops what is for a switch itself, such as BGP, but an echo to the host's gateway."
    )
    vlan: Switched = Field(default=True, description="Drops frames with a VLAN tag.")
    storm: Switched = Field(default=True, description="Drops what is flooded above a rate: broadcasts, for example.")
    storm_pps: Written[Annotated[int, Whole(1, 1_000_000, measure=PACKETS_A_SECOND)]] = Field(
        default=None, description=f"Gives that rate in packets a second and port, in lab time; {STORM_PPS} by default."
    )

    def guards(self) -> Guards:
        return Guards(
            kinds=tuple(guard for guard in Guard if getattr(self, guard)),
            storm_pps=STORM_PPS if self.storm_pps is None else self.storm_pps,
        )


class _OnOff(OrShort):
    """A mapping, or "on" or "off", also as a truth value."""

    model = GuardsSpec

    def read(self, value: object) -> object:
        said = switch_word(value)
        if said is None:
            raise refusal("unknown-value", f"must be on, off or a mapping of guards, not {quote(value)}", "write on")
        return GuardsSpec() if said else GuardsSpec(**dict.fromkeys(Guard, False))

    def short_schema(self) -> list[JsonSchemaValue]:
        return [switch_schema(True, False)]


GuardsField = Annotated[GuardsSpec, _OnOff()]


def guards_of(spec: GuardsSpec | None) -> Guards:
    """The guards that are asked for; none where nothing is written."""
    return NO_GUARDS if spec is None else spec.guards()
