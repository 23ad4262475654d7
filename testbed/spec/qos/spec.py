"""The `qos:` section as it is written: a profile for the whole fabric, and parts of it for kinds, tiers, nodes, ports.

Only shape, type and unit of each value are checked here; how the parts join, and what must hold of the whole, is in
`testbed.spec.qos.layers`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field
from pydantic.json_schema import JsonSchemaValue

from testbed.fabric import QOS_PRESETS
from testbed.model import BalancingMode, HashEngine, MarkAt, MarkBy, NodeKind, NonEct, Role
from testbed.names import nearest
from testbed.spec.qos.fields import AutoDepthField, DepthField, DscpField, Number, OrWord, SizeField
from testbed.spec.validation.fields import Checked, DurationField, Entries, Flag, Name, OneOf, Section, Whole, Written
from testbed.spec.validation.model import SpecModel, refusal
from testbed.spec.yaml.paths import quote

HOST_TIER = "host"
TIERS = (HOST_TIER, *(role.value for role in Role))
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

    kmin: Written[DepthField] = Field(default=None, description="queue depth at which marking begins, such as 0.2bdp")
    kmax: Written[DepthField] = Field(default=None, description="queue depth from which every packet is marked")
    pmax: Written[Annotated[float, Number(0.0001, 1, "a probability: 7% is 0.07")]] = Field(
        default=None, description="marking probability just below kmax, default 1"
    )
    non_ect: Written[Annotated[str, OneOf(tuple(NonEct))]] = Field(
        default=None, description="keep or drop what would be marked but is not ECN-capable, default keep"
    )
    mark_at: Written[Annotated[str, OneOf(tuple(MarkAt))]] = Field(
        default=None,
        description="enqueue: by the queue that a packet finds (default); dequeue: by the one that it leaves behind",
    )
    by: Written[Annotated[str, OneOf(tuple(MarkBy))]] = Field(
        default=None,
        description="ebpf: our own marker (default); kernel: Linux's red qdisc with the same curve, as a cross-check",
    )


class PfcSpec(SpecModel):
    """`pfc:` of a lossless class: thresholds of an ingress port."""

    xoff: AutoDepthField = Field(default=None, description="depth at which the sender is paused, or auto")
    xon: AutoDepthField = Field(default=None, description="depth at which it may send again, or auto")
    headroom: AutoDepthField = Field(
        default=None, description="room above xoff for what still arrives; auto: from the reaction time"
    )


class ClassSpec(SpecModel):
    """An entry of `qos.classes`. Keys that are left out come from less specific layers, or from the preset."""

    dscp: Entries[list[DscpField]] = Field(default=[], description="DSCPs of the class, such as [26, cs6]")
    pcp: Written[Annotated[int, Whole(0, 7)]] = Field(
        default=None, description="priority (IEEE 802.1Q) and priority of its pause frames; default: from the DSCP"
    )
    default: Written[Flag] = Field(default=None, description="whether it takes every DSCP that no class names")
    strict: Written[Flag] = Field(default=None, description="whether it goes before all that are not strict")
    weight: Written[Annotated[int, Whole(1, 100)]] = Field(
        default=None, description="percent of what strict classes leave; those of a port sum to 100"
    )
    lossless: Written[Flag] = Field(default=None, description="whether it is paused by PFC instead of dropped")
    limit: Written[DepthField] = Field(default=None, description="tail drop above this depth; lossy classes only")
    ecn: Written[Annotated[EcnSpec | Literal[False], OrWord(EcnSpec, False, "kmin and kmax")]] = Field(
        default=None, description="WRED curve that marks with ECN, or false"
    )
    pfc: Written[Annotated[PfcSpec | Literal["auto"], OrWord(PfcSpec, "auto", "xoff, xon and headroom")]] = Field(
        default=None, description="thresholds of a lossless class, or auto"
    )


class BufferSpec(SpecModel):
    """`buffer:` of a switch."""

    shared: Written[SizeField] = Field(default=None, description="packet memory that all ports share, such as 16MB")
    alpha: Written[Annotated[float, Number(1 / 256, 128)]] = Field(
        default=None, description="a lossy queue may hold alpha times what is free"
    )


class LoadBalancingSpec(SpecModel):
    """`load_balancing:` of a switch."""

    mode: Written[Annotated[str, OneOf(tuple(BalancingMode), noun="load balancing mode")]] = Field(
        default=None, description="flow: by 5-tuple; flowlet: anew after a gap; spray: each packet"
    )
    gap: Written[DurationField] = Field(default=None, description="flowlet gap in real time, such as 50us")
    hash: Written[Annotated[str, OneOf(tuple(HashEngine))]] = Field(
        default=None, description="who hashes: ebpf, or kernel (fib_multipath_hash_policy 3) as a cross-check"
    )
    polarised: Written[Flag] = Field(default=None, description="the same hash seed in every switch, for teaching")


class WatchdogSpec(SpecModel):
    """`watchdog:` of a switch, in lab time."""

    detect: Written[DurationField] = Field(default=None, description="paused for so long, a queue is freed")
    restore: Written[DurationField] = Field(default=None, description="not paused for so long, it obeys pauses again")


class QosSettings(SpecModel):
    """What the fabric, a kind, a tier, a node or a port may say. Keys that are left out are inherited."""

    preset: Written[Annotated[str, OneOf(tuple(QOS_PRESETS), noun="QoS preset")]] = Field(
        default=None, description="begin with the settings of a vendor, a paper or the UEC"
    )
    classes: Section[dict[ClassName, Section[ClassSpec]]] = Field(
        default={}, description="traffic classes by name; those of the preset are changed key by key"
    )
    buffer: Section[BufferSpec] = Field(default=BufferSpec(), description="packet memory of a switch")
    load_balancing: Section[LoadBalancingSpec] = Field(
        default=LoadBalancingSpec(), description="how a switch chooses between equal paths"
    )
    trimming: Written[Flag] = Field(default=None, description="cut packets of a full queue instead of dropping them")
    watchdog: Written[Annotated[WatchdogSpec | Literal[False], OrWord(WatchdogSpec, False, "detect and restore")]] = (
        Field(default=None, description="PFC watchdog, or false")
    )
    base_rtt: Written[DurationField] = Field(
        default=None, description="real base RTT that bdp is made of; default: modelled from the longest path"
    )


class QosKindsSpec(SpecModel):
    """`qos.kinds`."""

    host: Section[QosSettings] = Field(default=QosSettings(), description="settings of every NIC")
    switch: Section[QosSettings] = Field(default=QosSettings(), description="settings of every switch")

    def of(self, kind: NodeKind) -> QosSettings:
        return self.host if kind is NodeKind.HOST else self.switch


class QosSpec(QosSettings):
    """The `qos:` section. A port takes what is said last in: fabric, kind, tier, node, port."""

    kinds: Section[QosKindsSpec] = Field(default=QosKindsSpec(), description="settings by kind: host, switch")
    tiers: Section[dict[Annotated[str, _Tier()], Section[QosSettings]]] = Field(
        default={}, description="settings by tier: host, rail, spine, super-spine"
    )
    nodes: Section[dict[NodePattern, Section[QosSettings]]] = Field(
        default={}, description="settings by node name or pattern such as p1-spine*; later ones and full names win"
    )
    ports: Section[dict[PortName, Section[QosSettings]]] = Field(
        default={}, description='settings of a port, such as "p1-s1-rail1:uplink1"'
    )
