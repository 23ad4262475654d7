"""`inspect qos`: what the ports of a lab do, as the file says it and as resolved, in real and in lab time.

It shows a deployed lab, or a topology file as it would be deployed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from testbed.base.datapath.abi import FIVE_TUPLE
from testbed.base.errors import TestbedError
from testbed.base.names import choice_hint
from testbed.base.units import ByteCount, Duration, Rate
from testbed.cli.lab_choice import open_or_declare
from testbed.cli.options import Format
from testbed.cli.output import console, emit, emit_json
from testbed.lab.core.plan.qos.view import ThresholdRow, qos_document, threshold_rows

if TYPE_CHECKING:
    from rich.table import Table

_OF_CLASS = ("class", "priority", "dscp", "scheduling", "lossless")
_OF_THRESHOLD = ("threshold", "written", "bytes", "lab time", "real time")
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
        raise TestbedError(f"{lab.name} has no network {network!r}", hint=choice_hint(network, known))
    seen = network or next((each for each in known if lab.of_network(each).qos is not None), None)
    if seen is not None:
        lab, plan = lab.of_network(seen), plan.of_network(seen)
    document = qos_document(lab, plan, wanted)
    match form:
        case Format.JSON:
            emit_json(document)
        case Format.CSV:
            emit([row for profile in document["profiles"] for row in threshold_rows(profile)], ThresholdRow, form)
        case Format.TABLE:
            print_document(document)


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
    per = f" per {balancing['per']}" if balancing["per"] else ""
    if balancing["hysteresis_bytes"]:
        per += f" with a hysteresis of {ByteCount(balancing['hysteresis_bytes'])}"
    fields = "" if balancing["fields"] == list(FIVE_TUPLE) else f" of {', '.join(balancing['fields'])}"
    yield f"  load balancing by {balancing['mode']}{per}{gap}, hash by {balancing['hash']}{fields}, {seed}"
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
    """A table of the thresholds; what holds for a class stands in its first row alone."""
    from rich.table import Table
    from rich.text import Text

    table = Table(header_style="bold", box=None, pad_edge=False)
    for heading in _OF_CLASS + _OF_THRESHOLD:
        table.add_column(heading, justify="right" if heading in ("priority", "bytes") else "left")
    last = ""
    for row in threshold_rows(profile):
        dscp, lossless = " ".join(map(str, row.dscp)), "yes" if row.lossless else "no"
        own = [row.class_name, str(row.priority), dscp, row.scheduling, lossless]
        cells = own if row.class_name != last else [""] * len(own)
        last = row.class_name
        cells += [row.threshold, row.written, f"{row.bytes:,}", row.lab_time, row.real_time]
        table.add_row(*map(Text, cells))
    return table
