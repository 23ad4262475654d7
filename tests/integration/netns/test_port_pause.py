"""Pausing on a real lab: frames that tshark decodes, priorities and hops, forged frames, storms, the agent's death."""

import json
import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pfc_frames import MAX_QUANTA, decode_pfc, encode_pfc
from switch_ports import BULK, CONTROL, OTHER, RDMA, Packet, PortLab, port_lab, received, send, send_until
from waiting import until

pytestmark = [pytest.mark.netns, pytest.mark.frr, pytest.mark.timed]

# The narrow place is s2:eth1; the link between the switches carries more than either sender offers.
TOPOLOGY = """
name: {name}
scale: {time: 1}
fabric: {mtu: 1500, routing: {bfd: off}}
qos:
  classes:
    rdma: {dscp: [26], lossless: true, weight: 30, ecn: false, pfc: {xoff: 30kB, xon: 15kB, headroom: 500kB}}
    other: {dscp: [34], lossless: true, weight: 30, ecn: false, pfc: {xoff: 30kB, xon: 15kB, headroom: 500kB}}
    control: {dscp: [48], strict: true}
    bulk: {default: true, weight: 40}
  watchdog: false
  nodes:
    s2: {watchdog: {detect: 200ms, restore: 200ms}}
topology:
  nodes:
    s1: {kind: switch, role: rail}
    s2: {kind: switch, role: spine}
    h1: {kind: host}
    h2: {kind: host}
    z1: {kind: host}
    z2: {kind: host}
  links:
    - {endpoints: ["h1:eth1", "s1:eth1"], rate: 50M}
    - {endpoints: ["h2:eth1", "s1:eth2"], rate: 50M}
    - {endpoints: ["s1:eth100", "s2:eth100"], rate: 120M}
    - {endpoints: ["s2:eth1", "z1:eth1"], rate: 10M}
    - {endpoints: ["s2:eth2", "z2:eth1"], rate: 50M}
"""
LONG_NS, SHORT_NS = 60_000_000_000, 1_000_000
FORGER = bytes.fromhex("02ffffffff01")
FLOOD = 20_000


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> Iterator[PortLab]:
    with port_lab(shared_sandbox, TOPOLOGY) as lab:
        yield lab
        lab.reconciles()
        for priority in (RDMA, OTHER):
            queues = lab.queues[:, priority]
            for cause in ("tail", "buffer", "wred", "headroom"):
                assert not queues[f"{cause}_packets"].any(), f"priority {priority} lost packets: {cause}"


@contextmanager
def storm(lab: PortLab, node: str, interface: str, priority: int) -> Iterator[None]:
    """The port keeps its peer paused."""
    agent, number = lab.running.pause_agent, lab.number(node, interface)
    peer = lab.pauses[int(lab.maps.ports[number]["peer"]), priority]
    agent.storm(lab.name, number, priority, LONG_NS)
    until(lambda: peer["closed"] or peer["ignored"], "the storm closes the peer's gate")
    try:
        yield
    finally:
        agent.storm(lab.name, number, priority, SHORT_NS)
        until(lambda: not peer["closed"] and not lab.pauses[number, priority]["storm"], "the storm ends")


@contextmanager
def event_stream(box: Any, lab: PortLab) -> Iterator[Any]:
    """`testbed events`; a function that gives what it printed after the snapshots."""
    output = box.root / "events"
    with output.open("wb") as stream:
        process = box.start("events", "-n", lab.name, stdout=stream)

    def lines() -> list[dict[str, str]]:
        found = [json.loads(line) for line in output.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [event for event in found if event["kind"] != "snapshot"]

    try:
        until(lambda: output.read_text().count("\n") == len(lab.running.model.nodes), "it shows what there is")
        yield lines
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


FIELDS = (
    "frame.len",
    "eth.src",
    "eth.dst",
    "eth.type",
    "macc.opcode",
    "macc.cbfc.enbv",
    *(f"macc.cbfc.pause_time.c{priority}" for priority in range(8)),
    "macc.cbfc.enbv.not_zero",
    "macc.dst_address_invalid",
    "macc.opcode.unknown",
    "_ws.malformed",
)


def test_a_capture_shows_pause_frames_that_tshark_decodes(lab: PortLab, shared_sandbox: Any) -> None:
    tshark = shutil.which("tshark")
    if tshark is None:
        pytest.skip("tshark is not installed: apt-get install tshark")
    box, frames = shared_sandbox, 30
    path = box.root / "pause.pcap"
    capture = box.start("capture", "-n", lab.name, "h1:eth1", "-w", str(path), "-c", str(frames), "ether proto 0x8808")
    until(lambda: path.exists() and path.stat().st_size >= 24, "tcpdump listens")
    with lab.sink("z1"), lab.sender("h1", "z1", RDMA) as item:
        send_until(item, lambda: capture.poll() is not None, f"{frames} pause frames")
        lab.still()
    assert capture.returncode == 0, (box.root / "out").read_text()
    argv = [tshark, "-n", "-r", str(path), "-T", "fields", "-E", "separator=,"]
    done = subprocess.run(
        [*argv, *(word for field in FIELDS for word in ("-e", field))],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    found = [dict(zip(FIELDS, line.split(","), strict=True)) for line in done.stdout.splitlines()]
    assert len(found) == frames
    times = [int(frame[f"macc.cbfc.pause_time.c{RDMA}"]) for frame in found]
    assert times[0] == MAX_QUANTA, "first XOFF"
    assert set(times) == {0, MAX_QUANTA}, "then XON, and so on"
    source = lab.running.port("s1", "eth1").mac
    for frame, quanta in zip(found, times, strict=True):
        expected = {
            "frame.len": "60",
            "eth.src": source,
            "eth.dst": "01:80:c2:00:00:01",
            "eth.type": "0x8808",
            "macc.opcode": "0x0101",
            "macc.cbfc.enbv": f"{1 << RDMA:#06x}",
            **{f"macc.cbfc.pause_time.c{priority}": "0" for priority in range(8)},
            f"macc.cbfc.pause_time.c{RDMA}": str(quanta),
        }
        assert frame == dict.fromkeys(FIELDS, "") | expected


def pauses(packets: list[Packet], priority: int) -> tuple[list[int], list[int]]:
    """Arrival times of the frames that pause the priority, and of those that resume it."""
    frames = [(decode_pfc(packet.frame), packet.ns) for packet in packets if packet.frame[12:14] == b"\x88\x08"]
    of_priority = [(frame.quanta[priority], ns) for frame, ns in frames if frame.vector >> priority & 1]
    return [ns for quanta, ns in of_priority if quanta], [ns for quanta, ns in of_priority if not quanta]


def test_pause_spreads_upstream_hop_by_hop_and_releases_in_order(lab: PortLab) -> None:
    sender = lab.gate("h1", "eth1", RDMA)
    before = int(sender["xon_received"])
    others = lab.pauses[:, OTHER]["xoff_sent"].sum()
    lab.calm()
    with (
        lab.sink("z1") as sink,
        lab.tap("s1", "eth100") as near,
        lab.tap("h1", "eth1") as far,
        lab.sender("h1", "z1", RDMA) as item,
    ):
        sent = send_until(item, lambda: sender["xon_received"] >= before + 3, "three pauses of the host")
        lab.still()
        assert len(received(sink)) == sent, "nothing of a lossless class is lost"
        lab.calm()
        near_off, near_on = pauses(near.frames(), RDMA)
        far_off, far_on = pauses(far.frames(), RDMA)
    assert near_off[0] < far_off[0], "s2 pauses s1 before s1 pauses h1"
    assert near_on[0] < far_on[0], "s1 goes on before h1 may"
    assert near_off[-1] < near_on[-1]
    assert far_off[-1] < far_on[-1]
    assert lab.pauses[:, OTHER]["xoff_sent"].sum() == others, "the other priority is not paused"
    assert lab.gate("h2", "eth1", RDMA)["xoff_received"] == 0, "who sends nothing is not paused"


def test_a_link_that_goes_down_takes_its_queue_along_and_resumes_who_waited(lab: PortLab) -> None:
    queue, account, sender = (
        lab.queue("s1", "eth2", RDMA),
        lab.account("s1", "eth1", RDMA),
        lab.gate("h1", "eth1", RDMA),
    )
    purged = int(queue["purged_packets"])
    agent = lab.running.pause_agent
    failures = agent.status().labs[lab.name].failures
    with lab.sink("h2") as sink, lab.sender("h1", "h2", RDMA) as item:
        with storm(lab, "h2", "eth1", RDMA):
            send(item, 60)
            until(lambda: sender["closed"], "the queue fills until h1 is paused")
            waiting = int(queue["bytes"])
            assert waiting > 30_000
            lab.running.set_link("s1", "eth2", up=False)
            until(lambda: not queue["bytes"] and not account["bytes"], "the queue is empty, and h1's account of it")
            assert queue["purged_packets"] > purged
            assert queue["purged_bytes"] >= waiting
            until(lambda: not sender["closed"], "h1 may send again")
        told = agent.status().labs[lab.name].failures - failures
        assert told >= 2, "the peer cannot resume it, and it cannot be kicked: a status has both at once"
        received(sink)  # what a closing gate let through
        lab.running.set_link("s1", "eth2", up=True)
        send_until(item, lambda: received(sink), "packets pass again")
    lab.still()
    lab.calm()


def malformed_frames() -> list[bytes]:
    good = encode_pfc(FORGER, 1 << RDMA, (MAX_QUANTA,) * 8)
    return [
        good[:14] + b"\x00\x01" + good[16:],  # PAUSE of IEEE 802.3 annex 31B, which names no priority
        good[:14] + b"\xff\xff" + good[16:],
        b"\x02" + good[1:],  # for some station
        b"\xff" * 6 + good[6:],
        *(good[:length] for length in (14, 15, 16, 18, 33)),
    ]


def traffic_flows(lab: PortLab) -> None:
    """Through the port that was attacked, both ways and in every class."""
    for source, destination in (("h2", "h1"), ("h1", "h2")):
        with lab.sink(destination) as sink:
            for priority in (RDMA, OTHER, BULK, CONTROL):
                with lab.sender(source, destination, priority) as item:
                    send(item, 20)
            numbers: list[int] = []

            def all_there() -> bool:
                numbers.extend(received(sink))  # noqa: B023
                return len(numbers) >= 80  # noqa: B023

            until(all_there, f"{source} reaches {destination} in all classes")


def test_a_flood_of_forged_frames_wedges_nothing(lab: PortLab) -> None:
    """The agent counts no failure meanwhile; a status has all before, those of kicks of a link that was down, too."""
    numbers = random.Random(3)
    good = encode_pfc(FORGER, 0xFF, (MAX_QUANTA,) * 8)
    account, agent = lab.account("s1", "eth1", 0), lab.running.pause_agent
    before, first = int(account["malformed_frames"]), agent.status()
    malformed = 0
    with lab.packet_socket("h1", "eth1", bypass=True) as forger:
        for _ in range(FLOOD):
            match numbers.randrange(4):
                case 0:
                    frame = encode_pfc(FORGER, numbers.randrange(256), [numbers.randrange(65536) for _ in range(8)])
                case 1:
                    frame = good
                case 2:
                    frame = good[:14] + numbers.randbytes(numbers.randrange(60))
                    malformed += len(frame) < 34 or frame[14:16] != b"\x01\x01"
                case _:
                    frame = numbers.choice(malformed_frames())
                    malformed += 1
            forger.send(frame)
    until(lambda: account["malformed_frames"] == before + malformed, "each of them is counted")
    gates = lab.pauses[lab.number("s1", "eth1")]
    until(lambda: not gates["closed"].any(), "the gates open")
    traffic_flows(lab)
    status = agent.status()
    assert status.pid == first.pid
    assert status.labs[lab.name].failures == first.labs[lab.name].failures


def test_the_watchdog_frees_a_queue_in_a_storm(lab: PortLab, shared_sandbox: Any) -> None:
    box, queue = shared_sandbox, lab.gate("s2", "eth2", RDMA)
    with event_stream(box, lab) as lines, lab.sink("z2") as sink, lab.sender("h1", "z2", RDMA) as item:
        done = box.cli("pfc", "storm", "-n", lab.name, "z2:eth1", "--class", "rdma", "--for", "60s")
        assert done.returncode == 0, done
        until(lambda: queue["ignored"], "the watchdog acts")
        send(item, 50)
        lab.still()
        assert len(received(sink)) == 50, "packets pass while the storm goes on"
        assert lab.gate("z2", "eth1", RDMA)["storm"] == 1
        lab.running.pause_agent.storm(lab.name, lab.number("z2", "eth1"), RDMA, SHORT_NS)
        until(lambda: not queue["ignored"], "it is guarded again")
        wanted = [
            "pfc-storm-began",
            "pfc-watchdog-freed",
            "pfc-storm-began",
            "pfc-storm-ended",
            "pfc-watchdog-restored",
        ]
        until(lambda: len(lines()) >= len(wanted), "`testbed events` tells all of it")
        told = lines()
    assert [event["kind"] for event in told] == wanted
    assert (told[1]["lab"], told[1]["node"], told[1]["subject"]) == (lab.name, "s2", f"eth2 priority {RDMA}")
