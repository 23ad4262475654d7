"""Turns parameters into a shape: fills in the design's preset and finds every fault of the section.

A `Shape` is what the generator works from: no None left, nothing contradictory, everything within limits.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.base.errors import FabricError
from testbed.base.names import nearest
from testbed.base.units import Rate
from testbed.lab.core.fabric.designs import DESIGNS, RAILS_PER_SWITCH, Design, Value
from testbed.lab.core.fabric.params import FabricParams
from testbed.lab.core.fabric.ports import PORT_MAPS
from testbed.lab.core.model import Delay

MAX_LINKS = 1 << 18
"""More than any one machine holds; keeps a mistyped number from filling the memory."""

PREFIX_LENGTHS = {1: 24, 2: 25, 4: 27, 8: 28}
"""Default subnet of a rail by rails per switch (figures 13-10 to 13-12)."""

SHORTEST_PREFIX, LONGEST_PREFIX = 16, 30

_KEYS: dict[str, tuple[str, ...]] = {
    "": ("pods", "segments", "hosts", "gpus", "spines", "super_spines", "super_spine_groups", "switch_radix"),
    "nic": ("per", "ports", "rate", "count"),
    "rails": ("per_switch", "port_map", "prefix_length"),
    "uplink": ("rate", "count"),
    "core_uplink": ("rate", "count"),
}
"""The keys that a design may fix, by the section of `fabric:` that they are in."""
# Inclusive ranges. Those of places come from the address plan.
_RANGES: dict[str, tuple[int, int]] = {
    "pods": (1, 31),
    "segments": (1, 64),
    "hosts": (1, 65533),
    "gpus": (1, 256),
    "nic.count": (1, 256),
    "spines": (0, 1023),
    "super_spines": (0, 4096),
    "super_spine_groups": (1, 4096),
    "uplink.count": (1, 64),
    "core_uplink.count": (1, 64),
    "switch_radix": (1, 4096),
    "rails.prefix_length": (SHORTEST_PREFIX, LONGEST_PREFIX),
}
_MAX_RAIL_SWITCHES = 32
_MAX_RAIL_SWITCHES_PER_PLANE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Everything the generator needs to know, decided. Counts are per what the name's suffix says."""

    design: Design
    pods: int
    segments: int
    """Per pod."""
    hosts: int
    """Per segment."""
    gpus: int
    """Per host."""
    nics: int
    """Per host; NIC i serves rail i."""
    shared_nics: bool
    planes: tuple[int, ...]
    """(0,) for single-port NICs, else (1, 2[, 3, 4])."""
    nic_rate: Rate
    nic_cable: str | None
    slots: int
    """Rails a switch can carry."""
    rail_switches: int
    """Per segment and plane."""
    port_map: str | None
    prefix_length: int
    aggregate_length: int
    spines: int
    """Per pod."""
    super_spines: int
    groups: int
    """Groups of super-spines."""
    uplink_rate: Rate
    uplink_count: int
    uplink_delay: Delay | None
    uplink_loss: float
    uplink_cable: str | None
    core_rate: Rate
    core_count: int
    core_delay: Delay | None
    core_loss: float
    core_cable: str | None
    switch_radix: int | None

    @property
    def gpus_per_nic(self) -> int:
        return self.gpus // self.nics

    @property
    def access_links(self) -> int:
        return self.pods * self.segments * self.hosts * self.nics * len(self.planes)

    @property
    def uplinks(self) -> int:
        """Rail switch to spine."""
        leaves = self.pods * self.segments * self.rail_switches * len(self.planes)
        return leaves * self.spines * self.uplink_count

    @property
    def core_links(self) -> int:
        """Spine to super-spine."""
        return self.pods * self.spines * (self.super_spines // self.groups) * self.core_count

    @property
    def fabric_links(self) -> int:
        return self.uplinks + self.core_links


class _Faults(list[FabricError]):
    def add(self, field: str, message: str, *, code: str = "design", hint: str | None = None) -> None:
        self.append(FabricError(message, field=field, code=code, hint=hint))

    def on(self, *fields: str) -> bool:
        """Tell whether one of `fields` is already known to be wrong."""
        return any(fault.field in fields for fault in self)


def check_params(params: FabricParams) -> tuple[FabricError, ...]:
    """Return every fault of a `fabric:` section, values first, then what contradicts what; empty if it can be built."""
    return _resolve(params)[1]


def resolve_shape(params: FabricParams) -> Shape:
    """The shape of `params`. Raises the first `FabricError` that `check_params` reports."""
    shape, faults = _resolve(params)
    if shape is None:
        raise faults[0]
    return shape


def _resolve(params: FabricParams) -> tuple[Shape | None, tuple[FabricError, ...]]:
    design = DESIGNS.get(params.design)
    faults = _Faults()
    if design is None:
        guess = nearest(params.design, DESIGNS)
        hint = f"did you mean {guess}?" if guess else f"one of {', '.join(DESIGNS)}"
        faults.add("design", f"there is no design {params.design!r}", code="unknown-design", hint=hint)
        return None, tuple(faults)
    written = _written(params)
    _check_ranges(written, faults)
    _check_design(design, written, faults)
    values = _filled(design, written)
    _check_together(design, written, values, faults)
    if faults:
        return None, tuple(faults)
    shape = _shape(design, values, params)
    links = shape.access_links + shape.fabric_links
    if links > MAX_LINKS:
        faults.add(
            "hosts", f"this fabric has {links:,} links, more than the {MAX_LINKS:,} one lab may have", code="size"
        )
        return None, tuple(faults)
    return shape, ()


def _written(params: FabricParams) -> dict[str, Value]:
    """Return what the file says, by dotted key: of everything that a design may fix, and a file leave to it."""
    found: dict[str, Value] = {}
    for section, names in _KEYS.items():
        values = getattr(params, section) if section else params
        for name in names:
            if (value := getattr(values, name)) is not None:
                found[f"{section}.{name}" if section else name] = value
    return found


def _check_ranges(written: dict[str, Value], faults: _Faults) -> None:
    """Each number on its own; that words and rates are right is up to whoever reads them."""
    for key, value in written.items():
        if key in _RANGES and isinstance(value, int):
            low, high = _RANGES[key]
            if not low <= value <= high:
                faults.add(key, f"{key} is {value}; it goes from {low} to {high}", code="range")


def _check_design(design: Design, written: dict[str, Value], faults: _Faults) -> None:
    """Each written value against what the design fixes."""
    for key, choices in design.allowed.items():
        if key not in written or written[key] in choices or faults.on(key):
            continue
        fixed = " or ".join(str(choice) for choice in choices)
        hint = f"leave {key} out or choose another design"
        faults.add(
            key, f"design {design.name} fixes {key} at {fixed}, not {written[key]}", code="design-fixes", hint=hint
        )
    for key, least in design.at_least.items():
        value = written.get(key)
        if isinstance(value, int) and value < least and not faults.on(key):
            message = f"design {design.name} needs {key} of at least {least}, not {value}"
            without = "rails without spines are the design rail-only" if key == "spines" else None
            faults.add(key, message, code="design-fixes", hint=without)


def _filled(design: Design, written: dict[str, Value]) -> dict[str, Value]:
    """Return what is written, completed from the design and then from what every design shares."""
    fixed = {key: choices[0] for key, choices in design.allowed.items()}
    known = {**fixed, **design.preset, **written}
    known = {**design.derive(known), **known}
    shared: dict[str, Value] = {
        "pods": 1,
        "segments": 1,
        "hosts": 4,
        "gpus": 8,
        "nic.per": "gpu",
        "nic.ports": 1,
        "nic.rate": Rate.parse("400G"),
        "nic.count": 1,
        "rails.per_switch": 1,
        "spines": 4,
        "super_spine_groups": 1,
        "uplink.count": 1,
    }
    known = {**shared, **known}
    if "super_spines" not in known:
        known["super_spines"] = known["spines"] if known["pods"] != 1 else 0
    known.setdefault("uplink.rate", known["nic.rate"])
    known.setdefault("core_uplink.rate", known["uplink.rate"])
    known.setdefault("core_uplink.count", known["uplink.count"])
    return known


def _int(values: dict[str, Value], key: str) -> int:
    value = values[key]
    assert isinstance(value, int)
    return value


def _rate(values: dict[str, Value], key: str) -> Rate:
    value = values[key]
    assert isinstance(value, Rate)
    return value


def _nics(values: dict[str, Value]) -> int:
    return _int(values, "nic.count" if values["nic.per"] == "host" else "gpus")


def _prefix(values: dict[str, Value]) -> int:
    written = values.get("rails.prefix_length")
    return written if isinstance(written, int) else PREFIX_LENGTHS[_int(values, "rails.per_switch")]


def _aggregate(prefix_length: int, slots: int) -> int:
    """The shortest prefix that holds the subnets of all slots; a /24 unless the subnets need more."""
    return min(24, prefix_length - (slots.bit_length() - 1))


def _check_together(design: Design, written: dict[str, Value], values: dict[str, Value], faults: _Faults) -> None:
    """Values against each other; each rule only where its own inputs are sound."""
    _check_nics(written, values, faults)
    _check_rails(design, values, faults)
    _check_subnets(values, faults)
    _check_tiers(values, faults)


def _check_nics(written: dict[str, Value], values: dict[str, Value], faults: _Faults) -> None:
    if faults.on("nic.per", "nic.count", "gpus"):
        return
    if values["nic.per"] == "gpu":
        if "nic.count" in written:
            message = "nic.count counts the NICs of a host and goes with nic.per: host; here every GPU has its own NIC"
            faults.add("nic.count", message, code="contradiction", hint="nic.per: host, or leave nic.count out")
        return
    gpus, nics = _int(values, "gpus"), _int(values, "nic.count")
    if gpus % nics:
        message = f"{gpus} GPUs cannot share {nics} NICs evenly"
        faults.add("nic.count", message, code="contradiction", hint="a divisor of gpus")


def _check_rails(design: Design, values: dict[str, Value], faults: _Faults) -> None:
    if faults.on("nic.per", "nic.count", "gpus", "rails.per_switch", "nic.ports"):
        return
    nics, slots, ports = _nics(values), _int(values, "rails.per_switch"), _int(values, "nic.ports")
    switches = -(-nics // slots)
    field = "gpus" if values["nic.per"] == "gpu" else "nic.count"
    if design.whole_host_on_switch and switches > 1:
        field = field if nics > RAILS_PER_SWITCH[-1] else "rails.per_switch"
        message = f"design {design.name} puts all {nics} rails of a host on one switch, which carries {slots}"
        faults.add(field, message, code="contradiction", hint="at most 8 rails fit on a switch")
        return
    limit = _MAX_RAIL_SWITCHES_PER_PLANE if ports > 1 else _MAX_RAIL_SWITCHES
    if switches > limit:
        per = "segment and plane" if ports > 1 else "segment"
        message = f"{nics} rails with {slots} on a switch need {switches} rail switches; a {per} has at most {limit}"
        faults.add(field, message, code="range", hint="more rails.per_switch, or fewer rails")
    if "rails.port_map" in values and not faults.on("rails.port_map", "hosts"):
        _check_port_map(str(values["rails.port_map"]), slots, _int(values, "hosts"), faults)


def _check_port_map(name: str, slots: int, hosts: int, faults: _Faults) -> None:
    blocks = PORT_MAPS[name]
    if slots != len(blocks):
        message = f"port map {name} is of a switch with {len(blocks)} rails; here a switch carries {slots}"
        hint = f"rails.per_switch: {len(blocks)}, or leave rails.port_map out"
        faults.add("rails.port_map", message, code="contradiction", hint=hint)
    elif hosts > len(blocks[0]):
        message = f"port map {name} has {len(blocks[0])} interfaces for each rail; here {hosts} hosts need one"
        hint = "leave rails.port_map out, or spread the hosts over more segments"
        faults.add("rails.port_map", message, code="contradiction", hint=hint)


def _check_subnets(values: dict[str, Value], faults: _Faults) -> None:
    if faults.on("hosts", "rails.per_switch", "rails.prefix_length"):
        return
    hosts, slots, length = _int(values, "hosts"), _int(values, "rails.per_switch"), _prefix(values)
    room = (1 << (32 - length)) - 3
    if _aggregate(length, slots) < SHORTEST_PREFIX:
        shortest = SHORTEST_PREFIX + slots.bit_length() - 1
        message = f"{slots} rails of a /{length} each exceed the /{SHORTEST_PREFIX} a rail switch may have"
        faults.add("rails.prefix_length", message, code="range", hint=f"rails.prefix_length: {shortest} or longer")
    elif hosts > room:
        fitting = 32 - (hosts + 2).bit_length()
        message = f"{hosts} hosts do not fit into a rail's /{length}: it holds {room} beside the gateway"
        possible = _aggregate(fitting, slots) >= SHORTEST_PREFIX
        hint = f"rails.prefix_length: {fitting}" if possible else "spread the hosts over more segments"
        faults.add("hosts", message, code="subnet", hint=hint)


def _check_tiers(values: dict[str, Value], faults: _Faults) -> None:
    if faults.on("pods", "spines", "super_spines", "super_spine_groups"):
        return
    spines, super_spines = _int(values, "spines"), _int(values, "super_spines")
    groups = _int(values, "super_spine_groups")
    if super_spines == 0 and _int(values, "pods") > 1:
        message = "several pods need super-spines to join them"
        faults.add("super_spines", message, code="contradiction", hint="super_spines: 1 or more")
    if super_spines % groups or (super_spines and spines % groups):
        message = f"{super_spines} super-spines and {spines} spines a pod do not divide into {groups} equal groups"
        faults.add("super_spine_groups", message, code="contradiction", hint="a divisor of spines and of super_spines")


def _shape(design: Design, values: dict[str, Value], params: FabricParams) -> Shape:
    nics, slots, ports = _nics(values), _int(values, "rails.per_switch"), _int(values, "nic.ports")
    port_map = values.get("rails.port_map")
    return Shape(
        design=design,
        pods=_int(values, "pods"),
        segments=_int(values, "segments"),
        hosts=_int(values, "hosts"),
        gpus=_int(values, "gpus"),
        nics=nics,
        shared_nics=values["nic.per"] == "host",
        planes=tuple(range(1, ports + 1)) if ports > 1 else (0,),
        nic_rate=_rate(values, "nic.rate"),
        nic_cable=params.nic.cable,
        slots=slots,
        rail_switches=-(-nics // slots),
        port_map=port_map if isinstance(port_map, str) else None,
        prefix_length=_prefix(values),
        aggregate_length=_aggregate(_prefix(values), slots),
        spines=_int(values, "spines"),
        super_spines=_int(values, "super_spines"),
        groups=_int(values, "super_spine_groups"),
        uplink_rate=_rate(values, "uplink.rate"),
        uplink_count=_int(values, "uplink.count"),
        uplink_delay=params.uplink.delay,
        uplink_loss=params.uplink.loss or 0.0,
        uplink_cable=params.uplink.cable,
        core_rate=_rate(values, "core_uplink.rate"),
        core_count=_int(values, "core_uplink.count"),
        core_delay=params.core_uplink.delay if params.core_uplink.delay is not None else params.uplink.delay,
        core_loss=(params.core_uplink.loss if params.core_uplink.loss is not None else params.uplink.loss) or 0.0,
        core_cable=params.core_uplink.cable or params.uplink.cable,
        switch_radix=_int(values, "switch_radix") if "switch_radix" in values else None,
    )
