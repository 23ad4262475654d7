"""The data path of switch ports on Debian's own kernel (7.2), and what only such a kernel has: netem, RED, VRF.

Everything happens in one virtual machine, which is booted once, and, but for the first test, on one small lab. The
machine is emulated and slow: counters are exact there too, times are those of the lab to some per cent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from foreign_root import ForeignRoot
from full_kernel import FullKernel, install_kernel

pytestmark = [pytest.mark.vm, pytest.mark.netns, pytest.mark.timeout(900)]

HERE = Path(__file__).parent.relative_to(Path(__file__).parents[3])
TESTBED = ".venv/bin/testbed"
TOLERANCE = 0.15
"""Of a delay: what an emulated machine takes for waking up."""
ECT0 = 2
RDMA, BULK = 26 << 2 | ECT0, 0
"""Types of service (RFC 3168) of the two classes: DSCP 26 is lossless."""
READINGS = 4
_EBPF_OBJECTS = """
import sys, time
sys.path.insert(0, "tests/integration/netns")
from ebpf_objects import ebpf_objects
end = time.monotonic() + float(sys.argv[1])
while (found := ebpf_objects(6)) and time.monotonic() < end:
    time.sleep(0.1)
print(*found)
"""
"""What the kernel holds for the six ports. It frees a namespace, and what hangs on it, when it gets round to it."""
FREED_WITHIN_S = 30


@pytest.fixture(scope="module")
def vm(debian: ForeignRoot, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FullKernel]:
    version = install_kernel(debian, "trixie")
    # While commands are fast: bytecode, and the data path and the pause agent, in the Debian's own clang.
    debian.check(".venv/bin/python", "-m", "compileall", "-q", "-j2", "testbed", ".venv/lib")
    debian.check(".venv/bin/python", "-c", "from testbed.datapath import build; build.program_object()")
    debian.check(".venv/bin/python", "-c", "from testbed.portd import native; native.build()")
    with FullKernel(debian, version, tmp_path_factory.mktemp("vm")) as machine:
        assert machine.check("uname", "-r").strip() == version
        yield machine


class Lab:
    """The lab of two-switches.yml while it is deployed in the machine."""

    def __init__(self, machine: FullKernel) -> None:
        self.machine = machine
        machine.check(TESTBED, "deploy", "-t", f"{HERE}/two-switches.yml")
        (address,) = machine.check("ip", "-n", "vm-h2", "-j", "-4", "address", "show", "eth1").splitlines()
        self.address = json.loads(address)[0]["addr_info"][0]["local"]

    def do(self, *arguments: str) -> str:
        return self.machine.check(TESTBED, *arguments)

    def document(self, *arguments: str) -> Any:
        return json.loads(self.do(*arguments, "-f", "json"))

    def rtt_ms(self) -> float:
        """The shortest round trip from h1 to h2."""
        ping = ("ping", "-q", "-c", "12", "-i", "0.2", self.address)
        summary = self.machine.check("ip", "netns", "exec", "vm-h1", *ping)
        found = re.search(r"= ([\d.]+)/", summary)
        assert found, summary
        return float(found[1])

    def send(self, tos: int, count: int) -> Any:
        """Datagrams from h1 to h2, faster than the link between the switches; see guest_traffic.py."""
        script = ("python3", f"{HERE}/guest_traffic.py", "vm-h1", "vm-h2", self.address, str(tos), str(count))
        return json.loads(self.machine.check(*script))

    def statistics(self) -> dict[tuple[str, str], Any]:
        """The queues by port and class. The counters of all of them must reconcile.

        Where nothing contradicts them but a counter never held still (BFD goes on), they are read again.
        """
        for _ in range(READINGS):
            document = self.document("stats", "--all")
            reconciliation = document["reconciliation"]
            if reconciliation["verdict"] != "moving":
                break
        assert reconciliation["verdict"] == "reconciled", reconciliation["imbalances"]
        return {(f"{item['node']}:{item['interface']}", item["class"]): item for item in document["queues"]}


@pytest.fixture(scope="module")
def lab(vm: FullKernel) -> Lab:
    return Lab(vm)


def dropped(queues: dict[tuple[str, str], Any], class_name: str) -> dict[str, int]:
    """Packets of a class that were dropped anywhere, by cause; causes that saw none are left out."""
    causes: dict[str, int] = {}
    for (_, name), queue in queues.items():
        if name == class_name:
            for cause, amount in queue["drops"].items():
                causes[cause] = causes.get(cause, 0) + amount["packets"]
    return {cause: packets for cause, packets in causes.items() if packets}


def test_the_doctor_finds_everything(vm: FullKernel) -> None:
    found = json.loads(vm.check(TESTBED, "doctor", "-f", "json"))
    assert found["can_deploy"]
    wanted = ["qdisc.netem", "qdisc.red", "qdisc.ets", "qdisc.plug", "qdisc.fq", "link.vrf", "link.ifb", "link.bond"]
    wanted += ["link.netkit", "link.tun", "classifier.flower", "action.police", "tcp.dctcp", "route.nexthop objects"]
    assert {name: found["kernel"][name] for name in wanted} == dict.fromkeys(wanted, "works")
    uses = {item["feature"]: (item["status"], item["uses"]) for item in found["mechanisms"]}
    assert uses["wire delay"] == ("ok", "kernel: netem on an ifb at the receiving port")
    assert uses["ECN (WRED)"] == ("ok", "eBPF marker on the instantaneous queue; RED as a cross-check")
    assert uses["PFC"][0] == "ok"


def test_a_lossless_flow_is_marked_and_paused_and_arrives_whole(lab: Lab) -> None:
    """Accounts rest on what the egress program notes in `skb->cb`, which must outlive the veth on this kernel too."""
    lab.rtt_ms()  # neighbours are known: what waits for an address is sent behind what comes after it
    flow = lab.send(RDMA, 1000)
    queues = lab.statistics()
    assert flow["received"] == flow["sent"]
    assert flow["disordered"] == 0
    assert dropped(queues, "rdma") == {}
    bottleneck, host = queues["s1:up1", "rdma"], queues["h1:eth1", "rdma"]
    assert bottleneck["sent_packets"] == flow["sent"]
    assert bottleneck["queue_bytes"] == 0
    assert bottleneck["ce_packets"] > flow["sent"] // 10
    assert flow["ce"] >= bottleneck["ce_packets"]
    assert host["pause_frames_received"] > 2
    assert host["pause_frames_received"] == queues["s1:down1", "rdma"]["pause_frames_sent"]
    assert host["paused_us"] > 0
    assert not host["paused"]


def test_what_a_lossy_queue_drops_is_what_does_not_arrive(lab: Lab) -> None:
    flow = lab.send(BULK, 800)
    queues = lab.statistics()
    assert queues["s1:up1", "bulk"]["drops"]["tail"]["packets"] > 0
    assert dropped(queues, "bulk") == {"tail": flow["sent"] - flow["received"]}


class TestDelay:
    """netem on an ifb at the port that receives."""

    def test_the_kernel_delays(self, lab: Lab) -> None:
        """Where the file says `by: kernel` and where it says `by: auto`."""
        by = {item["port"]: item["delay_by"] for item in lab.document("link", "show", "s1:up1")}
        assert by == {"s1:up1": "kernel", "s2:down1": "kernel"}
        queues = json.loads(lab.machine.check("tc", "-n", "vm-s2", "-j", "qdisc", "show"))
        delays = sorted(item["options"]["delay"]["delay"] for item in queues if item["kind"] == "netem")
        assert delays == [0.02, 0.04]

    def test_the_round_trip_grows_by_twice_the_delay(self, lab: Lab) -> None:
        declared = lab.rtt_ms()
        lab.do("link", "set", "s1:up1", "--delay", "0ns", "--both")
        without = lab.rtt_ms()
        assert declared - without == pytest.approx(2 * 20, rel=TOLERANCE)
        lab.do("link", "set", "s1:up1", "--delay", "500ns")  # 80 ms in the lab, and in one direction alone
        assert lab.rtt_ms() - without == pytest.approx(80, rel=TOLERANCE)
        lab.do("link", "reset", "--all")
        assert lab.rtt_ms() - without == pytest.approx(2 * 20, rel=TOLERANCE)
        assert without == pytest.approx(2 * 40, rel=TOLERANCE)  # of the other link, which stayed

    def test_jitter_does_not_reorder_and_losses_are_counted(self, lab: Lab) -> None:
        lab.do("link", "set", "s2:down2", "--jitter", "125ns", "--loss-every", "10")  # 40 ms give or take 20
        flow = lab.send(RDMA, 400)
        assert dropped(lab.statistics(), "rdma") == {"wire": flow["sent"] - flow["received"]}
        assert flow["sent"] - flow["received"] == pytest.approx(flow["sent"] / 10, abs=5)
        assert flow["disordered"] == 0


def test_a_link_that_goes_down_takes_its_queue_along(lab: Lab) -> None:
    """The packets in its queue are freed, which the tracepoint `kfree_skb` tells: no byte stays in any account."""
    flow = f"exec python3 {HERE}/guest_traffic.py vm-h1 vm-h2 {lab.address} {BULK} 1000000 >/dev/null 2>&1"
    pid = lab.machine.check("sh", "-c", f"sh -c '{flow}' & echo $!").strip()
    try:
        lab.do("link", "down", "s1:up1")
    finally:
        lab.machine.run("kill", "-9", pid)
    queues = lab.statistics()
    purged = queues["s1:up1", "bulk"]["drops"]["purged"]
    assert purged["packets"] > 10
    assert queues["s1:up1", "bulk"]["queue_bytes"] == 0


def test_destroy_leaves_nothing(lab: Lab) -> None:
    def ebpf_objects(patience_s: float) -> list[str]:
        return lab.machine.check(".venv/bin/python", "-c", _EBPF_OBJECTS, str(patience_s)).split()

    assert {"port_enqueue", "port_ingress", "port_purge", "queues"} <= set(ebpf_objects(0))
    lab.do("destroy", "-n", "vm")
    assert ebpf_objects(FREED_WITHIN_S) == []
    assert lab.machine.check("sh", "-c", "ls -d /run/netns/* /run/testbed/* /var/lib/testbed/labs/* 2>&-; true") == ""
    assert "testbed" not in lab.machine.check("cat", "/proc/mounts")
