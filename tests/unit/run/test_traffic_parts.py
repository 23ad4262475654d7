"""What several transports carry of one workload: its parts, their channels, and two programs for one host."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from testbed.base.errors import ScenarioError
from testbed.endpoints.worker.program import Program
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.run.ideals.point_ideals import PointIdeals
from testbed.run.placed.channels import join_channels
from testbed.run.placed.lab import PlannedLab
from testbed.run.placed.placed_workload import PlacedWorkload, compile_programs
from testbed.run.placed.traffic import make_traffic
from testbed.run.placed.traffic_parts import TrafficPart, split_traffic
from testbed.run.schema.file import load_scenario, load_scenario_text, load_scenario_topology
from testbed.run.schema.model import Transport, TransportKind
from testbed.run.transports.registry import transport_on
from testbed.workload.collectives.algorithms import generate_collective
from testbed.workload.collectives.operation import CollectiveOperation
from testbed.workload.steps import Transfer, Workload
from testbed.workload.storage import Checkpoint, generate_checkpoint
from testbed.workload.tenants import Tenant, mix_tenants, part_of_ranks

TOPOLOGY = """name: parts
fabric: {design: rail-optimized, segments: 1, hosts: 3, gpus: 1, spines: 1, nic: {rate: 100G}}
qos: {preset: dcqcn, base_rtt: 10us}
networks:
  storage: {leaves: 1, spines: 1, nic: {rate: 200G}, mtu: 9000, targets: {flash: {count: 1}}}
"""
ROCE = Transport(kind=TransportKind.ROCE)
DISKS = Transport(kind=TransportKind.NVME_TCP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A back end with QoS and a storage network without: ranks 0 to 2 are in the one, 3 to 5 and the target 6 in the
    other."""

    lab: PlannedLab
    nics: tuple[Any, ...]
    workload: Workload

    def split(self, *of_tenants: Transport) -> tuple[TrafficPart, ...]:
        return split_traffic(self.lab, self.workload, self.nics, Transport(), of_tenants)


@pytest.fixture(scope="module")
def site() -> Site:
    model = load_topology_text(TOPOLOGY, file="parts.yml")
    lab = PlannedLab(model=model, plan=plan_lab(model, k=1000)).of_network("backend", "storage")
    nics = [
        nic
        for network in ("backend", "storage")
        for host in lab.plan.hosts
        for nic in host.nics
        if nic.network == network
    ]
    targets = {node.name for node in model.targets}
    nics.sort(key=lambda nic: (nic.node in targets, nic.network))
    ring = generate_collective(CollectiveOperation(kind="all_reduce", size_bytes=1200), ranks=3)
    saved = generate_checkpoint(Checkpoint(size_bytes=4096, storage=1), ranks=4)
    tenants = (
        Tenant(name="training", workload=ring, ranks=(0, 1, 2)),
        Tenant(name="checkpoint", workload=saved, ranks=(3, 4, 5, 6)),
    )
    return Site(lab=lab, nics=tuple(nics), workload=mix_tenants(tenants, ranks=7))


def programs(site: Site) -> dict[str, Program]:
    parts = site.split(ROCE, DISKS)
    carried = [(part, transport_on(part.view(site.lab), part.transport)) for part in parts]
    channels = [(transport.plan_channels(part.workload, site.nics, seed=1), part.steps) for part, transport in carried]
    names = tuple(next(part.name for part in parts if rank in part.ranks) for rank in range(len(site.nics)))
    placement = PlacedWorkload(
        workload=site.workload, ranks=site.nics, channels=join_channels(channels), k=1000, seed=1, parts=names
    )
    told = {
        part.name: transport.worker_settings(
            PlacedWorkload(workload=part.workload, ranks=site.nics, channels=one, k=1000, seed=1)
        )
        for (part, transport), (one, _) in zip(carried, channels, strict=True)
    }

    def settings(worker: str) -> Any:
        host, _, name = worker.partition(" over ")
        return told[name](host)

    return compile_programs(placement, settings, checked=(0,))


def test_a_part_is_a_workload_of_its_own(site: Site) -> None:
    training, checkpoint = site.split(ROCE, DISKS)
    assert (training.name, checkpoint.name) == ("roce", "nvme-tcp")
    assert (training.networks, checkpoint.networks) == (("backend",), ("storage",))
    for part in (training, checkpoint):
        for step, number in zip(part.workload.steps, part.steps, strict=True):
            whole = site.workload.steps[number]
            assert step.label == whole.label
            assert tuple(part.steps[before] for before in step.after) == whole.after
    assert sorted((*training.steps, *checkpoint.steps)) == list(range(len(site.workload.steps)))
    (collective,) = training.workload.collectives
    assert len(collective.steps) == len(training.workload.steps)
    assert not checkpoint.workload.collectives


def test_tenants_of_one_transport_and_network_are_one_part(site: Site) -> None:
    assert [part.name for part in site.split(DISKS, DISKS)] == ["nvme-tcp", "nvme-tcp-2"], "of two networks"
    (everything,) = site.split()
    assert everything.workload is site.workload
    assert everything.view(site.lab) is site.lab


def test_each_transport_sees_the_qos_of_its_own_network(site: Site) -> None:
    dscps = [transport_on(part.view(site.lab), part.transport).dscp for part in site.split(ROCE, ROCE)]
    assert dscps[0] > 0, "the lossless class of the back end"
    assert dscps[1] == 0, "storage has no classes"


def test_a_host_in_two_networks_has_two_programs(site: Site) -> None:
    found = programs(site)
    hosts = [nic.node for nic in site.nics[:3]]
    assert set(found) == {
        *(f"{host} over roce" for host in hosts),
        *(f"{host} over nvme-tcp" for host in hosts),
        f"{site.nics[6].node} over nvme-tcp",
    }
    ring, saved = found[f"{hosts[0]} over roce"], found[f"{hosts[0]} over nvme-tcp"]
    assert (ring.transport.kind, saved.transport.kind) == ("roce", "nvme-tcp")
    assert (set(ring.own), set(saved.own)) == ({0}, {3})
    assert ring.collectives and not saved.collectives, "a transport without collectives is not told of any"
    assert {channel.destination_port for channel in ring.channels} == {4791}
    assert {channel.destination_port for channel in saved.channels} == {4420}
    indices = [channel.index for program in found.values() for channel in program.channels]
    assert set(indices) == set(range(len(set(indices)))), "one numbering for the record"
    assert not {step.number for step in ring.steps} & {step.number for step in saved.steps}


def test_a_target_has_one_medium(site: Site) -> None:
    reading = mix_tenants(
        [
            Tenant(
                name="a", workload=generate_checkpoint(Checkpoint(size_bytes=512, storage=1), ranks=2), ranks=(3, 6)
            ),
            Tenant(
                name="b", workload=generate_checkpoint(Checkpoint(size_bytes=512, storage=1), ranks=2), ranks=(4, 7)
            ),
        ],
        ranks=8,
    )
    nics = (*site.nics, site.nics[6])
    other = Transport(kind=TransportKind.NVME_TCP, options={"depth": 2})
    with pytest.raises(ScenarioError, match="flash1 serves tenants with different transports"):
        split_traffic(site.lab, reading, nics, Transport(), (DISKS, other))


def test_the_shipped_mix_is_compared_with_each_transports_own(pytestconfig: pytest.Config) -> None:
    """Of `whole-datacentre`: the roofline is that of the part that needs longest, as if it were alone."""
    scenario = load_scenario(pytestconfig.rootpath / "scenarios/whole-datacentre.yml").variants[-1]
    model = load_scenario_topology(scenario.topology)
    lab = PlannedLab(model=model, plan=plan_lab(model, k=20_000))
    view = lab.of_network(*scenario.workload.ranks.networks_in(model))
    traffic = make_traffic(scenario, view, seed=1)
    ideals = PointIdeals.of(scenario, view, [traffic])
    parts = ideals.parts[1]
    assert [part.transport.kind.value for part in traffic.parts] == ["uet", "tcp", "nvme-tcp"]
    each = [one.roofline_s(part) or 0.0 for part, one in parts]
    assert ideals.roofline_s(traffic) == max(each)
    payload_s = 4 * 1_000_000 * 8 / 5e6
    assert each[2] == pytest.approx(payload_s, rel=0.02), "the checkpoint through the target's port"
    assert {one.framing.overhead_bytes for _, one in parts} != {parts[0][1].framing.overhead_bytes}
    assert sum(isinstance(step, Transfer) for step in traffic.parts[1].workload.steps) == 0


def test_bus_bandwidth_is_a_share_of_the_rings_own_nics() -> None:
    """One transport carries a ring in the back end (100G) and a tenant in the slower front end beside it."""
    scenario = load_scenario_text(
        """name: beside
topology:
  inline:
    name: beside
    fabric: {design: rail-optimized, segments: 1, hosts: 2, gpus: 1, spines: 1, nic: {rate: 100G}}
    networks: {frontend: {design: single-switch, nic: {rate: 10G}}}
workload:
  kind: tenants
  ranks: {network: [backend, frontend]}
  tenants:
    - {name: training, ranks: [0, 1], workload: {kind: all-reduce, bytes: 1MB}}
    - {name: users, ranks: [2, 3], workload: {kind: incast, senders: 1, bytes: 1MB}}
""",
        file="beside.yml",
    ).scenario
    model = load_scenario_topology(scenario.topology)
    lab = PlannedLab(model=model, plan=plan_lab(model, k=1000)).of_network("backend", "frontend")
    traffic = make_traffic(scenario, lab, seed=1)
    assert PointIdeals.of(scenario, lab, [traffic]).nic_bps == 100e6
    of_users = replace(traffic, workload=part_of_ranks(traffic.workload, {2, 3}).workload)
    assert PointIdeals.of(scenario, lab, [of_users]).nic_bps == 10e6, "no collective: the slowest that sends"
