"""The entries of `faults:`: what goes wrong, where, when, and when it is mended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Annotated

from pydantic import Field
from pydantic.json_schema import JsonSchemaValue

from testbed.base.errors import Problem
from testbed.base.names import PLANE_LETTERS
from testbed.base.units import RATE, SHARE, Duration, Rate, part_of_rate_hint, split_quantity
from testbed.base.validation.fields import (
    MAX_RATE,
    Checked,
    Flag,
    Length,
    NodeName,
    NotNull,
    Number,
    OneOf,
    Share,
    Text,
    Whole,
    Written,
    parse_quantity,
    read_number,
)
from testbed.base.validation.model import SpecModel, refusal
from testbed.base.validation.quantities import FabricTime, Span
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path, quote
from testbed.lab.core.schema.endpoints import Endpoint
from testbed.lab.features.scale_up.links import EXAMPLE, ScaleUpPlace, names_gpu_link
from testbed.lab.features.scale_up.schema import MAX_PLANES
from testbed.run.schema.model import AtStep, Fault, Scalar

DAEMONS = ("bgpd", "bfdd", "zebra")
MOST_LOST = 1_000_000_000
MOST_BURST = 1_000_000
MOST_STEPS = 1_000_000
MOST_LOOPED = 62
"""The most switches that a loop has beside its first one: it is shorter than the default time to live."""
MOST_VLS = 15
_LONGEST_TARGET = 128
_WireTime = Annotated[Duration, FabricTime(zero=True)]


@dataclass(frozen=True, slots=True)
class _FaultTime(Checked):
    """A time from the begin of traffic, or a step of a program as `{step: 6}`."""

    def check(self, value: object) -> Duration | AtStep:
        if not isinstance(value, dict):
            return Span().check(value)
        if list(value) != ["step"]:
            keys = ", ".join(map(str, value)) or "nothing"
            raise refusal("wrong-type", f"a moment has the key step alone, not {quote(keys)}", "write {step: 6}")
        return AtStep(step=Whole(0, MOST_STEPS).check(value["step"]))

    def json_schema(self) -> JsonSchemaValue:
        step = {"description": "Gives the number of the step that is done.", **Whole(0, MOST_STEPS).json_schema()}
        by_step = {"type": "object", "properties": {"step": step}, "required": ["step"], "additionalProperties": False}
        return {"anyOf": [*Span().json_schema()["anyOf"], by_step]}


_Moment = Annotated[Duration | AtStep, _FaultTime()]


@dataclass(frozen=True, slots=True)
class _LinkRate(Checked):
    """A share of the declared rate, or a rate of the fabric; kept as `testbed link set --rate` takes it."""

    def check(self, value: object) -> str:
        if isinstance(value, str) and split_quantity(value)[1] in SHARE.units:
            if read_number(value, SHARE) <= 0:
                raise refusal("out-of-range", f"a rate of {value} is no rate", "silent: true, or down: true")
            return value.replace(" ", "")
        if (hint := part_of_rate_hint(str(value))) is not None and not isinstance(value, bool):
            raise refusal("no-unit", f"the rate {value} has no unit", hint)
        parse_quantity(value, Rate, MAX_RATE)
        return str(value).replace(" ", "")

    def json_schema(self) -> JsonSchemaValue:
        texts = [{"type": "string", "pattern": one} for one in (RATE.pattern(), SHARE.pattern(bare=False))]
        return {"anyOf": texts, "examples": ["50%", "100G"]}


@dataclass(frozen=True, slots=True)
class _FaultLink(Checked):
    """A port as node:interface, or a link of a scale-up domain as HOST.gpu1:plane2."""

    def check(self, value: object) -> str:
        if isinstance(value, str) and names_gpu_link(value):
            return value
        return str(Endpoint().check(value))

    def json_schema(self) -> JsonSchemaValue:
        plane = r"^[a-z][a-z0-9-]{0,47}\.gpu[1-9][0-9]{0,3}:plane(s|[1-9][0-9]{0,2}(-[1-9][0-9]{0,2})?)$"
        return {"anyOf": [Endpoint().json_schema(), {"type": "string", "pattern": plane, "examples": [EXAMPLE]}]}


@dataclass(frozen=True, slots=True)
class _Plane(Checked):
    """A plane by its number, or as DOMAIN:plane3; kept as `testbed link set` takes it."""

    def check(self, value: object) -> str:
        if isinstance(value, str) and (place := ScaleUpPlace.parse(value)) is not None and not place.local_gpu:
            return value
        if isinstance(value, bool) or not isinstance(value, int):
            hint = "write 3, or p1-s1:plane3 where there are several domains"
            raise refusal("wrong-type", f"must be a plane of a scale-up domain, not {quote(value)}", hint)
        return f"plane{Whole(1, MAX_PLANES).check(value)}"

    def json_schema(self) -> JsonSchemaValue:
        name = r"^([a-z][a-z0-9-]{0,47}:)?plane(s|[1-9][0-9]{0,2}(-[1-9][0-9]{0,2})?)$"
        text = {"type": "string", "pattern": name, "examples": ["p1-s1:plane3"]}
        return {"anyOf": [Whole(1, MAX_PLANES).json_schema(), text]}


class LinkSetSpec(SpecModel):
    """`set:` of a link, as `testbed link set`."""

    rate: Written[Annotated[str, _LinkRate()]] = Field(
        default=None, description="Sets the rate: 50% of what is declared, or 100G."
    )
    delay: Written[_WireTime] = Field(default=None, description="Sets the one-way delay, in fabric time.")
    jitter: Written[_WireTime] = Field(default=None, description="Says how much the delay varies, in fabric time.")
    loss: Written[Annotated[float, Share()]] = Field(
        default=None, description="Gives the share of packets lost, such as 1%."
    )
    loss_every: Written[Annotated[int, Whole(0, MOST_LOST)]] = Field(
        default=None, description="Loses one packet in so many; 0 loses none."
    )
    burst: Written[Annotated[float, Number(1, MOST_BURST)]] = Field(
        default=None, description="Gives how many frames of a scale-up link are lost one after the other, on average."
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


class LeakSpec(SpecModel):
    """`leak:` of a link of InfiniBand."""

    vl: Annotated[int, Whole(0, MOST_VLS - 1)] = Field(
        default=0, description="Gives the virtual lane whose credits leak."
    )
    share: Annotated[float, Share()] = Field(
        default=1.0, description="Gives the share of the lane's credits that is lost; by default all."
    )


class StormSpec(SpecModel):
    """`storm:` of a link."""

    priority: Annotated[int, Whole(0, 7)] = Field(
        description="Gives the priority of the traffic class that is paused, 0 to 7."
    )


@dataclass(frozen=True, slots=True)
class _LoopTarget(Checked):
    """A NIC as host:interface, whose address is meant, or a prefix of IPv4."""

    def check(self, value: object) -> str:
        text = str(Text(_LONGEST_TARGET).check(value))
        if not text[:1].isdigit():
            return str(Endpoint().check(value))
        try:
            return str(IPv4Network(text))
        except ValueError:
            raise refusal("wrong-type", f"{quote(text)} is no prefix of IPv4", "10.0.2.0/24, or HOST:IF") from None

    def json_schema(self) -> JsonSchemaValue:
        prefix = {
            "type": "string",
            "pattern": r"^[0-9]{1,3}(\.[0-9]{1,3}){3}(/[0-9]{1,2})?$",
            "examples": ["10.0.2.0/24"],
        }
        return {"anyOf": [Endpoint().json_schema(), prefix]}


class LoopSpec(SpecModel):
    """`loop:` of a switch."""

    through: Annotated[list[Annotated[NodeName, NotNull()]], Length(1, MOST_LOOPED)] = Field(
        description="Names the switches that packets go through before they come back, each linked to the next one."
    )
    to: Annotated[str, _LoopTarget()] = Field(
        description="Names what never arrives: a NIC as HOST:IF, or a prefix such as 10.0.2.0/24."
    )
    ttl: Annotated[int, Whole(2, 255)] = Field(
        default=64,
        description="Gives the time to live of what hosts send meanwhile: how many routers it passes. Of several "
        "loops at once the one that was begun last decides.",
    )


class FaultSpec(SpecModel):
    """An entry of `faults:`."""

    ELSEWHERE = dict.fromkeys(("for", "duration"), "write until: ..., the time from the begin of traffic when it ends")

    at: _Moment = Field(
        description="Gives the time from the begin of traffic, in lab time, or the step of a program: {step: 6}."
    )
    until: Written[_Moment] = Field(default=None, description="Says when it is mended; by default when the run ends.")
    link: Written[Annotated[str, _FaultLink()]] = Field(
        default=None,
        description=f"Names the port that it happens to, as node:interface, or a GPU's link to a plane: {EXAMPLE}.",
    )
    plane: Written[Annotated[str, _Plane()]] = Field(
        default=None,
        description="Names the switch chip of a scale-up domain whose links it happens to: 3, p1-s1:plane3.",
    )
    fabric_plane: Written[Annotated[str, OneOf(tuple(PLANE_LETTERS))]] = Field(
        default=None, description="Names the plane of the fabric that it happens to, such as b: all its links."
    )
    tray: Written[NodeName] = Field(
        default=None, description="Names the host that it happens to: all links of its GPUs to all planes."
    )
    domain: Written[NodeName] = Field(
        default=None, description="Names the scale-up domain whose switch process it happens to."
    )
    node: Written[NodeName] = Field(default=None, description="Names the switch that it happens to.")
    agent: Written[NodeName] = Field(default=None, description="Names the host whose traffic process it happens to.")
    manager: Written[NodeName] = Field(
        default=None, description="Names the host whose subnet manager of InfiniBand it happens to."
    )
    set: Written[LinkSetSpec] = Field(
        default=None, description="Sets the rate, delay or loss of a link, as `testbed link set` does."
    )
    down: Written[Flag] = Field(default=None, description="Takes the carrier of a link away.")
    state: Written[Annotated[str, OneOf(("down",))]] = Field(
        default=None, description="Says the same in other words: `state: down` is `down: true`."
    )
    flap: Written[FlapSpec] = Field(default=None, description="Takes a link down and up again, every period.")
    storm: Written[StormSpec] = Field(default=None, description="Sends a link pause frames without end.")
    leak: Written[LeakSpec] = Field(
        default=None, description="Takes credits of InfiniBand from what a port sends: its peer has lost the buffers."
    )
    loop: Written[LoopSpec] = Field(
        default=None, description="Leads what is for a NIC or a prefix from the switch through others back to it."
    )
    kill: Written[Flag] = Field(
        default=None, description="Kills a node, a daemon, an agent, a subnet manager or a domain's switch at once."
    )
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

    def mean(self, spec: FaultSpec) -> bool:
        """Tell whether an entry without problems is of this kind, if none that needs more keys is."""
        return all(_value(spec, key) is not None for key in (self.place, self.key, self.beside) if key is not None)


def _value(spec: FaultSpec, key: str) -> object:
    return True if key == "down" and spec.state is not None else getattr(spec, key)


def _word(spec: FaultSpec, key: str) -> str:
    """The key that says it in the file."""
    return "state" if key == "down" and spec.state is not None else key


FAULT_WORDS = (
    FaultWords(kind="link-down", place="link", key="down", example="down: true"),
    FaultWords(kind="link-set", place="link", key="set", example="set: {rate: 50%}"),
    FaultWords(kind="link-flap", place="link", key="flap", example="flap: {period: 100ms}"),
    FaultWords(kind="pfc-storm", place="link", key="storm", example="storm: {priority: 3}"),
    FaultWords(kind="credit-leak", place="link", key="leak", example="leak: {vl: 0, share: 90%}"),
    FaultWords(kind="node-kill", place="node", key="kill", example="kill: true"),
    FaultWords(kind="daemon-kill", place="node", key="kill", beside="daemon", example="daemon: bgpd, kill: true"),
    FaultWords(
        kind="routing-loop", place="node", key="loop", example='loop: {through: [p1-spine1], to: "p1-s2-h1:rail1"}'
    ),
    FaultWords(kind="agent-kill", place="agent", key="kill", example="kill: true"),
    FaultWords(kind="manager-kill", place="manager", key="kill", example="kill: true"),
    FaultWords(kind="plane-down", place="plane", key="down", example="down: true"),
    FaultWords(kind="plane-set", place="plane", key="set", example="set: {rate: 50%}"),
    FaultWords(kind="plane-flap", place="plane", key="flap", example="flap: {period: 100ms}"),
    FaultWords(kind="fabric-plane-down", place="fabric_plane", key="down", example="down: true"),
    FaultWords(kind="tray-down", place="tray", key="down", example="down: true"),
    FaultWords(kind="domain-kill", place="domain", key="kill", example="kill: true"),
)
"""Every kind of fault (`testbed.run.faults.registry`), in the order in which examples of them are shown."""
_EXAMPLES_OF_PLACES = {
    "link": "NODE:IF",
    "node": "SWITCH",
    "agent": "HOST",
    "manager": "HOST",
    "plane": "3",
    "fabric_plane": "b",
    "tray": "HOST",
    "domain": "DOMAIN",
}
_BESIDE = frozenset(words.beside for words in FAULT_WORDS)
_HAPPENINGS = tuple(
    key for key in FaultSpec.model_fields if any(key in (words.key, words.beside) for words in FAULT_WORDS)
)
"""The keys that say what happens, in the order of the model."""


def _shapes(place: str = "") -> str:
    """An example of each kind, of one place alone if it is named; of a place, only the first one is written out."""
    shown: list[str] = []
    for words in FAULT_WORDS:
        if place not in ("", words.place):
            continue
        first = next(one for one in FAULT_WORDS if one.place == words.place) is words
        where = f"at: 200ms, {words.place}: {_EXAMPLES_OF_PLACES[words.place]}" if first else "..."
        shown.append(f"{{{where}, {words.example}}}")
    return f"{', '.join(shown[:-1])} or {shown[-1]}" if len(shown) > 1 else shown[0]


_SHAPES = _shapes()


def resolve_fault(spec: FaultSpec) -> Fault:
    """The fault that an entry without problems means."""
    words = max((one for one in FAULT_WORDS if one.mean(spec)), key=lambda one: one.beside is not None)
    return Fault(
        at=spec.at,
        kind=words.kind,
        target=getattr(spec, words.place),
        until=spec.until,
        period=None if spec.flap is None else spec.flap.period,
        settings=_settings(spec),
    )


def _settings(spec: FaultSpec) -> dict[str, Scalar]:
    """Return what an entry without problems says besides what happens where and when."""
    found: dict[str, Scalar] = {} if spec.set is None else spec.set.settings()
    if spec.storm is not None:
        found["priority"] = spec.storm.priority
    if spec.leak is not None:
        found |= {"vl": spec.leak.vl, "share": spec.leak.share}
    if spec.loop is not None:
        found |= {"through": " ".join(spec.loop.through), "to": spec.loop.to, "ttl": spec.loop.ttl}
    return found if spec.daemon is None else {**found, "daemon": spec.daemon}


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
    given = [key for key in _HAPPENINGS if _value(spec, key) is not None]
    if spec.state is not None and spec.down is not None:
        message = "down and state say the same thing"
        yield document.problem("contradiction", (*path, "state"), message, hint="one of them is enough", key=True)
        return
    for key in given:
        if key not in allowed:
            message = f"{_word(spec, key)!r} does not happen to {'an' if place == 'agent' else 'a'} {place}"
            hint = _shapes(place)
            yield document.problem("contradiction", (*path, _word(spec, key)), message, hint=hint, key=True)
    what = [key for key in given if key in allowed and key not in _BESIDE]
    for key in what[1:]:
        message = f"one entry is one fault: {_word(spec, what[0])} and {key} are given"
        yield document.problem("contradiction", (*path, key), message, hint="write two entries", key=True)
    if not what and all(key in allowed for key in given):
        message = f"the fault does not say what happens to the {place}"
        yield document.problem("missing-key", path, message, hint=_shapes(place), key=True)
    for key in _HAPPENINGS:
        if getattr(spec, key) is False:
            message = f"{key}: false is no fault"
            yield document.problem("contradiction", (*path, key), message, hint="until: says when it is mended")
    yield from _time_problems(spec, document, path)
    if spec.flap is not None and spec.until is None:
        message = "a link that flaps does so until some time"
        yield document.problem("missing-key", (*path, "until"), message, hint="until: 2s", key=True)
    if spec.set is not None and not set(spec.set.settings()) - {"both"}:
        keys = SCALE_UP_SETTINGS if _is_scale_up(spec) else [key for key in LinkSetSpec.model_fields if key != "burst"]
        hint = f"its keys are {', '.join(keys)}"
        yield document.problem("missing-key", (*path, "set"), "nothing is set", hint=hint, key=True)
    yield from _scale_up_problems(spec, document, path)


def _time_problems(spec: FaultSpec, document: Document, path: Path) -> Iterator[Problem]:
    """Return what is wrong with when it happens and when it is mended, each of which is right by itself."""
    match spec.at, spec.until:
        case (Duration() as at, Duration() as until) if until <= at:
            message = f"until {until} is not after at {at}"
            yield document.problem("contradiction", (*path, "until"), message)
        case (AtStep() as at, AtStep() as until) if until.step <= at.step:
            message = f"until {until} is not after at {at}"
            yield document.problem("contradiction", (*path, "until"), message)
        case (AtStep(), Duration()) | (Duration(), AtStep()):
            message = "at and until are a time and a step, of which nobody knows which is first"
            hint = "until: {step: 12}" if isinstance(spec.at, AtStep) else "until: 2s"
            yield document.problem("contradiction", (*path, "until"), message, hint=hint)
    if spec.flap is not None and isinstance(spec.at, AtStep):
        message = "a link that flaps does so by the clock"
        hint = "at: 2s, until: 4s; or down: true until some step"
        yield document.problem("contradiction", (*path, "at"), message, hint=hint)


SCALE_UP_SETTINGS = ("rate", "loss", "loss_every", "burst", "corruption", "silent")
"""The settings of a scale-up link, both of whose directions change."""


def _is_scale_up(spec: FaultSpec) -> bool:
    return spec.plane is not None or (spec.link is not None and names_gpu_link(spec.link))


def _scale_up_problems(spec: FaultSpec, document: Document, path: Path) -> Iterator[Problem]:
    """Return what happens to links of the fabric alone, or to those of scale-up domains alone."""
    scale_up = _is_scale_up(spec)
    if scale_up and spec.link is not None and spec.storm is not None:
        message = "'storm' does not happen to a link of a scale-up domain"
        hint = "such links have credits or pauses of their own; silent: true stops one"
        yield document.problem("contradiction", (*path, "storm"), message, hint=hint, key=True)
    settings = {} if spec.set is None else spec.set.settings()
    for key in settings if scale_up else ():
        if key not in SCALE_UP_SETTINGS and not (key == "both" and settings[key]):
            message = f"{key} of a link of a scale-up domain cannot be set"
            hint = f"its keys are {', '.join(SCALE_UP_SETTINGS)}; both directions change"
            yield document.problem("contradiction", (*path, "set", key), message, hint=hint, key=True)
    if "burst" in settings and not scale_up:
        message = "burst is a setting of links of scale-up domains"
        yield document.problem("contradiction", (*path, "set", "burst"), message, key=True)
    elif "burst" in settings and "loss" not in settings:
        message = "burst says how frames are lost, and no loss says how many"
        yield document.problem("missing-key", (*path, "set", "loss"), message, hint="loss: 0.1%", key=True)
