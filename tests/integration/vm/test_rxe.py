"""Soft RDMA (rxe) in the nodes of a lab, and perftest across FRR switches, on Debian's own kernel (7.1 and newer).

One virtual machine, one small lab. It is emulated and slow: what is counted is exact there, what is timed is not.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from lab_vm import LabVm, spent_elsewhere

pytestmark = [pytest.mark.labvm, pytest.mark.netns, pytest.mark.timeout(1200)]

HERE = Path(__file__).parent.relative_to(Path(__file__).parents[3])
TESTBED = ".venv/bin/testbed"
TOPOLOGY = f"{HERE}/two-switches-rdma.yml"
DEPLOY = (TESTBED, "deploy", "-q", "-t", TOPOLOGY)
DEVICES = "ls /sys/class/infiniband 2>&-; true"
REMAINS = "ls -d /run/netns/rdma-* /run/testbed/rdma /var/lib/testbed/labs/rdma 2>&-; true"
RDMA = 26 << 2 | 2
"""Type of service: DSCP 26, ECT(0)."""
PATIENT = 22
"""Queue pairs wait 17 s for an acknowledgement, so that what is sent again was lost, and not late on a busy machine."""
FIGURE_BPS = 0.2e9
QUIET = 0.1
"""Share of the CPU that others may have while a rate is judged."""

_KILLED = f"""
{" ".join(DEPLOY)} & pid=$!
until [ "$(ls /sys/class/infiniband 2>&- | wc -l)" -ge 2 ]; do kill -0 $pid || exit 1; done
kill -9 $pid
wait $pid
[ "$(ls /sys/class/infiniband | wc -l)" -ge 2 ]
"""


@pytest.fixture(scope="module")
def vm(lab_vm: LabVm) -> LabVm:
    return lab_vm


def devices(machine: LabVm) -> list[str]:
    return machine.check("sh", "-c", DEVICES).split()


class Lab:
    """The lab of two-switches-rdma.yml, deployed."""

    def __init__(self, machine: LabVm) -> None:
        self.machine = machine
        machine.check(*DEPLOY)

    def run(self, test: str, **settings: object) -> dict[str, Any]:
        settings = {"qp_timeout": PATIENT} | settings
        words = [f"{key}={value}" for key, value in settings.items()]
        answer: dict[str, Any] = json.loads(
            self.machine.check(".venv/bin/python", f"{HERE}/guest_rdma.py", test, *words)
        )
        return answer


@pytest.fixture(scope="module")
def lab(vm: LabVm) -> Lab:
    return Lab(vm)


def test_the_doctor_says_so(vm: LabVm) -> None:
    found = json.loads(vm.check(TESTBED, "doctor", "-f", "json"))
    uses = {item["feature"]: (item["status"], item["uses"]) for item in found["mechanisms"]}
    assert uses["soft RDMA"] == ("ok", "rxe in each node, perftest")


def test_a_machine_in_mode_exclusive_is_refused(vm: LabVm) -> None:
    vm.check("modprobe", "-a", "ib_core", "rdma_rxe")
    vm.check("rdma", "system", "set", "netns", "exclusive")
    try:
        done = vm.run(*DEPLOY)
    finally:
        vm.check("rdma", "system", "set", "netns", "shared")
    assert done.returncode == 2
    assert "mode exclusive" in done.stderr and "rdma system set netns shared" in done.stderr
    assert vm.check("sh", "-c", REMAINS) == "", "nothing was begun"


def test_devices_of_a_killed_deploy_go_with_destroy(vm: LabVm) -> None:
    vm.check("bash", "-c", _KILLED)
    vm.check(TESTBED, "destroy", "-n", "rdma")
    assert devices(vm) == []


def test_each_nic_has_its_device(lab: Lab) -> None:
    assert devices(lab.machine) == ["rdma-h1-eth1", "rdma-h2-eth1"]
    seen = lab.machine.check(TESTBED, "exec", "h1", "--", "rdma", "link")
    assert "rdma-h1-eth1/1 state ACTIVE physical_state LINK_UP netdev eth1" in seen


@pytest.mark.parametrize("test", ["ib_write_bw", "ib_read_bw", "ib_send_bw"])
def test_bandwidth(lab: Lab, test: str) -> None:
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


def test_atomics(lab: Lab) -> None:
    found = lab.run("ib_atomic_bw", iterations=50)
    (result,) = found["bandwidths"]
    assert found["retransmissions"] == 0
    assert (result["size_bytes"], result["iterations"]) == (8, 50)
    assert result["messages_per_s"] > 0


@pytest.mark.parametrize("test", ["ib_write_lat", "ib_read_lat", "ib_send_lat", "ib_atomic_lat"])
def test_latency(lab: Lab, test: str) -> None:
    found = lab.run(test, size_bytes=64, iterations=50)
    (result,) = found["latencies"]
    assert 0 < result["min_us"] <= result["average_us"] <= result["max_us"]
    assert found["retransmissions"] == 0


def test_a_host_without_rdma_is_named(lab: Lab) -> None:
    assert lab.run("ib_write_bw", server="h3")["error"] == "h3:eth1 has no RDMA device: its host has no `rdma: rxe`"


def test_a_peer_that_is_cut_off_fails_plainly(lab: Lab) -> None:
    machine = lab.machine
    machine.check("ip", "-n", "rdma-s2", "link", "set", "down1", "down")
    try:
        error = lab.run("ib_write_bw", iterations=10, timeout_s=20)["error"]
    finally:
        machine.check("ip", "-n", "rdma-s2", "link", "set", "down1", "up")
    assert "ib_write_bw on h1" in error
    assert "did not end within 20 s" in error or "ouldn't connect" in error or "nreachable" in error


def test_the_figure(lab: Lab, record_property: Any) -> None:
    """ib_write_bw through two switches: 0.2 Gbit/s, and nothing is sent twice.

    An emulated CPU is as fast as whatever shares the machine with it lets it be: where others take CPU, the rate is
    shown and not judged.
    """
    lab.machine.check(TESTBED, "destroy", "-n", "rdma")
    lab.machine.check(*DEPLOY)
    before = lab.machine.cpu()
    runs = [lab.run("ib_write_bw", size_bytes=65536, iterations=500) for _ in range(3)]
    elsewhere = spent_elsewhere(before, lab.machine.cpu())
    best = max(run["bandwidths"][0]["average_bps"] for run in runs)
    record_property("ib_write_bw_gbps", best / 1e9)
    said = f"ib_write_bw through two switches: {best / 1e9:.3f} Gbit/s, while others had {elsewhere:.0%} of the CPU"
    warnings.warn(said, stacklevel=1)
    assert best >= FIGURE_BPS or elsewhere > QUIET, said
    assert all(run["retransmissions"] == 0 for run in runs)


def test_destroy_takes_the_devices_first(lab: Lab) -> None:
    lab.machine.check(TESTBED, "destroy", "-n", "rdma")
    assert devices(lab.machine) == []
    assert lab.machine.check("sh", "-c", REMAINS) == ""
    assert "unregister_netdevice" not in lab.machine.check("dmesg")
