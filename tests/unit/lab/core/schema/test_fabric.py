"""The `fabric:` section becomes `FabricParams`, and its faults get the position of their key."""

from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from testbed.base.errors import Position, SpecError
from testbed.base.units import Duration, Rate
from testbed.base.validation.engine import validate_model
from testbed.base.yaml.reader import load_document
from testbed.lab.assembly.spec import FabricSpec
from testbed.lab.core.fabric import FabricParams, NicParams, RailParams, UplinkParams, generate_fabric
from testbed.lab.core.fabric.figures.cables import Cable
from testbed.lab.core.model import Bfd, Delay, DelayBy, LinkKind, Protocol, Rdma, Role, Routing, Scale
from testbed.lab.core.schema.load import load_topology_text

EVERYTHING = """\
design: rail-optimized
pods: 2
segments: 3
hosts: 4
gpus: 8
nic: {per: host, ports: 2, rate: 200G, count: 4, multihoming: subnets, rdma: rxe, cable: dac}
planes: 2
rails: {per_switch: 1, port_map: figure-13-6, prefix_length: 25}
spines: 5
super_spines: 6
super_spine_groups: 2
uplink: {rate: 800G, count: 2, delay: {value: 500ns, by: kernel}, loss: 1%, cable: aoc}
core_uplink: {rate: 1.6T, count: 3, delay: 2us, loss: 0.5, cable: aoc}
switch_radix: 64
routing:
  {protocol: ibgp, unnumbered: true, bfd: {interval: 100ms, multiplier: 4}, ecmp: 16,
   password: true, ttl_security: true}
overlay: none
mtu: 9000
"""


def params(text: str) -> FabricParams:
    return validate_model(FabricSpec, load_document(text, "f.yml")).params("rail-optimized")


def refused(text: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        load_topology_text(text, file="f.yml")
    return caught.value


def test_every_key_reaches_the_generator() -> None:
    assert params(EVERYTHING) == FabricParams(
        design="rail-optimized",
        pods=2,
        segments=3,
        hosts=4,
        gpus=8,
        nic=NicParams(
            per="host", ports=2, rate=Rate(200 * 10**9), count=4, multihoming="subnets", rdma=Rdma.RXE, cable=Cable.DAC
        ),
        planes=2,
        rails=RailParams(per_switch=1, port_map="figure-13-6", prefix_length=25),
        spines=5,
        super_spines=6,
        super_spine_groups=2,
        uplink=UplinkParams(
            rate=Rate(8 * 10**11),
            count=2,
            delay=Delay(value=Duration(500), by=DelayBy.KERNEL),
            loss=0.01,
            cable=Cable.AOC,
        ),
        core_uplink=UplinkParams(
            rate=Rate(16 * 10**11),
            count=3,
            delay=Delay(value=Duration(2000), by=DelayBy.AUTO),
            loss=0.5,
            cable=Cable.AOC,
        ),
        switch_radix=64,
        routing=Routing(
            protocol=Protocol.IBGP,
            bfd=Bfd(interval=Duration(10**8), multiplier=4),
            bfd_auto=False,
            ecmp=16,
            password=True,
            ttl_security=True,
        ),
        mtu=9000,
    )


def test_hosts_by_segment_and_radix_by_tier() -> None:
    found = params("hosts: [4, 4, 3]\nswitch_radix: {rail: 128, spine: 64}\n")
    assert found.hosts == (4, 4, 3)
    assert found.switch_radix == {Role.RAIL: 128, Role.SPINE: 64}
    text = "name: a\nfabric: {design: rail-optimized, hosts: [4, 3], switch_radix: {rail: 7, spine: 16}}\n"
    (problem,) = refused(text).problems
    assert (problem.code, problem.path) == ("radix", "fabric.switch_radix")
    assert "has 8 ports in use; switch_radix is 7" in problem.message
    lab = load_topology_text(text.replace("rail: 7", "rail: 8"), file="f.yml")
    assert (len(lab.hosts), lab.radix_of(Role.RAIL), lab.radix_of(Role.SPINE)) == (7, 8, 16)
    assert lab.radix_of(Role.SUPER_SPINE) is None
    for wrong in ("hosts: []", "hosts: [4, x]", "switch_radix: {leaf: 4}", "switch_radix: many", "planes: 0"):
        assert len(refused(f"name: a\nfabric: {{design: rail-optimized, {wrong}}}\n").problems) == 1


def test_an_overlay_of_planes_is_refused() -> None:
    text = "name: a\nfabric: {design: dual-plane, overlay: evpn}\n"
    (problem,) = refused(text).problems
    assert (problem.code, problem.path) == ("contradiction", "fabric.overlay")


def test_no_parameter_of_the_generator_is_out_of_reach() -> None:
    def unset(value: Any, default: Any, at: str) -> list[str]:
        if is_dataclass(value):
            return [
                found
                for field in fields(value)
                for found in unset(getattr(value, field.name), getattr(default, field.name, None), f"{at}.{field.name}")
            ]
        return [at] if value == default else []

    same = unset(params(EVERYTHING), FabricParams(design=""), "")
    # numbered sessions are refused until they are built; whether rails are aggregated is up to the design; iBGP, which
    # this one has, tells no bandwidths
    assert same == [".routing.unnumbered", ".routing.aggregate", ".routing.weighted"]


def test_what_is_not_written_is_left_to_the_design() -> None:
    assert params("hosts: 4\n") == FabricParams(design="rail-optimized", hosts=4)
    assert params("routing:\nnic:\nuplink:\n") == FabricParams(design="rail-optimized")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("auto", Routing()),
        ("off", Routing(bfd_auto=False)),
        ("{interval: 1s}", Routing(bfd=Bfd(interval=Duration(10**9)), bfd_auto=False)),
    ],
)
def test_bfd(written: str, expected: Routing) -> None:
    assert params(f"routing: {{bfd: {written}}}\n").routing == expected


def test_the_lab_is_the_generated_one() -> None:
    lab = load_topology_text("name: pod\nscale: {time: 2000}\nfabric: {design: pod, hosts: 2}\n", file="f.yml")
    generated = generate_fabric(FabricParams(design="pod", hosts=2), name="pod", source="f.yml")
    assert lab.scale == Scale(time=2000.0)
    assert (lab.nodes, lab.links, lab.routing) == (generated.nodes, generated.links, generated.routing)
    assert (lab.name, lab.source, lab.design) == ("pod", "f.yml", "pod")


@pytest.mark.parametrize(
    ("text", "path", "position"),
    [
        # The key at fault is written: its value.
        ("name: a\nfabric:\n  design: rail-only\n  spines: 2\n", "fabric.spines", (4, 11)),
        # It comes from the design: the section.
        ("name: a\nfabric:\n  design: multi-rail-switch\n  hosts: 100\n", "fabric.hosts", (4, 10)),
        ("name: a\nfabric:\n  design: pod\n  pods: 2\n", "fabric.pods", (4, 9)),
    ],
)
def test_faults_of_a_design_have_the_position_of_their_key(text: str, path: str, position: tuple[int, int]) -> None:
    (problem,) = refused(text).problems
    assert (problem.path, problem.position) == (path, Position(*position))


def test_all_faults_of_a_design_come_together() -> None:
    error = refused("name: a\nfabric:\n  design: rail-only\n  spines: 2\n  super_spines: 2\n  pods: 3\n")
    assert [problem.path for problem in error.problems] == ["fabric.spines", "fabric.super_spines", "fabric.pods"]


def test_a_hand_written_lab_takes_routing_mtu_and_radix_from_the_fabric_section() -> None:
    lab = load_topology_text(
        "name: a\n"
        "fabric:\n"
        "  {mtu: 1500, switch_radix: 8, routing: {bfd: {interval: 50ms, multiplier: 5}, ecmp: 2, password: true}}\n"
        "topology:\n"
        "  groups: {leaf: {kind: switch, role: rail}}\n"
        "  nodes: {l1: {group: leaf}, s1: {kind: switch, role: spine}}\n"
        '  links: [{endpoints: ["l1:a", "s1:a"]}]\n',
        file="f.yml",
    )
    bfd = Bfd(interval=Duration(50_000_000), multiplier=5)
    assert lab.routing == Routing(ecmp=2, bfd=bfd, bfd_auto=False, password=True)
    assert (lab.links[0].mtu_bytes, lab.switch_radix, lab.design) == (1500, 8, "")


def test_jitter_and_loss_of_links() -> None:
    text = """
name: x
fabric:
  design: rail-optimized
  segments: 2
  hosts: 2
  gpus: 2
  spines: 2
  uplink: {delay: {value: 500ns, jitter: 20ns}, loss: 0.1%}
qos: {preset: uec}
topology:
  nodes:
    a: {kind: host}
    b: {kind: host}
  links:
    - {endpoints: ["a:eth1", "b:eth1"], loss: 0.25, delay: 1us}
"""
    lab = load_topology_text(text, file="x.yml")
    fabric = [link for link in lab.links if link.kind is LinkKind.FABRIC]
    assert {link.loss for link in fabric} == {0.001}
    assert {link.delay and link.delay.jitter.ns for link in fabric} == {20}
    (written,) = (link for link in lab.links if link.kind is LinkKind.ROUTED)
    assert written.loss == 0.25
    assert written.delay is not None and not written.delay.jitter
    assert {link.loss for link in lab.links if link.kind is LinkKind.ACCESS} == {0.0}
