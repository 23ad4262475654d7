"""A record as files for other programs."""

import csv
import io
import json
import os
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from recorded import load, screen, with_runs
from run_rows import network_load

from testbed.base.errors import RecordError
from testbed.record.record import NOT_SIMULATED, EarlierTry, Outcome
from testbed.record.report import render_report, write_report_files
from testbed.record.report.scenario.counters import reconcile
from testbed.record.report.scenario.figures import tenant_figures, title_of, trust_rows
from testbed.record.report.scenario.nccl_table import collective_rows
from testbed.record.report.scenario.networks import COLUMNS, TENANT_COLUMNS, Cell, network_rows, tenant_rows
from testbed.record.report.scenario.senders import senders_of, total_rate
from testbed.record.report.scenario.tables import junit_xml, metrics_csv, summary_json, transfers_csv
from testbed.record.samples import NetworkLoad, ScaleUpLoad, TenantLoad
from testbed.record.store import decode_record, encode_record


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_metrics_have_a_line_for_each_run_and_the_matrix_in_columns() -> None:
    record = load("incast-senders")
    found = rows(metrics_csv(record))
    assert len(found) == sum(len(run.metrics) for point in record.points for run in point.runs)
    first = found[0]
    assert (first["transport.cc"], first["workload.senders"], first["run"], first["metric"], first["unit"]) == (
        "nscc", "2", "1", "tail_fct_ratio", "ratio",
    )  # fmt: skip
    assert float(first["value"]) == record.points[0].runs[0].metrics["tail_fct_ratio"]


def test_transfers_have_their_completion_time_and_slowdown() -> None:
    found = rows(transfers_csv(load("silent-failure")))
    assert len(found) == 16
    assert found[0]["source"] == "p1-s1-h1:rail1"
    assert found[0]["end_s"] == found[0]["fct_s"] == found[0]["slowdown"] == "", "it did not end"
    assert float(found[1]["slowdown"]) == pytest.approx(4.0 / (40e6 * 8 / 98.5e6 + 0.004), rel=1e-4)
    flows = rows(transfers_csv(load("permutation")))
    assert flows[0]["size_bytes"] == "48030816" and flows[0]["ideal_s"] == ""


def test_cells_are_no_formulas() -> None:
    record = load("incast-senders")
    points = [replace(record.points[0], name='=HYPERLINK("http://x","y")')]
    found = rows(metrics_csv(replace(record, points=points)))
    assert found[0]["point"] == '\'=HYPERLINK("http://x","y")'


def test_junit_tells_a_missed_expectation_from_one_that_was_not_measured() -> None:
    record = load("incast-senders")
    missed = [
        case for case in ElementTree.fromstring(junit_xml(record)).iter("testcase") if case.find("failure") is not None
    ]
    assert [case.get("classname") for case in missed] == [
        "incast-senders.cc=none senders=8", "incast-senders.cc=none senders=16",
    ]  # fmt: skip
    unmeasured = replace(record.expectations[0], measured=None, outcome=Outcome.INVALID)
    text = junit_xml(replace(record, expectations=[unmeasured]))
    assert ElementTree.fromstring(text).get("errors") == "1"


def test_junit_skips_what_is_not_simulated() -> None:
    record = load("incast-senders")
    said = f"{NOT_SIMULATED}: no rank is in the network management"
    left_out = replace(record.expectations[0], measured=None, outcome=Outcome.INVALID, doubt=said)
    suites = ElementTree.fromstring(junit_xml(replace(record, expectations=[left_out])))
    [skipped] = suites.iter("skipped")
    assert skipped.get("message") == said
    assert (suites.get("failures"), suites.get("errors")) == ("0", "0")


def test_junit_of_a_stranger_is_xml() -> None:
    record = load("silent-failure")
    evil = replace(record, scenario=replace(record.scenario, name="]]><x>\x00\x1b\ud800"), incomplete="\x07&")
    ElementTree.fromstring(junit_xml(evil))


def test_summary_is_json_without_samples() -> None:
    record = load("permutation-lb")
    found = json.loads(json.dumps(summary_json(record), allow_nan=False))
    assert found["verdict"] == "pass"
    assert [point["values"] for point in found["points"]][2] == {"qos.load_balancing.mode": "spray"}
    assert found["points"][0]["metrics"]["aggregate_share"]["ideal"] == 1.0
    assert found["points"][0]["predictions"]["aggregate_share"]["mean"] == 0.684
    assert "channels" not in json.dumps(found)


def test_all_files_are_written_and_each_is_whole(tmp_path: Path) -> None:
    page = write_report_files(load("permutation"), tmp_path)
    assert page == tmp_path / "report.html"
    assert {path.name for path in tmp_path.iterdir()} == {
        "report.html", "summary.json", "metrics.csv", "transfers.csv", "channels.csv", "junit.xml",
    }  # fmt: skip


def test_a_full_disk_leaves_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "report.html").write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RecordError, match="No space left on device"):
        write_report_files(load("permutation"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert (tmp_path / "report.html").read_text() == "old"


def test_a_metric_that_is_compared_with_another_point_has_its_title() -> None:
    record = load("permutation-lb")
    assert title_of(record, "tail_fct_ratio over that of paths=reps") == "Tail FCT over ideal over that of paths=reps"
    assert title_of(record, "unheard_of over that of paths=reps") == "unheard_of over that of paths=reps"


def test_collectives_are_medians_over_operations_of_one_size() -> None:
    found = collective_rows(load("allreduce-rail").points[0])
    assert [row.size_bytes for row in found] == [2**power for power in range(16, 25)]
    last = found[-1]
    assert last.operations == 6 and last.wrong == 0 and last.root is None
    assert last.busbw == pytest.approx(last.algbw * 14 / 8)
    assert last.algbw == pytest.approx(last.size_bytes / last.seconds, rel=1e-4)
    assert last.real_busbw == pytest.approx(last.busbw * 4000)
    assert last.share == pytest.approx(last.busbw * 8 / 100e6)


def test_counters_that_do_not_add_up_are_told() -> None:
    run = load("permutation-lb").points[0].runs[0]
    assert all(line.ok is not False for line in reconcile(run))
    channel = replace(run.channels[0], received_bytes=run.channels[0].sent_bytes + 5)
    lines = {line.what: line for line in reconcile(replace(run, channels=[channel, *run.channels[1:]]))}
    assert lines["Payload received"].ok is False
    assert "5 B too much" in lines["Payload received"].remark
    lost = [replace(channel, received_bytes=0) for channel in run.channels]
    lines = {line.what: line for line in reconcile(replace(run, channels=lost))}
    assert lines["Bytes of ended transfers"].ok is False


def test_what_connections_cost_is_told() -> None:
    run = load("permutation-lb").points[0].runs[0]
    assert not any("queue pairs" in line.what for line in reconcile(run))
    counters = {**run.counters, "qp_state_bytes": 70_244, "connects": 0}
    lines = {line.what: line.counted for line in reconcile(replace(run, counters=counters))}
    assert lines["State of queue pairs, of the NIC with the most"] == "70.2 kB"
    assert not any("connects" in what for what in lines)
    lines = {line.what: line.counted for line in reconcile(replace(run, counters={**counters, "connects": 1200}))}
    assert lines["Packets that attach initiators (connects)"] == "1,200"


def test_unended_transfers_are_told_apart() -> None:
    run = load("silent-failure").points[0].runs[0]
    starts: list[float | None] = [None, *run.transfers.start_s[1:]]
    transfers = replace(run.transfers, start_s=starts)
    lines = reconcile(replace(run, transfers=transfers))
    assert lines[0].remark == "0 were under way at the end, 1 never began"
    assert lines[0].ok is False


def test_trust_shows_the_worst_of_all_runs_and_broken_ones_first() -> None:
    record = load("silent-failure")
    found = trust_rows(record)
    assert [row.name for row in found] == ["cpu", "canary", "conservation"]
    assert (found[0].broken, found[0].runs, found[0].where) == (1, 2, "run 2")
    assert found[0].worst.value == 0.93


def test_rates_of_senders_add_up_to_what_was_sent() -> None:
    run = load("silent-failure").points[0].runs[0]
    senders = senders_of(run)
    total = total_rate(senders, bins=40)
    width = total[1][0] - total[0][0]
    sent = sum(channel.samples.acked_bytes[-1] for channel in run.channels)
    assert sum(rate * width for _, rate in total) / 8 == pytest.approx(sent, rel=1e-3)
    assert min(rate for at, rate in total if 1.1 < at < 1.8) < 0.8 * max(rate for _, rate in total)


def test_turns_of_one_collective_are_one_row_and_groups_are_not() -> None:
    point = load("allreduce-rail").points[0]
    run = point.runs[0]
    largest = [item for item in run.collectives if item.size_bytes == 2**24][:1]
    labels = ["all_reduce[0]", "all_reduce[1]", "all_reduce[0].group1", "all_reduce[1].group1"]
    several = [replace(item, label=label) for item in largest for label in labels]
    changed = replace(point, runs=[replace(run, collectives=several)])
    assert [(row.label, row.operations, row.datatype) for row in collective_rows(changed)] == [
        ("", 2, "float"), ("group1", 2, "float"),
    ]  # fmt: skip


def test_a_burst_between_two_samples_is_no_rate() -> None:
    run = load("allreduce-rail").points[0].runs[0]
    channel = run.channels[0]
    at_s, acked = [0.00001, *channel.samples.at_s], [50_000, *channel.samples.acked_bytes]
    samples = replace(channel.samples, at_s=at_s, acked_bytes=acked)
    (sender,) = senders_of(replace(run, channels=[replace(channel, samples=samples)]))
    assert max(rate for _, rate in sender.rate) < 100e6


def test_tries_that_do_not_count_are_in_the_summary() -> None:
    record = load("permutation")
    point = record.points[0]
    earlier = EarlierTry(lab=replace(point.lab, k=500.0), runs=point.runs, metrics=[], reasons=["run 1: too busy"])
    retried = replace(record, points=[replace(point, earlier_tries=[earlier]), *record.points[1:]])
    found = summary_json(retried)["points"]
    assert found[0]["earlier_tries"] == [{"k": 500.0, "runs": len(point.runs), "reasons": ["run 1: too busy"]}]


def loads() -> list[NetworkLoad]:
    quiet = network_load("backend")
    busy = replace(
        quiet,
        name="storage",
        carrier="frontend",
        entered_bytes=25_000_000,
        busiest_port="leaf:down1",
        busiest_utilisation=0.5,
        busiest_peak_utilisation=0.93,
        queue_max_bytes=70_000,
        queue_port="leaf:down1",
        queue_class="rdma",
        drops={"tail": 2_000, "wire": 1},
        ce_packets=5,
        pause_frames=3,
        paused_s=0.25,
        payload_bytes={"": 1_000, "red": 2_000},
        guarded={"mac": 7},
    )
    return [quiet, busy]


def test_networks_are_in_the_page_on_the_screen_and_in_the_summary() -> None:
    record = load("permutation")
    changed = with_runs(record, lambda run: replace(run, networks=loads()))
    backend, storage = network_rows(changed.points[0].runs[0])
    assert [cell.text for cell in backend.cells] == [
        "backend", "0 B", "0 B", "0.0%", "0.0%", "–", "0", "–", "–", "–",
    ]  # fmt: skip
    of_storage = dict(zip(COLUMNS, storage.cells, strict=True))
    assert of_storage["Busiest port"] == Cell(text="50.0%", remark="peak 93.0%, leaf:down1")
    assert of_storage["Lost packets"] == Cell(text="2,001", remark="2,000 tail, 1 wire")
    assert of_storage["Guarded"] == Cell(text="7", remark="7 mac")
    assert [(cell.text, cell.remark) for cell in storage.payload] == [("1 kB", "in no tenant"), ("2 kB", "red")]
    page = render_report(changed)
    assert "<h3>Networks</h3>" in page and "over frontend" in page and "red 2 kB" in page
    assert "<h3>Networks</h3>" not in render_report(record)
    assert "70 kB (leaf:down1 rdma)" in screen(changed)
    assert [one["network"] for one in summary_json(changed)["points"][0]["networks"][0]] == ["backend", "storage"]
    assert decode_record(encode_record(changed)) == changed


def test_tenants_are_in_the_page_on_the_screen_and_in_the_summary() -> None:
    """By themselves where the lab has one network, whose line would say the same as theirs."""
    red = TenantLoad(
        name="red",
        ports=4,
        entered_bytes=2_500,
        entered_frames=1,
        delivered_bytes=2_400,
        delivered_frames=3,
        utilisation=0.125,
        busiest_port="leaf:down1",
        busiest_utilisation=0.25,
        queue_max_bytes=9_000,
        queue_port="leaf:down1",
        queue_class="rdma",
        drops={"tail": 4},
        guarded={"policy": 12},
        payload_bytes=2_000,
    )
    none = replace(red, name="", queue_max_bytes=None, queue_port="", queue_class="", guarded=None)
    network = replace(loads()[1], tenants=[red, none])
    changed = with_runs(load("permutation"), lambda run: replace(run, networks=[network]))
    run = changed.points[0].runs[0]
    first, second = (dict(zip(TENANT_COLUMNS, row, strict=True)) for row in tenant_rows(run))
    assert first["Bytes in"] == Cell(text="2.5 kB", remark="1 frame")
    assert first["Worst queue"] == Cell(text="9 kB", remark="leaf:down1 rdma")
    assert first["Lost packets"] == Cell(text="4", remark="4 tail")
    assert first["Guarded"] == Cell(text="12", remark="12 policy")
    assert second["Tenant"].text == "in no tenant" and second["Guarded"].text == second["Worst queue"].text == "–"
    assert network_rows(run)[0].payload == (), "the table of tenants has it"
    page = render_report(changed)
    assert "12<small>12 policy</small>" in page and "per class and not per tenant" in page
    assert "12 (12 policy)" in screen(changed) and "Networks, lab time" not in screen(changed)
    (told,) = summary_json(changed)["points"][0]["networks"][0]
    assert [(one["tenant"], one["guarded"]) for one in told["tenants"]] == [("red", {"policy": 12}), (None, None)]
    assert decode_record(encode_record(changed)) == changed


def test_each_line_about_a_scale_up_domain_names_its_point() -> None:
    load_of_domain = ScaleUpLoad(
        domain="p1-s1", gpus=8, planes=[], rtt_s=0.05, idle_rtt_s=None, rtt_floor_s=None, rtt_floor_real_s=None,
        latency_p50_s=0.05, latency_p999_s=0.1, lateness_p999_s=0.0, credit_loop_s=0.01, transfers=1, failed=0,
        request_drops=0, request_frames=1,
    )  # fmt: skip
    record = with_runs(load("permutation-lb"), lambda run: replace(run, scale_up=[load_of_domain]))
    lines = [line for line in screen(record).splitlines() if "p1-s1: transactions took 1.00 (P50)" in line]
    names = [point.name for point in record.points]
    assert len(names) > 1 and [line.split(", p1-s1")[0] for line in lines] == names


def test_tenants_of_a_workload_stand_side_by_side() -> None:
    record = load("permutation")
    point = record.points[0]
    jct = replace(point.metrics[0], unit="ratio")
    added = [
        replace(jct, name="jct_ratio[tenant=training]", median=1.25, headline=False),
        replace(jct, name="jct_ratio[tenant=users]", median=4.5, headline=False),
        replace(jct, name="failed_requests[tenant=users]", unit="count", median=3.0, headline=False),
        replace(jct, name="network_drops[network=a tenant=red]", unit="count", median=77.0, headline=False),
    ]
    changed = replace(record, points=[replace(point, metrics=[*point.metrics, *added])])
    found = tenant_figures(changed.points[0])
    assert list(found.tenants) == ["training", "users"]
    assert [(title, list(texts)) for title, texts in found.rows] == [
        ("JCT over roofline", ["1.250", "4.500"]),
        ("Failed requests", ["", "3"]),
    ]
    assert not tenant_figures(point).rows
    page = render_report(changed)
    assert "<h3>Tenants of the workload</h3>" in page and "<h3>Tenants of the workload</h3>" not in render_report(
        record
    )
    assert "training" in screen(changed) and "4.500" in screen(changed)
