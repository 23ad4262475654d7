"""Who marks ECN: a qdisc of the kernel where a file says so, what it is told, and the refusal where there is none."""

import struct
from dataclasses import replace

import pytest
from memory_maps import maps_in_memory

from testbed.base.datapath.abi import PROBABILITY_ONE, ClassFlag, class_handle, gate_handle, marker_handle
from testbed.base.datapath.markers import KERNEL_MARKERS, MARKERS, MarkerDeclaration
from testbed.base.datapath.traffic_class import ClassPlan
from testbed.base.errors import CapabilityError
from testbed.base.linux import rtnetlink
from testbed.lab.core.deploy.mechanisms import check_kernel_markers, kernel_marked
from testbed.lab.core.drivers.netlink import marking_qdiscs
from testbed.lab.core.drivers.netlink.port_programs import fill_maps
from testbed.lab.core.model import Lab, MarkBy
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.operations import InstallPort
from testbed.lab.core.schema.load import load_topology_text

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


ALL_KERNEL_MARKERS = pytest.mark.parametrize("marker", KERNEL_MARKERS, ids=lambda marker: marker.by.value)


def test_every_marker_is_declared_and_every_qdisc_has_its_message() -> None:
    assert set(MARKERS) == set(MarkBy)
    assert set(marking_qdiscs.MARKING_QDISCS) == {marker.by for marker in KERNEL_MARKERS}
    assert all(marker.places and marker.approximation for marker in KERNEL_MARKERS)


def test_where_ebpf_marks_all_the_machine_is_asked_for_nothing() -> None:
    assert kernel_marked(lab_marked("ebpf")) == []
    check_kernel_markers(lab_marked("ebpf"), {})


@ALL_KERNEL_MARKERS
def test_a_qdisc_is_asked_for_by_name_and_refused_where_it_is_not(marker: MarkerDeclaration) -> None:
    lab = lab_marked(marker.by)
    assert kernel_marked(lab) == [("rdma", marker)]
    check_kernel_markers(lab, {marker.capability: ""})
    with pytest.raises(CapabilityError, match=r"qos\.classes\.rdma\.ecn: .*is unknown") as refusal:
        check_kernel_markers(lab, {marker.capability: ABSENT})
    assert refusal.value.missing == marker.option
    assert refusal.value.hint and "by: ebpf" in refusal.value.hint


def test_red_is_an_option_of_the_kernel() -> None:
    assert (MARKERS[MarkBy.RED].capability, MARKERS[MarkBy.RED].option) == ("qdisc.red", "CONFIG_NET_SCH_RED")


@pytest.mark.parametrize("by", MarkBy)
def test_the_program_leaves_the_mark_to_a_qdisc_alone_and_nics_have_neither(by: MarkBy) -> None:
    plan = plan_lab(lab_marked(by), k=1000)
    installs = [item for item in plan.operations if isinstance(item, InstallPort)]
    maps = maps_in_memory(len(installs), profiles=len(plan.qos.profiles), buffers=len(plan.qos.buffers))
    fill_maps(maps, plan.qos, installs)
    for index, profile in enumerate(plan.qos.profiles):
        (rdma,) = (item for item in profile.classes if item.name == "rdma")
        told = maps.profiles["classes"][index]
        flags = int(told["flags"][rdma.priority])
        curve = (100_000, 400_000, round(0.2 * PROBABILITY_ONE)) if profile.switch else (0, 0, PROBABILITY_ONE)
        assert tuple(told[rdma.priority][["kmin_bytes", "kmax_bytes", "pmax"]]) == curve
        assert int(told["alpha"][0]) == (256 if profile.switch else 0)
        assert bool(flags & ClassFlag.ECN) is profile.switch
        assert bool(flags & ClassFlag.MARK_BY_KERNEL) is (profile.switch and by is not MarkBy.EBPF)


@pytest.mark.parametrize("written", ["", "marks_account: true", "marks_account: false"])
def test_marks_are_counted_by_depth_unless_the_file_says_no(written: str) -> None:
    lab = lab_marked("ebpf")
    if written:
        assert lab.qos is not None
        profiles = tuple(replace(one, marks_account=written.endswith("true")) for one in lab.qos.profiles)
        lab = replace(lab, qos=replace(lab.qos, profiles=profiles))
    plan = plan_lab(lab, k=1000)
    installs = [item for item in plan.operations if isinstance(item, InstallPort)]
    maps = maps_in_memory(len(installs), profiles=len(plan.qos.profiles), buffers=len(plan.qos.buffers))
    fill_maps(maps, plan.qos, installs)
    counted = (maps.profiles["classes"]["flags"] & ClassFlag.COUNT_MARKS) != 0
    marked = (maps.profiles["classes"]["flags"] & ClassFlag.ECN) != 0
    assert marked.any()
    assert (counted == (marked & (not written.endswith("false")))).all()


def marked_class(by: MarkBy) -> tuple[InstallPort, ClassPlan]:
    """A port of a switch, and its class that `by` marks."""
    plan = plan_lab(lab_marked(by), k=1000)
    assert plan.qos is not None
    port = next(item for item in plan.operations if isinstance(item, InstallPort) and item.switch)
    return port, next(item for item in plan.qos.profiles[port.profile].classes if item.name == "rdma")


@ALL_KERNEL_MARKERS
@pytest.mark.parametrize("gated", [False, True])
def test_a_qdisc_is_in_the_class_or_in_its_gate(marker: MarkerDeclaration, gated: bool) -> None:
    port, item = marked_class(marker.by)
    ((_, _, _, body),) = rtnetlink.messages(marking_qdiscs.new_marking_qdisc(port, replace(item, lossless=gated)))
    _, ifindex, handle, parent, _ = rtnetlink.TCMSG.unpack_from(body)
    assert (ifindex, handle) == (port.ifindex, marker_handle(3))
    assert parent == (gate_handle(3) | 1 if gated else class_handle(3))
    fields = {kind: bytes(value) for kind, value in rtnetlink.attributes(body, rtnetlink.TCMSG.size)}
    assert fields[rtnetlink.TCA_KIND] == marker.qdisc.encode() + b"\0"
    options = marking_qdiscs.MARKING_QDISCS[marker.by](port, item)
    assert options and fields[rtnetlink.TCA_OPTIONS] == options


def test_red_has_the_curve_an_average_of_one_packet_and_drops_nothing() -> None:
    options = {
        kind: bytes(value)
        for kind, value in rtnetlink.attributes(marking_qdiscs.red_options(*marked_class(MarkBy.RED)))
    }
    limit, low, high, w_log, _, _, _ = struct.unpack("=IIIBBBB", options[marking_qdiscs.TCA_RED_PARMS])
    assert (low, high, w_log) == (100_000, 400_000, 0)
    assert limit > 64_000_000
    # evenly spaced marks at p are 2p / (1 + p) of all: Pmax again
    probability = struct.unpack("=I", options[marking_qdiscs.TCA_RED_MAX_P])[0] / PROBABILITY_ONE
    assert 2 * probability / (1 + probability) == pytest.approx(0.2)
    ecn_and_nodrop = 1 | 8  # linux/pkt_sched.h: TC_RED_ECN, TC_RED_NODROP
    assert struct.unpack("=II", options[marking_qdiscs.TCA_RED_FLAGS]) == (ecn_and_nodrop, ecn_and_nodrop)
