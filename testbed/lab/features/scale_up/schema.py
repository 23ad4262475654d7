"""`fabric.scale_up`: what joins the GPUs of a host or a segment beside the fabric, as written and as resolved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Any

from pydantic import Field
from pydantic.json_schema import JsonSchemaValue

from testbed.base.errors import FabricError
from testbed.base.units import COUNT, SHARE, ByteCount, Duration, Measure, split_quantity
from testbed.base.validation.fields import (
    MAX_DURATION,
    AutoOff,
    Checked,
    Flag,
    Length,
    OneOf,
    Quantity,
    RateField,
    Section,
    Whole,
    Written,
    parse_quantity,
    read_number,
    switch_schema,
    switch_word,
)
from testbed.base.validation.model import SpecModel, refusal
from testbed.base.validation.quantities import FabricTimeField
from testbed.base.yaml.paths import quote
from testbed.lab.core.model import (
    SCALE_UP_PRESETS,
    UNSTATED_SCALE_UP,
    Credits,
    DomainSpan,
    LinkRetry,
    PlaneSpray,
    ScaleUp,
    ScaleUpBy,
    ScaleUpFlowControl,
    ScaleUpHeaders,
    ScaleUpPool,
)
from testbed.lab.features.scale_up.sizing import LARGEST_WINDOW, MOST_CREDITS

MAX_PLANES = 64
MAX_LINKS = 1024
"""The most links of one GPU."""
MAX_COARSE = 32
"""8 KiB: larger frames do not fit an Ethernet MTU of 9216 bytes with their headers."""
CREDIT_UNITS = (32, 64, 128, 256, 512, 1024, 2048)
"""In bytes (SAI-CBFC)."""
INTERLEAVES = (256, 512, 1024, 2048, 4096, 8192, 16384)
"""In bytes: the granularities of CXL's decoders of host-managed memory (CXL 3.1 section 8.2.4.20)."""
MOST_DEVICES = 64
MOST_CAPACITY = ByteCount(10**15)
MOST_BUFFER = ByteCount(1 << 27)
"""The largest buffer of one channel: 128 MiB, more than any switch has."""
BufferField = Annotated[ByteCount, Quantity(ByteCount, MOST_BUFFER)]
_MOST_PERCENT = 1000
_WINDOWS = Measure(
    "number of windows",
    "4windows",
    "windows",
    (({"": Fraction(1)}, {"windows": Fraction(1), "window": Fraction(1)}),),
)
_MOST_WINDOWS = 1000


@dataclass(frozen=True, slots=True)
class _AutoCountOrShare(Checked):
    """ "auto" (the result is 1.0), a count (a whole number), or a share of what is needed such as 25 % (0.25)."""

    noun: str
    highest: int

    def check(self, value: object) -> int | float:
        if value == "auto":
            return 1.0
        if isinstance(value, str) and split_quantity(value)[1] == "%":
            share = read_number(value, SHARE)
            if not 0 < 100 * share <= _MOST_PERCENT:
                raise refusal("out-of-range", f"must be more than 0% and at most {_MOST_PERCENT}%, not {quote(value)}")
            return float(share)
        if switch_word(value) is not None or isinstance(value, float):
            hint = f"a number counts {self.noun}; 50% is half of what a link needs"
            raise refusal("wrong-type", f"must be auto, a whole number or a percentage, not {quote(value)}", hint)
        counted = COUNT.called(f"number of {self.noun}", "8, auto or 50%")
        return Whole(1, self.highest, measure=counted).check(value)

    def json_schema(self) -> JsonSchemaValue:
        return {
            "anyOf": [
                {"const": "auto"},
                Whole(1, self.highest).json_schema(),
                {"type": "string", "pattern": SHARE.pattern(bare=False), "examples": ["50%"]},
            ]
        }


@dataclass(frozen=True, slots=True)
class _OneSize(Checked):
    """One of several numbers of bytes."""

    sizes: tuple[int, ...]

    def check(self, value: object) -> ByteCount:
        size = parse_quantity(value, ByteCount, ByteCount(self.sizes[-1]))
        if size.bytes not in self.sizes:
            known = ", ".join(f"{unit}B" for unit in self.sizes)
            raise refusal("unknown-value", f"must be one of {known}, not {quote(value)}")
        return size

    def json_schema(self) -> JsonSchemaValue:
        return {"enum": [f"{unit}B" for unit in self.sizes]}


@dataclass(frozen=True, slots=True)
class _Windows(Checked):
    """A time as a multiple of the time that a whole window takes: 4windows."""

    def check(self, value: object) -> float:
        if not 1 <= (windows := float(read_number(value, _WINDOWS))) <= _MOST_WINDOWS:
            why = "acknowledgements of a window arrive no sooner than it is sent" if windows < 1 else None
            raise refusal("out-of-range", f"must be from 1 to {_MOST_WINDOWS} windows, not {quote(value)}", why)
        return windows

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "string", "pattern": _WINDOWS.pattern(), "examples": ["4windows"]}


@dataclass(frozen=True, slots=True)
class _TimeOrOff(Checked):
    """A time such as 256us, or "off"."""

    def check(self, value: object) -> Duration | str:
        if switch_word(value) is False:
            return "off"
        return parse_quantity(value, Duration, MAX_DURATION)

    def json_schema(self) -> JsonSchemaValue:
        return {"anyOf": [switch_schema(False), Quantity(Duration, MAX_DURATION).json_schema()]}


class CreditsSpec(SpecModel):
    """`fabric.scale_up.credits`: the credits of one virtual channel of a link."""

    unit: Written[Annotated[ByteCount, _OneSize(CREDIT_UNITS)]] = Field(
        default=None, description="Gives the bytes of one credit; the default is 256B."
    )
    limit: Written[Annotated[int | float, _AutoCountOrShare("credits", MOST_CREDITS)]] = Field(
        default=None,
        description="Says how many a sender may have in use: a number, auto (a credit loop's), or a share of that.",
    )

    cc_update: Written[Annotated[Duration | str, _TimeOrOff()]] = Field(
        default=None,
        description="Gives the time between two messages that bring back credits of frames lost on a link without llr:"
        " 256us by default, or off.",
    )

    def credits(self) -> Credits:
        default = Credits()
        counted = isinstance(self.limit, int)
        given = None if isinstance(self.cc_update, str) else self.cc_update
        return Credits(
            cc_update=default.cc_update if self.cc_update is None else given,
            unit=self.unit or default.unit,
            limit=self.limit if isinstance(self.limit, int) else None,
            loops=default.loops if counted or self.limit is None else self.limit,
        )


class LlrSpec(SpecModel):
    """`fabric.scale_up.llr`: link-level retry."""

    window: Written[Annotated[int | float, _AutoCountOrShare("frames", LARGEST_WINDOW)]] = Field(
        default=None,
        description="Says how many frames of 256 B may be unacknowledged: a number, auto (what the link's round trip"
        " holds), or a share of that.",
    )
    timer: Written[Annotated[float, _Windows()]] = Field(
        default=None, description="Gives the replay timer in times that a window takes; the default is 4windows."
    )
    replays: Written[Annotated[int, Whole(1, 255)]] = Field(
        default=None, description="Says how often a window is sent again until the link gives up; the default is 3."
    )

    pcs_lost: Written[Annotated[float, _Windows()]] = Field(
        default=None,
        description="Says after how many times of a window a silent link gives up; the default is 40windows.",
    )

    def retry(self) -> LinkRetry:
        default = LinkRetry()
        counted = isinstance(self.window, int)
        return LinkRetry(
            window=self.window if isinstance(self.window, int) else None,
            round_trips=default.round_trips if counted or self.window is None else self.window,
            timer_windows=self.timer or default.timer_windows,
            replays=self.replays or default.replays,
            pcs_lost_windows=self.pcs_lost or default.pcs_lost_windows,
        )


class MemoryPoolSpec(SpecModel):
    """`fabric.scale_up.pool`: memory devices on the switches of each domain, which all its GPUs load from and store
    to."""

    devices: Annotated[int, Whole(1, MOST_DEVICES)] = Field(description="Says how many devices each domain has.")
    capacity: Written[Annotated[ByteCount, Quantity(ByteCount, MOST_CAPACITY)]] = Field(
        default=None, description="Gives the capacity of a device, an account without memory behind it; 1TB by default."
    )
    rate: Written[RateField] = Field(
        default=None,
        description="Gives what the memory of a device reads and writes, both together; 512G by default.",
    )
    latency: Written[FabricTimeField] = Field(
        default=None,
        description="Gives the time from a request at a device until its answer may go; 250ns by default.",
    )
    ways: Written[Annotated[int, Whole(1, MOST_DEVICES)]] = Field(
        default=None,
        description="Says over how many devices the memory of a region is interleaved; by default over all.",
    )
    interleave: Written[Annotated[ByteCount, _OneSize(INTERLEAVES)]] = Field(
        default=None,
        description="Gives the bytes of a device before those of the next one; the default is 256B. A frame of the lab"
        " stands for `coarse` transactions here, too.",
    )

    def pool(self) -> ScaleUpPool:
        """Return the pool as it is resolved."""
        written = {name: getattr(self, name) for name in type(self).model_fields if getattr(self, name) is not None}
        return ScaleUpPool(**{"ways": self.devices, **written})


class ScaleUpSpec(SpecModel):
    """`fabric.scale_up`: a preset, its keys changed one by one, or a domain written out. Rates count one way."""

    preset: Written[Annotated[str, OneOf(tuple(SCALE_UP_PRESETS), noun="scale-up preset")]] = Field(
        default=None, description="Names the system that the values are taken from which are not written."
    )
    domain: Written[Annotated[str, OneOf(tuple(DomainSpan))]] = Field(
        default=None, description="Says whose GPUs are one domain: those of a host, or of a segment."
    )
    rate: Written[RateField] = Field(
        default=None, description="Gives the rate of a GPU over all its links, per direction, such as 3.6T."
    )
    links: Written[Annotated[int, Whole(1, MAX_LINKS)]] = Field(
        default=None, description="Says how many links a GPU has over all planes; by default those of its shares."
    )
    planes: Written[Annotated[int, Whole(1, MAX_PLANES)]] = Field(
        default=None, description="Says how many switches each GPU has links to."
    )
    shares: Written[Annotated[list[Annotated[int, Whole(1, MAX_LINKS)]], Length(1, MAX_PLANES)]] = Field(
        default=None, description="Lists how many of a GPU's links go to each plane; by default as even as can be."
    )
    switch_ports: Written[Annotated[int, Whole(1, 1_000_000)]] = Field(
        default=None, description="Gives the ports of a plane's switch, which sizing is checked against."
    )
    rtt: Written[FabricTimeField] = Field(
        default=None,
        description="Gives the round trip of a smallest transaction, from a GPU to another and back; 1us by default.",
    )
    flow_control: Written[Annotated[str, OneOf(tuple(ScaleUpFlowControl))]] = Field(
        default=None, description="Says what keeps receivers' buffers from overflowing; the default is credits."
    )
    vcs: Written[Annotated[int, Whole(1, 32)]] = Field(
        default=None, description="Says how many virtual channels a link has; the default is 2."
    )
    credits: Section[CreditsSpec] = Field(
        default=CreditsSpec.model_construct(), description="Describes a channel's credits."
    )
    llr: Written[Annotated[LlrSpec | str, AutoOff(LlrSpec, "window", on_hint="write auto, or {replays: 3}")]] = Field(
        default=None, description="Describes link-level retry: auto, off, or {window: auto, replays: 3}."
    )
    coarse: Written[Annotated[int, Whole(1, MAX_COARSE)]] = Field(
        default=None, description="Says how many transactions of 256 B a frame of the lab stands for; 16 by default."
    )
    by: Written[Annotated[str, OneOf(tuple(ScaleUpBy))]] = Field(
        default=None,
        description="Says what realises transfers: time, the default, or packets, which are frames through a switch.",
    )
    voq: Written[Flag] = Field(
        default=None,
        description="Says whether inputs of a switch have a queue for each output; by default one for all.",
    )
    spray: Written[Annotated[str, OneOf(tuple(PlaneSpray))]] = Field(
        default=None,
        description="Says how a copy's regions of 256 B take planes: weighted by their rates, which is the default,"
        " equal, or pinned to their address whatever happens to the plane.",
    )
    buffer: Written[BufferField] = Field(
        default=None,
        description="Gives the buffer of a link's channel where credits do not; by default what a busy link needs.",
    )
    xoff: Written[BufferField] = Field(
        default=None, description="Says at how much in that buffer PFC asks for a pause; half of it by default."
    )
    headers: Written[Annotated[str, OneOf(tuple(ScaleUpHeaders))]] = Field(
        default=None,
        description="Says behind whose headers a payload occupies its link: those of the lab's own frames, which is the"
        " default, udp (Scale-Up Ethernet over UDP/IP), afh, sue-lite, or ualink.",
    )
    xon: Written[BufferField] = Field(
        default=None, description="Says at how much in that buffer a pause ends; a quarter of it by default."
    )
    pool: Written[MemoryPoolSpec] = Field(
        default=None, description="Describes memory devices that the GPUs of a domain have in common; by default none."
    )


def resolve_scale_up(spec: ScaleUpSpec | None) -> tuple[ScaleUp, list[FabricError]]:
    """The scale-up domains that a file asks for, and what contradicts itself; without the section, what labs have.

    With an error, what is returned first is of no use.
    """
    if spec is None:
        return UNSTATED_SCALE_UP, []
    base = None if spec.preset is None else SCALE_UP_PRESETS[spec.preset]
    shares, errors = _shares(spec, base)
    if base is None and spec.rate is None:
        hint = f"rate: 3.6T, or preset: {' or '.join(SCALE_UP_PRESETS)}"
        errors.append(_error("a scale-up domain has a rate, or a preset", "rate", code="missing-key", hint=hint))
    if spec.flow_control not in (None, ScaleUpFlowControl.CREDITS) and spec.credits != CreditsSpec():
        hint = "flow_control: credits, or leave out the credits"
        message = f"there are no credits with flow_control: {spec.flow_control}"
        errors.append(_error(message, "credits", code="contradiction", hint=hint))
    errors += [*_buffer_errors(spec), *_pool_errors(spec)]
    if errors:
        return UNSTATED_SCALE_UP, errors
    if base is None:
        assert spec.rate is not None
        base = ScaleUp(rate=spec.rate, shares=shares)
    return replace(base, shares=shares, **_written(spec)), []


def _buffer_errors(spec: ScaleUpSpec) -> Iterator[FabricError]:
    """Buffers and thresholds that mean nothing with the flow control of the file, or that contradict each other."""
    control = spec.flow_control or ScaleUpFlowControl.CREDITS
    if spec.buffer is not None and control == ScaleUpFlowControl.CREDITS:
        hint = "credits: {limit: 100}, or flow_control: pfc or none"
        yield _error("credits say how large a buffer is", "buffer", code="contradiction", hint=hint)
    for key, value in (("xoff", spec.xoff), ("xon", spec.xon)):
        if value is not None and control != ScaleUpFlowControl.PFC:
            message = f"there are no pauses with flow_control: {control}"
            yield _error(message, key, code="contradiction", hint=f"flow_control: pfc, or leave out {key}")
    ordered = [(key, value) for key in ("xon", "xoff", "buffer") if (value := getattr(spec, key)) is not None]
    for (low, less), (high, more) in pairwise(ordered):
        if less.bytes > more.bytes:
            yield _error(
                f"{low} of {less} is above {high} of {more}", low, code="contradiction", hint=f"at most {more}"
            )


def _pool_errors(spec: ScaleUpSpec) -> Iterator[FabricError]:
    """A pool whose loads and stores would be no frames, or whose regions do not come out even."""
    pool = spec.pool
    if pool is None:
        return
    if spec.by != ScaleUpBy.PACKETS:
        message = "loads and stores of pooled memory are frames, and this domain has none"
        yield _error(message, "pool", code="contradiction", hint="by: packets beside the pool")
    if pool.ways is not None and pool.devices % pool.ways:
        message = f"{_counted(pool.devices, 'device')} are no whole regions of {pool.ways}"
        yield _error(message, "pool.ways", code="contradiction", hint=f"a divisor of {pool.devices}")


def _written(spec: ScaleUpSpec) -> Mapping[str, Any]:
    """Return the values that the file gives, by the names of the model."""
    same = {item.name for item in fields(ScaleUp)} & spec.model_fields_set - {"preset", "shares", "credits", "pool"}
    retry = {None: LinkRetry(), "auto": LinkRetry(), "off": None}
    return {name: getattr(spec, name) for name in same} | {
        "credits": spec.credits.credits(),
        "pool": None if spec.pool is None else spec.pool.pool(),
        "retry": spec.llr.retry() if isinstance(spec.llr, LlrSpec) else retry[spec.llr],
    }


def _shares(spec: ScaleUpSpec, base: ScaleUp | None) -> tuple[tuple[int, ...], list[FabricError]]:
    """Return the number of a GPU's links that go to each plane, and what is wrong with what the file says of it."""
    links = spec.links or (base.links if base else None)
    whose = f"a GPU of {base.preset} has {links}" if base and not spec.links else f"a GPU has {links}"
    if spec.shares is not None:
        errors = []
        if spec.planes is not None and len(spec.shares) != spec.planes:
            message = (
                f"there are shares for {_counted(len(spec.shares), 'plane')}, and {_counted(spec.planes, 'plane')}"
            )
            errors.append(_error(message, "shares", hint=f"{spec.planes} shares, or planes: {len(spec.shares)}"))
        if links is not None and sum(spec.shares) != links:
            message = f"the shares add up to {_counted(sum(spec.shares), 'link')}; {whose}"
            errors.append(
                _error(message, "shares", hint=f"shares that add up to {links}, or links: {sum(spec.shares)}")
            )
        return tuple(spec.shares), errors
    planes = spec.planes or (base.planes if base else None)
    if planes is None:
        hint = "planes: 4, or shares: [5, 4, 4, 5]"
        return (), [_error("a scale-up domain has planes, or a preset", "planes", code="missing-key", hint=hint)]
    if base is not None and (planes, links) == (base.planes, base.links):
        return base.shares, []
    if links is not None and links < planes:
        message = f"{whose} links, too few for {_counted(planes, 'plane')} with a link each"
        return (), [_error(message, "planes", hint=f"planes: {links} at most, or links: {planes} at least")]
    each, more = divmod(links or planes, planes)
    return tuple(each + (plane < more) for plane in range(planes)), []


def _error(message: str, key: str, *, code: str = "scale-up-shares", hint: str) -> FabricError:
    return FabricError(message, field=f"scale_up.{key}", code=code, hint=hint)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
