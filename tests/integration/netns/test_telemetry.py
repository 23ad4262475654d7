"""Telemetry of a real lab: counters that reconcile while traffic runs, the verbs `stats` and `serve`."""

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from testbed.api import Lab
from testbed.lab.observe.port_table import tabulate_ports
from testbed.lab.observe.reconcile import Balance, reconcile
from testbed.lab.observe.sampler import Sampler
from testbed.lab.observe.telemetry import queue_rows, spray_rows, take_snapshot, utilisation

pytestmark = [pytest.mark.netns, pytest.mark.frr, pytest.mark.timeout(120), pytest.mark.timed]

TOPOLOGY = """
name: telemetry
scale: {time: 20000}
qos:
  preset: uec
  load_balancing: {mode: spray}
fabric: {design: rail-optimized, hosts: 1, segments: 2, gpus: 1, spines: 2}
"""
DATAGRAMS, SIZE = 4_000, 1_000
SENDER = f"""
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 26 << 2 | 2)
for _ in range({DATAGRAMS}):
    s.sendto(bytes({SIZE}), (sys.argv[1], 9000))
"""
RECEIVER = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 9000))
print("ready", flush=True)
while True:
    s.recv(9000)
"""


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> Iterator[Lab]:
    box = shared_sandbox
    with Lab.deploy(TOPOLOGY, name=box.name(), state=box.state, directory=box.work / "lab") as found:
        box.note_daemons()
        yield found


@contextmanager
def traffic(lab: Lab) -> Iterator[subprocess.Popen[bytes]]:
    """Datagrams of the rdma class, ECT(0), from one segment to the other, as fast as the NIC takes them."""
    receiver = lab.node("p1-s2-h1").spawn([sys.executable, "-c", RECEIVER], stdout=subprocess.PIPE)
    try:
        assert receiver.stdout.readline() == b"ready\n"
        sender = lab.node("p1-s1-h1").spawn([sys.executable, "-c", SENDER, lab.node("p1-s2-h1").address("rail1")])
        try:
            yield sender
        finally:
            sender.kill()
            sender.wait()
    finally:
        receiver.kill()
        receiver.wait()
        if receiver.stdout is not None:
            receiver.stdout.close()


def test_counters_reconcile_while_traffic_runs_and_after(lab: Lab) -> None:
    maps, table = lab.running.maps(), tabulate_ports(lab.plan)
    before = take_snapshot(maps)
    with traffic(lab) as sender:
        verdicts = []
        while sender.poll() is None:
            verdicts.append(reconcile(maps, table).balance)
        after = take_snapshot(maps)
    assert len(verdicts) > 3
    assert Balance.BROKEN not in verdicts
    deadline = time.monotonic() + 10
    while maps.queues["bytes"].any() and time.monotonic() < deadline:
        time.sleep(0.01)
    result = reconcile(maps, table)
    assert result.balance is Balance.RECONCILED, str(result)

    growth = take_snapshot(maps).since(before)
    rows = {(row.place, row.class_name): row for row in queue_rows(table, growth, table.present)}
    assert rows["p1-s1-h1:rail1", "rdma"].offered.packets == DATAGRAMS
    arrived = rows["p1-s2-h1:rail1", "rdma"].received
    dropped = sum(row.dropped.packets for (_, name), row in rows.items() if name == "rdma")
    trimmed = sum(row.trimmed.packets for row in rows.values())
    assert arrived.packets == DATAGRAMS - dropped - trimmed
    assert arrived.bytes == arrived.packets * (SIZE + 28 + 14)
    assert rows["p1-s1-h1:rail1", "rdma"].ect_packets == DATAGRAMS

    number = next(n for n in range(1, table.count + 1) if table.place(n) == "p1-s1-h1:rail1")
    assert utilisation(table, after.since(before))[number] == pytest.approx(
        1, abs=0.3
    )  # as much as a busy sender offers
    [spread] = [row for row in spray_rows(table, growth) if row.class_name == "rdma"]
    assert (spread.node, spread.interfaces) == ("p1-s1-rail1", ("uplink1", "uplink2"))
    assert spread.max_over_mean_packets <= 1.03
    maps.close()


def test_samples_follow_the_queue(lab: Lab) -> None:
    maps, table = lab.running.maps(), tabulate_ports(lab.plan)
    columns = ("queues.bytes", "queues.out_bytes")
    chosen = table.select(["p1-s1-h1:rail1"], "rdma")
    with Sampler(maps, table, columns=columns, chosen=chosen) as sampler, traffic(lab) as sender:
        assert sender.wait(timeout=60) == 0
    samples = sampler.since()
    assert len(samples) + sampler.missed > 500
    assert (np.diff(samples.times_ns) > 0).all()
    queue, sent = samples.columns["queues.bytes"][:, 0], samples.columns["queues.out_bytes"][:, 0].astype(np.int64)
    assert queue.max() > SIZE
    assert (np.diff(sent) >= 0).all()
    busy = (queue[:-1] > 10 * SIZE) & (queue[1:] > 10 * SIZE)  # whoever sends may be late on a busy machine
    rate = np.diff(sent)[busy].sum() * 8 / (np.diff(samples.times_ns)[busy].sum() / 1e9)
    assert rate == pytest.approx(table.rate_bps[1], rel=0.05)
    maps.close()


def test_stats_prints_tables_and_documents(lab: Lab, shared_sandbox: Any) -> None:
    done = shared_sandbox.cli("stats", "-f", "json", "--all")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["reconciliation"]["verdict"] == "reconciled"
    assert {queue["class"] for queue in document["queues"]} >= {"rdma", "control"}
    table = shared_sandbox.cli("stats", "p1-s1-h1", "--class", "rdma", "--reset-max")
    assert re.search(r"^p1-s1-h1:rail1 +rdma +\S+( k)? ", table.stdout, re.MULTILINE), table.stdout
    assert table.stdout.splitlines()[-1].startswith("total: 1 queues")
    assert "counters reconcile" in table.stdout.splitlines()[-1]
    csv = shared_sandbox.cli("stats", "-f", "csv", "0.2")
    assert csv.stdout.startswith("time_ns,node,interface,class")
    wrong = shared_sandbox.cli("stats", "p1-s1-h9")
    assert (wrong.returncode, "did you mean p1-s1-h1?" in wrong.stderr) == (3, True)


def test_watch_ends_cleanly(lab: Lab, shared_sandbox: Any) -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = shared_sandbox.start("stats", "--watch", "200ms", "-f", "json", **pipes)
    frames = [json.loads(process.stdout.readline()) for _ in range(3)]
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (0, b"")
    assert all(0.1 < frame["seconds"] < 5 for frame in frames)


def scrape(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(address, timeout=20) as answer:
        assert answer.headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
        text = answer.read().decode()
    assert text.endswith("# EOF\n")
    return {family.name: family for family in text_string_to_metric_families(text)}


def labs_of(families: dict[str, Any]) -> dict[str, float]:
    return {sample.labels["lab"]: sample.value for sample in families["testbed_lab_up"].samples}


def test_metrics_of_labs_that_come_and_go(lab: Lab, shared_sandbox: Any) -> None:
    process = shared_sandbox.start("serve", "metrics", "--listen", "127.0.0.1:0", stderr=subprocess.PIPE, text=True)
    plain_name = shared_sandbox.name("plain")
    try:
        address = process.stderr.readline().split()[1]
        families = scrape(address)
        assert labs_of(families) == {lab.name: 1}
        assert {"testbed_queue_bytes", "testbed_queue_drops", "testbed_pause_seconds"} <= set(families)
        assert any(sample.value for sample in families["testbed_queue_sent_packets"].samples)

        plain = "name: plain\nscale: {time: 20000}\nfabric: {design: single-switch, hosts: 2, gpus: 1}\n"
        directory = shared_sandbox.work / "plain"
        with Lab.deploy(plain, name=plain_name, state=shared_sandbox.state, directory=directory):
            shared_sandbox.note_daemons()
            families = scrape(address)
            assert labs_of(families) == {plain_name: 1, lab.name: 1}
            assert {sample.labels["lab"] for sample in families["testbed_kernel_rx_packets"].samples} == {plain_name}
            kernel = shared_sandbox.cli("stats", "-n", plain_name)
            assert "no qos: section" in kernel.stdout
            refused = shared_sandbox.cli("stats", "-n", plain_name, "--class", "rdma")
            assert refused.returncode == 3
            assert "qos:" in refused.stderr
        assert labs_of(scrape(address)) == {lab.name: 1}
        taken = shared_sandbox.cli("serve", "metrics", "--listen", address.split("/")[2])
        assert (taken.returncode, "Address already in use" in taken.stderr) == (3, True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        process.communicate()
