"""What each network of a lab carried, from the counters of its ports."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from memory_maps import maps_in_memory, queue_index
from run_rows import channel

from testbed.base.linux.port_counters import PortCounters
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.observe.port_table import tabulate_ports
from testbed.lab.observe.sampler import Samples
from testbed.lab.observe.telemetry import take_snapshot
from testbed.record.samples import NetworkLoad
from testbed.run.measuring.network_loads import network_loads
from testbed.run.measuring.observation import Observation, full_queue_s
from testbed.run.placed.lab import LiveLab

TEXT = """name: views
scale: {time: 1000}
fabric: {design: rail-optimized, hosts: 2, gpus: 1, segments: 1, spines: 1}
networks:
  frontend: {leaves: 2, nic: {ports: 2, rate: 100G}, mtu: 9050, overlay: evpn}
  storage: {design: single-switch, nic: {rate: 200G}, qos: {preset: dcqcn}, targets: {flash: {capacity: 1TB}}}
  users: {on: frontend, nic: {rate: 50G}}
  management: {design: out-of-band}
tenants:
  red: {subnets: {web: {prefix: 10.9.0.0/24, nics: ["p1-s1-h1:fe1", "p1-s1-h2:fe1"]}}}
"""
ELAPSED_S = 2.0


@pytest.fixture(scope="module")
def lab() -> LiveLab:
    model = load_topology_text(TEXT, file="views.yml")
    return cast(LiveLab, SimpleNamespace(name="views", model=model, plan=plan_lab(model, k=1000)))


def observed(lab: LiveLab) -> Observation:
    """The host sends 25 MB to the target at its full rate for a second, and is quiet for another."""
    table = tabulate_ports(lab.plan)
    numbers = lab.plan.port_numbers
    maps = maps_in_memory(table.count, profiles=2, buffers=2)
    priority = next(p for p in range(8) if table.class_name(numbers["st-leaf1:down3"], p) == "rdma")
    down = queue_index(numbers["st-leaf1:down3"], priority)
    maps.queues[down]["max_bytes"] = 70_000
    maps.queues[down]["ce_packets"] = 5
    maps.queues[down]["tail_packets"] = 2
    maps.ingress[queue_index(numbers["flash:st1"], priority)]["lost_packets"] = 1
    maps.pauses[down]["xoff_sent"] = 3
    maps.pauses[queue_index(numbers["p1-s1-h1:st1"], priority)]["paused_ns"] = 500_000_000
    sent = np.array([[0, 0], [12_500_000, 12_500_000], [25_000_000, 25_000_000], [25_000_000, 25_000_000]], np.uint64)
    samples = Samples(
        times_ns=np.array([0, 500_000_000, 1_000_000_000, 1_000_000_010], np.int64),
        columns={"queues.out_bytes": sent},
        queues=((numbers["p1-s1-h1:st1"], priority), (numbers["st-leaf1:down3"], priority)),
        complete=True,
    )
    return Observation(
        elapsed_s=ELAPSED_S,
        sent={
            ("p1-s1-h1", "st1"): PortCounters(tx_bytes=25_000_000),
            ("st-leaf1", "down3"): PortCounters(tx_bytes=25_000_000),
            ("mgmt1", "mgmt0"): PortCounters(tx_bytes=1_000, tx_dropped=4),
            ("fe-leaf1", "uplink1"): PortCounters(tx_bytes=70),
            ("p1-s1-h1", "fe1"): PortCounters(tx_bytes=1_500_000, tx_packets=1_000),
            ("fe-leaf1", "down2"): PortCounters(tx_bytes=1_400_000, tx_packets=930, tx_dropped=3),
            ("p1-s1-h2", "fe2"): PortCounters(tx_bytes=500, tx_packets=5),
        },
        guarded={
            ("fe-leaf1", "down1", "mac"): 2,
            ("fe-leaf1", "red:to50002", "policy"): 9,
            ("fe-leaf2", "users:to50001", "policy"): 1,
            ("mgmt1", "mgmt0", "from-data"): 4,
            ("mgmt1", "mgmt0", "from-management"): 0,
        },
        dropped={("mgmt1", "mgmt0"): 6},
        growth=take_snapshot(maps, now_ns=1),
        port_samples=samples,
    )


@pytest.fixture(scope="module")
def loads(lab: LiveLab) -> dict[str, NetworkLoad]:
    channels = [
        channel("p1-s1-h1:st1", "flash:st1", received_bytes=24_000_000),
        channel("p1-s1-h1:fe1", "p1-s1-h2:fe1", sent_bytes=49, received_bytes=40),
        channel("p1-s1-h1:users1", "p1-s1-h2:users1", received_bytes=50),
    ]
    return {load.name: load for load in network_loads(lab, observed(lab), channels)}


def test_every_network_of_the_lab_is_there_whoever_used_it(loads: dict[str, NetworkLoad]) -> None:
    assert list(loads) == ["backend", "frontend", "storage", "users", "management"]
    assert (loads["backend"].sent_bytes, loads["backend"].busiest_port, loads["backend"].drops) == (0, "", {})
    assert loads["users"].carrier == "frontend" and not loads["frontend"].carrier


def test_networks_that_nobody_watched_are_left_out(lab: LiveLab) -> None:
    seen = observed(lab)
    seen.networks = ("backend", "frontend")
    assert [load.name for load in network_loads(lab, seen, [])] == ["backend", "frontend"]


def test_bytes_are_told_by_who_sent_them(loads: dict[str, NetworkLoad]) -> None:
    def told(name: str) -> tuple[int, int, int]:
        return loads[name].sent_bytes, loads[name].entered_bytes, loads[name].delivered_bytes

    assert told("storage") == (50_000_000, 25_000_000, 25_000_000)
    assert told("frontend") == (2_900_570, 1_500_500, 1_400_000), "70 bytes between switches"
    assert told("management") == (1_000, 1_000, 0)


def test_use_of_a_network_is_that_of_all_its_ports_and_of_the_busiest(loads: dict[str, NetworkLoad]) -> None:
    """200 Mbit/s are 50 MB in two seconds; three links have six ports, of which two were sampled."""
    storage = loads["storage"]
    assert storage.utilisation == pytest.approx(50e6 / (6 * 50e6))
    assert storage.busiest_utilisation == pytest.approx(0.5)
    assert storage.busiest_port in ("p1-s1-h1:st1", "st-leaf1:down3")
    assert storage.busiest_peak_utilisation == storage.peak_utilisation == pytest.approx(1.0)
    assert loads["management"].peak_utilisation is None, "nobody samples ports without queues"


def test_queues_losses_marks_and_pauses(loads: dict[str, NetworkLoad]) -> None:
    storage, management = loads["storage"], loads["management"]
    assert (storage.queue_max_bytes, storage.queue_port, storage.queue_class) == (70_000, "st-leaf1:down3", "rdma")
    assert storage.drops == {"tail": 2, "wire": 1}
    assert (storage.ce_packets, storage.pause_frames, storage.paused_s) == (5, 3, 0.5)
    assert management.drops == {"queue": 6, "device": 4}
    assert management.queue_max_bytes is management.ce_packets is management.pause_frames is None


def test_payload_is_told_by_tenant(loads: dict[str, NetworkLoad]) -> None:
    assert loads["frontend"].payload_bytes == {"red": 40}
    assert loads["storage"].payload_bytes == {"": 24_000_000}
    assert loads["users"].payload_bytes == {"": 50}, "a carried network is a tenant of its carrier, not in itself"


def test_samples_that_begin_late_have_no_peak(lab: LiveLab) -> None:
    seen = observed(lab)
    assert seen.port_samples is not None
    seen.port_samples = Samples(
        times_ns=seen.port_samples.times_ns,
        columns=seen.port_samples.columns,
        queues=seen.port_samples.queues,
        complete=False,
    )
    storage = next(load for load in network_loads(lab, seen, []) if load.name == "storage")
    assert storage.peak_utilisation is storage.busiest_peak_utilisation is None
    assert storage.busiest_utilisation == pytest.approx(0.5)


def test_a_tenant_has_what_crossed_the_links_to_its_nics(loads: dict[str, NetworkLoad]) -> None:
    """Two links of 100 Mbit/s are four ports, which can send 100 MB in two seconds; the rest is in no tenant."""
    red, none = loads["frontend"].tenants
    assert (red.name, red.ports, none.name, none.ports) == ("red", 4, "", 4)
    assert (red.entered_bytes, red.entered_frames) == (1_500_000, 1_000)
    assert (red.delivered_bytes, red.delivered_frames) == (1_400_000, 930)
    assert (none.entered_bytes, none.entered_frames, none.delivered_bytes) == (500, 5, 0)
    assert red.busiest_port == "p1-s1-h1:fe1" and red.busiest_utilisation == pytest.approx(1.5 / 25)
    assert red.utilisation == pytest.approx(2.9 / 100)
    assert (red.drops, none.drops, red.payload_bytes) == ({"device": 3}, {}, 40)
    assert red.queue_max_bytes is None, "the network has no QoS"
    assert not loads["storage"].tenants, "nothing there is in a tenant"
    assert not loads["users"].tenants, "a carried network is one, and its own line says so"


def test_what_guards_stopped_is_told_by_network_and_tenant(loads: dict[str, NetworkLoad], lab: LiveLab) -> None:
    """A policy drops in the VRF that a packet was to come into; that of a carried network is its own."""
    guarded = {name: load.guarded for name, load in loads.items()}
    assert guarded["frontend"] == {"mac": 2, "policy": 9}
    assert guarded["users"] == {"policy": 1}
    assert guarded["management"] == {"from-data": 4}
    assert guarded["backend"] == guarded["storage"] == {}
    assert [tenant.guarded for tenant in loads["frontend"].tenants] == [{"mac": 2, "policy": 9}, {}]
    unseen = network_loads(lab, Observation(elapsed_s=ELAPSED_S), [])
    assert [load.guarded for load in unseen] == [None] * 5, "nobody looked"
    assert [tenant.guarded for load in unseen for tenant in load.tenants] == [None] * 2


def test_queues_at_a_tenants_ports_are_its_own(lab: LiveLab) -> None:
    """With QoS the leaf's queue to a NIC of the tenant is told, and that of its uplink is the network's alone."""
    text = TEXT.replace("overlay: evpn", "overlay: evpn, qos: {preset: dcqcn}")
    model = load_topology_text(text, file="views.yml")
    queued = cast(LiveLab, SimpleNamespace(name="views", model=model, plan=plan_lab(model, k=1000)))
    table, numbers = tabulate_ports(queued.plan), queued.plan.port_numbers
    maps = maps_in_memory(table.count, profiles=2, buffers=2)
    priority = next(p for p in range(8) if table.class_name(numbers["fe-leaf1:down1"], p) == "rdma")
    for port, depth in (("fe-leaf1:down1", 30_000), ("fe-leaf1:uplink1", 80_000)):
        maps.queues[queue_index(numbers[port], priority)]["max_bytes"] = depth
        maps.queues[queue_index(numbers[port], priority)]["tail_packets"] = 2
    seen = Observation(elapsed_s=ELAPSED_S, growth=take_snapshot(maps, now_ns=1))
    frontend = next(load for load in network_loads(queued, seen, []) if load.name == "frontend")
    red, none = frontend.tenants
    assert (red.queue_max_bytes, red.queue_port, red.queue_class) == (30_000, "fe-leaf1:down1", "rdma")
    assert (none.queue_max_bytes, none.queue_port) == (0, "")
    assert (frontend.queue_max_bytes, frontend.drops, red.drops) == (80_000, {"tail": 4}, {"tail": 2})


def test_a_series_of_a_queue_is_no_series_of_peaks(lab: LiveLab) -> None:
    """A queue that is full one sample in five, sampled 2,000 times: 400 points, of five samples each."""
    seen = observed(lab)
    assert seen.port_samples is not None
    depths = np.tile(np.array([[0, 0], [0, 100], [0, 200], [0, 300], [0, 9_400]], np.uint64), (400, 1))
    seen.table = tabulate_ports(lab.plan)
    seen.samples = replace(
        seen.port_samples,
        times_ns=np.arange(2_000, dtype=np.int64) * 1_000_000,
        columns={"queues.bytes": depths, "queues.out_bytes": depths},
    )
    (queue,) = [item for item in seen.series() if item.name.startswith("queue:")]
    assert queue.name == "queue:st-leaf1:down3:rdma" and queue.at_s[:2] == [0.0, 0.005]
    assert len(queue.values) == len(queue.at_s) == 400
    assert (set(queue.least), set(queue.values), set(queue.most)) == ({0.0}, {2_000.0}, {9_400.0})


def test_without_classes_a_packet_may_have_waited_in_a_full_queue() -> None:
    """200 packets of 1,514 bytes at 20 Mbit/s."""
    fabric = "{design: rail-optimized, hosts: 2, gpus: 1, segments: 1, spines: 1, mtu: 1500, nic: {rate: 400G}}"
    text = f"name: plain\nfabric: {fabric}\n"
    plan = plan_lab(load_topology_text(text, file="plain.yml"), slot=0, k=20_000.0)
    assert full_queue_s(plan) == pytest.approx(200 * 1514 * 8 / 20e6)
    assert Observation(full_queue_s=full_queue_s(plan)).longest_wait_s() == full_queue_s(plan)


def test_the_longest_wait_is_that_in_the_deepest_queue_of_a_switch(lab: LiveLab) -> None:
    """70,000 bytes at 200 Mbit/s; what a host holds back, as while it asks for a neighbour, is no queue of the way."""
    seen = observed(lab)
    assert seen.longest_wait_s() == 0, "nothing is known without the table of ports"
    seen.table = tabulate_ports(lab.plan)
    seen.growth.queues[lab.plan.port_numbers["p1-s1-h1:st1"]]["max_bytes"] = 9_000_000
    assert seen.longest_wait_s() == pytest.approx(8 * 70_000 / 200e6)
