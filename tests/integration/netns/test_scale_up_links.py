"""Links of scale-up domains on a real lab: changed, counted, captured, checked, and faults that befall them."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tshark_output import run_tshark

from testbed.api import Lab
from testbed.base.linux.namespaces import in_namespace
from testbed.base.units import Duration
from testbed.cli.counters.plane_source import PlaneSource
from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl, LinkRefused
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.check import CheckStatus, check_lab
from testbed.lab.core.model import SCALE_UP_PRESETS, ScaleUpBy
from testbed.lab.features.scale_up.apply import gpu_settings
from testbed.lab.features.scale_up.counters.balance import balance_domains
from testbed.lab.features.scale_up.counters.reading import DomainReading, read_domains
from testbed.lab.features.scale_up.links import NoSuchScaleUpLink
from testbed.lab.features.scale_up.planes import PlaneControl
from testbed.lab.features.scale_up.watch import probe_planes
from testbed.lab.observe.lab_reader import LabReader
from testbed.lab.observe.openmetrics import render_metrics
from testbed.lab.observe.port_table import NothingSelected
from testbed.protocols.scale_up.domain import build as scale_up_domain
from testbed.protocols.scale_up.domain.endpoint import Endpoint, Endpoints
from testbed.run.faults.timeline import FaultTimeline
from testbed.run.schema.model import Fault

pytestmark = [pytest.mark.netns, pytest.mark.frr, pytest.mark.timed]

K = 20_000.0
"""GPUs of 180 Mbit/s each way over planes of 50, 40, 40 and 50, and a round trip of 20 ms."""
HOST, GPUS, PLANES = "p1-s1-h1", 3, 4
SIZE = 1 << 20


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> RunningLab:
    model = shared_sandbox.model(segments=1, hosts=1, gpus=GPUS, spines=1)
    packets = replace(SCALE_UP_PRESETS["h100"], by=ScaleUpBy.PACKETS)
    return RunningLab(shared_sandbox.deploy(replace(model, scale_up=packets), k=K).lab.record, shared_sandbox.state)


@pytest.fixture
def control(lab: RunningLab) -> Iterator[LinkControl]:
    """All links are as declared afterwards."""
    with LinkControl(lab) as found:
        yield found
        found.reset_all()


@contextmanager
def gpus(lab: RunningLab) -> Iterator[tuple[Endpoints, list[Endpoint]]]:
    with Endpoints(scale_up_domain.build()) as endpoints:
        settings = [gpu_settings(lab.plan, HOST, number) for number in range(1, GPUS + 1)]
        yield endpoints, [in_namespace(lab.namespace(HOST), partial(endpoints.add, one)) for one in settings]


def copy(lab: RunningLab, size: int = SIZE) -> float:
    """GPU 1 writes to GPU 2; what is there is what was written; how many seconds it took."""
    data = random.Random(size).randbytes(size)
    with gpus(lab) as (endpoints, (source, target, _)):
        memory = bytearray(size)
        window = target.export(memory)
        window.authorise(source.gpu)
        endpoints.wait(source, source.write(window.reference(), b"first"), 20.0)
        begun = time.monotonic()
        endpoints.wait(source, source.write(window.reference(), data), 60.0)
        took = time.monotonic() - begun
        assert memory == data
    return took


def counted(lab: RunningLab) -> DomainReading:
    (found,) = read_domains(lab)
    assert not found.problem and found.socket_drops == 0
    return found


def test_a_change_is_seen_on_the_wire_and_in_the_counters(lab: RunningLab, control: LinkControl) -> None:
    """Losses of one link are healed by LLR and counted by that link alone; the sums hold, and a reset ends them."""
    link = f"{HOST}.gpu1:plane2"
    control.set(link, LinkChange(loss=0.05, burst=2))
    control.set(f"{HOST}.gpu2:plane3", LinkChange(loss_every=20))
    before = counted(lab)
    copy(lab)
    now = counted(lab)
    span = {item.link.name: item.counters for item in now.since(before).links}
    lossy = {name for name, counters in span.items() if counters["wire_lost_rx"] + counters["wire_lost_tx"]}
    assert lossy == {link, f"{HOST}.gpu2:plane3"}
    assert span[link]["llr_rx_missing_seq"] and span[link]["llr_rx_duplicate_seq"] >= 0
    assert sum(counters["llr_tx_replay"] for counters in span.values()) > 0, "the switch sent to GPU 2 again"
    assert balance_domains([now], lab.plan).imbalances == ()
    assert PlaneControl(lab).changed() == [link, f"{HOST}.gpu2:plane3"]
    (shown,) = PlaneControl(lab).show(link)
    assert shown.errors is not None and (shown.errors.loss, shown.errors.burst) == (0.05, 2)
    assert shown.rate_bps == 40_000_000
    control.reset_all()
    before = counted(lab)
    copy(lab)
    span = {item.link.name: item.counters for item in counted(lab).since(before).links}
    assert sum(counters["wire_lost_rx"] + counters["wire_lost_tx"] for counters in span.values()) == 0


def test_python_changes_links_of_planes_as_the_command_line_does(
    lab: RunningLab, control: LinkControl, shared_sandbox: Any
) -> None:
    """A GPU, a chip, a rate: the switch has it, and `reset_link` ends it. What the lab does not have is refused."""
    python = Lab(lab, shared_sandbox.state)
    python.set_link(f"{HOST}.gpu1", "plane2", up=False)
    python.change_link("plane3", LinkChange(rate_share=0.5))
    assert PlaneControl(lab).changed() == [f"{HOST}.gpu1:plane2", *(f"{HOST}.gpu{gpu}:plane3" for gpu in range(1, 4))]
    assert [item.errors and item.errors.down for item in python.plane_links("plane2")] == [True, False, False]
    assert [item.errors and item.errors.rate_bps for item in python.plane_links(f"{HOST}:gpu2p3")] == [20_000_000]
    python.set_link(f"{HOST}.gpu1", "plane2", up=True)
    python.reset_link("plane3")
    assert PlaneControl(lab).changed() == []
    for node, interface in ((f"{HOST}.gpu4", "plane1"), (HOST, "plane5")):
        with pytest.raises(NoSuchScaleUpLink):
            python.set_link(node, interface, up=False)
    assert PlaneControl(lab).changed() == []
    python.change_link("plane1", LinkChange(silent=True))
    python.reset_link()
    assert PlaneControl(lab).changed() == []


def test_a_chip_that_is_down_carries_nothing_and_check_says_so(lab: RunningLab, control: LinkControl) -> None:
    assert probe_planes(lab).failures == []
    control.set("plane2", LinkChange(up=False))
    before = counted(lab)
    copy(lab)
    span = counted(lab).since(before)
    by_plane = dict.fromkeys(range(1, PLANES + 1), 0)
    for item in span.links:
        by_plane[item.link.plane] += item.counters["received_frames"]
    assert by_plane[2] == 0 and all(by_plane[plane] for plane in (1, 3, 4))
    found = probe_planes(lab)
    assert found.links == GPUS * PLANES
    assert found.failures == [
        f"{HOST}.gpu{gpu}:plane2 is down: `testbed link reset {HOST}.gpu{gpu}:plane2` undoes it"
        for gpu in range(1, GPUS + 1)
    ]
    control.reset("plane2")
    assert probe_planes(lab).failures == []
    with gpus(lab):
        found = probe_planes(lab)
    assert (found.busy, found.failures) == ([HOST], []), "whose ends are open is not disturbed"


def test_slow_links(lab: RunningLab, control: LinkControl) -> None:
    """S9's means: at half of the rate of all planes a copy takes the time of that rate, which it did not before."""
    whole = copy(lab, 4 * SIZE)
    control.set("planes", LinkChange(rate_share=0.5))
    half = copy(lab, 4 * SIZE)
    slowest_s = 4 * SIZE * 8 / (0.5 * 180e6)
    assert half > 0.95 * slowest_s > whole, (whole, half, slowest_s)


def test_faults_of_a_run_are_done_seen_and_undone(lab: RunningLab) -> None:
    """A tray falls silent and comes back, and the switch is killed; each is told by the lab itself, and what is written
    after them arrives."""
    faults = [
        fault("link-set", f"{HOST}.gpu3:plane1", 0, None, loss=0.01),
        fault("plane-down", "plane1-2", 50, 450),
        fault("tray-down", HOST, 700, 1000),
        fault("domain-kill", HOST, 1300, 1700),
    ]
    ended = threading.Event()
    timeline = FaultTimeline(lab, faults, kill_worker=lambda host: None)
    with timeline:
        timeline.begin(time.monotonic_ns())
        deadline = time.monotonic() + 30
        while len(timeline.outcome().troubles) == 0 and timeline.outcome().acts < 7 and time.monotonic() < deadline:
            ended.wait(0.02)
        # Nobody listens any more behind this, and the switch was started this moment.
        while "switch-started" not in [event.kind for event in timeline.events()] and time.monotonic() < deadline:
            ended.wait(0.02)
    outcome = timeline.outcome()
    assert (outcome.acts, outcome.left_changed) == (8, ()), outcome
    lateness = [line for line in outcome.troubles if " late " not in line and "to happen" not in line]
    assert lateness == [], "a busy machine may be late, and nothing else"
    seen = [(event.kind, event.target, event.detail) for event in timeline.events()]
    for kind, links in (("signal-lost", GPUS * (2 + PLANES)), ("signal-back", GPUS * (2 + PLANES))):
        assert len([item for item in seen if item[0] == kind]) == links, kind
    place = (f"scaleup-{HOST}", HOST)
    assert ("switch-ended", *place) in seen and ("switch-started", *place) in seen
    assert PlaneControl(lab).changed() == []
    copy(lab)


def fault(kind: str, target: str, at_ms: int, until_ms: int | None, **settings: float) -> Fault:
    until = None if until_ms is None else Duration(until_ms * 1_000_000)
    return Fault(at=Duration(at_ms * 1_000_000), kind=kind, target=target, until=until, settings=settings)


def test_a_dead_switch_is_started_by_a_change_of_a_link(lab: RunningLab, control: LinkControl) -> None:
    control.set("plane1", LinkChange(up=False))
    PlaneControl(lab).kill_switch(HOST)
    deadline = time.monotonic() + 10
    while not (problem := read_domains(lab)[0].problem) and time.monotonic() < deadline:
        time.sleep(0)
    assert problem == "its switch does not run"
    test = next(result for result in check_lab(lab).results if result.name == "scale-up planes")
    assert (test.status, test.count) == (CheckStatus.UNKNOWN, 0), "no link was tested"
    samples = {
        sample.name: sample.value for family in text_string_to_metric_families(scrape(lab)) for sample in family.samples
    }
    assert samples["testbed_scale_up_switch_up"] == 0 and "testbed_scale_up_sent_frames_total" not in samples
    control.set(f"{HOST}.gpu1:plane1", LinkChange(up=True))
    assert PlaneControl(lab).changed() == [], "its links are as declared"
    copy(lab)
    samples = {
        (sample.name, sample.labels.get("plane"), sample.labels.get("gpu"), sample.labels.get("vc")): sample.value
        for family in text_string_to_metric_families(scrape(lab))
        for sample in family.samples
    }
    carried = sum(
        samples["testbed_scale_up_received_bytes_total", str(plane), "1", "0"] for plane in range(1, PLANES + 1)
    )
    assert SIZE < carried < 1.05 * SIZE + 5_000


def scrape(lab: RunningLab) -> str:
    return render_metrics(LabReader(lab.state, only=lab.name).read).decode()


@pytest.mark.tshark
def test_a_capture_of_a_plane_is_read_alike_by_decode_and_tshark(
    lab: RunningLab, control: LinkControl, shared_sandbox: Any, tmp_path: Path
) -> None:
    """Requests, responses, credits, LLR's control sets and the link's signal, of a real link."""
    path = tmp_path / "plane.pcap"
    arguments = ["capture", f"{HOST}.gpu1:plane2", "-n", lab.name, "-w", str(path)]
    process = shared_sandbox.start(*arguments, start_new_session=True)
    try:
        deadline = time.monotonic() + 30
        while not (path.exists() and path.stat().st_size > 24) and time.monotonic() < deadline:
            assert process.poll() is None, (shared_sandbox.root / "out").read_text()
            time.sleep(0.01)
        copy(lab, 1 << 18)  # a fifth of it by this plane
        control.set(f"{HOST}.gpu1:plane2", LinkChange(rate_share=0.5))
        copy(lab, 1 << 18)
        deadline = time.monotonic() + 30  # the kernel hands packets over in blocks, up to a second late
        while path.stat().st_size < 2 * (1 << 18) // 6 and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does, which is for tcpdump
        process.wait(20)
    shown = shared_sandbox.cli("decode", str(path))
    assert shown.returncode == 0
    ours = shown.stdout
    for words in ("CF_UPDATE VC 0", "LLR_ACK", "LLR_INIT", "LINK_SIGNAL 50%", "VC 0 to 1 | 4096 B", "VC 1 to"):
        assert words in ours, words
    assert "MALFORMED" not in ours and "BAD FCS" not in ours
    theirs = run_tshark("scale_up.lua", path)
    frames = [line for line in theirs.splitlines() if line.strip()]
    assert len([line for line in ours.splitlines() if " > " in line]) == len(frames)
    for words in ("CF_UPDATE", "LLR_ACK", "LINK_SIGNAL"):
        assert sum(words in line for line in frames) == sum(words in line for line in ours.splitlines()), words
    assert "malformed" not in theirs.lower()


def test_stats_and_what_they_are_asked(lab: RunningLab, control: LinkControl) -> None:
    """A span of one GPU's links, in all three forms; what is not there is named, and bursts are no setting of rails."""
    source = PlaneSource(lab, [f"{HOST}.gpu1", f"{HOST}.gpu2:plane3"], every=False)
    before = source.read(None)
    copy(lab)
    frame = source.read(before)
    document = frame.document()
    names = [f"{HOST}.gpu1:plane{plane}" for plane in range(1, PLANES + 1)] + [f"{HOST}.gpu2:plane3"]
    assert sorted(link["link"] for link in document["links"]) == sorted(names)
    sent = {link["link"]: link["dcgm"]["DCGM_FI_DEV_NVLINK_COUNT_RX_BYTES"] for link in document["links"]}
    assert all(sent[f"{HOST}.gpu1:plane{plane}"] > SIZE // 8 for plane in range(1, PLANES + 1))
    assert document["reconciliation"]["verdict"] == "reconciled" and document["seconds"] > 0
    rows = frame.rows()
    assert {(row["host"], row["gpu"], row["vc"]) for row in rows} == {
        (HOST, gpu, vc) for gpu in (1, 2) for vc in (0, 1)
    }
    assert sum(row["received_bytes"] for row in rows) == sum(
        vc["received_bytes"] for link in document["links"] for vc in link["vcs"]
    )
    waits = {row["xmit_wait_ns"] for row in rows}
    assert 0 <= max(waits) / 1e9 < document["seconds"]
    scraped = scrape(lab)
    assert "testbed_scale_up_xmit_wait_seconds_total{" in scraped and "xmit_wait_ns" not in scraped
    assert frame.table(None).row_count == len(rows) and "add up" in frame.footer().plain
    with pytest.raises(NothingSelected, match="no scale-up domain or host of one"):
        PlaneSource(lab, ["p1-s1-h7"], every=False)
    with pytest.raises(LinkRefused, match="losses in bursts are for links of scale-up domains"):
        control.set(f"{HOST}:rail1", LinkChange(loss=0.01, burst=3))
