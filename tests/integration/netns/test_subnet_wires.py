"""The wires of an InfiniBand subnet that is up: bytes go over them by OpenSM's tables, and perfquery reads the counters
of the ports that they went by."""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from testbed.base.installation.packages import missing_programs
from testbed.daemons.subnetd.client import SubnetWires
from testbed.endpoints.infiniband.adapter import HostAdapter
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.check import CheckStatus, check_lab
from testbed.lab.core.schema.load import load_topology
from testbed.lab.features.infiniband.feature import FEATURE
from testbed.lab.features.infiniband.live import LiveSubnet
from testbed.lab.features.infiniband.plane import PROGRAMS, SEARCH
from testbed.protocols.infiniband.subnet import Channel, Subnet

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(
        bool(missing_programs(PROGRAMS, SEARCH)),
        reason="what InfiniBand needs is not installed: `testbed doctor` says so",
    ),
]
TOPOLOGIES = Path(__file__).parents[3] / "topologies" / "infiniband"
SOURCE, TARGET, BESIDE = "p1-s1-h1:rail1", "p1-s2-h2:rail1", "p1-s1-h2:rail1"
FRAME_BYTES = 4096 + 8 + 12 + 8 + 4 + 2
"""Payload, LRH, BTH, DETH, ICRC and VCRC."""
PAYLOAD = bytes(range(256)) * 16
PATIENCE_S = 20.0
TIME_SCALE = 30_000.0


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> Iterator[RunningLab]:
    """Two leaves and two spines with four HCAs, deployed once, slow enough for a busy machine."""
    model = replace(load_topology(TOPOLOGIES / "wires.yml"), name=shared_sandbox.name("w"))
    yield shared_sandbox.deploy(model, k=TIME_SCALE).lab
    shared_sandbox.destroy("w")


@pytest.fixture
def live(lab: RunningLab) -> LiveSubnet:
    """Its subnet, whose counters begin anew."""
    found = LiveSubnet(lab)
    for node in subnet_of(found).nodes.values():
        perfquery(lab, "-R", "-a", str(node.lid)) if node.is_switch else perfquery(lab, "-R", str(node.lid), "1")
    return found


def wires_of(live: LiveSubnet) -> SubnetWires:
    assert live.wires is not None
    return live.wires


def subnet_of(live: LiveSubnet) -> Subnet:
    return wires_of(live).subnet()


def open_hca(live: LiveSubnet, hca: str) -> HostAdapter:
    return HostAdapter(wires_of(live).adapter(hca), PATIENCE_S)


def perfquery(lab: RunningLab, *arguments: str) -> dict[str, int]:
    """The counters that the real tool prints in a host."""
    done = lab.run("p1-s1-h2", ("perfquery", *arguments), timeout_s=60)
    assert done.returncode == 0, done
    return {name: int(value, 0) for name, value in re.findall(r"^(\w+):\.+(\w+)$", done.stdout, re.MULTILINE)}


def counters(lab: RunningLab, live: LiveSubnet, channel: Channel) -> dict[str, int]:
    return perfquery(lab, str(subnet_of(live).nodes[channel[0]].lid), str(channel[1]))


def path_of(live: LiveSubnet) -> tuple[Channel, ...]:
    path = subnet_of(live).path(SOURCE, TARGET)
    assert path is not None
    return path


def lid_of(live: LiveSubnet, hca: str) -> int:
    return subnet_of(live).nodes[hca].lid


def carry(live: LiveSubnet, frames: int) -> None:
    """Send frames from one leaf to the other, each of which must come as it was sent."""
    with open_hca(live, TARGET) as target, open_hca(live, SOURCE) as source:
        for number in range(frames):
            source.send(target.lid, PAYLOAD, psn=number)
            if number >= 8:
                expect(target, number - 8, source.lid)
        for number in range(max(0, frames - 8), frames):
            expect(target, number, source.lid)


def expect(adapter: HostAdapter, number: int, slid: int) -> None:
    one = adapter.receive()
    assert (one.psn, one.slid, one.payload) == (number, slid, PAYLOAD)


def test_bytes_go_by_the_tables_and_perfquery_reads_every_port_of_the_path(lab: RunningLab, live: LiveSubnet) -> None:
    carry(live, 100)
    words = 100 * (FRAME_BYTES // 4)
    subnet = subnet_of(live)
    path = path_of(live)
    assert len(path) == 4, "HCA, leaf, spine, leaf"
    for channel in path:
        sent = counters(lab, live, channel)
        assert (sent["PortXmitPkts"], sent["PortXmitData"]) == (100, words), channel
        peer = subnet.peer(*channel)
        assert peer is not None
        received = counters(lab, live, peer)
        assert (received["PortRcvPkts"], received["PortRcvData"]) == (100, words), peer
    others = [name for name in subnet.nodes if name.startswith("p1-spine") and name not in dict(path)]
    for name in others:
        assert perfquery(lab, "-a", str(subnet.nodes[name].lid))["PortXmitPkts"] == 0, "no table leads there"


def test_counters_are_begun_anew_by_the_tool_and_wide_ones_and_lanes_agree(lab: RunningLab, live: LiveSubnet) -> None:
    lid = str(lid_of(live, TARGET))
    before = perfquery(lab, "--vloppackets", lid, "1")["PortVLOpPackets0"]
    carry(live, 30)
    assert perfquery(lab, "-x", lid, "1")["PortUnicastRcvPkts"] == 30
    assert perfquery(lab, "--vloppackets", lid, "1")["PortVLOpPackets0"] == before + 30
    assert perfquery(lab, "-r", lid, "1")["PortRcvPkts"] == 30
    assert perfquery(lab, lid, "1")["PortRcvPkts"] == 0
    carry(live, 5)
    assert perfquery(lab, lid, "1")["PortRcvPkts"] == 5


def test_the_tool_of_hosts_sends_and_counts(lab: RunningLab, live: LiveSubnet) -> None:
    receiver = lab.spawn("p1-s2-h2", ("ibframes", "receive", "--frames", "200"), stdout=subprocess.PIPE, text=True)
    lid = json.loads(receiver.stdout.readline())["lid"]
    sent = lab.run("p1-s1-h1", ("ibframes", "send", str(lid), "--frames", "200"), timeout_s=60)
    assert sent.returncode == 0, sent
    found = json.loads(receiver.communicate(timeout=60)[0])
    assert (found["frames"], found["bytes"], found["missing"], found["wrong"]) == (200, 200 * 4096, 0, 0)
    assert found["fabric_s"] * found["time_scale"] == pytest.approx(found["lab_s"], rel=1e-3)
    assert found["goodput_bps"] <= found["link_bps"] * 1.02, "a link carries no more than its rate"


def test_two_senders_to_one_wait_for_credits_and_lanes_get_their_weights(lab: RunningLab, live: LiveSubnet) -> None:
    """Both come from the first leaf, so that they meet at its uplink: SL 1 has three times the weight of SL 0."""
    frames = 400
    with open_hca(live, TARGET) as target, open_hca(live, SOURCE) as one, open_hca(live, BESIDE) as other:
        senders = [
            threading.Thread(target=send_all, args=(adapter, target.lid, frames, sl))
            for adapter, sl in ((one, 0), (other, 1))
        ]
        for sender in senders:
            sender.start()
        order = []
        for _ in range(2 * frames):
            found = target.receive()
            assert found.vl == found.sl
            order.append(found.sl)
        for sender in senders:
            sender.join()
    last = len(order) - order[::-1].index(1)
    both = order[40 : last - 40]  # while both have frames that wait
    assert sum(both) / len(both) == pytest.approx(0.75, abs=0.015)
    waited = counters(lab, live, (SOURCE, 1))["PortXmitWait"]
    assert waited > 100 * FRAME_BYTES // 4, "three of four turns were the other's"
    assert perfquery(lab, "--vlxmitcounters", str(lid_of(live, SOURCE)), "1")["PortVLXmitWait0"] > 0
    assert counters(lab, live, (TARGET, 1))["PortRcvPkts"] == 2 * frames


def send_all(adapter: HostAdapter, lid: int, frames: int, sl: int) -> None:
    for number in range(frames):
        adapter.send(lid, PAYLOAD, psn=number, sl=sl)


def test_a_link_that_goes_loses_frames_until_opensm_has_routed_around_it(lab: RunningLab, live: LiveSubnet) -> None:
    carry(live, 10)
    leaf, port = path_of(live)[1]
    place = next(f"{state.a}" for state in live.links() if (state.link.a, state.link.a_port) == (leaf, port))
    spine = path_of(live)[2][0]
    wires_of(live).set_links(leaf, [port], up=False)  # before anybody has told the manager
    with open_hca(live, SOURCE) as source:
        for number in range(5):
            source.send(lid_of(live, TARGET), PAYLOAD, psn=number)
        until(lambda: counters(lab, live, (leaf, port))["PortXmitDiscards"] == 5, "the leaf discards them")
    live.set_link(place, up=False)
    try:
        assert path_of(live)[2][0] != spine, "the new tables take the other spine"
        carry(live, 50)
        assert counters(lab, live, (leaf, port))["LinkDownedCounter"] == 1
        assert counters(lab, live, (leaf, port))["PortXmitDiscards"] == 5, "none is lost by the new tables"
        told = live.last_reroute(place)
        assert 0 < told.manager_s <= told.lab_s
        assert f"{told.time_scale:,} times slower" in told.sentence
        assert told.time_scale == TIME_SCALE
        assert {result.name: result.status for result in check_lab(lab).results}["subnet wires"] is CheckStatus.PASS
    finally:
        live.set_link(place, up=True)
    assert path_of(live)[2][0] == spine
    carry(live, 10)


def capturing(sandbox: Any, path: Path, place: str, *arguments: str) -> subprocess.Popen[bytes]:
    """The command line, which has begun to capture into a file."""
    errors = path.with_suffix(".err").open("wb")
    command = ("capture", place, "-n", sandbox.name("w"), "-w", str(path), *arguments)
    process: subprocess.Popen[bytes] = sandbox.start(*command, stderr=errors)
    until(lambda: path.exists() and path.stat().st_size > 0, "it captures")
    return process


def test_frames_are_captured_at_a_port_until_ctrl_c(
    lab: RunningLab, live: LiveSubnet, shared_sandbox: Any, tmp_path: Path
) -> None:
    leaf, port = path_of(live)[1]
    place = next(f"{state.a}" for state in live.links() if (state.link.a, state.link.a_port) == (leaf, port))
    whole = capturing(shared_sandbox, tmp_path / "leaf.pcapng", place)
    some = capturing(shared_sandbox, tmp_path / "hca.pcapng", TARGET, "-c", "5")
    try:
        carry(live, 20)
        assert some.wait(60) == 0
        whole.send_signal(signal.SIGINT)
        assert whole.wait(60) == 0
    finally:
        for process in (whole, some):
            process.kill()
            process.wait()
    assert (tmp_path / "leaf.err").read_text() == f"20 frames captured at {place}\n"
    assert (tmp_path / "hca.err").read_text() == f"5 frames captured at {TARGET}\n"
    decoded = shared_sandbox.cli("decode", str(tmp_path / "leaf.pcapng"), "--json")
    documents = [json.loads(line) for line in decoded.stdout.splitlines()]
    assert [document["roce"]["psn"] for document in documents] == list(range(20))
    assert {(document["slid"], document["dlid"]) for document in documents} == {
        (lid_of(live, SOURCE), lid_of(live, TARGET))
    }
    assert all(document["vcrc_good"] and document["roce"]["icrc_good"] for document in documents)
    assert all(not document["cut"] and not document["malformed"] for document in documents)
    if shutil.which("tshark") is not None:
        fields = ("-e", "infiniband.bth.psn", "-e", "frame.interface_name")
        command = ["tshark", "-n", "-r", str(tmp_path / "leaf.pcapng"), "-T", "fields", *fields]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout.splitlines() == [f"{number}\t{place} out" for number in range(20)]


def test_captures_that_cannot_be_say_why(lab: RunningLab, live: LiveSubnet, shared_sandbox: Any) -> None:
    name = shared_sandbox.name("w")
    filtered = shared_sandbox.cli("capture", SOURCE, "-n", name, "udp", "port", "4791")
    assert filtered.returncode != 0
    assert "tcpdump's" in filtered.stderr and "decode FILE --filter" in filtered.stderr
    missing = shared_sandbox.cli("capture", "p1-s1-rail1:uplink9", "-n", name)
    assert missing.returncode != 0
    assert "has no port 'p1-s1-rail1:uplink9'" in missing.stderr


def test_an_hca_has_one_program_and_no_other_address(lab: RunningLab, live: LiveSubnet) -> None:
    with open_hca(live, SOURCE) as source:
        other = lab.run("p1-s1-h1", ("ibframes", "send", str(lid_of(live, TARGET)), "--frames", "1"), timeout_s=60)
        assert other.returncode == 1
        assert "another program has it" in other.stderr
        source.lid += 1
        source.send(lid_of(live, TARGET), PAYLOAD)
        until(lambda: wires_of(live).status()["hcas"][SOURCE]["refused"] == 1, "a foreign address is refused")
        for hostile in (b"\0", b"\xff" * 4096, os.urandom(300)):
            source._socket.send(hostile)
    until(lambda: not wires_of(live).status()["hcas"][SOURCE]["open"], "the HCA is free again")
    carry(live, 3)


def test_frames_across_partitions_are_dropped_and_counted(shared_sandbox: Any) -> None:
    model = replace(load_topology(TOPOLOGIES / "partitions.yml"), name=shared_sandbox.name("wp"))
    lab = shared_sandbox.deploy(model, k=1.0).lab
    try:
        live = LiveSubnet(lab)
        red, blue = "p1-s1-h1:rail1", "p1-s3-h1:rail1"
        with open_hca(live, red) as source, open_hca(live, "p1-s2-h1:rail1") as friend:
            source.send(friend.lid, PAYLOAD)
            found = friend.receive()
            assert (found.pkey, found.sl, found.vl) == (0x8001, 1, 1)
            for pkey in (0x8001, 0x8002):  # one's own, which the other has not, and the other's
                source.send(lid_of(live, blue), PAYLOAD, pkey=pkey, sl=0)
            until(lambda: sum(wires_of(live).status()["lost"].values()) == 2, "both are lost")
        assert counters(lab, live, ("p1-s1-rail1", subnet_of(live).peers[red, 1][1]))["PortRcvConstraintErrors"] == 1
        assert counters(lab, live, ("p1-s3-rail1", subnet_of(live).peers[blue, 1][1]))["PortXmitConstraintErrors"] == 1
    finally:
        shared_sandbox.destroy("wp")


def test_wires_that_were_killed_are_missed_and_come_back_with_the_links_that_are_down(
    lab: RunningLab, live: LiveSubnet
) -> None:
    place = "p1-s1-rail1:uplink1"
    live.set_link(place, up=False)
    try:
        os.kill(wires_of(live).status()["pid"], signal.SIGKILL)
        until(lambda: not wires_of(live).is_running(), "they are gone")
        statuses = {result.name: result.status for result in check_lab(lab).results}
        assert statuses["subnet wires"] is CheckStatus.FAIL
        silent = lab.run("p1-s1-h2", ("perfquery",), timeout_s=60)
        assert silent.returncode != 0, "nobody answers, and ibsim's counters would be no answer"
        (ended,) = FEATURE.ended(lab)
        ended.start()
        assert wires_of(live).status()["tables"]
        carry(live, 10)
    finally:
        live.set_link(place, up=True)
    carry(live, 10)


def test_destroy_ends_them(shared_sandbox: Any) -> None:
    model = replace(load_topology(TOPOLOGIES / "wires.yml"), name=shared_sandbox.name("wd"))
    lab = shared_sandbox.deploy(model, k=1.0).lab
    wires = wires_of(LiveSubnet(lab))
    pid = wires.status()["pid"]
    shared_sandbox.destroy("wd")
    assert not Path(f"/proc/{pid}").exists()
    assert not wires.run_directory.exists()
