"""The data path of switch ports on Debian's own kernel (7.2), and what only such a kernel has: netem, RED,
DCTCP, VRF.

Everything happens in the lab VM and, but for the first test, on one small lab. The machine is emulated and slow:
counters are exact there too, times are those of the lab to some per cent.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from lab_vm import LabVm

pytestmark = [pytest.mark.vm, pytest.mark.netns, pytest.mark.timeout(1800)]

HERE = Path(__file__).parent.relative_to(Path(__file__).parents[3])
GUEST_TRAFFIC = "tests/support/machines/guest_traffic.py"
TESTBED = ".venv/bin/testbed"
TOLERANCE = 0.15
"""Of a delay: what an emulated machine takes for waking up."""
ECT0 = 2
BULK_CLASS = "1:10"
"""The HTB class of priority 0."""
RDMA, RED, BULK = 26 << 2 | ECT0, 10 << 2 | ECT0, 0
"""Types of service (RFC 3168) of the classes: DSCP 26 is lossless, the kernel's RED marks DSCP 10."""
LIMIT_BYTES, KMAX_BYTES = 100_000, 30_000
"""Of the class that RED marks."""
READINGS = 4
_EBPF_OBJECTS = """
import sys, time
sys.path.insert(0, "tests/support/labs")
from ebpf_objects import ebpf_objects
end = time.monotonic() + float(sys.argv[1])
while (found := ebpf_objects(6)) and time.monotonic() < end:
    time.sleep(0.1)
print(*found)
"""
"""What the kernel holds for the six ports. It frees a namespace, and what hangs on it, when it gets round to it."""
FREED_WITHIN_S = 30
FRAME_BYTES = 4514
_CURVE = """
import json, sys
from testbed.run.measuring.marking import marking_curves, read_marks
from testbed.lab.observe.port_table import tabulate_ports
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
import numpy as np
name, class_name = sys.argv[1:]
lab = RunningLab.open(name, StateDirectory())
marks = read_marks(lab.maps())
curves = marking_curves(lab.plan.tables, tabulate_ports(lab.plan), np.zeros_like(marks), marks)
(curve,) = (item for item in curves if item.class_name == class_name)
assert curve.marker == "RED", curve
print(json.dumps(list(zip(curve.edges_bytes, curve.packets, curve.marked))))
"""
_VRF = """
ip netns add vrf-router
ip netns exec vrf-router sysctl -qw net.ipv4.ip_forward=1
table=10
for tenant in red blue; do
    ip -n vrf-router link add $tenant type vrf table $table
    ip -n vrf-router link set $tenant up
    for end in a:1 b:2; do
        name=vrf-$tenant-${end%:*} net=10.9.${end#*:}
        ip netns add $name
        ip -n vrf-router link add $tenant-${end%:*} type veth peer name eth1 netns $name
        ip -n vrf-router link set $tenant-${end%:*} master $tenant up
        ip -n vrf-router address add $net.1/24 dev $tenant-${end%:*}
        ip -n $name link set eth1 up
        ip -n $name address add $net.2/24 dev eth1
        ip -n $name route add default via $net.1
    done
    table=$((table + 1))
done
"""


class Lab:
    """The lab of two-switches.yml while it is deployed in the machine."""

    def __init__(self, machine: LabVm) -> None:
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
        script = ("python3", f"{GUEST_TRAFFIC}", "vm-h1", "vm-h2", self.address, str(tos), str(count))
        return json.loads(self.machine.check(*script))

    def statistics(self, *options: str) -> dict[tuple[str, str], Any]:
        """The queues by port and class, read with some options. The counters of all of them must reconcile.

        Where nothing contradicts them but a counter never held still (BGP goes on), they are read again.
        """
        for _ in range(READINGS):
            document = self.document("stats", "--all", *options)
            reconciliation = document["reconciliation"]
            if reconciliation["verdict"] != "moving":
                break
        assert reconciliation["verdict"] == "reconciled", reconciliation["imbalances"]
        return {(f"{item['node']}:{item['interface']}", item["class"]): item for item in document["queues"]}


@pytest.fixture(scope="module")
def lab(lab_vm: LabVm) -> Lab:
    return Lab(lab_vm)


def dropped(queues: dict[tuple[str, str], Any], class_name: str) -> dict[str, int]:
    """Packets of a class that were dropped anywhere, by cause; causes that saw none are left out."""
    causes: dict[str, int] = {}
    for (_, name), queue in queues.items():
        if name == class_name:
            for cause, amount in queue["drops"].items():
                causes[cause] = causes.get(cause, 0) + amount["packets"]
    return {cause: packets for cause, packets in causes.items() if packets}


def test_the_doctor_finds_everything(lab_vm: LabVm) -> None:
    found = lab_vm.doctor
    assert found["can_deploy"]
    wanted = ["qdisc.netem", "qdisc.red", "qdisc.ets", "qdisc.plug", "qdisc.fq", "link.vrf", "link.ifb", "link.bond"]
    wanted += ["link.netkit", "link.tun", "classifier.flower", "action.police", "tcp.dctcp", "route.nexthop objects"]
    assert {name: found["kernel"][name] for name in wanted} == dict.fromkeys(wanted, "works")
    assert lab_vm.feature("wire delay") == ("ok", "kernel: netem on an ifb at the receiving port")
    status, uses = lab_vm.feature("ECN (WRED)")
    assert (status, uses.startswith("eBPF marker on the instantaneous queue; RED ")) == ("ok", True)
    assert lab_vm.feature("PFC")[0] == "ok"


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


def test_red_marks_instead_of_ebpf_and_all_who_count_agree(lab: Lab) -> None:
    """The qdisc, our account of the queue, and the receiver; the marks lie on the curve that eBPF has elsewhere."""
    flow = lab.send(RED, 600)
    queues = lab.statistics()
    marked = sum(queue["ce_packets"] for (_, name), queue in queues.items() if name == "red")
    (red,) = (
        item
        for item in json.loads(lab.machine.check("tc", "-n", "vm-s1", "-s", "-j", "qdisc", "show", "dev", "up1"))
        if item["kind"] == "red"
    )
    assert red["options"]["max"] == KMAX_BYTES
    assert queues["s1:up1", "red"]["ce_packets"] == red["marked"] > 100
    assert marked == flow["ce"]  # one more switch is on the way
    assert red["early"] == red["pdrop"] == 0  # what is dropped, eBPF drops, and accounts for
    found = json.loads(lab.machine.check(".venv/bin/python", "-c", _CURVE, "vm", "red"))
    above = [(packets, hit) for low, packets, hit in found if low > KMAX_BYTES + 2 * FRAME_BYTES]
    below = [(packets, hit) for low, packets, hit in found if low + KMAX_BYTES / 16 <= KMAX_BYTES / 3]
    assert sum(packets for packets, _ in above) > 100
    assert all(packets == hit for packets, hit in above)
    assert sum(packets for packets, _ in below) > 5
    assert not any(hit for _, hit in below)


@pytest.mark.thorough
def test_a_qdisc_that_notes_when_a_packet_came_leaves_the_accounts_alone(lab: Lab) -> None:
    """CoDel's note (include/net/codel_qdisc.h) lies beside ours in the packet. It is told never to drop or mark."""
    place = ("-n", "vm-s1", "qdisc")
    where = ("dev", "up1", "parent", BULK_CLASS)
    lab.machine.check("tc", *place, "add", *where, "codel", "limit", "1000", "target", "1000s", "interval", "1000s")
    try:
        flow = lab.send(BULK, 30)
        queues = lab.statistics()
    finally:
        lab.machine.check("tc", *place, "delete", *where)
    assert flow["received"] == flow["sent"]
    assert queues["s1:up1", "bulk"]["queue_bytes"] == 0


@pytest.mark.thorough
def test_dctcp_heeds_marks_where_reno_fills_the_queue(lab: Lab) -> None:
    """RFC 8257: the marks slow DCTCP before anything is lost; Reno, which allows none, learns from its losses."""
    seen = {}
    for control, ecn in (("dctcp", 1), ("reno", 2)):  # 2, the default: only who is asked allows marks
        # iperf3 chooses the congestion control once it is connected: the SYN must have asked for marks by then
        lab.machine.check("ip", "netns", "exec", "vm-h1", "sysctl", "-qw", f"net.ipv4.tcp_ecn={ecn}")
        before = lab.statistics("--reset-max")["s1:up1", "red"]
        lab.machine.check("ip", "netns", "exec", "vm-h2", "iperf3", "-s", "-1", "-D", "-B", lab.address)
        client = ("iperf3", "-c", lab.address, "-C", control, "-S", str(RED & ~ECT0), "-t", "6", "-J")
        flow = json.loads(lab.machine.check("ip", "netns", "exec", "vm-h1", *client))
        assert flow["end"]["sender_tcp_congestion"] == control
        after = lab.statistics()["s1:up1", "red"]
        seen[control] = after["queue_max_bytes"]
        ect, marked = (after[name] - before[name] for name in ("ect_packets", "ce_packets"))
        lost = sum(drops["packets"] - before["drops"][cause]["packets"] for cause, drops in after["drops"].items())
        if control == "dctcp":
            assert 0 < marked < ect
            assert not lost
        else:
            assert ect == marked == 0
            assert lost
    assert seen["dctcp"] < seen["reno"]
    assert seen["reno"] > LIMIT_BYTES - 2 * FRAME_BYTES


def test_a_vrf_forwards_by_its_own_table_alone(lab_vm: LabVm) -> None:
    """A router with two VRFs whose tenants use the same addresses (RFC 4364's case): each reaches its own peer."""
    lab_vm.check("sh", "-e", "-c", _VRF)
    try:
        for tenant in ("red", "blue"):
            assert lab_vm.run(*_vrf_ping(tenant)).returncode == 0
            table = json.loads(lab_vm.check("ip", "-n", "vrf-router", "-j", "route", "show", "vrf", tenant))
            assert sorted(route["dst"] for route in table) == ["10.9.1.0/24", "10.9.2.0/24"]
        assert json.loads(lab_vm.check("ip", "-n", "vrf-router", "-j", "route", "show", "table", "main")) == []
        lab_vm.check("ip", "-n", "vrf-red-b", "link", "delete", "eth1")
        assert lab_vm.run(*_vrf_ping("red")).returncode == 1
        assert lab_vm.run(*_vrf_ping("blue")).returncode == 0
    finally:
        for name in ("router", "red-a", "red-b", "blue-a", "blue-b"):
            lab_vm.run("ip", "netns", "delete", f"vrf-{name}")


def _vrf_ping(tenant: str) -> tuple[str, ...]:
    return ("ip", "netns", "exec", f"vrf-{tenant}-a", "ping", "-c", "1", "-W", "5", "10.9.2.2")


class TestDelay:
    """netem on an ifb at the port that receives."""

    def test_the_kernel_delays(self, lab: Lab) -> None:
        """Where the file says `by: kernel` and where it says `by: auto`."""
        by = {item["port"]: item["delay_by"] for item in lab.document("link", "show", "s1:up1")}
        assert by == {"s1:up1": "kernel", "s2:down1": "kernel"}
        queues = json.loads(lab.machine.check("tc", "-n", "vm-s2", "-j", "qdisc", "show"))
        delays = sorted(item["options"]["delay"]["delay"] for item in queues if item["kind"] == "netem")
        assert delays == [0.02, 0.04]

    @pytest.mark.thorough
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

    @pytest.mark.thorough
    def test_jitter_does_not_reorder_and_losses_are_counted(self, lab: Lab) -> None:
        lab.do("link", "set", "s2:down2", "--jitter", "125ns", "--loss-every", "10")  # 40 ms give or take 20
        flow = lab.send(RDMA, 400)
        assert dropped(lab.statistics(), "rdma") == {"wire": flow["sent"] - flow["received"]}
        assert flow["sent"] - flow["received"] == pytest.approx(flow["sent"] / 10, abs=5)
        assert flow["disordered"] == 0


@pytest.mark.thorough
def test_a_link_that_goes_down_takes_its_queue_along(lab: Lab) -> None:
    """The packets in its queue are freed, which the tracepoint `kfree_skb` tells: no byte stays in any account."""
    flow = f"exec python3 {GUEST_TRAFFIC} vm-h1 vm-h2 {lab.address} {BULK} 1000000 >/dev/null 2>&1"
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
