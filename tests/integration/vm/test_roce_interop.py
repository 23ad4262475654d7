"""Our RoCE endpoint and the kernel's soft RDMA (rxe), which no one here wrote, talk to each other over two switches.

Both ask and both answer: SEND and WRITE, with immediate data and without, READ and atomic operations. Afterwards the
memory of both is compared byte for byte; what each counted tells whether it took every packet of the other's.
"""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from lab_vm import LabVm
from rdma_lab import TESTBED, RdmaLab

pytestmark = [pytest.mark.vm, pytest.mark.netns, pytest.mark.timeout(1200)]

FABRIC = ("sh", "tests/support/roce/interop_fabric.sh")
PROGRAM = "tests/support/roce/guest_interop.py"
IPV4 = {"ours": "10.77.2.2", "theirs": "10.77.1.2", "device": "ri-h1-eth1", "namespace": "ri-h1"}
IPV6 = {"ours": "fd77:2::2", "theirs": "fd77:1::2", "device": "ri-h1-eth1", "namespace": "ri-h1", "gid_index": 2}
MEBIBYTE = 1 << 20
MESSAGES = 114
"""Of `transfer`: five operations of eleven sizes and two of the longest, both ways."""
ROUND = 50
"""Messages of a round of `impaired`."""
ACCESS, SILENT, NOT_READY = 10, 12, 13
"""IBV_WC_REM_ACCESS_ERR, IBV_WC_RETRY_EXC_ERR and IBV_WC_RNR_RETRY_EXC_ERR of libibverbs, and our `WorkStatus`."""


def run(machine: LabVm, namespace: str, place: dict[str, Any], group: str, *arguments: int) -> dict[str, Any]:
    """Run a group of `guest_interop.py` in the namespace of our endpoint, which fails where something is wrong."""
    program = (".venv/bin/python", PROGRAM, namespace, json.dumps(place), group, *map(str, arguments))
    found: dict[str, Any] = json.loads(machine.check(*program))
    return found


@pytest.fixture(scope="module")
def fabric(lab_vm: LabVm) -> Iterator[LabVm]:
    """Three hosts and two switches, as namespaces."""
    lab_vm.check(*FABRIC, "up")
    yield lab_vm
    lab_vm.check(*FABRIC, "down")
    left = lab_vm.check("sh", "-c", "ls /sys/class/infiniband /run/netns").split()
    assert [name for name in left if name.startswith("ri-")] == []


def tell_of_lost_reads(found: dict[str, Any]) -> None:
    """Show what rxe has made of responses that were right, as `guest_interop.py` has seen of each."""
    assert found["responses"] > 0
    for fault in found["rxe_reads_lost"]:
        warnings.warn(f"rxe's fault, every response of ours was right: {fault}", stacklevel=2)


@contextmanager
def impaired(machine: LabVm, *netem: str) -> Iterator[list[dict[str, Any]]]:
    """Impair the link between the switches both ways. Filled in afterwards: what netem counted at either end."""
    counted: list[dict[str, Any]] = []
    machine.check(*FABRIC, "impair", *netem)
    try:
        yield counted
    finally:
        for line in machine.check(*FABRIC, "mend").splitlines():
            counted += [item for item in json.loads(line) if item["kind"] == "netem"]


def assert_clean(found: dict[str, Any]) -> None:
    """Every packet was taken by who it was for, the first time: ICRCs, PSNs and lengths are right both ways."""
    assert found["counters"] == {}, "nothing malformed, duplicate, out of order, late"
    rxe = found["rxe"]
    assert rxe["rcvd_pkts"] == found["sent"], "rxe counts those whose ICRC it has accepted"
    assert rxe["sent_pkts"] == found["received"]
    for error in ("completer_retry_err", "duplicate_request", "out_of_seq_request", "rcvd_seq_err", "send_err"):
        assert rxe[error] == 0, error
    assert found["state"] == "RTS"


@pytest.mark.parametrize(
    "mtu", [*(pytest.param(mtu, marks=pytest.mark.thorough) for mtu in (256, 512, 2048)), 1024, 4096]
)
def test_every_operation_and_size_both_ways(fabric: LabVm, mtu: int) -> None:
    found = run(fabric, "ri-h2", IPV4, "transfer", mtu, MEBIBYTE)
    assert_clean(found)
    assert found["messages"] == MESSAGES


@pytest.mark.thorough
def test_the_same_over_ipv6(fabric: LabVm) -> None:
    found = run(fabric, "ri-h2", IPV6, "transfer", 1024, MEBIBYTE)
    assert_clean(found)
    assert found["messages"] == MESSAGES


@pytest.mark.thorough
def test_unreliable_services_both_ways(fabric: LabVm) -> None:
    found = run(fabric, "ri-h2", IPV4, "unreliable")
    assert_clean(found)
    assert found["messages"] == 2 * 4 * 11 + 2 * 4, "four operations of eleven sizes, and four datagrams"


def test_a_loss_of_one_per_cent(fabric: LabVm) -> None:
    with impaired(fabric, "loss", "1%") as netem:
        found = run(fabric, "ri-h2", IPV4, "impaired", 3)
    tell_of_lost_reads(found)
    assert found["messages"] == 3 * ROUND
    assert [item["drops"] > 0 for item in netem] == [True, True], "packets were lost both ways"
    assert "malformed" not in found["counters"]
    assert found["counters"]["retransmitted"] > 0
    assert found["rxe"]["completer_retry_err"] + found["rxe"]["rcvd_seq_err"] > 0
    assert found["state"] == "RTS"


def test_a_response_that_is_lost_is_asked_for_again(fabric: LabVm) -> None:
    """Rxe takes an acknowledgement with the PSN of a READ for its data: ours must have that of the WRITE before it."""
    found = run(fabric, "ri-h2", IPV4, "lost-responses")
    assert found["responses"] == dict.fromkeys(("read of a packet", "read of packets", "fetch-add"), "arrived")
    assert found["counters"]["duplicate"] >= 3
    assert found["rxe"]["completer_retry_err"] >= 3
    assert found["state"] == "RTS"


@pytest.mark.thorough
def test_packets_that_overtake_others(fabric: LabVm) -> None:
    with impaired(fabric, "delay", "3ms", "reorder", "97%"):
        found = run(fabric, "ri-h2", IPV4, "impaired", 2)
    tell_of_lost_reads(found)
    assert found["messages"] == 2 * ROUND
    assert "malformed" not in found["counters"]
    assert found["counters"]["out-of-order"] > 0
    assert found["rxe"]["out_of_seq_request"] > 0
    assert found["state"] == "RTS"


@pytest.mark.thorough
def test_rxe_is_told_of_marks_and_does_not_heed_it(fabric: LabVm) -> None:
    """netem marks what it would lose. A CNP is for no queue pair of rxe's, which drops it before it counts."""
    netem = ("dev", "up1", "root")
    fabric.check("tc", "-n", "ri-s1", "qdisc", "add", *netem, "netem", "loss", "20%", "ecn", "limit", "10000")
    try:
        found = run(fabric, "ri-h2", IPV4, "marked")
    finally:
        fabric.check("tc", "-n", "ri-s1", "qdisc", "del", *netem)
    assert found["marked"] > 10
    cnps = found["counters"].pop("cnp-sent")
    assert 0 < cnps <= found["marked"]
    found["sent"] -= cnps
    assert_clean(found)


def test_what_neither_may_touch_is_refused_by_the_other(fabric: LabVm) -> None:
    found = run(fabric, "ri-h2", IPV4, "trespass")
    assert found["ours"] == dict.fromkeys(("write", "read", "fetch-add", "beyond"), ACCESS)
    assert found["rxe"] == dict.fromkeys(("write", "read", "fetch-add", "beyond", "permission", "invalidated"), ACCESS)


@pytest.mark.thorough
def test_a_receive_that_is_not_posted_is_waited_for(fabric: LabVm) -> None:
    found = run(fabric, "ri-h2", IPV4, "not-ready")
    assert found["ours asked again"] >= 3
    assert found["rxe asked again"] >= 2
    assert found["rxe gives up"] == found["ours gives up"] == NOT_READY
    assert found["ours asked"] == 3, "once, and twice again"


@pytest.mark.thorough
def test_a_peer_that_does_not_answer_ends_the_request(fabric: LabVm) -> None:
    found = run(fabric, "ri-h2", IPV4, "silent")
    assert (found["ours"], found["rxe"]) == (SILENT, SILENT)


def test_an_endpoint_for_peers_of_its_own_cannot(fabric: LabVm) -> None:
    """Control: without the IP header the ICRCs of rxe are wrong, and rxe drops what the kernel cuts and numbers."""
    found = run(fabric, "ri-h2", IPV4, "without-header")
    assert found["status"] == SILENT
    assert found["counters"]["malformed"] > 0
    assert found["rxe"]["rcvd_pkts"] < found["sent"]


@pytest.mark.thorough
def test_in_a_lab_between_a_host_with_soft_rdma_and_one_without(lab_vm: LabVm) -> None:
    """The ports of a lab shape, mark and count; the switches are FRR's."""
    RdmaLab(lab_vm)
    try:
        addresses = {
            node: json.loads(lab_vm.check("ip", "-n", f"rdma-{node}", "-j", "-4", "address", "show", "eth1"))
            for node in ("h2", "h3")
        }
        ours, theirs = (addresses[node][0]["addr_info"][0]["local"] for node in ("h3", "h2"))
        place = {"ours": ours, "theirs": theirs, "device": "rdma-h2-eth1", "namespace": "rdma-h2"}
        found = run(lab_vm, "rdma-h3", place, "transfer", 4096, 100_001)
    finally:
        lab_vm.check(TESTBED, "destroy", "-n", "rdma")
    assert_clean(found)
    assert found["messages"] == MESSAGES
