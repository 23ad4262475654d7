"""Whatever is in a record file: a `RecordError`, or a record of which every report can be made. Never anything else."""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recorded import RECORDS, Page, screen

from testbed.base.errors import RecordError
from testbed.record.record import Record
from testbed.record.report import render_report, write_report_files
from testbed.record.report.comparison import compare_records, comparison_json, render_comparison
from testbed.record.report.scenario.tables import channels_csv, encode_summary, junit_xml, metrics_csv, transfers_csv
from testbed.record.store import decode_record

NAMES = [
    *("allreduce-rail", "frontend-mice", "incast-senders", "permutation", "permutation-lb", "silent-failure"),
    "incast-trimming",
]
FEW = 3
"""Elements that are kept of a list, so that a mutation meets something that matters."""
WHOLE = st.sampled_from([0, 1, -1, 2**31, 2**63 - 1, -(2**63)]) | st.integers(-(2**63), 2**63 - 1)
REAL = st.sampled_from([0.0, -0.0, 1e-300, 1e300, 1.7976931348623157e308, -1e18]) | st.floats(
    allow_nan=False, allow_infinity=False
)
TEXT = st.sampled_from(
    [
        "",
        "x",
        "<b>",
        "\x1b[0m",
        "\ud800",
        "byte",
        "share",
        "s",
        "=1",
        "é" * 300,
        "a:b:c",
        "uplink",
        "queue:a",
        "goodput",
    ]
)
ANY = st.none() | st.booleans() | WHOLE | REAL | TEXT | st.sampled_from([[], {}, [1], [None, 2.5], {"a": 1}, 2**70])


@cache
def seed(name: str) -> str:
    document = json.loads((RECORDS / f"{name}.json").read_text())
    return json.dumps(shortened(document))


def shortened(value: Any) -> Any:
    if isinstance(value, list):
        return [shortened(item) for item in value[:FEW]]
    if isinstance(value, dict):
        return {key: shortened(item) for key, item in value.items()}
    return value


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of everything inside."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [path] if path else []
    for key, item in inner:
        found += places(item, (*path, key))
    return found


def mutate(data: st.DataObject, document: Any) -> None:
    """Most often by something of the same kind, so that what comes out is a record still."""
    path = data.draw(st.sampled_from(places(document)))
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    old = holder[path[-1]]
    match data.draw(st.sampled_from(["alike", "alike", "alike", "alike", "any", "drop", "double"])):
        case "alike":
            holder[path[-1]] = data.draw(alike(old))
        case "any":
            holder[path[-1]] = data.draw(ANY)
        case "drop" if isinstance(holder, list):
            del holder[path[-1]]
        case "double" if isinstance(holder, list):
            holder.append(old)


def alike(value: Any) -> st.SearchStrategy[Any]:
    match value:
        case bool():
            return st.booleans()
        case int():
            return WHOLE
        case float():
            return REAL | st.just(None)
        case str():
            return TEXT
        case list():
            return st.sampled_from([[], value[:1], value * 2])
        case dict():
            return st.sampled_from([{}, value])
    return REAL


def make_everything(record: Record) -> None:
    Page(render_report(record)).assert_inert()
    with TemporaryDirectory() as directory:
        write_report_files(record, Path(directory))
    assert "\x1b" not in screen(record, 120)
    json.loads(encode_summary(record))
    ElementTree.fromstring(junit_xml(record))
    metrics_csv(record)
    transfers_csv(record)
    channels_csv(record)
    try:
        comparison = compare_records(record, record, force=True)
    except RecordError:
        return
    json.dumps(comparison_json(comparison))
    Page(render_comparison([comparison])).assert_inert()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_mutated_records(data: st.DataObject) -> None:
    document = json.loads(seed(data.draw(st.sampled_from(NAMES))))
    for _ in range(data.draw(st.integers(1, 5))):
        mutate(data, document)
    try:
        record = decode_record(json.dumps(document).encode())
    except RecordError:
        return
    make_everything(record)


@settings(max_examples=100, deadline=None)
@given(content=st.binary(max_size=200))
def test_any_bytes(content: bytes) -> None:
    try:
        decode_record(content)
    except RecordError:
        return
    raise AssertionError("200 random bytes are no record")
