"""The words of a `fabric:` section as types: the input of every generator.

None means "not written": the design's preset fills it, and a design refuses a value that contradicts one it fixes
(`FabricError` with the dotted field). The keys of NICs, rails and uplinks are declared here, and nowhere else
(`testbed.base.keys`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.base.keys import key
from testbed.base.names import PLANE_LETTERS
from testbed.base.units import SHARE, Rate
from testbed.lab.core.fabric.figures.cables import Cable
from testbed.lab.core.fabric.ports import PORT_MAPS
from testbed.lab.core.model import Delay, Rdma, Role, Routing

MOST = 1_000_000
"""More than there is of anything."""


def _count(description: str) -> Any:
    return key(description, None, low=1, high=MOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class NicParams:
    """`fabric.nic`."""

    per: str | None = key(
        "Says whether each GPU has a NIC (gpu), or a host's GPUs share NICs (host).", None, words=("gpu", "host")
    )
    ports: int | None = key(
        "Says how many ports a NIC has, each on a rail switch of its own; see planes.",
        None,
        low=1,
        high=len(PLANE_LETTERS),
    )
    rate: Rate | None = key("Gives the rate of a port, such as 400G.", None)
    count: int | None = _count("Says how many NICs a host has, with per: host.")
    """The default is 1 (figure 13-1 has 2)."""
    multihoming: str | None = key(
        "Says how the ports of a NIC are joined: a subnet for each, or mlag, one link group of both.",
        None,
        words=("subnets", "mlag"),
        later=dict.fromkeys(
            ("evpn", "esi"), "EVPN multihoming of dual-port NICs is not built yet; each port has a subnet of its own"
        ),
    )
    rdma: Rdma | None = key("Gives each NIC port a soft RoCEv2 device (rxe, from Linux 7.1 on).", None)
    cable: Cable | None = key("Names the kind of cable to a switch, for its price; sizing has a rule without it.", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RailParams:
    """`fabric.rails`."""

    per_switch: int | None = key("Says how many rails are on a rail switch.", None, words=(1, 2, 4, 8))
    port_map: str | None = key(
        "Names the figure whose numbering of switch ports is used.", None, words=tuple(PORT_MAPS)
    )
    prefix_length: int | None = key("Gives the length of a rail's prefix on one switch.", None, low=8, high=30)
    """The default is /24, /25, /27, /28 for 1, 2, 4, 8 rails a switch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UplinkParams:
    """`fabric.uplink`, and `fabric.core_uplink`."""

    rate: Rate | None = key("Gives the rate of a link, such as 400G.", None)
    count: int | None = _count("Says how many parallel links there are between two switches.")
    delay: Delay | None = key("Gives the one-way delay: 500ns, or {value: 500ns, by: auto}.", None)
    loss: float | None = key("Gives the share of packets lost each way, such as 0.1%.", None, measure=SHARE, high=1)
    cable: Cable | None = key("Names the kind of cable, for its price; sizing has a rule without it.", None)


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
