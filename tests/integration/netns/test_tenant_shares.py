"""Shares of tenants on real switches: a cap holds against a host that ignores it, a guarantee against a flood."""

import json
import select
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from outages import udp_socket
from sandbox import Sandbox
from switch_ports import PortLab
from waiting import until

from testbed.base.names import namespace_name

pytestmark = [pytest.mark.netns, pytest.mark.frr, pytest.mark.timed]

TOPOLOGY = """
name: {name}
fabric:
  design: rail-optimized
  segments: 1
  hosts: 4
  gpus: 2
  nic: {{rate: 40M}}
  spines: 1
  uplink: {{rate: 40M, count: 1}}
  overlay: evpn
  mtu: 1500
  routing: {{bfd: off}}
qos:
  classes:
    control: {{dscp: [48], strict: true}}
    gold: {{dscp: [10], weight: 80}}
    bulk: {{default: true, weight: 20}}
tenants:
  red:
    traffic_class: gold
    subnets: {{web: {{prefix: 10.1.0.0/24, nics: ["p1-s1-h1:rail1", "p1-s1-h2:rail2"]}}}}
  blue:
    cap: 10M
    traffic_class: bulk
    subnets: {{web: {{prefix: 10.2.0.0/24, nics: ["p1-s1-h3:rail1", "p1-s1-h4:rail1", "p1-s1-h4:rail2"]}}}}
  green:
    traffic_class: bulk
    subnets: {{web: {{prefix: 10.3.0.0/24, nics: ["p1-s1-h2:rail1", "p1-s1-h3:rail2"]}}}}
"""
CAP_BPS = 10e6
RED, RED_FAR = ("p1-s1-h1", "10.1.0.2"), ("p1-s1-h2", "10.1.0.3")
BLUE, BLUE_TOO, BLUE_FAR = ("p1-s1-h3", "10.2.0.2"), ("p1-s1-h4", "10.2.0.3"), ("p1-s1-h4", "10.2.0.4")
GREEN, GREEN_FAR = ("p1-s1-h2", "10.3.0.2"), ("p1-s1-h3", "10.3.0.3")
BLUE_PORT = ("p1-s1-rail1", "down3")
UPLINK = ("p1-s1-rail1", "uplink1")
GOLD, BULK = 1, 0
GOLD_TOS = 10 << 2
GUARANTEE = 0.8
Place = tuple[str, str]
_SO_SNDBUFFORCE = 32


@pytest.fixture(scope="module")
def lab(shared_sandbox: Sandbox) -> Iterator[PortLab]:
    lab = PortLab(shared_sandbox.lab(TOPOLOGY, k=1.0))
    yield lab
    lab.close()


@contextmanager
def _flood(lab: PortLab, source: Place, destination: Place, *, tos: int = 0) -> Iterator[None]:
    """UDP packets from one NIC to another, as fast as the sender's NIC takes them, while the block runs."""
    ended = threading.Event()
    with udp_socket(lab, *destination) as sink, udp_socket(lab, *source) as sender:
        sender.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 1_000_000)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        target = sink.getsockname()

        def send() -> None:
            while not ended.is_set():
                select.select([], [sender], [], 0.1)
                with suppress(BlockingIOError):
                    sender.sendto(bytes(1400), target)

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _rate_bps(read: Callable[[], int], least: int = 1_200_000) -> float:
    """How fast a counter of bytes grows, over `least` bytes, once a quarter of that is over."""
    first = read()
    until(lambda: read() - first >= least / 4, "traffic runs")
    start, begin = time.monotonic(), read()
    until(lambda: read() - begin >= least, "traffic goes on")
    return 8 * (read() - begin) / (time.monotonic() - start)


def _tcp_bps(lab: PortLab, source: Place, destination: Place, seconds: int = 2) -> float:
    """The goodput of one flow of TCP."""
    argv = ["iperf3", "-s", "-1", "--forceflush", "-B", destination[1]]
    with lab.running.spawn(destination[0], argv, stdout=subprocess.PIPE) as server:
        while b"listening on" not in server.stdout.readline():
            assert server.poll() is None
        argv = ["iperf3", "-c", destination[1], "-B", source[1], "-t", str(seconds), "-J"]
        done = lab.running.run(source[0], argv, timeout_s=60)
        server.communicate(timeout=20)
    return float(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"])


def _at_line_rate(lab: PortLab, host: str, interface: str) -> None:
    """What root on a host can do: its NIC sends at 40 Mbit/s again."""
    for handle in ("1:1", "1:10", "1:11", "1:16"):
        parent = ["parent", "1:" if handle == "1:1" else "1:1"]
        rates = ["rate", "40mbit", "ceil", "40mbit", "burst", "20k", "cburst", "20k"]
        argv = ["tc", "class", "change", "dev", interface, *parent, "classid", handle, "htb", *rates]
        assert lab.running.run(host, argv).returncode == 0


def test_a_cap_holds_whatever_the_host_does(lab: PortLab) -> None:
    account, number = lab.account(*BLUE_PORT, BULK), lab.number(*BLUE_PORT)

    def came() -> int:
        return int(account["in_bytes"])

    # TCP is slowed at the NIC and loses nothing.
    assert _tcp_bps(lab, BLUE, BLUE_FAR) == pytest.approx(CAP_BPS * 1398 / 1464, rel=0.03)
    assert not account["policed_packets"]
    # Towards the host the port is as slow, whoever sends.
    with _flood(lab, BLUE_TOO, BLUE), _flood(lab, BLUE_FAR, BLUE):
        queue = lab.queue(*BLUE_PORT, BULK)
        assert _rate_bps(lambda: int(queue["out_bytes"])) == pytest.approx(CAP_BPS, rel=0.02)
    _at_line_rate(lab, "p1-s1-h3", "rail1")
    with _flood(lab, BLUE, BLUE_FAR):
        assert _rate_bps(came) == pytest.approx(CAP_BPS, rel=0.03)
        dropped = int(account["policed_packets"])
        assert dropped > 500
        cap = lab.maps.ports[number]["cap_bps"].copy()
        lab.maps.ports["cap_bps"][number] = 0  # without the cap at the leaf
        assert _rate_bps(came) > 3.5 * CAP_BPS
        lab.maps.ports["cap_bps"][number] = cap
    lab.reconciles()


@contextmanager
def _own_dscps(lab: PortLab) -> Iterator[None]:
    """Without classes of tenants: VTEPs copy the DSCP of the packets that they wrap."""
    overlay = lab.running.plan.overlay
    assert overlay is not None
    with ExitStack() as undo:
        for vrf in overlay.vrfs:
            for vni in (vrf.l3, *vrf.l2):
                dscp = {"red": 10}.get(vrf.tenant, 0)
                change = ["ip", "-n", namespace_name(lab.name, vrf.node), "link", "set", vni.vxlan, "type", "vxlan"]
                undo.callback(subprocess.run, [*change, "tos", hex(dscp << 2)], check=True)
                subprocess.run([*change, "tos", "inherit"], check=True)
        yield


def test_a_guarantee_holds_against_a_flood_of_somebody_elses_dscp(lab: PortLab) -> None:
    gold = lab.queue(*UPLINK, GOLD)
    with _flood(lab, GREEN, GREEN_FAR, tos=GOLD_TOS):
        with _own_dscps(lab):
            stolen = _tcp_bps(lab, RED, RED_FAR, seconds=1)
        kept = _tcp_bps(lab, RED, RED_FAR)
    assert stolen < 0.5 * GUARANTEE * 40e6 * 1398 / 1514, (stolen, kept)
    assert kept > 0.97 * GUARANTEE * 40e6 * 1398 / 1514, (stolen, kept)
    assert gold["in_packets"]
    lab.reconciles()
