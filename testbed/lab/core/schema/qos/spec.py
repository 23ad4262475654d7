"""The `qos:` section as it is written: a profile for the whole fabric, and parts of it for kinds, tiers, nodes, ports.

Only shape, type and unit of each value are checked here; how the parts join, and what must hold of the whole, is in
`testbed.lab.core.schema.qos.layers`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field
from pydantic.json_schema import JsonSchemaValue

from testbed.base.datapath.markers import KERNEL_MARKERS
from testbed.base.names import nearest
from testbed.base.units import PERCENT
from testbed.base.validation.fields import (
    Checked,
    DurationField,
    Entries,
    Flag,
    Name,
    Number,
    OneOf,
    Section,
    Share,
    Whole,
    Written,
)
from testbed.base.validation.model import SpecModel, refusal
from testbed.base.yaml.paths import quote
from testbed.lab.core.fabric import QOS_PRESETS
from testbed.lab.core.model import BalancingMode, HashEngine, MarkAt, MarkBy, NodeKind, NonEct, Role
from testbed.lab.core.schema.qos.fields import AutoDepthField, DepthField, DscpList, OrWord, SizeField

HOST_TIER = "host"
TIERS = (HOST_TIER, *(role.value for role in Role))
_KERNEL_MARKERS = " or ".join(f"Linux's {marker.qdisc} qdisc ({marker.by})" for marker in KERNEL_MARKERS)
_CLASS_NAME = re.compile(r"[a-z][a-z0-9_-]{0,15}")
_NODE_PATTERN = re.compile(r"[a-z0-9*?\[\]!-]{1,64}")
_PORT_NAME = re.compile(r"[a-z][a-z0-9-]{0,47}:[a-z][a-z0-9_.-]{0,14}")


def _check_class_name(name: str) -> None:
    if not _CLASS_NAME.fullmatch(name):
        raise ValueError(f"{quote(name)} cannot name a class: lower-case letters, digits, '_' and '-', at most 16")


def _check_node_pattern(name: str) -> None:
    if not _NODE_PATTERN.fullmatch(name):
        raise ValueError(f"{quote(name)} is no node name and no pattern of node names such as p1-spine*")


def _check_port_name(name: str) -> None:
    if not _PORT_NAME.fullmatch(name):
        raise ValueError(f"{quote(name)} is not node:interface, such as p1-s1-rail1:uplink1")


@dataclass(frozen=True, slots=True)
class _Tier(Checked):
    """A key of `qos.tiers`."""

    def check(self, value: object) -> str:
        if value not in TIERS:
            meant = nearest(value, TIERS) if isinstance(value, str) else None
            hint = f"did you mean {meant}?" if meant else f"tiers are {', '.join(TIERS)}"
            raise refusal("unknown-tier", f"there is no tier {quote(value)}", hint)
        return str(value)

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "string", "pattern": f"^({'|'.join(TIERS)})$"}


ClassName = Annotated[str, Name(_check_class_name, f"^{_CLASS_NAME.pattern}$")]
NodePattern = Annotated[str, Name(_check_node_pattern, f"^{_NODE_PATTERN.pattern}$")]
PortName = Annotated[str, Name(_check_port_name, f"^{_PORT_NAME.pattern}$")]


class EcnSpec(SpecModel):
    """`ecn:` of a class: the WRED curve. Keys that are left out are inherited."""

    kmin: Written[DepthField] = Field(
        default=None, description="Gives the queue depth at which marking begins, such as 0.2bdp."
    )
    kmax: Written[DepthField] = Field(
        default=None, description="Gives the queue depth from which every packet is marked."
    )
    pmax: Written[Annotated[float, Share(0.0001)]] = Field(
        default=None, description="Gives the marking probability just below kmax, such as 7%; the default is 1."
    )
    non_ect: Written[Annotated[str, OneOf(tuple(NonEct))]] = Field(
        default=None, description="Says whether to keep (default) or drop what would be marked but is not ECN-capable."
    )
    mark_at: Written[Annotated[str, OneOf(tuple(MarkAt))]] = Field(
        default=None,
        description="Marks by the queue that a packet finds (enqueue, default) or leaves behind (dequeue).",
    )
    by: Written[Annotated[str, OneOf(tuple(MarkBy))]] = Field(
        default=None,
        description=f"Chooses our own marker (ebpf, default) or, as a cross-check, {_KERNEL_MARKERS}.",
    )


class PfcSpec(SpecModel):
    """`pfc:` of a lossless class: thresholds of an ingress port."""

    xoff: AutoDepthField = Field(default=None, description="Gives the depth at which the sender is paused, or auto.")
    xon: AutoDepthField = Field(
        default=None, description="Gives the depth at which the sender may send again, or auto."
    )
    headroom: AutoDepthField = Field(
        default=None,
        description="Gives the room above xoff for what still arrives; auto takes it from the reaction time.",
    )


class ClassSpec(SpecModel):
    """An entry of `qos.classes`. Keys that are left out come from less specific layers, or from the preset."""

    dscp: Entries[DscpList] = Field(
        default=[], description="Lists the DSCPs of the class, such as [26, cs6], 26 or 24-31."
    )
    pcp: Written[Annotated[int, Whole(0, 7)]] = Field(
        default=None, description="Gives the priority (IEEE 802.1Q), also of pause frames; by default the DSCP does."
    )
    default: Written[Flag] = Field(default=None, description="Says whether it takes every DSCP that no class names.")
    strict: Written[Flag] = Field(default=None, description="Says whether it goes before all that are not strict.")
    weight: Written[Annotated[int, Whole(1, 100, measure=PERCENT)]] = Field(
        default=None, description="Gives its percent of what strict classes leave; those of a port sum to 100."
    )
    lossless: Written[Flag] = Field(default=None, description="Says whether it is paused by PFC instead of dropped.")
    limit: Written[DepthField] = Field(
        default=None, description="Drops packets above this depth; only lossy classes have it."
    )
    ecn: Written[
        Annotated[
            EcnSpec | Literal[False], OrWord(EcnSpec, False, "kmin and kmax", "write {kmin: 0.2bdp, kmax: 0.8bdp}")
        ]
    ] = Field(default=None, description="Gives the WRED curve that marks with ECN, or false.")
    pfc: Written[
        Annotated[
            PfcSpec | Literal["auto"],
            OrWord(PfcSpec, "auto", "xoff, xon and headroom", "write lossless: false for a class without PFC"),
        ]
    ] = Field(default=None, description="Gives the thresholds of a lossless class, or auto.")


class BufferSpec(SpecModel):
    """`buffer:` of a switch."""

    shared: Written[SizeField] = Field(
        default=None, description="Gives the packet memory that all ports share, such as 16MB."
    )
    alpha: Written[Annotated[float, Number(1 / 256, 128)]] = Field(
        default=None, description="Lets a lossy queue hold alpha times what is free."
    )


class LoadBalancingSpec(SpecModel):
    """`load_balancing:` of a switch."""

    mode: Written[Annotated[str, OneOf(tuple(BalancingMode), noun="load balancing mode")]] = Field(
        default=None,
        description="Chooses a path by 5-tuple (flow), anew after a gap (flowlet), or for each packet (spray).",
    )
    gap: Written[DurationField] = Field(default=None, description="Gives the flowlet gap in real time, such as 50us.")
    hash: Written[Annotated[str, OneOf(tuple(HashEngine))]] = Field(
        default=None, description="Says who hashes: ebpf, or kernel (fib_multipath_hash_policy 3) as a cross-check."
    )
    polarised: Written[Flag] = Field(default=None, description="Gives every switch the same hash seed, for teaching.")
    seed: Written[Annotated[int, Whole(0, 2**31 - 1)]] = Field(
        default=None,
        description="Gives every run the hash seeds that the run with this seed has; by default each run has its own.",
    )


class WatchdogSpec(SpecModel):
    """`watchdog:` of a switch, in lab time."""

    detect: Written[DurationField] = Field(default=None, description="Frees a queue that is paused for so long.")
    restore: Written[DurationField] = Field(
        default=None, description="Lets a queue that is not paused for so long obey pauses again."
    )


class QosSettings(SpecModel):
    """The settings that a fabric, a kind, a tier, a node or a port may have. Keys that are left out are inherited."""

    preset: Written[Annotated[str, OneOf(tuple(QOS_PRESETS), noun="QoS preset")]] = Field(
        default=None, description="Begins with the settings of a vendor, a paper or the UEC."
    )
    classes: Section[dict[ClassName, Section[ClassSpec]]] = Field(
        default={}, description="Describes traffic classes by name; those of the preset are changed key by key."
    )
    buffer: Section[BufferSpec] = Field(default=BufferSpec(), description="Describes the packet memory of a switch.")
    load_balancing: Section[LoadBalancingSpec] = Field(
        default=LoadBalancingSpec(), description="Says how a switch chooses between equal paths."
    )
    trimming: Written[Flag] = Field(
        default=None, description="Says whether packets of a full queue are cut instead of dropped."
    )
    marks_account: Written[Flag] = Field(
        default=None,
        description="Says whether ECN marks are counted by queue depth, which costs less than 0.1 us a packet.",
    )
    watchdog: Written[
        Annotated[
            WatchdogSpec | Literal[False],
            OrWord(WatchdogSpec, False, "detect and restore", "write {detect: 200ms, restore: 200ms}"),
        ]
    ] = Field(default=None, description="Describes the PFC watchdog, or is false.")
    base_rtt: Written[DurationField] = Field(
        default=None,
        description="Gives the real base RTT that bdp is made of; by default it is modelled from the longest path.",
    )


class QosKindsSpec(SpecModel):
    """`qos.kinds`."""

    host: Section[QosSettings] = Field(default=QosSettings(), description="Gives the settings of every NIC.")
    switch: Section[QosSettings] = Field(default=QosSettings(), description="Gives the settings of every switch.")

    def of(self, kind: NodeKind) -> QosSettings:
        return self.host if kind is NodeKind.HOST else self.switch


class QosSpec(QosSettings):
    """The `qos:` section. A port takes what is said last in: fabric, kind, tier, node, port."""

    kinds: Section[QosKindsSpec] = Field(default=QosKindsSpec(), description="Gives settings by kind: host, switch.")
    tiers: Section[dict[Annotated[str, _Tier()], Section[QosSettings]]] = Field(
        default={}, description="Gives settings by tier: host, rail, spine, super-spine."
    )
    nodes: Section[dict[NodePattern, Section[QosSettings]]] = Field(
        default={},
        description="Gives settings by node name or pattern such as p1-spine*; later ones and full names win.",
    )
    ports: Section[dict[PortName, Section[QosSettings]]] = Field(
        default={}, description='Gives settings of a port, such as "p1-s1-rail1:uplink1".'
    )
