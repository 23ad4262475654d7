"""What went through ports that are gone counts for the accounts of the switches that stay."""

from pathlib import Path

from memory_maps import maps_in_memory

from testbed.base.datapath.abi import CLASSES
from testbed.lab.core.deploy.records.gone_ports import FILE, keep_gone_ports, read_gone_ports, settle_gone_ports
from testbed.lab.core.drivers.netlink.port_programs import fill_maps, forget_ports
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.operations import InstallPort
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.observe.port_table import tabulate_ports
from testbed.lab.observe.reconcile import Balance, reconcile

TEXT = """name: x
fabric: {design: rail-optimized, segments: 1, hosts: 1, gpus: 1, spines: 2}
qos: {preset: uec}
"""
SWITCH, PRIORITY = "p1-s1-rail1", 0


def test_a_switch_has_forwarded_what_came_in_by_a_port_that_is_gone(tmp_path: Path) -> None:
    plan = plan_lab(load_topology_text(TEXT, file="x.yml"), k=10_000)
    assert plan.tables is not None
    maps = maps_in_memory(32)
    fill_maps(maps, plan.tables, [item for item in plan.operations if isinstance(item, InstallPort)])
    numbers = plan.port_numbers
    gone, left = numbers[f"{SWITCH}:uplink2"], numbers[f"{SWITCH}:down1"]
    host, spine = (int(maps.ports["peer"][number]) for number in (left, gone))
    maps.by_port("queues")["out_packets"][spine, PRIORITY] = 7  # the spine sends what the leaf forwards to its host
    maps.by_port("queues")["in_packets"][spine, PRIORITY] = 7
    maps.by_port("queues")["enqueued_packets"][spine, PRIORITY] = 7
    maps.by_port("ingress")["in_packets"][gone, PRIORITY] = 7
    for counter in ("in", "enqueued", "out", "forwarded"):
        maps.by_port("queues")[f"{counter}_packets"][left, PRIORITY] = 7
    maps.by_port("ingress")["in_packets"][host, PRIORITY] = 7

    smaller = load_topology_text(TEXT.replace("spines: 2", "spines: 1"), file="x.yml")
    table = tabulate_ports(plan_lab(smaller, k=10_000))
    keep_gone_ports(tmp_path, maps, [(SWITCH, gone), ("p1-spine2", spine)], {SWITCH, "p1-spine1"})
    keep_gone_ports(tmp_path, maps, [(SWITCH, gone), ("p1-spine2", spine)], {SWITCH, "p1-spine1"})  # it was broken off
    forget_ports(maps, [gone, spine])
    keep_gone_ports(tmp_path, maps, [(SWITCH, gone), ("p1-spine2", spine)], {SWITCH, "p1-spine1"})  # and here again
    for _ in range(2):
        settle_gone_ports(tmp_path)
    clock = iter(range(0, 1 << 60, 1 << 28)).__next__
    assert reconcile(maps, table, clock_ns=clock, rest=lambda _: None).balance is Balance.BROKEN
    maps.gone = read_gone_ports(tmp_path)
    assert maps.gone.keys() == {SWITCH} and maps.gone[SWITCH][0][PRIORITY] == 7
    assert reconcile(maps, table, clock_ns=clock, rest=lambda _: None).balance is Balance.RECONCILED

    keep_gone_ports(tmp_path, maps, [(SWITCH, left)], {SWITCH})
    assert [row[PRIORITY] for row in read_gone_ports(tmp_path)[SWITCH]] == [7, 0, 0], "that port still counts itself"
    settle_gone_ports(tmp_path)
    assert [row[PRIORITY] for row in read_gone_ports(tmp_path)[SWITCH]] == [7, 7, 0], "it adds up"
    keep_gone_ports(tmp_path, maps, [(SWITCH, left)], {SWITCH})
    keep_gone_ports(tmp_path, maps, [], {SWITCH})  # a change that was undone: the port has stayed
    settle_gone_ports(tmp_path)
    assert [row[PRIORITY] for row in read_gone_ports(tmp_path)[SWITCH]] == [7, 7, 0]
    keep_gone_ports(tmp_path, maps, [], {"p1-spine1"})
    assert read_gone_ports(tmp_path) == {}, "a switch that is gone has no accounts"


def test_a_file_that_is_none_is_nothing(tmp_path: Path) -> None:
    assert read_gone_ports(tmp_path) == {}
    (tmp_path / FILE).write_text("{")
    assert read_gone_ports(tmp_path) == {}
    assert CLASSES == 8
