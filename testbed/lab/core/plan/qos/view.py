"""The QoS of the ports of a lab, as written and as resolved, in real and in lab time: `inspect qos`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from testbed.base.datapath.markers import MARKERS
from testbed.base.datapath.traffic_class import ClassPlan
from testbed.base.errors import TestbedError
from testbed.base.keys import said_in
from testbed.base.rows import column
from testbed.base.units import Duration
from testbed.lab.core.model import BalancingMode, Depth, Lab, QosProfile, TrafficClass
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import InstallPort
from testbed.lab.core.plan.qos.qos_plan import BufferPlan, PortProfile, QosPlan

_SHOWN_OTHERWISE = {"name", "priority", "strict"} | {
    each.name for each in fields(ClassPlan) if each.name.endswith("_bytes") and each.name != "quantum_bytes"
}
"""Fields of a class's plan that are not shown by their own name: depths are thresholds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdRow:
    """A threshold of a class of a profile, as it is written and in bytes, and how long these take."""

    profile: int
    class_name: str = column("class")
    priority: int
    dscp: Sequence[Any]
    scheduling: str
    lossless: bool
    threshold: str
    written: str
    bytes: int
    lab_time: str
    real_time: str


def qos_document(lab: Lab, plan: LabPlan, wanted: Callable[[str], bool] = lambda _: True) -> dict[str, Any]:
    """Put all of it into JSON data: profiles with their ports, and the buffer of each switch. Raises `TestbedError`."""
    if lab.qos is None or plan.qos is None or plan.tables is None:
        raise TestbedError(
            f"{lab.name} has no qos: its ports have one queue each",
            hint="add a section qos to the topology file, such as qos: {preset: uec}",
        )
    ports: dict[int, list[InstallPort]] = {}
    for operation in plan.installs:
        if wanted(operation.node):
            ports.setdefault(operation.profile, []).append(operation)
    profiles = [
        _profile_document(index, profile, lab.qos.profiles[profile.profile], plan, on)
        for index, on in sorted(ports.items())
        for profile in (plan.tables.profiles[index],)
    ]
    return {
        "lab": lab.name,
        "k": plan.k,
        "modelled_base_rtt_ns": plan.qos.base_rtt_ns,
        "reaction_ns": plan.qos.reaction_ns,
        "profiles": profiles,
        "buffers": [_buffer_document(buffer) for buffer in plan.qos.buffers if buffer.node and wanted(buffer.node)],
    }


def _buffer_document(buffer: BufferPlan) -> dict[str, Any]:
    return {"node": buffer.node, "shared_bytes": buffer.shared_bytes, "headroom_bytes": buffer.headroom_bytes}


def _profile_document(
    index: int, profile: PortProfile, written: QosProfile, plan: LabPlan, ports: list[InstallPort]
) -> dict[str, Any]:
    qos = plan.qos
    assert qos is not None
    line_rates = {(port.node, port.name): port.line_rate_bps for port in plan.ports}
    line_rate_bps = line_rates[ports[0].node, ports[0].name]
    base_rtt = written.base_rtt or Duration(qos.base_rtt_ns)
    names = {item.priority: item.name for item in profile.classes}
    document: dict[str, Any] = {
        "profile": index,
        "preset": written.preset,
        "of": "switch" if profile.switch else "nic",
        "rate_bps": line_rate_bps,
        "lab_rate_bps": profile.rate_bps,
        "mtu_bytes": profile.mtu_bytes,
        "base_rtt_ns": base_rtt.ns,
        "base_rtt_modelled": written.base_rtt is None,
        "lab_base_rtt_ns": base_rtt.scaled(plan.k).ns,
        "bdp_bytes": profile.bdp_bytes,
        "classes": [
            _class_document(item, _written_class(written, item), profile, plan.k)
            for item in sorted(profile.classes, key=lambda item: item.priority)
        ],
        "control_class": names[profile.control_class],
        "trimming": profile.trimming,
        "marks_account": profile.marks_account,
        "trimmed_class": names[profile.trimmed_class] if profile.trimming else None,
        "ports": [f"{port.node}:{port.name}" for port in ports],
    }
    return document | (_switch_document(written, qos, plan.k, ports) if profile.switch else {})


def _switch_document(written: QosProfile, qos: QosPlan, k: float, ports: list[InstallPort]) -> dict[str, Any]:
    """Describe what a switch has once for all its ports; those of a profile may be on switches of several profiles."""
    buffers = [qos.buffers[number] for number in sorted({port.buffer for port in ports})]
    first = buffers[0]
    balancing = written.load_balancing
    headrooms = [buffer.headroom_bytes for buffer in buffers]
    return {
        "buffer": {
            "shared_bytes": first.shared_bytes,
            "alpha": written.buffer.alpha,
            "headroom_bytes": [min(headrooms), max(headrooms)],
        },
        "load_balancing": {
            "mode": balancing.mode.value,
            "per": balancing.per.value if balancing.mode is BalancingMode.ADAPTIVE else None,
            "hysteresis_bytes": first.hysteresis_bytes or None,
            "hash": balancing.hash.value,
            "fields": [field.value for field in balancing.hash_fields],
            "polarised": balancing.polarised,
            "seed": balancing.seed,
            "gap_ns": balancing.gap.ns if first.gap_ns else None,
            "lab_gap_ns": balancing.gap.scaled(k).ns if first.gap_ns else None,
        },
        "watchdog": {
            "detect_ns": first.watchdog_detect_ns,
            "written_detect_ns": written.watchdog.detect.ns,
            "restore_ns": first.watchdog_restore_ns,
        }
        if first.watchdog_detect_ns and written.watchdog is not None
        else None,
    }


def _written_class(profile: QosProfile, item: ClassPlan) -> TrafficClass:
    return next(written for written in profile.classes if written.name == item.name)


def _class_document(item: ClassPlan, written: TrafficClass, profile: PortProfile, k: float) -> dict[str, Any]:
    def depth(text: str, size: int) -> dict[str, Any]:
        lab_ns = size * 8 * 10**9 // profile.rate_bps
        return {"written": text, "bytes": size, "lab_ns": lab_ns, "real_ns": round(lab_ns / k)}

    numbers = {each.name: getattr(item, each.name) for each in fields(item) if each.name not in _SHOWN_OTHERWISE}
    marking = {} if item.kmin_bytes is not None else dict.fromkeys(("pmax", "mark_at", "mark_by"))
    return {
        "name": item.name,
        "priority": item.priority,
        "dscp": list(written.dscp),
        "default": written.default,
        "scheduling": "strict" if item.strict else "weighted",
        **numbers,
        "weight": None if item.strict else item.weight,
        "alpha": item.alpha or None,
        **marking,
        "thresholds": {key: depth(text, size) for key, text, size in _thresholds(item, written, profile)},
    }


def _thresholds(item: ClassPlan, written: TrafficClass, profile: PortProfile) -> Iterator[tuple[str, str, int]]:
    """Yield the name of each depth, the words of the file, and its bytes."""
    yield "reserved", "always", item.reserved_bytes
    if not profile.switch:
        yield "limit", "of a NIC", item.limit_bytes
        return
    said = dict(said_in(written))
    unsaid = {"limit": "the buffer"} | dict.fromkeys(("xoff", "xon", "headroom"), "auto")
    wanted = [name for name, depth in said.items() if isinstance(depth, Depth) and name not in unsaid]
    for name in (*wanted, *(("xoff", "xon", "headroom") if item.lossless else ("limit",))):
        yield name, str(said.get(name, unsaid.get(name))), getattr(item, f"{name}_bytes")


def threshold_rows(profile: Mapping[str, Any]) -> Iterator[ThresholdRow]:
    """Yield a row for each threshold of each class of a profile."""
    for item in profile["classes"]:
        scheduling = "strict" if item["weight"] is None else f"{item['weight']} %"
        dscp = [*item["dscp"], *(["others"] if item["default"] else [])]
        for name, value in item["thresholds"].items():
            label = name
            if name == "kmax" and item["pmax"] is not None:
                marker = MARKERS[item["mark_by"]]
                label = f"{name} ({item['pmax']:.4g}{f', {marker.title}' if marker.qdisc else ''})"
            yield ThresholdRow(
                profile=profile["profile"],
                class_name=item["name"],
                priority=item["priority"],
                dscp=dscp,
                scheduling=scheduling,
                lossless=item["lossless"],
                threshold=label,
                written=value["written"],
                bytes=value["bytes"],
                lab_time=str(Duration(value["lab_ns"])),
                real_time=str(Duration(value["real_ns"])),
            )
