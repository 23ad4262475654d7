"""Records of earlier schemas are read, and nothing above `results` notices; what is broken in them is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.base.errors import RecordError
from testbed.record.older import modernise
from testbed.record.record import SCHEMA
from testbed.record.report.comparison import compare_records
from testbed.record.store import decode_record, encode_record, load_record

RECORDS = Path(__file__).parents[2] / "data" / "records"
SCHEMA_1 = RECORDS / "permutation.json"
SCHEMA_2 = RECORDS / "older" / "incast-trimming.json"


def written(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


@pytest.mark.parametrize(("path", "schema"), [(SCHEMA_1, 1), (SCHEMA_2, 2)])
def test_what_is_read_is_of_today_and_stays_as_it_is(path: Path, schema: int) -> None:
    assert written(path)["schema"] == schema
    record = load_record(path)
    assert record.schema == SCHEMA
    again = json.loads(encode_record(record))
    assert modernise(again) == again
    assert not {"flows", "uplinks"} & set(again["points"][0]["runs"][0])


def test_schema_1_is_a_single_point() -> None:
    content = written(SCHEMA_1)
    (point,) = load_record(SCHEMA_1).points
    assert (point.name, point.values, point.lab.nics) == ("", {}, 16)
    assert point.workload["kind"] == "permutation" and len(point.runs) == len(content["runs"])
    assert [metric.name for metric in point.metrics] == [metric["name"] for metric in content["metrics"]]


def test_flows_of_iperf3_are_channels() -> None:
    flow = written(SCHEMA_1)["runs"][0]["flows"][3]
    channel = load_record(SCHEMA_1).points[0].runs[0].channels[3]
    assert (channel.source.node, channel.source.interface) == ("p1-s1-h2", "rail2")
    assert (channel.source_rank, channel.destination_rank) == (None, None), "nobody wrote it down"
    for name in ("goodput_bps", "ideal_bps", "retransmits", "received_bytes", "seconds", "source_port"):
        assert getattr(channel, name) == flow[name]
    assert channel.counters == {"mss_bytes": flow["mss_bytes"]}
    samples = channel.samples
    columns = (samples.at_s, samples.acked_bytes, samples.cwnd_bytes, samples.rtt_us, samples.retransmits)
    assert {len(column) for column in columns} == {len(flow["samples"]["seconds"]) + 1}
    assert samples.at_s[0] == flow["started_s"] and samples.at_s == sorted(samples.at_s)
    assert samples.acked_bytes[-1] == sum(flow["samples"]["bytes"])


def test_an_interrupted_flow_counts_what_it_had_sent() -> None:
    content = written(SCHEMA_1)
    flow = content["runs"][0]["flows"][0]
    flow["received_bytes"] = None
    record = decode_record(json.dumps(content).encode())
    assert record.points[0].runs[0].channels[0].received_bytes == flow["sent_bytes"]


def test_uplinks_are_ports_of_their_tier() -> None:
    uplinks = written(SCHEMA_1)["runs"][0]["uplinks"]
    ports = load_record(SCHEMA_1).points[0].runs[0].ports
    assert {port.tier for port in ports} == {"uplink"}
    assert [(port.node, port.interface, port.tx_bytes, port.utilisation) for port in ports] == [
        (uplink["switch"], uplink["interface"], uplink["tx_bytes"], uplink["utilisation"]) for uplink in uplinks
    ]


def test_ports_and_channels_of_schema_2_are_kept() -> None:
    content = written(SCHEMA_2)["points"][0]["runs"][0]
    assert content["uplinks"], "else this shows nothing"
    (run,) = load_record(SCHEMA_2).points[0].runs
    assert len(run.ports) == len(content["ports"]) and len(run.channels) == len(content["channels"])
    assert sum(port.tier == "uplink" for port in run.ports) == len(content["uplinks"])


def test_an_earlier_records_seed_keeps_nobody_from_comparing() -> None:
    content = written(SCHEMA_2)
    assert content["comparability"]["seed"] == 1
    other = {**content, "comparability": {**content["comparability"], "seed": 2}}
    base, again = load_record(SCHEMA_2), decode_record(json.dumps(other).encode())
    assert "seed" not in base.comparability and base.scenario.repeat["seed"] == 1, "it is still shown"
    assert not compare_records(base, again, force=True).differing


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda content: content.pop("lab"), r"points\.0\.lab"),
        (lambda content: content["runs"][0].pop("uplinks"), "uplinks"),
        (lambda content: content["runs"][1]["flows"][2].pop("goodput_bps"), r"flows\.2\.goodput_bps"),
        (lambda content: content["runs"][0]["flows"][0].update(sent_bytes=2**63), r"flows\.0\.sent_bytes"),
        (lambda content: content.update(runs=3), r"points\.0\.runs"),
        (lambda content: content.update(runs=[3]), r"points\.0\.runs\.0"),
    ],
)
def test_what_is_broken_is_refused_by_name(change: Any, problem: str) -> None:
    content = written(SCHEMA_1)
    change(content)
    with pytest.raises(RecordError, match=rf"not a valid record: {problem}"):
        decode_record(json.dumps(content).encode())


def test_a_schema_2_record_without_points_is_refused() -> None:
    with pytest.raises(RecordError, match="not a valid record"):
        decode_record(b'{"schema": 2, "points": 1, "comparability": 2}')
