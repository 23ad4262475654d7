"""The sections that both drafts ask for: what was tested, how, where values are from, and which trials count."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from testbed.record.record import Backend, LabSummary, PointResult, Record
from testbed.record.report.benchmark.drafts import NOT_MEASURED, ObservationPoint
from testbed.record.report.benchmark.tables import cell, number, strategy, table, transport_name
from testbed.record.report.scenario.configuration import written
from testbed.record.report.scenario.figures import every_run, format_rate

NO_HARDWARE = "none: a model of the fabric on one machine"
_MODELLED = "modelled, not a product"


def identification(record: Record) -> Iterator[str]:
    """Table 5 of the draft on training: what the device under test is."""
    labs = _labs(record)
    environment = record.environment
    forwarding = {
        Backend.EMULATION: f"Linux {environment.kernel}",
        Backend.SIMULATION: "discrete-event model of switch ports",
        Backend.FLOWS: "model of flows that share links",
    }[environment.backend]
    emulated = environment.backend is Backend.EMULATION
    frr = f"FRR {environment.frr}" if environment.frr and emulated else "no routing daemon"
    rows = [
        ("Switch Vendor/Model", f"testbed {environment.testbed}, {_MODELLED}"),
        ("Switch ASIC", NO_HARDWARE),
        ("NOS Version", f"{forwarding}, {frr}"),
        ("Port Speed", _each(labs, _speed)),
        ("Buffer Architecture", _each(labs, _buffer)),
        ("Optics/Cables", NO_HARDWARE),
        ("NIC Vendor/Model", f"{_MODELLED}; {', '.join(dict.fromkeys(map(transport_name, record.points)))}"),
        ("NIC Firmware", "none: transports in software"),
        ("Host Config", host(record)),
    ]
    yield from table(("Parameter", "Value"), rows)


def host(record: Record) -> str:
    """Return the host stack in one line."""
    environment = record.environment
    system = f"{environment.distribution or 'unknown system'}, kernel {environment.kernel}"
    library = f"collectives of testbed {environment.testbed} (as a CCL), {environment.transports}"
    return f"{system}; {environment.cores} cores, {environment.cpu_model or 'unknown CPU'}; {library}"


def topology(record: Record) -> Iterator[str]:
    """The reference topology of each lab (chapter 3.1), with what its class is told by."""
    columns = (
        "Point", "Reference topology", "Design", "Switch tiers", "Hosts", "NICs", "NICs per host", "Switches", "Links",
        "B_acc per NIC", "Uplink", "Routing",
    )  # fmt: skip
    yield from table(columns, (_topology(point) for point in record.points))
    file = record.scenario.topology.get("file", "inline")
    yield f"Cabling: `testbed graph -t {cell(file)}` draws every link."
    yield ""


def _topology(point: PointResult) -> tuple[object, ...]:
    lab = point.lab
    switches = ", ".join(f"{count} {role}" for role, count in lab.switches.items()) or "none"
    per_host = number(lab.nics / lab.hosts) if lab.hosts else "-"
    uplink = format_rate(lab.uplink_real_bps) if lab.uplink_real_bps else "none"
    return (
        point.name or "-", reference_topology(lab), lab.design or "hand-written", len(lab.switches), lab.hosts,
        lab.nics, per_host, switches, lab.links, format_rate(lab.nic_real_bps), uplink, lab.routing,
    )  # fmt: skip


def reference_topology(lab: LabSummary) -> str:
    """Return which of the draft's topologies a lab is: A, B or C, or that it is none of them."""
    if "rail" in lab.design:
        return "C (rail-optimized)"
    tiers = {"rail", "leaf"} & set(lab.switches), "spine" in lab.switches, "super-spine" in lab.switches
    match bool(tiers[0]), tiers[1], tiers[2]:
        case True, True, True:
            return "B (3-tier Clos)"
        case True, True, False:
            return "A (2-tier Clos)"
    return "outside the reference set (a deviation, see Anomalies)"


def configuration(record: Record) -> Iterator[str]:
    """All that was configured: scenario, time scale, load balancing, QoS."""
    scenario = record.scenario
    rows = [
        ("Scenario", f"{scenario.name} ({scenario.source or 'inline'})"),
        ("Topology file", written(scenario.topology)),
        ("Transport", written(scenario.transport)),
        ("Workload", written(scenario.workload)),
        ("Repeat", written(scenario.repeat)),
        *((f"Matrix {key}", written(values)) for key, values in scenario.matrix.items()),
        *(("Fault", written(fault)) for fault in scenario.faults),
        ("Overrides", ", ".join(scenario.overrides) or "none"),
        ("Command", " ".join(record.command) or "not recorded"),
    ]
    yield from table(("Parameter", "Value"), rows)
    columns = ("Point", "Time scale k", "MTU (bytes)", "LB strategy", "Transport", "Preset", "Buffer", "Trimming")
    yield from table(columns, (_point_configuration(point) for point in record.points))
    classes = [row for point in record.points for row in _classes(point)]
    if classes:
        yield from table(("Point", "Traffic class", "Settings (ECN thresholds, PFC, scheduling)"), classes)
    else:
        yield "QoS of switches: none, or the record does not say."
        yield ""


def _point_configuration(point: PointResult) -> tuple[object, ...]:
    qos: Mapping[str, object] = point.lab.qos
    return (
        point.name or "-", point.lab.k, point.lab.mtu_bytes, strategy(point), written(point.transport),
        str(qos.get("preset", "none")), written(qos.get("buffer", "none")), str(qos.get("trimming", "none")),
    )  # fmt: skip


def _classes(point: PointResult) -> Iterator[tuple[str, str, str]]:
    classes = point.lab.qos.get("classes")
    for name, settings in classes.items() if isinstance(classes, Mapping) else ():
        yield point.name or "-", str(name), written(settings) if settings else "best effort"


def observation_points(record: Record) -> Iterator[str]:
    """The places where values are from, and which of them are read where."""
    yield "Each table names the Observation Point of its values:"
    yield ""
    inside = "the eBPF data path of a switch port" if record.environment.backend is Backend.EMULATION else "the model"
    rows = [
        (ObservationPoint.BOUNDARY, "no value of this sheet: a lab's NIC has no test equipment beside it"),
        (ObservationPoint.DUT, f"queues, marks, pauses, drops and loads of links: egress of switch ports, {inside}"),
        (ObservationPoint.ENDPOINT, "times and rates of operations, messages and requests, retransmissions, order"),
    ]
    yield from table(("Observation Point", "Values"), rows)
    queues = [
        (point.name or "-", load.name, load.queue_port, "egress", load.queue_class, str(load.queue_max_bytes))
        for point, run in every_run(record)
        for load in run.networks
        if load.queue_max_bytes is not None and load.queue_port
    ]
    if queues:
        yield "The deepest queue of each network and run, DUT-reported:"
        yield ""
        yield from table(("Point", "Network", "Port", "Direction", "Traffic class", "Queue Depth Max (bytes)"), queues)


def anomalies(record: Record) -> Iterator[str]:
    """Tell what deviates from the draft's procedures, what failed, and what is not reproduced."""
    outside = [point.name or "this lab" for point in record.points if "deviation" in reference_topology(point.lab)]
    said = [
        *record.verdict.reasons,
        *([record.incomplete] if record.incomplete else []),
        *(
            f"{check.name} ({point.name or 'the only point'}, run {run.index}): {check.message}"
            for point, run in every_run(record)
            for check in run.checks
            if not check.ok
        ),
        *(f"Topology of {name} is outside the draft's reference set." for name in outside),
        "Trials last as long as the workload does, and not the 60 or 300 seconds of the draft.",
        *record.environment.approximations,
        *dict.fromkeys(note for point in record.points for note in point.notes),
    ]
    yield from (f"- {cell(one)}" for one in said)
    yield ""


def trial_accounting(record: Record) -> Iterator[str]:
    """The trials of each point: how many were attempted, how many count, and why others do not."""
    yield from table(
        ("Point", "Trials attempted", "Trials included", "Excluded, and why"),
        (_trials(point) for point in record.points),
    )


def _trials(point: PointResult) -> tuple[object, ...]:
    whole = [run for run in point.runs if run.complete]
    broken = [f"run {run.index}: incomplete measurement window" for run in point.runs if not run.complete and whole]
    earlier = [
        f"{len(one.runs)} at k = {one.lab.k:g}: {'; '.join(one.reasons) or 'tried again'}"
        for one in point.earlier_tries
    ]
    attempted = len(point.runs) + sum(len(one.runs) for one in point.earlier_tries)
    return point.name or "-", attempted, len(whole or point.runs), "; ".join([*broken, *earlier]) or "none"


def repeatability(record: Record) -> Iterator[str]:
    """The coefficient of variation of each headline metric over the runs of its point."""
    rows = [
        (
            point.name or "-", metric.title, len([value for value in metric.values if value is not None]),
            NOT_MEASURED if metric.cv is None else f"{metric.cv:.2%}",
        )
        for point in record.points
        for metric in point.metrics
        if metric.headline
    ]  # fmt: skip
    yield from table(("Point", "Primary metric", "Iterations", "Coefficient of variation"), rows)


def comparability(record: Record) -> Iterator[str]:
    """The comparability set (table 4 of the draft on training) of each point."""
    if len(record.points) == 1:
        yield "One fabric, one point: the draft asks for no statement. What another result must share:"
        yield ""
    columns = (
        "Point", "Reference topology", "NICs (N)", "NICs per host", "B_acc per NIC", "Leaf oversubscription",
        "Workload", "Transport", "LB strategy",
    )  # fmt: skip
    yield from table(columns, (_comparable(point) for point in record.points))


def _comparable(point: PointResult) -> tuple[object, ...]:
    lab = point.lab
    oversubscription = number(lab.oversubscription) if lab.oversubscription is not None else "not recorded"
    return (
        point.name or "-", reference_topology(lab), lab.nics, number(lab.nics / lab.hosts) if lab.hosts else "-",
        format_rate(lab.nic_real_bps), oversubscription, written(point.workload), transport_name(point),
        strategy(point),
    )  # fmt: skip


def _labs(record: Record) -> Sequence[LabSummary]:
    return [point.lab for point in record.points]


def _each(labs: Sequence[LabSummary], say: Callable[[LabSummary], str]) -> str:
    return "; ".join(dict.fromkeys(map(say, labs))) or "not recorded"


def _speed(lab: LabSummary) -> str:
    uplink = f", uplinks {format_rate(lab.uplink_real_bps)}" if lab.uplink_real_bps else ""
    return f"{format_rate(lab.nic_real_bps)}{uplink} (in the lab divided by k = {lab.k:g})"


def _buffer(lab: LabSummary) -> str:
    buffer = lab.qos.get("buffer")
    return f"shared, per switch: {written(buffer)}" if buffer else "one queue per port, or not recorded"
