"""The section `probes:` of a scenario: small packets beside the traffic, which tell what was lost, and when."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from testbed.base.units import PACKETS_A_SECOND
from testbed.base.validation.fields import AutoOff, Whole, Written
from testbed.base.validation.model import SpecModel
from testbed.run.schema.model import Probes

FASTEST_PPS = 1000
MOST_PORTS = 64


class ProbesSpec(SpecModel):
    """`probes: {rate: 50, ports: 4}`."""

    ELSEWHERE = dict.fromkeys(("interval", "period"), "write rate: 100, the packets a second of each stream")

    rate: Written[Annotated[int, Whole(1, FASTEST_PPS, measure=PACKETS_A_SECOND)]] = Field(
        default=None, description="Gives the packets a second of each stream, in lab time; by default at most 20."
    )
    ports: Written[Annotated[int, Whole(1, MOST_PORTS)]] = Field(
        default=None,
        description="Says how many streams, with source ports of their own, a pair has; by default up to 8.",
    )


ProbesField = Annotated[
    ProbesSpec | str,
    AutoOff(ProbesSpec, "rate or ports", on_hint="auto, or nothing at all, sends those that a scenario needs"),
]


def resolve_probes(spec: ProbesSpec | str) -> Probes:
    match spec:
        case ProbesSpec():
            return Probes(rate_pps=spec.rate, ports=spec.ports)
        case word:
            return Probes(enabled=word != "off")
