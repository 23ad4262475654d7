"""`inspect qos`: what the ports of a lab do, as the file says it and as resolved, in real and in lab time.

It shows a deployed lab, or a topology file as it would be deployed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from testbed.base.datapath.class_plan import ClassPlan
from testbed.base.datapath.markers import MARKERS
from testbed.base.errors import TestbedError
from testbed.base.units import ByteCount, Duration, Rate
from testbed.cli.lab_choice import open_or_declare
from testbed.cli.options import Format
from testbed.cli.output import console, emit_json, emit_rows
from testbed.lab.core.model import Depth, EcnCurve, Lab, PfcThresholds, QosProfile, TrafficClass
from testbed.lab.core.plan.operations import InstallPort, LabPlan
from testbed.lab.core.plan.qos.qos_plan import BufferPlan, PortProfile, QosPlan

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS = (
    "profile",
    "class",
    "priority",
    "dscp",
    "scheduling",
    "lossless",
    "threshold",
    "written",
    "bytes",
    "lab_time",
    "real_time",
)
_SHOWN_PORTS = 4
_FEW_FRAMES = 10
"""With fewer frames in a BDP, marking and fairness come in steps of a frame."""


def inspect_qos(
    name: str | None, topology: str | None, network: str | None, wanted: Callable[[str], bool], form: Format
) -> None:
    """Show the QoS of the ports of nodes that are `wanted`, in a network; None: the first that has any."""
    found = open_or_declare(name, topology)
    lab, plan = found.model, found.plan
    known = lab.network_names
    if network is not None and network not in known:
        raise TestbedError(f"{lab.name} has no network {network!r}", hint=f"one of {', '.join(known)}")
    seen = network or next((each for each in known if lab.of_network(each).qos is not None), None)
    if seen is not None:
        lab, plan = lab.of_network(seen), plan.of_network(seen)
    document = qos_document(lab, plan, wanted)
    match form:
        case Format.JSON:
            emit_json(document)
        case Format.CSV:
            emit_rows(inspect_rows(document), COLUMNS, form)
        case Format.TABLE:
            print_document(document)


# ---------------------------------------------------------------------- the document


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
            "hash": balancing.hash.value,
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

    return {
        "name": item.name,
        "priority": item.priority,
        "dscp": list(written.dscp),
        "default": written.default,
        "scheduling": "strict" if item.strict else "weighted",
        "weight": None if item.strict else item.weight,
        "quantum_bytes": item.quantum_bytes,
        "lossless": item.lossless,
        "alpha": item.alpha or None,
        "pmax": item.pmax if item.kmin_bytes is not None else None,
        "drop_non_ect": item.drop_non_ect,
        "mark_at": None if written.ecn is None or item.kmin_bytes is None else str(written.ecn.mark_at),
        "mark_by": None if written.ecn is None or item.kmin_bytes is None else str(written.ecn.by),
        "thresholds": {key: depth(text, size) for key, text, size in _thresholds(item, written, profile)},
    }


def _thresholds(item: ClassPlan, written: TrafficClass, profile: PortProfile) -> Iterator[tuple[str, str, int]]:
    """Yield the name of each depth, the words of the file, and its bytes."""
    yield "reserved", "always", item.reserved_bytes
    if not profile.switch:
        yield "limit", "of a NIC", item.limit_bytes
        return
    if item.kmin_bytes is not None and item.kmax_bytes is not None:
        ecn: EcnCurve | None = written.ecn
        assert ecn is not None
        yield "kmin", _text(ecn.kmin), item.kmin_bytes
        yield "kmax", _text(ecn.kmax), item.kmax_bytes
    if item.lossless:
        pfc = written.pfc or PfcThresholds()
        yield "xoff", _text(pfc.xoff), item.xoff_bytes
        yield "xon", _text(pfc.xon), item.xon_bytes
        yield "headroom", _text(pfc.headroom), item.headroom_bytes
    else:
        yield "limit", "the buffer" if written.limit is None else _text(written.limit), item.limit_bytes


def _text(depth: Depth | None) -> str:
    """Write a depth as the file may have it: "0.2bdp", "150 kB", "auto"."""
    return "auto" if depth is None else str(depth)


# ---------------------------------------------------------------------- for people


def inspect_rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Make a row of `COLUMNS` for each threshold of each class of each profile."""
    return [row for profile in document["profiles"] for row in _rows(profile)]


def _rows(profile: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a row for each threshold of each class of a profile."""
    for item in profile["classes"]:
        scheduling = "strict" if item["weight"] is None else f"{item['weight']} %"
        dscp = [*item["dscp"], *(["others"] if item["default"] else [])]
        for name, value in item["thresholds"].items():
            label = name
            if name == "kmax" and item["pmax"] is not None:
                marker = MARKERS[item["mark_by"]]
                label = f"{name} ({item['pmax']:.4g}{f', {marker.title}' if marker.qdisc else ''})"
            yield {
                "profile": profile["profile"],
                "class": item["name"],
                "priority": item["priority"],
                "dscp": dscp,
                "scheduling": scheduling,
                "lossless": item["lossless"],
                "threshold": label,
                "written": value["written"],
                "bytes": value["bytes"],
                "lab_time": str(Duration(value["lab_ns"])),
                "real_time": str(Duration(value["real_ns"])),
            }


def print_document(document: Mapping[str, Any]) -> None:
    """Print the document as text and tables."""
    out = console()
    reaction = Duration(document["reaction_ns"])
    heading = f"{document['lab']}: time scale k = {document['k']:g}; bytes are not scaled"
    out.print(heading, style="bold", highlight=False)
    if any(item["lossless"] for profile in document["profiles"] for item in profile["classes"]):
        out.print(f"headroom for a pause reaction of {reaction} (lab time)", highlight=False)
    for profile in document["profiles"]:
        out.print()
        for line in _describe(profile):
            out.print(line, highlight=False, markup=False)
        out.print(_table(profile))


def _describe(profile: Mapping[str, Any]) -> Iterator[str]:
    kind = "switch port" if profile["of"] == "switch" else "NIC"
    count = len(profile["ports"])
    yield (
        f"profile {profile['profile']}: {count} {kind}{'' if count == 1 else 's'} at {Rate(profile['rate_bps'])}"
        f" (lab: {Rate(profile['lab_rate_bps'])}), MTU {profile['mtu_bytes']}, preset {profile['preset']}"
    )
    yield f"  ports: {_ports_text(profile['ports'])}"
    origin = "modelled" if profile["base_rtt_modelled"] else "as written"
    frames = profile["bdp_bytes"] / profile["mtu_bytes"]
    coarse = "; so few make marking and fairness coarse" if frames < _FEW_FRAMES else ""
    yield (
        f"  base RTT {Duration(profile['base_rtt_ns'])}, {origin} (lab: {Duration(profile['lab_base_rtt_ns'])});"
        f" BDP {ByteCount(profile['bdp_bytes'])}, {frames:.3g} frames{coarse}"
    )
    if profile["of"] == "switch":
        yield from _describe_switch(profile)


def _describe_switch(profile: Mapping[str, Any]) -> Iterator[str]:
    buffer, balancing, watchdog = profile["buffer"], profile["load_balancing"], profile["watchdog"]
    low, high = (str(ByteCount(size)) for size in buffer["headroom_bytes"])
    aside = low if low == high else f"{low} to {high}"
    yield f"  buffer {ByteCount(buffer['shared_bytes'])}, of it {aside} headroom; alpha {buffer['alpha']:g}"
    gap = ""
    if balancing["gap_ns"] is not None:
        gap = f" after a gap of {Duration(balancing['gap_ns'])} (lab: {Duration(balancing['lab_gap_ns'])})"
    seed = "the same seed in every switch (polarised)" if balancing["polarised"] else "a seed for each switch"
    if balancing["seed"] is not None:
        seed += f", in every run that of the run with seed {balancing['seed']}"
    yield f"  load balancing by {balancing['mode']}{gap}, hash by {balancing['hash']}, {seed}"
    if watchdog is None:
        yield "  watchdog off"
    else:
        yield (
            f"  watchdog: detects in {Duration(watchdog['detect_ns'])}, restores in"
            f" {Duration(watchdog['restore_ns'])} (lab time, not scaled)"
        )
        if watchdog["detect_ns"] > watchdog["written_detect_ns"]:
            yield (
                f"    ({Duration(watchdog['written_detect_ns'])} is written, but congestion alone pauses so long at"
                " this time scale)"
            )
    trimming = f"trimmed packets go to {profile['trimmed_class']}" if profile["trimming"] else "no trimming"
    yield f"  {trimming}; control packets go to {profile['control_class']}"


def _ports_text(ports: list[str]) -> str:
    shown = ", ".join(ports[:_SHOWN_PORTS])
    more = len(ports) - _SHOWN_PORTS
    return f"{shown} and {more} more" if more > 0 else shown


def _table(profile: Mapping[str, Any]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(header_style="bold", box=None, pad_edge=False)
    for column in COLUMNS[1:]:
        table.add_column(column.replace("_", " "), justify="right" if column in ("priority", "bytes") else "left")
    last = ""
    for row in _rows(profile):
        cells = [
            row["class"],
            str(row["priority"]),
            " ".join(map(str, row["dscp"])),
            row["scheduling"],
            "yes" if row["lossless"] else "no",
        ]
        if row["class"] == last:
            cells = [""] * len(cells)
        last = row["class"]
        cells += [row["threshold"], row["written"], f"{row['bytes']:,}", row["lab_time"], row["real_time"]]
        table.add_row(*map(Text, cells))
    return table
