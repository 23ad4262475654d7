"""The results sheet of a record: a page of Markdown with the sections of the drafts' chapters "Reporting Format".

Every time and rate is one of the real fabric, unless its table says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from testbed.record.record import Record
from testbed.record.report.benchmark import inference, sections, training
from testbed.record.report.benchmark.drafts import INFERENCE, NOT_MEASURED, STATUS, TERMINOLOGY, TRAINING
from testbed.record.report.benchmark.tables import cell

SHEET_FILE = "calabria.md"


def results_sheet(record: Record) -> str:
    """Return the sheet: that of the draft on inference where requests were served, else that on training."""
    served = inference.serves_inference(record)
    parts = _inference(record) if served else _training(record)
    return "\n".join([*_title(record, INFERENCE if served else TRAINING), *parts]).rstrip() + "\n"


def _title(record: Record, draft: str) -> Iterator[str]:
    yield f"# Results of {cell(record.scenario.name)}"
    yield ""
    yield f"After {draft}, with the terms of {TERMINOLOGY}: {STATUS}."
    yield ""
    yield (
        f"Measured from {cell(record.started)} to {cell(record.finished)} on a scale model: times and rates are those"
        f" of the real fabric, a lab's divided and multiplied by its time scale k. A value that no run has is"
        f" `{NOT_MEASURED}`."
    )
    yield ""


def _training(record: Record) -> Iterator[str]:
    """The ten sections of chapter 13."""
    chapters: tuple[tuple[str, Iterable[str]], ...] = (
        ("DUT Identification", sections.identification(record)),
        ("Test Topology", sections.topology(record)),
        ("Test Configuration", sections.configuration(record)),
        ("Observation Points", sections.observation_points(record)),
        ("Host Configuration", _host(record)),
        ("Test Results", _results(record)),
        ("Anomalies", sections.anomalies(record)),
        ("Trial Accounting", sections.trial_accounting(record)),
        ("Repeatability Statement", sections.repeatability(record)),
        ("Comparability Statement", sections.comparability(record)),
    )
    return _numbered(chapters)


def _inference(record: Record) -> Iterator[str]:
    """The elements of table 10, and those that the draft takes over from the one on training."""
    chapters: tuple[tuple[str, Iterable[str]], ...] = (
        ("System Configuration", inference.system_configuration(record)),
        ("Workload Parameters", inference.workload_parameters(record)),
        ("KPI Summary Table", inference.kpi_tables(record.points)),
        ("Latency Distribution Plots", _elsewhere("`report.html` beside this sheet has the distributions.")),
        ("Throughput vs. Scale Graphs", _elsewhere("`report.html` beside this sheet draws a matrix's points.")),
        ("Fabric Health Indicators", _elsewhere("They are in the KPI summary of each point (table 6).")),
        ("Fabric-Visible Data Volume", _elsewhere(f"Only for results of chapter 7 (MoE): {NOT_MEASURED}.")),
        ("Raw Data Appendix", _elsewhere("`record.json`, `requests.csv` and `metrics.csv` beside this sheet.")),
        ("Test Configuration", sections.configuration(record)),
        ("Observation Points", sections.observation_points(record)),
        ("Trial Accounting", sections.trial_accounting(record)),
        ("Anomalies", sections.anomalies(record)),
    )
    return _numbered(chapters)


def _numbered(chapters: Iterable[tuple[str, Iterable[str]]]) -> Iterator[str]:
    for place, (title, lines) in enumerate(chapters, 1):
        yield f"## {place}. {title}"
        yield ""
        yield from lines


def _host(record: Record) -> Iterator[str]:
    yield f"{cell(sections.host(record))}."
    yield ""
    if any(point.transport.get("kind") == "uet" for point in record.points):
        yield "UET: endpoints of testbed in user space, no UEC profile claimed, no libfabric provider, no NIC firmware."
        yield "Packet trimming as the test configuration says; LLR, PRI and CBFC are not there."
        yield ""


def _results(record: Record) -> Iterator[str]:
    yield from training.kpi_tables(record.points)
    yield from training.result_tables(record)
    yield "### KPI-to-Test Mapping Summary (table 15)"
    yield ""
    yield from training.kpi_map(record.points)


def _elsewhere(sentence: str) -> Iterator[str]:
    yield sentence
    yield ""
