"""Soft RDMA (rxe) in the nodes of a lab, and perftest across FRR switches, on Debian's own kernel (7.1 and newer).

One virtual machine, one small lab. It is emulated and slow: what is counted is exact there, what is timed is not.
"""

import pytest
from lab_vm import LabVm
from rdma_lab import DEPLOY, TESTBED, RdmaLab

pytestmark = [pytest.mark.vm, pytest.mark.netns, pytest.mark.timeout(1200)]

DEVICES = "ls /sys/class/infiniband 2>&-; true"
REMAINS = "ls -d /run/netns/rdma-* /run/testbed/rdma /var/lib/testbed/labs/rdma 2>&-; true"
RDMA = 26 << 2 | 2
"""Type of service: DSCP 26, ECT(0)."""

_KILLED = f"""
{" ".join(DEPLOY)} & pid=$!
until [ "$(ls /sys/class/infiniband 2>&- | wc -l)" -ge 2 ]; do kill -0 $pid || exit 1; done
kill -9 $pid
wait $pid
[ "$(ls /sys/class/infiniband | wc -l)" -ge 2 ]
"""


def devices(machine: LabVm) -> list[str]:
    return machine.check("sh", "-c", DEVICES).split()


@pytest.fixture(scope="module")
def lab(lab_vm: LabVm) -> RdmaLab:
    return RdmaLab(lab_vm)


def test_the_doctor_says_so(lab_vm: LabVm) -> None:
    assert lab_vm.feature("soft RDMA") == ("ok", "rxe in each node, perftest")


def test_a_machine_in_mode_exclusive_is_refused(lab_vm: LabVm) -> None:
    lab_vm.check("modprobe", "-a", "ib_core", "rdma_rxe")
    lab_vm.check("rdma", "system", "set", "netns", "exclusive")
    try:
        done = lab_vm.run(*DEPLOY)
    finally:
        lab_vm.check("rdma", "system", "set", "netns", "shared")
    assert done.returncode == 3
    assert "mode exclusive" in done.stderr and "rdma system set netns shared" in done.stderr
    assert lab_vm.check("sh", "-c", REMAINS) == "", "nothing was begun"


def test_devices_of_a_killed_deploy_go_with_destroy(lab_vm: LabVm) -> None:
    lab_vm.check("bash", "-c", _KILLED)
    lab_vm.check(TESTBED, "destroy", "-n", "rdma")
    assert devices(lab_vm) == []


def test_each_nic_has_its_device(lab: RdmaLab) -> None:
    assert devices(lab.machine) == ["rdma-h1-eth1", "rdma-h2-eth1"]
    seen = lab.machine.check(TESTBED, "exec", "h1", "--", "rdma", "link")
    assert "rdma-h1-eth1/1 state ACTIVE physical_state LINK_UP netdev eth1" in seen


@pytest.mark.parametrize(
    "test", ["ib_write_bw", *(pytest.param(test, marks=pytest.mark.thorough) for test in ("ib_read_bw", "ib_send_bw"))]
)
def test_bandwidth(lab: RdmaLab, test: str) -> None:
    found = lab.run(test, size_bytes=16384, iterations=50, queue_pairs=2, traffic_class=RDMA)
    assert "error" not in found, found["error"]
    (result,) = found["bandwidths"]
    assert (result["size_bytes"], result["iterations"]) == (16384, 100)
    assert result["average_bps"] > 0
    assert found["settings"]["Number_of_qps"] == "2"
    assert found["settings"]["Link_type"] == "Ethernet"
    assert found["retransmissions"] == 0
    assert found["seen"], "packets bear the traffic class through both switches"
    carried = max(found["client"]["sent_bytes"], found["server"]["sent_bytes"])
    assert carried >= 100 * 16384, "the devices counted what was carried"


def test_atomics(lab: RdmaLab) -> None:
    found = lab.run("ib_atomic_bw", iterations=50)
    (result,) = found["bandwidths"]
    assert found["retransmissions"] == 0
    assert (result["size_bytes"], result["iterations"]) == (8, 50)
    assert result["messages_per_s"] > 0


@pytest.mark.parametrize(
    "test",
    [
        *(pytest.param(test, marks=pytest.mark.thorough) for test in ("ib_write_lat", "ib_send_lat", "ib_atomic_lat")),
        "ib_read_lat",
    ],
)
def test_latency(lab: RdmaLab, test: str) -> None:
    found = lab.run(test, size_bytes=64, iterations=50)
    (result,) = found["latencies"]
    assert 0 < result["min_us"] <= result["average_us"] <= result["max_us"]
    assert found["retransmissions"] == 0


def test_a_host_without_rdma_is_named(lab: RdmaLab) -> None:
    assert lab.run("ib_write_bw", server="h3")["error"] == "h3:eth1 has no RDMA device: its host has no `rdma: rxe`"


def test_a_peer_that_is_cut_off_fails_plainly(lab: RdmaLab) -> None:
    machine = lab.machine
    machine.check("ip", "-n", "rdma-s2", "link", "set", "down1", "down")
    try:
        error = lab.run("ib_write_bw", iterations=10, timeout_s=20)["error"]
    finally:
        machine.check("ip", "-n", "rdma-s2", "link", "set", "down1", "up")
    assert "ib_write_bw on h1" in error
    assert "did not end within 20 s" in error or "ouldn't connect" in error or "nreachable" in error


def test_destroy_takes_the_devices_first(lab: RdmaLab) -> None:
    lab.machine.check(TESTBED, "destroy", "-n", "rdma")
    assert devices(lab.machine) == []
    assert lab.machine.check("sh", "-c", REMAINS) == ""
    assert "unregister_netdevice" not in lab.machine.check("dmesg")
