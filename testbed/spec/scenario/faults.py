"""The entries of `faults:`: what goes wrong, where, when, and when it is mended."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from pydantic.json_schema import JsonSchemaValue

from testbed.errors import Problem
from testbed.model import End
from testbed.model.scenario import Fault, FaultKind, Scalar
from testbed.spec.topology.spec import EndpointField
from testbed.spec.validation.fields import (
    MAX_RATE,
    Checked,
    Flag,
    NodeName,
    OneOf,
    Share,
    Whole,
    Written,
    parse_quantity,
)
from testbed.spec.validation.model import SpecModel, refusal
from testbed.spec.validation.quantities import Span
from testbed.spec.yaml.document import Document
from testbed.spec.yaml.paths import Path, quote
from testbed.units import Duration, Rate

DAEMONS = ("bgpd", "bfdd", "zebra")
MOST_LOST = 1_000_000_000
_PERCENT = re.compile(r"\s*[0-9]{1,6}(\.[0-9]{1,6})?\s*%\s*")
_Time = Annotated[Duration, Span()]


@dataclass(frozen=True, slots=True)
class _LinkRate(Checked):
    """A share of the declared rate, or a rate of the fabric; kept as `testbed link set --rate` takes it."""

    def check(self, value: object) -> str:
        if isinstance(value, str) and _PERCENT.fullmatch(value):
            if not float(value.strip().rstrip("%")):
                raise refusal("out-of-range", "a rate of 0% is no rate", "silent: true, or down: true")
            return value.replace(" ", "")
        parse_quantity(value, Rate, MAX_RATE)
        return str(value).replace(" ", "")

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*(%|[A-Za-z/]+)\s*$", "examples": ["50%", "100G"]}


class LinkSetSpec(SpecModel):
    """`set:` of a link, as `testbed link set`."""

    rate: Written[Annotated[str, _LinkRate()]] = Field(
        default=None, description="Sets the rate: 50% of what is declared, or 100G."
    )
    delay: Written[_Time] = Field(default=None, description="Sets the one-way delay, in fabric time.")
    jitter: Written[_Time] = Field(default=None, description="Says how much the delay varies, in fabric time.")
    loss: Written[Annotated[float, Share()]] = Field(
        default=None, description="Gives the share of packets lost, such as 1%."
    )
    loss_every: Written[Annotated[int, Whole(0, MOST_LOST)]] = Field(
        default=None, description="Loses one packet in so many; 0 loses none."
    )
    corruption: Written[Annotated[float, Share()]] = Field(
        default=None, description="Gives the share of packets with a bad byte."
    )
    silent: Written[Flag] = Field(default=None, description="Loses every packet while the carrier stays.")
    both: Written[Flag] = Field(
        default=None, description="Applies to both directions; by default to what the port sends."
    )

    def settings(self) -> dict[str, Scalar]:
        """What is written, delays as text."""
        found: dict[str, Scalar] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if value is not None:
                found[name] = f"{value.ns}ns" if isinstance(value, Duration) else value
        return found


class FlapSpec(SpecModel):
    """`flap:` of a link."""

    period: Annotated[Duration, Span(1)] = Field(
        description="Gives the time from one time down to the next; for half of it the link is down."
    )


class StormSpec(SpecModel):
    """`storm:` of a link."""

    priority: Annotated[int, Whole(0, 7)] = Field(
        description="Gives the priority of the traffic class that is paused, 0 to 7."
    )


class FaultSpec(SpecModel):
    """An entry of `faults:`."""

    at: _Time = Field(description="Gives the time from the begin of traffic, in lab time.")
    until: Written[_Time] = Field(default=None, description="Says when it is mended; by default when the run ends.")
    link: Written[EndpointField] = Field(
        default=None, description="Names the port that it happens to, as node:interface."
    )
    node: Written[NodeName] = Field(default=None, description="Names the switch that it happens to.")
    agent: Written[NodeName] = Field(default=None, description="Names the host whose traffic process it happens to.")
    set: Written[LinkSetSpec] = Field(
        default=None, description="Sets the rate, delay or loss of a link, as `testbed link set` does."
    )
    down: Written[Flag] = Field(default=None, description="Takes the carrier of a link away.")
    flap: Written[FlapSpec] = Field(default=None, description="Takes a link down and up again, every period.")
    storm: Written[StormSpec] = Field(default=None, description="Sends a link pause frames without end.")
    kill: Written[Flag] = Field(default=None, description="Kills a node, a daemon or an agent at once.")
    daemon: Written[Annotated[str, OneOf(DAEMONS, noun="daemon")]] = Field(
        default=None, description="Limits the kill of a node to one daemon."
    )


_PLACES = ("link", "node", "agent")
_OF_LINKS = ("set", "down", "flap", "storm")
_SHAPES = (
    "{at: 200ms, link: NODE:IF, down: true}, {..., set: {rate: 50%}}, {..., flap: {period: 100ms}},"
    " {..., storm: {priority: 3}}, {at: 200ms, node: SWITCH, kill: true}, {..., daemon: bgpd, kill: true} or"
    " {at: 200ms, agent: HOST, kill: true}"
)


def resolve_fault(spec: FaultSpec) -> Fault:
    """The fault that an entry without problems means."""
    settings: dict[str, Scalar] = {}
    period = None
    if spec.link is not None:
        target = str(spec.link)
        if spec.set is not None:
            kind, settings = FaultKind.LINK_SET, spec.set.settings()
        elif spec.flap is not None:
            kind, period = FaultKind.LINK_FLAP, spec.flap.period
        elif spec.storm is not None:
            kind, settings = FaultKind.PFC_STORM, {"priority": spec.storm.priority}
        else:
            kind = FaultKind.LINK_DOWN
    elif spec.agent is not None:
        kind, target = FaultKind.AGENT_KILL, spec.agent
    else:
        assert spec.node is not None
        kind, target = FaultKind.NODE_KILL, spec.node
        if spec.daemon is not None:
            kind, settings = FaultKind.DAEMON_KILL, {"daemon": spec.daemon}
    return Fault(at=spec.at, kind=kind, target=target, until=spec.until, period=period, settings=settings)


def fault_problems(spec: FaultSpec, document: Document, path: Path) -> Iterator[Problem]:
    """What is wrong with an entry although each of its values is right."""
    places = [key for key in _PLACES if getattr(spec, key) is not None]
    if not places:
        yield document.problem("missing-key", path, "the fault does not say where", hint=_SHAPES, key=True)
        return
    for key in places[1:]:
        message = f"a fault happens in one place: {places[0]} and {key} are given"
        yield document.problem("contradiction", (*path, key), message, hint="write two entries", key=True)
    place = places[0]
    allowed = _OF_LINKS if place == "link" else ("kill", "daemon") if place == "node" else ("kill",)
    given = [key for key in (*_OF_LINKS, "kill", "daemon") if getattr(spec, key) is not None]
    for key in given:
        if key not in allowed:
            message = f"{key!r} does not happen to {'an' if place == 'agent' else 'a'} {place}"
            yield document.problem("contradiction", (*path, key), message, hint=_SHAPES, key=True)
    what = [key for key in given if key in allowed and key != "daemon"]
    for key in what[1:]:
        message = f"one entry is one fault: {what[0]} and {key} are given"
        yield document.problem("contradiction", (*path, key), message, hint="write two entries", key=True)
    if not what and len(given) == sum(key in allowed for key in given):
        message = f"the fault does not say what happens to the {place}"
        yield document.problem("missing-key", path, message, hint=_SHAPES, key=True)
    for key in ("down", "kill"):
        if getattr(spec, key) is False:
            message = f"{key}: false is no fault"
            yield document.problem("contradiction", (*path, key), message, hint="until: says when it is mended")
    if spec.until is not None and spec.until <= spec.at:
        message = f"until {spec.until} is not after at {spec.at}"
        yield document.problem("contradiction", (*path, "until"), message)
    if spec.flap is not None and spec.until is None:
        message = "a link that flaps does so until some time"
        yield document.problem("missing-key", (*path, "until"), message, hint="until: 2s", key=True)
    if spec.set is not None and not set(spec.set.settings()) - {"both"}:
        hint = f"its keys are {', '.join(LinkSetSpec.model_fields)}"
        yield document.problem("missing-key", (*path, "set"), "nothing is set", hint=hint, key=True)


def split_port(target: str) -> End:
    """NODE:INTERFACE of a fault at a link."""
    node, _, interface = target.partition(":")
    if not interface:
        raise ValueError(f"{quote(target)} is not node:interface")
    return End(node=node, interface=interface)
