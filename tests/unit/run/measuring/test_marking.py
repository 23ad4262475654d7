"""Marking curves out of the maps: what grew, by class and marker, with the ideal beside it."""

from dataclasses import replace

import pytest
from fake_ports import BULK, RDMA, FakePorts

from testbed.base.datapath.abi import CURVE_BINS, CURVE_BINS_TO_KMAX
from testbed.lab.core.model import MarkBy
from testbed.lab.core.plan.qos.qos_plan import QosPlan
from testbed.run.measuring.marking import marking_curves, read_marks

KMIN, KMAX, PMAX = 160_000, 640_000, 0.2
WIDTH = KMAX / CURVE_BINS_TO_KMAX
FIRST, SECOND = "p1-s1-rail1:uplink1", "p1-s1-rail1:uplink2"


def marking_plan(ports: FakePorts, by: MarkBy = MarkBy.EBPF) -> QosPlan:
    """That of the fake ports, with a curve in the class rdma of switches."""
    nic, switch = ports.plan.qos.profiles
    classes = tuple(
        replace(item, kmin_bytes=KMIN, kmax_bytes=KMAX, pmax=PMAX, mark_by=by) if item.priority == RDMA else item
        for item in switch.classes
    )
    return replace(ports.plan.qos, profiles=(nic, replace(switch, classes=classes)))


@pytest.mark.parametrize(("by", "marker"), [(MarkBy.EBPF, "eBPF"), (MarkBy.RED, "RED")])
def test_queues_of_a_class_are_counted_together_since_the_first_reading(by: MarkBy, marker: str) -> None:
    ports = FakePorts()
    curves = ports.maps.by_port("curves")
    first, second = ports.number(FIRST), ports.number(SECOND)
    curves["packets"][first, RDMA, 10] = 1000
    before = read_marks(ports.maps)
    curves["packets"][first, RDMA, 10] += 50
    curves["marked"][first, RDMA, 10] += 5
    curves["packets"][second, RDMA, 10] += 30
    curves["packets"][second, RDMA, CURVE_BINS - 1] += 7
    curves["marked"][second, RDMA, CURVE_BINS - 1] += 7
    curves["packets"][first, BULK, 0] += 9  # a class without a curve
    plan = marking_plan(ports, by)
    (found,) = marking_curves(plan, ports.table, before, read_marks(ports.maps))
    assert (found.class_name, found.marker, found.queues) == ("rdma", marker, 2)
    assert (found.packets[10], found.marked[10]) == (80, 5)
    assert (found.packets[-1], found.marked[-1]) == (7, 7)
    assert sum(found.packets) == 87
    assert found.edges_bytes[CURVE_BINS_TO_KMAX] == KMAX
    assert found.ideal[0] == 0
    assert found.ideal[-1] == 1
    assert found.ideal[10] == pytest.approx(PMAX * (10.5 * WIDTH - KMIN) / (KMAX - KMIN))
    assert found.ideal[CURVE_BINS_TO_KMAX] is None


def test_a_run_that_met_no_queue_with_a_curve_has_none() -> None:
    ports = FakePorts()
    before = read_marks(ports.maps)
    assert marking_curves(marking_plan(ports), ports.table, before, read_marks(ports.maps)) == []
