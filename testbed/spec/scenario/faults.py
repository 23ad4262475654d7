"""The entries of `faults:`: what goes wrong, where, when, and when it is mended."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from pydantic.json_schema import JsonSchemaValue

from testbed.errors import Problem
from testbed.model.scenario import Fault, Scalar
from testbed.spec.topology.endpoints import EndpointField
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
from testbed.spec.yaml.paths import Path
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
        """Return what is written, delays as text."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultWords:
    """The way a kind of fault is written: the key of its place, the key of what happens there, and an example."""

    kind: str
    place: str
    key: str
    example: str
    beside: str | None = None
    """A key that has to stand beside `key` and makes this kind of another: a `kill` with a `daemon`."""
    settings: Callable[[FaultSpec], Mapping[str, Scalar]] = lambda spec: {}
    """What the kind is told besides when and where."""
    period: Callable[[FaultSpec], Duration | None] = lambda spec: None

    def mean(self, spec: FaultSpec) -> bool:
        """Tell whether an entry without problems is of this kind, if none that needs more keys is."""
        return all(getattr(spec, key) is not None for key in (self.place, self.key, self.beside) if key is not None)


FAULT_WORDS = (
    FaultWords(kind="link-down", place="link", key="down", example="down: true"),
    FaultWords(
        kind="link-set",
        place="link",
        key="set",
        example="set: {rate: 50%}",
        settings=lambda spec: {} if spec.set is None else spec.set.settings(),
    ),
    FaultWords(
        kind="link-flap",
        place="link",
        key="flap",
        example="flap: {period: 100ms}",
        period=lambda spec: None if spec.flap is None else spec.flap.period,
    ),
    FaultWords(
        kind="pfc-storm",
        place="link",
        key="storm",
        example="storm: {priority: 3}",
        settings=lambda spec: {} if spec.storm is None else {"priority": spec.storm.priority},
    ),
    FaultWords(kind="node-kill", place="node", key="kill", example="kill: true"),
    FaultWords(
        kind="daemon-kill",
        place="node",
        key="kill",
        beside="daemon",
        example="daemon: bgpd, kill: true",
        settings=lambda spec: {} if spec.daemon is None else {"daemon": spec.daemon},
    ),
    FaultWords(kind="agent-kill", place="agent", key="kill", example="kill: true"),
)
"""Every kind of fault (`testbed.scenario.faults.registry`), in the order in which examples of them are shown."""
_EXAMPLES_OF_PLACES = {"link": "NODE:IF", "node": "SWITCH", "agent": "HOST"}
_BESIDE = frozenset(words.beside for words in FAULT_WORDS)
_HAPPENINGS = tuple(
    key for key in FaultSpec.model_fields if any(key in (words.key, words.beside) for words in FAULT_WORDS)
)
"""The keys that say what happens, in the order of the model."""


def _shapes() -> str:
    """An example of each kind; of a place, only the first one is written out."""
    shown: list[str] = []
    for words in FAULT_WORDS:
        first = next(one for one in FAULT_WORDS if one.place == words.place) is words
        where = f"at: 200ms, {words.place}: {_EXAMPLES_OF_PLACES[words.place]}" if first else "..."
        shown.append(f"{{{where}, {words.example}}}")
    return f"{', '.join(shown[:-1])} or {shown[-1]}"


_SHAPES = _shapes()


def resolve_fault(spec: FaultSpec) -> Fault:
    """The fault that an entry without problems means."""
    words = max((one for one in FAULT_WORDS if one.mean(spec)), key=lambda one: one.beside is not None)
    return Fault(
        at=spec.at,
        kind=words.kind,
        target=str(getattr(spec, words.place)),
        until=spec.until,
        period=words.period(spec),
        settings=dict(words.settings(spec)),
    )


def fault_problems(spec: FaultSpec, document: Document, path: Path) -> Iterator[Problem]:
    """Return what is wrong with an entry although each of its values is right."""
    places = [key for key in _EXAMPLES_OF_PLACES if getattr(spec, key) is not None]
    if not places:
        yield document.problem("missing-key", path, "the fault does not say where", hint=_SHAPES, key=True)
        return
    for key in places[1:]:
        message = f"a fault happens in one place: {places[0]} and {key} are given"
        yield document.problem("contradiction", (*path, key), message, hint="write two entries", key=True)
    place = places[0]
    allowed = {key for words in FAULT_WORDS if words.place == place for key in (words.key, words.beside)}
    given = [key for key in _HAPPENINGS if getattr(spec, key) is not None]
    for key in given:
        if key not in allowed:
            message = f"{key!r} does not happen to {'an' if place == 'agent' else 'a'} {place}"
            yield document.problem("contradiction", (*path, key), message, hint=_SHAPES, key=True)
    what = [key for key in given if key in allowed and key not in _BESIDE]
    for key in what[1:]:
        message = f"one entry is one fault: {what[0]} and {key} are given"
        yield document.problem("contradiction", (*path, key), message, hint="write two entries", key=True)
    if not what and all(key in allowed for key in given):
        message = f"the fault does not say what happens to the {place}"
        yield document.problem("missing-key", path, message, hint=_SHAPES, key=True)
    for key in _HAPPENINGS:
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
