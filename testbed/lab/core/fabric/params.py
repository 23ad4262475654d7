"""The words of a `fabric:` section as types: the input of every generator.

None means "not written": the design's preset fills it, and a design refuses a value that contradicts
one it fixes (`FabricError` with the dotted field).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from testbed.base.units import Rate
from testbed.lab.core.model import Delay, Rdma, Role, Routing


@dataclass(frozen=True, slots=True, kw_only=True)
class NicParams:
    per: str | None = None
    """"gpu": one NIC per GPU; "host": NICs shared by all GPUs of a host (`count` of them)."""
    ports: int | None = None
    rate: Rate | None = None
    count: int | None = None
    """NICs per host where `per` is "host"; default 1 (figure 13-1 has 2)."""
    multihoming: str | None = None
    """"subnets": each port has a subnet of its own; "mlag": two ports are one link group to two rail switches."""
    rdma: Rdma | None = None
    cable: str | None = None
    """The kind of cable to a switch: "dac", "aoc" or "optics". Of no effect on a lab."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RailParams:
    per_switch: int | None = None
    port_map: str | None = None
    prefix_length: int | None = None
    """Subnet of one rail on one switch; default /24, /25, /27, /28 for 1, 2, 4, 8 rails a switch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UplinkParams:
    rate: Rate | None = None
    count: int | None = None
    """Parallel links between each pair of switches of adjacent tiers."""
    delay: Delay | None = None
    loss: float | None = None
    """Share of packets (0 to 1) that a link's wire loses, each way."""
    cable: str | None = None
    """The kind of cable, as of `NicParams`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricParams:
    design: str
    pods: int | None = None
    segments: int | None = None
    hosts: int | tuple[int, ...] | None = None
    """Per segment: one number, or one for each segment of a pod, or of the whole fabric."""
    gpus: int | None = None
    nic: NicParams = field(default_factory=NicParams)
    planes: int | None = None
    """Fabrics that share no switch: of the ports of a NIC, or of rails where NICs have one port. The default is 1."""
    rails: RailParams = field(default_factory=RailParams)
    spines: int | None = None
    """Per pod and plane."""
    super_spines: int | None = None
    """Per plane."""
    super_spine_groups: int | None = None
    """Equal groups of super-spines (default 1): spine s of every pod reaches those of group (s - 1) mod groups + 1."""
    uplink: UplinkParams = field(default_factory=UplinkParams)
    core_uplink: UplinkParams = field(default_factory=UplinkParams)
    """Spine to super-spine links; what is not written is taken from `uplink`."""
    switch_radix: int | Mapping[Role, int] | None = None
    """The ports of a switch: of all, or by role."""
    routing: Routing = field(default_factory=Routing)
    mtu: int = 4500
