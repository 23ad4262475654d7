"""Turns parameters into a shape: fills in the design's preset and finds every fault of the section.

A `Shape` is what the generator works from: no None left, nothing contradictory, everything within limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from testbed.base.errors import FabricError
from testbed.base.names import PLANE_LETTERS, choice_hint
from testbed.base.units import Rate
from testbed.lab.core.fabric.designs import DESIGNS, RAILS_PER_SWITCH, Design, Value
from testbed.lab.core.fabric.params import FabricParams
from testbed.lab.core.fabric.ports import PORT_MAPS
from testbed.lab.core.model import Delay, Role

MAX_LINKS = 1 << 18
"""More than any one machine holds; keeps a mistyped number from filling the memory."""

PREFIX_LENGTHS = {1: 24, 2: 25, 4: 27, 8: 28}
"""Default subnet of a rail by rails per switch (figures 13-10 to 13-12)."""

SHORTEST_PREFIX, LONGEST_PREFIX = 16, 30
MLAG = "mlag"
"""The way of joining the ports of a NIC by which they are one link group."""

_KEYS: dict[str, tuple[str, ...]] = {
    "": ("pods", "segments", "hosts", "gpus", "planes", "spines", "super_spines", "super_spine_groups", "switch_radix"),
    "nic": ("per", "ports", "rate", "count"),
    "rails": ("per_switch", "port_map", "prefix_length"),
    "uplink": ("rate", "count"),
    "core_uplink": ("rate", "count"),
}
"""The keys that a design may fix, by the section of `fabric:` that they are in."""
# Inclusive ranges. Those of places come from the address plan.
_RANGES: dict[str, tuple[int, int]] = {
    "pods": (1, 64),
    "segments": (1, 4096),
    "hosts": (1, 65533),
    "gpus": (1, 256),
    "planes": (1, len(PLANE_LETTERS)),
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
"""Per segment and port of a NIC."""
_MAX_PODS_OF_PLANES = 31
"""Pods where there are planes: their spines have loopbacks and AS numbers for no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Everything the generator needs to know, decided. Counts are per what the name's suffix says."""

    design: Design
    pods: int
    segments: int
    """Per pod."""
    hosts: int
    """Per segment: of the largest, where they are not equal."""
    unequal: tuple[int, ...] = ()
    """The hosts of every segment, pod by pod; (): all are equal."""
    gpus: int
    """Per host."""
    nics: int
    """Per host; NIC i serves rail i."""
    shared_nics: bool
    ports: tuple[int, ...]
    """The ports of a NIC, each on a rail switch of its own: (0,) for one, else (1, 2, ...)."""
    planes: tuple[int, ...]
    """The fabrics that share no switch: (0,) for one, else (1, 2, ...)."""
    link_groups: bool
    """The two ports of a NIC are one link group, whose partner its two rail switches are together."""
    nic_rate: Rate
    nic_cable: str | None
    slots: int
    """Rails a switch can carry."""
    rail_switches: int
    """Per segment and port of a NIC."""
    port_map: str | None
    prefix_length: int
    aggregate_length: int
    spines: int
    """Per pod and plane."""
    super_spines: int
    """Per plane."""
    groups: int
    """Groups of super-spines of a plane."""
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
    tier_radix: Mapping[Role, int] = field(default_factory=dict)

    @property
    def gpus_per_nic(self) -> int:
        return self.gpus // self.nics

    @property
    def all_hosts(self) -> int:
        """The hosts of all segments."""
        return sum(self.unequal) or self.pods * self.segments * self.hosts

    @property
    def access_links(self) -> int:
        return self.all_hosts * self.nics * len(self.ports)

    @property
    def uplinks(self) -> int:
        """Rail switch to spine."""
        leaves = self.pods * self.segments * self.rail_switches * len(self.ports)
        return leaves * self.spines * self.uplink_count

    @property
    def core_links(self) -> int:
        """Spine to super-spine."""
        spines = self.pods * self.spines * len(self.planes)
        return spines * (self.super_spines // self.groups) * self.core_count

    @property
    def fabric_links(self) -> int:
        return self.uplinks + self.core_links

    @property
    def peer_links(self) -> int:
        """Between two rail switches that are one partner of link groups."""
        return self.pods * self.segments * self.rail_switches if self.link_groups else 0

    @property
    def leaves_of_plane(self) -> int:
        """The rail switches that a segment has in each plane, or in all where there is one."""
        return self.rail_switches * len(self.ports) // len(self.planes)

    def hosts_in(self, pod: int, segment: int) -> int:
        """The number of hosts of a segment. Pods and segments are numbered from 1."""
        return self.unequal[(pod - 1) * self.segments + segment - 1] if self.unequal else self.hosts

    def rail_switch_places(self) -> Iterator[tuple[int, int, int]]:
        """Yield the place of every rail switch of a segment: its index, its plane, and its position (from 0) below the
        spines of that plane. Where all planes share spines, a plane is a port of each NIC, and positions go through."""
        apart = len(self.planes) > 1
        position = dict.fromkeys(self.planes, 0)
        for index in range(1, self.rail_switches + 1):
            for port in self.ports:
                plane = self.plane_of_rail_switch(index, port)
                above = plane if apart else 0
                yield index, plane, position[above]
                position[above] += 1

    def plane_of_rail_switch(self, index: int, port: int = 0) -> int:
        """The plane of a rail switch that a port of NICs is on; 0 where NICs have one port, and all rails one plane."""
        return port or ((index - 1) % len(self.planes) + 1 if len(self.planes) > 1 else 0)


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
        hint = choice_hint(params.design, DESIGNS)
        faults.add("design", f"there is no design {params.design!r}", code="unknown-design", hint=hint)
        return None, tuple(faults)
    written = _written(params)
    _check_ranges(written, faults)
    _check_design(design, written, faults)
    values = _filled(design, written)
    _check_together(design, written, values, faults)
    _check_unequal(params.hosts, values, faults)
    _check_link_groups(params, values, faults)
    if faults:
        return None, tuple(faults)
    shape = _shape(design, values, params)
    links = shape.access_links + shape.fabric_links + shape.peer_links
    if links > MAX_LINKS:
        faults.add(
            "hosts", f"this fabric has {links:,} links, more than the {MAX_LINKS:,} one lab may have", code="size"
        )
        return None, tuple(faults)
    return shape, ()


def _written(params: FabricParams) -> dict[str, Value]:
    """Return what the file says, by dotted key: of everything that a design may fix, and a file leave to it.

    The hosts of unequal segments are those of the largest, and as many segments as there are numbers.
    """
    found: dict[str, Value] = {}
    for section, names in _KEYS.items():
        values = getattr(params, section) if section else params
        for name in names:
            if (value := getattr(values, name)) is not None:
                found[f"{section}.{name}" if section else name] = value
    if isinstance(params.hosts, tuple):
        found["hosts"] = max(params.hosts, default=0)
        if params.pods in (None, 1):
            found.setdefault("segments", len(params.hosts))
    if isinstance(params.switch_radix, Mapping):
        found["switch_radix"] = params.switch_radix.get(Role.RAIL) or max(params.switch_radix.values())
    return found


def _check_ranges(written: dict[str, Value], faults: _Faults) -> None:
    """Each number on its own; that words and rates are right is up to whoever reads them."""
    for key, value in written.items():
        if key in _RANGES and isinstance(value, int):
            low, high = _RANGES[key]
            if not low <= value <= high:
                hint = "gpus are those of a host; segments and hosts make more" if key == "gpus" else None
                faults.add(key, f"{key} is {value}; it goes from {low} to {high}", code="range", hint=hint)


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
        "planes": 1,
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
    _check_planes(design, values, faults)
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
    if switches > _MAX_RAIL_SWITCHES:
        per = "segment has at most" if ports == 1 else "segment has for each port of a NIC at most"
        message = f"{nics} rails with {slots} on a switch need {switches} rail switches; a {per} {_MAX_RAIL_SWITCHES}"
        faults.add(field, message, code="range", hint="more rails.per_switch, or fewer rails")
    if "rails.port_map" in values and not faults.on("rails.port_map", "hosts"):
        _check_port_map(str(values["rails.port_map"]), slots, _int(values, "hosts"), faults)


def _check_planes(design: Design, values: dict[str, Value], faults: _Faults) -> None:
    """Planes are of the ports of NICs, one for each, or of rails."""
    if faults.on("planes", "nic.ports", "nic.per", "nic.count", "gpus", "rails.per_switch"):
        return
    planes, ports, slots = _int(values, "planes"), _int(values, "nic.ports"), _int(values, "rails.per_switch")
    if planes > 1 and not faults.on("pods") and _int(values, "pods") > _MAX_PODS_OF_PLANES:
        message = f"pods is {_int(values, 'pods')}; with planes it goes from 1 to {_MAX_PODS_OF_PLANES}"
        faults.add("pods", message, code="range", hint="more segments in each pod, or no planes")
    if planes < design.at_least.get("planes", 1):
        message = (
            f"{_nics(values)} rails of NICs with one port do not divide into planes; design {design.name} needs two"
        )
        faults.add("gpus", message, code="contradiction", hint="gpus: 8, which makes eight planes")
    if planes == 1:
        return
    if ports > 1:
        if planes != ports:
            message = f"NICs have {ports} ports, one for each plane, and there are {planes} planes"
            faults.add("planes", message, code="contradiction", hint=f"planes: {ports}, or nic: {{ports: 1}}")
        return
    nics = _nics(values)
    switches = -(-nics // slots)
    if switches % planes:
        what = f"{nics} rails" if slots == 1 else f"{switches} rail switches of a segment"
        message = f"{what} do not divide into {planes} planes of NICs with one port"
        most = next(number for number in range(min(planes, switches), 0, -1) if not switches % number)
        hint = f"planes: {most}" if most > 1 else f"nic: {{ports: {planes}}}"
        faults.add("planes", message, code="contradiction", hint=hint)


def _check_unequal(hosts: int | tuple[int, ...] | None, values: dict[str, Value], faults: _Faults) -> None:
    """The hosts of unequal segments: one number for each segment of a pod, or of the fabric."""
    if not isinstance(hosts, tuple) or faults.on("hosts", "segments", "pods"):
        return
    pods, segments = _int(values, "pods"), _int(values, "segments")
    low, high = _RANGES["hosts"]
    if len(hosts) not in (segments, pods * segments):
        of = f"{pods} pods of {segments} segments" if pods > 1 else f"{segments} segments"
        message = f"hosts has {len(hosts)} numbers, and there are {of}"
        faults.add("hosts", message, code="contradiction", hint="one number for each segment, or one for all")
    elif (wrong := next((number for number in hosts if not low <= number <= high), None)) is not None:
        faults.add("hosts", f"hosts has {wrong}; a segment has {low} to {high}", code="range")


def _check_link_groups(params: FabricParams, values: dict[str, Value], faults: _Faults) -> None:
    """Link groups have two ports, on two switches with one rail and the same spines."""
    if params.nic.multihoming != MLAG or faults.on("nic.ports", "rails.per_switch", "planes"):
        return
    if _int(values, "nic.ports") != 2:
        message = f"link groups have two ports, on two rail switches; NICs have {_int(values, 'nic.ports')}"
        faults.add("nic.multihoming", message, code="contradiction", hint="nic: {ports: 2}")
    elif _int(values, "rails.per_switch") != 1:
        message = "link groups on rail switches with several rails are not built"
        faults.add("nic.multihoming", message, code="not-built", hint="rails: {per_switch: 1}, or multihoming: subnets")
    elif _int(values, "planes") != 1:
        message = "two rail switches that are one partner have a link between them, and planes have none"
        faults.add("nic.multihoming", message, code="contradiction", hint="planes: 1, or multihoming: subnets")
    elif _int(values, "spines") == 0:
        message = "two rail switches ask each other over the fabric whether they live, and there are no spines"
        faults.add("nic.multihoming", message, code="not-built", hint="spines: 1, or multihoming: subnets")
    elif params.nic.rdma is not None:
        message = "RDMA devices of link groups are not built"
        faults.add("nic.multihoming", message, code="not-built", hint="multihoming: subnets, or nic without rdma")


def _unequal(hosts: int | tuple[int, ...] | None, pods: int, segments: int) -> tuple[int, ...]:
    """Return the hosts of every segment; () where all are equal."""
    if not isinstance(hosts, tuple) or len(set(hosts)) == 1:
        return ()
    return hosts if len(hosts) == pods * segments else hosts * pods


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
    pods, segments, planes = _int(values, "pods"), _int(values, "segments"), _int(values, "planes")
    by_tier = params.switch_radix if isinstance(params.switch_radix, Mapping) else {}
    return Shape(
        design=design,
        pods=pods,
        segments=segments,
        hosts=_int(values, "hosts"),
        unequal=_unequal(params.hosts, pods, segments),
        gpus=_int(values, "gpus"),
        nics=nics,
        shared_nics=values["nic.per"] == "host",
        ports=tuple(range(1, ports + 1)) if ports > 1 else (0,),
        planes=tuple(range(1, planes + 1)) if planes > 1 else (0,),
        link_groups=params.nic.multihoming == MLAG,
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
        switch_radix=_int(values, "switch_radix") if "switch_radix" in values and not by_tier else None,
        tier_radix=dict(by_tier),
    )
