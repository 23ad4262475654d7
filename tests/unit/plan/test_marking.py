"""Who marks ECN: the kernel's RED where a file says so, what it is told, and the refusal where there is none."""

from __future__ import annotations

import struct

import pytest
from memory_maps import maps_in_memory

from testbed.datapath.abi import MARK_FLAGS, PROBABILITY_ONE, ClassFlag, class_handle, gate_handle, red_handle
from testbed.drivers.netlink import rtnetlink
from testbed.drivers.netlink import traffic_control as traffic
from testbed.drivers.netlink.port_programs import fill_maps
from testbed.errors import CapabilityError
from testbed.model import Lab, MarkBy
from testbed.plan import plan_lab
from testbed.plan.marking import check_red, wants_red
from testbed.plan.operations import InstallPort
from testbed.spec.topology.load import load_topology_text

ABSENT = "Specified qdisc kind is unknown"


def lab_marked(by: str) -> Lab:
    return load_topology_text(
        f"""
name: pod
fabric: {{design: rail-optimized, hosts: 2, gpus: 2, spines: 2}}
qos:
  classes:
    rdma: {{dscp: [26], lossless: true, ecn: {{kmin: 100kB, kmax: 400kB, pmax: 0.2, by: {by}}}}}
    bulk: {{default: true}}
  buffer: {{shared: 64MB}}
""",
        file="pod.yml",
    )


def test_red_is_asked_for_by_name_and_refused_where_it_is_not() -> None:
    assert wants_red(lab_marked("ebpf")) == ""
    check_red(wants_red(lab_marked("ebpf")), ABSENT)
    assert wants_red(lab_marked("kernel")) == "rdma"
    check_red(wants_red(lab_marked("kernel")), "")
    with pytest.raises(
        CapabilityError, match=r"qos\.classes\.rdma\.ecn: .* CONFIG_NET_SCH_RED, .*is unknown"
    ) as refusal:
        check_red(wants_red(lab_marked("kernel")), ABSENT)
    assert refusal.value.hint and "by: ebpf" in refusal.value.hint


@pytest.mark.parametrize("by", ["ebpf", "kernel"])
def test_the_program_leaves_the_mark_to_red_alone_and_nics_have_neither(by: str) -> None:
    plan = plan_lab(lab_marked(by), k=1000)
    assert plan.qos is not None
    installs = [item for item in plan.operations if isinstance(item, InstallPort)]
    maps = maps_in_memory(len(installs), profiles=len(plan.qos.profiles), buffers=len(plan.qos.buffers))
    fill_maps(maps, plan.qos, installs)
    for index, profile in enumerate(plan.qos.profiles):
        (rdma,) = (item for item in profile.classes if item.name == "rdma")
        flags = int(maps.profiles["classes"]["flags"][index][rdma.priority])
        assert bool(flags & ClassFlag.ECN) is profile.switch
        assert bool(flags & MARK_FLAGS[MarkBy.KERNEL]) is (profile.switch and by == "kernel")


@pytest.mark.parametrize("gated", [False, True])
def test_red_has_the_curve_an_average_of_one_packet_and_drops_nothing(gated: bool) -> None:
    batch = traffic.new_red(7, 3, gated=gated, kmin_bytes=100_000, kmax_bytes=400_000, pmax=0.2)
    ((_, _, _, body),) = rtnetlink.messages(batch)
    _, ifindex, handle, parent, _ = rtnetlink.TCMSG.unpack_from(body)
    assert (ifindex, handle) == (7, red_handle(3))
    assert parent == (gate_handle(3) | 1 if gated else class_handle(3))
    fields = {kind: bytes(value) for kind, value in rtnetlink.attributes(body, rtnetlink.TCMSG.size)}
    assert fields[rtnetlink.TCA_KIND] == b"red\0"
    options = {kind: bytes(value) for kind, value in rtnetlink.attributes(fields[rtnetlink.TCA_OPTIONS])}
    limit, low, high, w_log, _, _, _ = struct.unpack("=IIIBBBB", options[traffic.TCA_RED_PARMS])
    assert (low, high, w_log) == (100_000, 400_000, 0)
    assert limit > 64_000_000
    # evenly spaced marks at p are 2p / (1 + p) of all: Pmax again
    probability = struct.unpack("=I", options[traffic.TCA_RED_MAX_P])[0] / PROBABILITY_ONE
    assert 2 * probability / (1 + probability) == pytest.approx(0.2)
    ecn_and_nodrop = 1 | 8  # linux/pkt_sched.h: TC_RED_ECN, TC_RED_NODROP
    assert struct.unpack("=II", options[traffic.TCA_RED_FLAGS]) == (ecn_and_nodrop, ecn_and_nodrop)
