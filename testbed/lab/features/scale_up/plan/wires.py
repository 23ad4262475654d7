"""The namespace of the switch of each scale-up domain with packets, and a wire for each GPU and plane."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.lab.features.scale_up.plan.time_scale import ScaleUpPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainWire:
    """The veth pair between a GPU and the switch of one plane. It carries neither IPv4 nor IPv6."""

    gpu: int
    """The number of the GPU in its domain, from 0: hosts in the order of the lab, GPUs of each by rail."""
    plane: int
    """From 1, as in `ScaleUp.plane_rate`."""
    host: str
    local_gpu: int
    """The number of the GPU in its host, from 1, as rails are counted."""
    interface: str
    """The GPU's end, in the namespace of its host."""
    mac: str
    ifindex: int
    switch_interface: str
    """The switch's end, in the namespace of the domain."""
    switch_mac: str
    switch_ifindex: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainPlan:
    """One scale-up domain whose transfers are frames.

    `node` names the namespace that the switch process of all its planes runs in: a place of the lab beside its nodes.
    """

    name: str
    """As of `testbed.lab.features.scale_up.sizing.find_domains`."""
    node: str
    gpus: int
    wires: tuple[DomainWire, ...]
    """By plane, then by GPU: as a switch counts its ports."""
    links: tuple[ScaleUpPlan, ...]
    """The links of the wires of each plane: a GPU's links to it as one."""

    @property
    def planes(self) -> int:
        """Switch chips that each GPU reaches."""
        return len(self.links)

    def wires_of(self, host: str, local_gpu: int) -> tuple[DomainWire, ...]:
        """The wires of one GPU of a host (from 1), by plane; none where there is no such GPU."""
        return tuple(wire for wire in self.wires if (wire.host, wire.local_gpu) == (host, local_gpu))
