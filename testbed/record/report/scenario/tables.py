"""A record as files for other programs: summary.json, metrics.csv, transfers.csv, channels.csv, junit.xml.

Cells that a spreadsheet would take for a formula get an apostrophe: a record may come from a stranger.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any
from xml.etree import ElementTree

from testbed.record.record import MetricSummary, Outcome, PointResult, Record, RunResult
from testbed.record.report.scenario.figures import (
    every_run,
    format_band,
    format_measured,
    predictions_of,
    total,
    unit_of,
)
from testbed.record.report.scenario.latencies import latency_row
from testbed.record.report.scenario.networks import network_json
from testbed.record.report.scenario.programs import speaker_of
from testbed.record.samples import Channel

SUMMARY_FILE = "summary.json"
METRICS_FILE = "metrics.csv"
TRANSFERS_FILE = "transfers.csv"
CHANNELS_FILE = "channels.csv"
REQUESTS_FILE = "requests.csv"
JUNIT_FILE = "junit.xml"
PROGRAM_EXIT = "program_exit"
"""The metric whose test case has the last lines of a program that failed."""


def summary_json(record: Record) -> dict[str, Any]:
    """Verdict, expectations, and every metric of every point, without samples."""
    return {
        "scenario": record.scenario.name,
        "started": record.started,
        "finished": record.finished,
        "incomplete": record.incomplete,
        "verdict": record.verdict.outcome.value,
        "reasons": record.verdict.reasons,
        "expectations": [
            {
                "metric": item.metric,
                "point": item.point,
                "min": item.minimum,
                "max": item.maximum,
                "measured": item.measured,
                **({} if item.low is None else {"low": item.low, "high": item.high}),
                "outcome": item.outcome.value,
                "source": item.source,
            }
            for item in record.expectations
        ],
        "points": [_point_json(point) for point in record.points],
        "broken_checks": [
            {"point": point.name, "run": run.index, "check": check.name, "message": check.message}
            for point, run in every_run(record)
            for check in run.checks
            if not check.ok
        ],
        "comparability": record.comparability,
        "command": record.command,
    }


def _point_json(point: PointResult) -> dict[str, Any]:
    predicted = predictions_of(point)
    return {
        "name": point.name,
        "values": point.values,
        "k": point.lab.k,
        "runs": len(point.runs),
        "earlier_tries": [
            {"k": one.lab.k, "runs": len(one.runs), "reasons": one.reasons} for one in point.earlier_tries
        ],
        "counters": total(channel for run in point.runs for channel in run.channels),
        "networks": [[network_json(load) for load in run.networks] for run in point.runs],
        "metrics": {metric.name: _metric_json(metric) for metric in point.metrics},
        "predictions": {
            name: {"mean": item.mean, "stdev": item.stdev, "oracle": item.oracle} for name, item in predicted.items()
        },
    }


def _metric_json(metric: MetricSummary) -> dict[str, Any]:
    return {
        "unit": metric.unit,
        "median": metric.median,
        "min": metric.minimum,
        "max": metric.maximum,
        "cv": metric.cv,
        "ideal": metric.ideal,
        "values": metric.values,
    }


def metrics_csv(record: Record) -> str:
    """A line for each metric of each run; the matrix's keys are columns of their own."""
    keys = list(dict.fromkeys(key for point in record.points for key in point.values))
    units = {metric.name: metric.unit for point in record.points for metric in point.metrics}
    rows = [
        [point.name, *(point.values.get(key) for key in keys), run.index, run.seed, run.complete, name,
         units.get(name, ""), value]
        for point, run in every_run(record)
        for name, value in run.metrics.items()
    ]  # fmt: skip
    return _csv(["point", *keys, "run", "seed", "complete", "metric", "unit", "value"], rows)


def transfers_csv(record: Record) -> str:
    """A line for each transfer of each run, in lab seconds and bytes. A timed flow has no size of its own: what arrived
    while it was measured stands for it."""
    columns = [
        "point", "run", "transfer", "source", "destination", "size_bytes", "start_s", "end_s", "fct_s", "ideal_s",
        "slowdown",
    ]  # fmt: skip
    rows = (
        row
        for point, run in every_run(record)
        for row in (_of_steps if run.transfers.number else _of_timed)(point, run)
    )
    return _csv(columns, rows)


def _of_steps(point: PointResult, run: RunResult) -> Iterable[Sequence[Any]]:
    table = run.transfers
    columns = (
        table.number, table.source, table.destination, table.size_bytes, table.channel, table.start_s, table.end_s,
        table.ideal_s,
    )  # fmt: skip
    for number, source, destination, size, channel, start, end, ideal in zip(*columns, strict=False):
        ends: tuple[Any, Any] = (source, destination)
        if 0 <= channel < len(run.channels):
            ends = _ends(run.channels[channel])
        took = end - start if start is not None and end is not None else None
        slowdown = took / ideal if took is not None and ideal > 0 else None
        yield [point.name, run.index, number, *ends, size, start, end, took, ideal, slowdown]


def _of_timed(point: PointResult, run: RunResult) -> Iterable[Sequence[Any]]:
    """Channels of a run without transfers."""
    for number, channel in enumerate(run.channels):
        at_s = channel.samples.at_s
        start = at_s[0] if at_s else None
        end = None if start is None else start + channel.seconds
        size = channel.received_bytes
        yield [point.name, run.index, number, *_ends(channel), size, start, end, channel.seconds, None, None]


def _ends(channel: Channel) -> tuple[str, str]:
    return str(channel.source), str(channel.destination)


def channels_csv(record: Record) -> str:
    """A line for each channel of each run, with a column for whatever any of their transports counts."""
    found = [(point, run, channel) for point, run in every_run(record) for channel in run.channels]
    counted = sorted({name for _, _, channel in found for name in channel.counters})
    columns = [
        "point", "run", "source", "destination", "rail", "sent_bytes", "received_bytes", "goodput_bps", "ideal_bps",
        "busy_s", "packets", "retransmits", "min_rtt_us", "latency_min_s", "latency_p50_s", "latency_p99_s",
        "latency_p99_9_s", "latency_max_s", "latency_ideal_s",
    ]  # fmt: skip
    rows = (
        [
            point.name, run.index, *_ends(one), one.rail, one.sent_bytes, one.received_bytes, one.goodput_bps,
            one.ideal_bps, one.busy_s, one.packets, one.retransmits, one.min_rtt_us, *_latencies(one),
            *(one.counters.get(name) for name in counted),
        ]
        for point, run, one in found
    )  # fmt: skip
    return _csv([*columns, *counted], rows)


def _latencies(channel: Channel) -> Sequence[float | None]:
    row = latency_row(channel)
    if row is None:
        return (None,) * 6
    return row.minimum_s, row.p50_s, row.p99_s, row.p99_9_s, row.maximum_s, row.ideal_s


def has_requests(record: Record) -> bool:
    """Tell whether any run has requests for inference, so that there is a file of them."""
    return any(run.requests.number for _, run in every_run(record))


def requests_csv(record: Record) -> str:
    """A line for each request for inference of each run, in lab seconds."""
    columns = [
        "point", "run", "request", "client", "server", "prompt_tokens", "output_tokens", "start_s", "lateness_s",
        "first_s", "end_s", "ttft_s", "e2el_s", "service_first_s", "service_token_s", "failure",
    ]  # fmt: skip
    return _csv(columns, (row for point, run in every_run(record) for row in _of_requests(point, run)))


def _of_requests(point: PointResult, run: RunResult) -> Iterable[Sequence[Any]]:
    table = run.requests
    for index, start in enumerate(table.start_s):
        first, end = table.first_s[index], table.end_s[index]
        yield [
            point.name, run.index, table.number[index], table.client[index], table.server[index],
            table.prompt_tokens[index], table.output_tokens[index], start, table.lateness_s[index], first, end,
            None if first is None else first - start, None if end is None else end - start,
            table.service_first_s[index], table.service_token_s[index], table.failure[index],
        ]  # fmt: skip


def junit_xml(record: Record) -> bytes:
    """A test case for each expectation and each trust check of each run.

    A failure is an expectation that was missed; an error is a measurement that cannot be trusted, or is not there. What
    no simulation has is skipped.
    """
    name = record.scenario.name
    cases = [*_expectation_cases(record), *_trust_cases(record)]
    if record.incomplete:
        case = ElementTree.Element("testcase", classname=_xml(name), name="ran to its end")
        ElementTree.SubElement(case, "error", message=_xml(record.incomplete))
        cases.append(case)
    failures = sum(case.find("failure") is not None for case in cases)
    errors = sum(case.find("error") is not None for case in cases)
    counts = {"tests": str(len(cases)), "failures": str(failures), "errors": str(errors)}
    seconds = sum(run.elapsed_s for _, run in every_run(record))
    suites = ElementTree.Element("testsuites", {"name": "testbed", **counts})
    about = {"name": _xml(name), "timestamp": _xml(record.started.removesuffix("Z")), "time": f"{seconds:.3f}"}
    suite = ElementTree.SubElement(suites, "testsuite", {**about, **counts})
    suite.extend(cases)
    ElementTree.indent(suites)
    written: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _expectation_cases(record: Record) -> Iterable[ElementTree.Element]:
    for item in record.expectations:
        unit = unit_of(record, item.metric)
        band = format_band(item, unit)
        classname = ".".join(word for word in (record.scenario.name, item.point) if word)
        case = ElementTree.Element("testcase", classname=_xml(classname), name=_xml(f"{item.metric} {band}"))
        said = f"measured {format_measured(item, unit)}, expected {band}"
        if item.left_out:
            ElementTree.SubElement(case, "skipped", message=_xml(item.doubt))
        elif item.outcome is not Outcome.PASS:
            kind = "failure" if item.outcome is Outcome.FAIL else "error"
            ElementTree.SubElement(case, kind, message=_xml(said)).text = _xml(item.source)
            if item.metric == PROGRAM_EXIT and (output := _last_words(record, item.point)):
                ElementTree.SubElement(case, "system-out").text = output
        yield case


def _last_words(record: Record, point: str) -> str:
    """Return who of a program that failed has failed first in each run, and the last lines that it printed."""
    found = []
    for one, run in every_run(record):
        if one.name == point and run.program is not None and run.program.failure:
            speaker = speaker_of(run.program)
            found.append(f"run {run.index}: {run.program.failure}")
            found += [] if speaker is None else [f"[{speaker.rank}] {line}" for line in speaker.last_lines]
    return "\n".join(map(_xml, found))


def _trust_cases(record: Record) -> Iterable[ElementTree.Element]:
    for point, run in every_run(record):
        classname = ".".join(word for word in (record.scenario.name, point.name, "trust") if word)
        for check in run.checks:
            case = ElementTree.Element(
                "testcase", classname=_xml(classname), name=_xml(f"run {run.index}: {check.name}")
            )
            if not check.ok:
                ElementTree.SubElement(case, "error", message=_xml(check.message))
            yield case


def encode_summary(record: Record) -> bytes:
    return (
        json.dumps(summary_json(record), indent=1, ensure_ascii=False, allow_nan=False).encode(errors="replace") + b"\n"
    )


def _csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow([safe_cell(column) for column in columns])
    writer.writerows([safe_cell(value) for value in row] for row in rows)
    return output.getvalue()


def safe_cell(value: Any) -> Any:
    """Return a value as a cell of CSV has it; what a spreadsheet would take for a formula gets an apostrophe."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return value
    text = str(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _xml(text: str) -> str:
    """XML 1.0 has no way to write control characters and surrogates."""
    return "".join(char if char >= " " and char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
