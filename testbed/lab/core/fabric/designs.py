"""The designs a file can name. A design is a preset of parameters: data, not code.

`preset` fills what the file leaves out; `allowed` lists the values a design accepts where it fixes or
restricts a parameter; `at_least` is a lower bound. Keys are those of the `fabric:` section, dotted.
Figures are those of the book "AI for Network Engineers" (chapters 1 and 13) unless another source is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from testbed.base.units import Rate

Value = int | str | Rate
Values = Mapping[str, Value]

RAILS_PER_SWITCH = (1, 2, 4, 8)


def _nothing(known: Values) -> Values:
    del known
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A named preset. `derive` computes defaults that depend on values already known (written or preset)."""

    name: str
    summary: str
    figure: str
    preset: Values = field(default_factory=dict)
    allowed: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    at_least: Mapping[str, int] = field(default_factory=dict)
    isolated_rails: bool = False
    """Rails are meant not to reach each other through the fabric."""
    whole_host_on_switch: bool = False
    """All rails of a host end on one switch (per plane)."""
    derive: Callable[[Values], Values] = _nothing


def _all_rails_on_one_switch(known: Values) -> Values:
    """The narrowest switch that takes every NIC of a host."""
    nics = known.get("nic.count", 1) if known.get("nic.per") == "host" else known.get("gpus", 8)
    assert isinstance(nics, int)
    return {"rails.per_switch": next((size for size in RAILS_PER_SWITCH if size >= nics), RAILS_PER_SWITCH[-1])}


def _a_plane_for_each_port(known: Values) -> Values:
    """As many planes as NICs have ports, and as many ports as there are planes, whichever is written."""
    return {"planes": known.get("nic.ports", 2), "nic.ports": known.get("planes", 2)}


def _a_plane_for_each_rail(known: Values) -> Values:
    """As many planes as a host has GPUs, or rail switches for them: at most eight, with the same number in each."""
    gpus, slots = known.get("gpus", 8), known.get("rails.per_switch", 1)
    assert isinstance(gpus, int)
    assert isinstance(slots, int)
    switches = max(1, -(-gpus // max(1, slots)))
    return {"planes": next(count for count in range(min(8, switches), 0, -1) if not switches % count)}


def _superpod_counts(known: Values) -> Values:
    """Spines and cores of an NVIDIA SuperPOD of switches with `switch_radix` ports, half of which go up.

    One pod: as few spines as have a port for all uplinks of a plane, which each leaf spreads over them evenly: 4 for
    the 8 leaves of one unit of 32 hosts on 64 ports, 18 for the 32 leaves of four units of 72 hosts on 144 ports. More:
    pods of as many units as fill their spines, each leaf once to each of them; a spine has half its ports left for
    cores, fewer than there are, so the cores stand in groups, and spine s of every pod serves group
    (s - 1) mod groups + 1. Every core then has all its ports in use.
    """

    def number(key: str, default: int) -> int:
        value = known.get(key, default)
        assert isinstance(value, int)
        return max(1, value)

    pods, half = number("pods", 1), max(1, number("switch_radix", 64) // 2)
    leaves = number("gpus", 8) // (number("planes", 1) if number("nic.ports", 1) == 1 else 1) or 1
    if pods > 1:
        groups = max(1, power_of_two(pods) // 2)
        return {
            "segments": max(1, half // leaves),
            "spines": half,
            "uplink.count": 1,
            "super_spines": half * groups,
            "super_spine_groups": groups,
        }
    needed = -(-number("segments", 4) * leaves // 2)
    spines = next((count for count in range(needed, half) if not half % count), half)
    return {"segments": 4, "spines": spines, "uplink.count": half // spines}


def power_of_two(number: int) -> int:
    """The smallest power of two that is not below `number`, from 1 on."""
    return 1 << max(0, number - 1).bit_length()


_NO_SPINES: Mapping[str, tuple[Value, ...]] = {"pods": (1,), "segments": (1,), "spines": (0,), "super_spines": (0,)}

_ALL = (
    Design(
        name="single-switch",
        summary="one switch; port i of each host's group of eight is in the VLAN of rail i",
        figure="figure 13-4",
        preset={"hosts": 3, "gpus": 8, "nic.rate": Rate.parse("200G")},
        allowed={**_NO_SPINES, "nic.ports": (1,)},
        whole_host_on_switch=True,
        derive=_all_rails_on_one_switch,
    ),
    Design(
        name="dual-switch",
        summary="two independent switches; dual-port NICs with a subnet on each",
        figure="figure 13-5",
        preset={"hosts": 3, "gpus": 8, "nic.rate": Rate.parse("200G"), "nic.ports": 2},
        allowed={**_NO_SPINES, "nic.ports": (2,)},
        whole_host_on_switch=True,
        derive=_all_rails_on_one_switch,
    ),
    Design(
        name="rail-only",
        summary="a switch per rail and no spines; crossing rails is the host's work",
        figure="the section on cross-rail communication after figure 13-5",
        preset={"hosts": 4, "gpus": 8},
        allowed={**_NO_SPINES, "rails.per_switch": (1,)},
        isolated_rails=True,
    ),
    Design(
        name="multi-rail-switch",
        summary="eight (or four) rails on each switch, a /28 (/27) per rail, one /24 aggregate to the spines",
        figure="figure 13-10",
        preset={
            "segments": 2,
            "hosts": 4,
            "gpus": 8,
            "rails.per_switch": 8,
            "nic.rate": Rate.parse("100G"),
            "uplink.rate": Rate.parse("800G"),
            "spines": 4,
        },
        allowed={"rails.per_switch": (8, 4)},
        at_least={"spines": 1},
    ),
    Design(
        name="dual-rail-switch",
        summary="two rails on each switch, a /25 per rail, one /24 aggregate to the spines",
        figure="figure 13-11",
        preset={
            "hosts": 16,
            "gpus": 8,
            "rails.per_switch": 2,
            "nic.rate": Rate.parse("100G"),
            "uplink.rate": Rate.parse("800G"),
            "spines": 4,
        },
        allowed={"rails.per_switch": (2,)},
        at_least={"spines": 1},
    ),
    Design(
        name="rail-optimized",
        summary="one rail per switch, spines join the rails, super-spines join the pods",
        figure="figure 13-12; NVIDIA's scalable unit",
        allowed={"rails.per_switch": (1,)},
        at_least={"spines": 1},
    ),
    Design(
        name="pod",
        summary="two tiers (3-stage Clos): 4 rail switches, 64 GPUs, non-blocking",
        figure="figure 13-8",
        preset={
            "segments": 2,
            "hosts": 4,
            "gpus": 8,
            "nic.ports": 2,
            "nic.rate": Rate.parse("100G"),
            "rails.per_switch": 8,
            "spines": 4,
            "uplink.rate": Rate.parse("400G"),
            "uplink.count": 2,
        },
        allowed={"pods": (1,), "super_spines": (0,)},
        at_least={"spines": 1},
    ),
    Design(
        name="multi-pod",
        summary="three tiers (5-stage Clos): two pods of 64 GPUs joined by 4 super-spines, non-blocking",
        figure="figure 13-9",
        preset={
            "pods": 2,
            "segments": 2,
            "hosts": 4,
            "gpus": 8,
            "nic.ports": 2,
            "nic.rate": Rate.parse("100G"),
            "rails.per_switch": 8,
            "spines": 4,
            "super_spines": 4,
            "uplink.rate": Rate.parse("400G"),
            "uplink.count": 2,
        },
        at_least={"pods": 2, "spines": 1, "super_spines": 1},
    ),
    Design(
        name="shared-nic",
        summary="the 8 GPUs of a host share two NICs",
        figure="figure 13-1",
        preset={
            "hosts": 4,
            "gpus": 8,
            "nic.per": "host",
            "nic.count": 2,
            "nic.rate": Rate.parse("200G"),
            "spines": 2,
            "uplink.count": 2,
        },
        allowed={"nic.per": ("host",)},
        at_least={"spines": 1},
    ),
    Design(
        name="six-by-four",
        summary="six nodes of four GPUs: 24 GPUs, one rail per local rank",
        figure="figure 1-1",
        preset={"hosts": 6, "gpus": 4, "spines": 2, "uplink.count": 3},
        allowed={"pods": (1,), "segments": (1,), "hosts": (6,), "gpus": (4,), "super_spines": (0,)},
        at_least={"spines": 1},
    ),
    Design(
        name="nvl72-superpod",
        summary="scale-out of eight NVL72 super-nodes: 576 NICs of 800G",
        figure="the GB200 NVL72 case study (eight super-nodes, one 800G NIC per GPU)",
        # A super-node of 72 GPUs is one segment: its 18 compute trays are hosts of 4 GPUs each.
        preset={"segments": 8, "hosts": 18, "gpus": 4, "nic.rate": Rate.parse("800G"), "spines": 9, "uplink.count": 2},
        allowed={"nic.per": ("gpu",)},
        at_least={"spines": 1},
    ),
    Design(
        name="dgx-superpod",
        summary="NVIDIA DGX SuperPOD: scalable units of 32 hosts x 8 GPUs on 64-port switches, non-blocking",
        figure="NVIDIA's DGX SuperPOD reference architecture (B200), figure 13-12",
        preset={"hosts": 32, "gpus": 8, "switch_radix": 64},
        allowed={"nic.per": ("gpu",), "rails.per_switch": (1,)},
        at_least={"spines": 1},
        derive=_superpod_counts,
    ),
    Design(
        name="dual-plane",
        summary="dual-port NICs on two planes, each with rail switches and spines of its own",
        figure="Alibaba HPN (Qian et al., SIGCOMM 2024), a pod at one 32nd of its hosts",
        # At full size: segments 15, hosts 128, spines 60; a ToR has 128 x 200G down and 60 x 400G up.
        preset={
            "segments": 2,
            "hosts": 4,
            "gpus": 8,
            "nic.rate": Rate.parse("200G"),
            "spines": 2,
            "uplink.rate": Rate.parse("400G"),
        },
        at_least={"planes": 2, "nic.ports": 2, "spines": 1},
        derive=_a_plane_for_each_port,
    ),
    Design(
        name="multi-plane",
        summary="a plane for each GPU of a host: as many fabrics of two tiers, which hosts alone join",
        figure="DeepSeek-V3 (Zhao et al., ISCA 2025), figure 3, with 64 of up to 16,384 GPUs",
        # At full size: segments 64, hosts 32, spines 32; on switches of 64 ports.
        preset={"segments": 2, "hosts": 4, "gpus": 8, "spines": 2, "uplink.count": 2},
        allowed={"nic.ports": (1,), "nic.per": ("gpu",)},
        at_least={"planes": 2, "spines": 1},
        derive=_a_plane_for_each_rail,
    ),
)

DESIGNS: Mapping[str, Design] = MappingProxyType({design.name: design for design in _ALL})
