"""Sizes that were published come out of the generator: switches, links, GPUs and oversubscription.

Sources: NVIDIA's DGX SuperPOD reference architectures (H100: RA-11333-001; B300 with Quantum-X800: RA-11339-001, table
3; B300 with Spectrum-4: table 3, twin-planar), Meta's clusters of 24,576 GPUs (Gangidi et al., SIGCOMM 2024), HPN (Qian
et al., SIGCOMM 2024), table 3 of DeepSeek-V3 (Zhao et al., ISCA 2025), and the ratios of Juniper's validated design
("AI Data Center: QPP, BGP-DPF"). `test_superpod_counts.py` has those of B200. Two of Asterfusion's configuration guides
(AI compute backend fabric, middle-to-large and small scale, 2026) were looked up when all of this was built already,
and so were: Al-Fares, Loukissas and Vahdat, SIGCOMM 2008 (fat trees of k-port switches: k^3 / 4 hosts on 5 k^2 / 4
switches); Andreyev, "Introducing data center fabric", engineering.fb.com, November 2014; MegaScale (Jiang et al., NSDI
2024); Fire-Flyer AI-HPC (An et al., SC 2024: zones of 800 ports on switches of 40); The Next Platform on Intel's Gaudi
3 (April 2024: 32 groups of 16 nodes with three leaves each, and 48 spines); what is said of two levels of InfiniBand
switches with 36, 40, 64 and 144 ports; and a plan of 512 H100 servers in rail groups (apetops-us.com, "512 H100
clustering solution").
"""

from collections import Counter
from typing import Any

import pytest

from testbed.base.units import Rate
from testbed.lab.core.fabric import (
    FabricParams,
    NicParams,
    RailParams,
    UplinkParams,
    check_sizing,
    generate_fabric,
    measure_sizing,
)
from testbed.lab.core.fabric.figures.largest import LargestFabric, find_largest
from testbed.lab.core.model import Lab, LinkKind, Role
from testbed.lab.core.plan.addressing import loopback_addresses, rail_aggregate
from testbed.lab.core.plan.asn import as_numbers
from testbed.lab.core.schema.load import load_topology_text

G = Rate.parse


def build(design: str, **written: Any) -> Lab:
    return generate_fabric(FabricParams(design=design, **written), name="lab")


def counts(lab: Lab) -> tuple[int, int, int, int, int]:
    """Hosts, leaves, spines, links to hosts, links from leaves to spines."""
    roles, links = Counter(node.role for node in lab.switches), Counter(link.kind for link in lab.links)
    return len(lab.hosts), roles[Role.RAIL], roles[Role.SPINE], links[LinkKind.ACCESS], links[LinkKind.FABRIC]


H100 = {1: (31, 8, 4, 256), 2: (63, 16, 8, 512), 3: (95, 24, 16, 768), 4: (127, 32, 16, 1024)}
"""SU -> nodes, leaves, spines, cables from leaves to spines. A node less in the last SU leaves ports for UFM."""


@pytest.mark.parametrize("units", H100)
def test_h100_has_a_unit_with_31_hosts(units: int) -> None:
    lab = build("dgx-superpod", hosts=(*(32,) * (units - 1), 31))
    nodes, leaves, spines, cables = H100[units]
    assert counts(lab) == (nodes, leaves, spines, nodes * 8, cables)
    assert check_sizing(lab) == ()
    last = [node.name for node in lab.hosts if node.name.startswith(f"p1-s{units}-")]
    assert len(last) == 31


XDR = {1: (72, 8, 4, 576), 2: (144, 16, 8, 1152), 4: (288, 32, 18, 2304), 8: (576, 64, 36, 4608)}
XDR |= {18: (1296, 144, 72, 10368)}
"""SU of 72 hosts on switches of 144 ports. The published table has 9,216 GPUs for 18 SU, and cables for 10,368."""


@pytest.mark.parametrize("units", XDR)
def test_b300_with_xdr_has_units_of_72_hosts(units: int) -> None:
    lab = build("dgx-superpod", segments=units, hosts=72, switch_radix=144, nic=NicParams(rate=G("800G")))
    nodes, leaves, spines, cables = XDR[units]
    assert counts(lab) == (nodes, leaves, spines, cables, cables)
    assert check_sizing(lab) == ()


ETHERNET = {1: (64, 16, 8, 512), 2: (128, 32, 16, 1024), 4: (256, 64, 32, 2048), 8: (512, 128, 64, 4096)}
ETHERNET |= {16: (1024, 256, 128, 8192)}
"""SU of 64 hosts, twin-planar. A cable of 800G holds two links of 400G."""


@pytest.mark.parametrize("units", ETHERNET)
def test_b300_with_ethernet_has_units_of_64_hosts_on_two_planes(units: int) -> None:
    lab = build("dgx-superpod", segments=units, hosts=64, switch_radix=128, planes=2, nic=NicParams(ports=2))
    nodes, leaves, spines, cables = ETHERNET[units]
    assert counts(lab) == (nodes, leaves, spines, 2 * cables, 2 * cables)
    assert check_sizing(lab) == ()


def test_meta_has_24576_gpus_in_8_pods_of_192_racks() -> None:
    """A rack's two hosts are on one ToR; pods are non-blocking, and oversubscribed 1:7 above (28 for 192)."""
    lab = build(
        "multi-rail-switch",
        pods=8,
        segments=192,
        hosts=2,
        gpus=8,
        nic=NicParams(rate=G("400G")),
        spines=16,
        uplink=UplinkParams(rate=G("400G")),
        super_spines=28,
    )
    sizing = {one.role: one for one in measure_sizing(lab).roles}
    assert (len(lab.hosts) * 8, sizing[Role.RAIL].switches, sizing[Role.SPINE].switches) == (24_576, 1_536, 128)
    assert sizing[Role.RAIL].oversubscription == 1.0
    assert sizing[Role.SPINE].oversubscription == pytest.approx(7, rel=0.03)
    places = [(node.name, node.place) for node in lab.switches if node.role is Role.RAIL]
    bases = [rail_aggregate(place, name, 24).base for name, place in places if place is not None]
    assert len(set(bases)) == 1_536


def test_hpn_has_15_segments_of_1024_gpus() -> None:
    lab = build("dual-plane", segments=15, hosts=128, spines=60)
    assert counts(lab) == (1_920, 240, 120, 30_720, 14_400)
    sizing = measure_sizing(lab)
    roles = {one.role: one for one in sizing.roles}
    assert sizing.gpus == 15_360
    assert (roles[Role.RAIL].ports, roles[Role.SPINE].ports) == (128 + 60, 120)
    assert roles[Role.RAIL].oversubscription == pytest.approx(1.067, abs=0.001)


@pytest.mark.thorough
def test_hpn_is_oversubscribed_15_to_1_between_pods() -> None:
    lab = build(
        "dual-plane", pods=2, segments=15, hosts=1, spines=60, super_spines=8, core_uplink=UplinkParams(rate=G("400G"))
    )
    roles = {one.role: one for one in measure_sizing(lab).roles}
    assert roles[Role.SPINE].oversubscription == 15.0


def as_numbers_of(one: LargestFabric) -> tuple[int, int]:
    return one.gpus, one.switches


def test_deepseek_has_up_to_16384_gpus_in_8_planes_of_two_tiers() -> None:
    """Table 3: FT2 2,048 on 96 switches, MPFT 16,384 on 768, FT3 65,536 on 5,120, all of 64 ports."""
    multi = build("multi-plane", segments=64, hosts=32, spines=32, uplink=UplinkParams(count=1), switch_radix=64)
    assert counts(multi) == (2_048, 512, 256, 16_384, 16_384)
    assert check_sizing(multi) == ()
    wired, two, _ = find_largest(multi)
    assert as_numbers_of(wired) == as_numbers_of(two) == (16_384, 768)
    one = build("rail-optimized", hosts=4, switch_radix=64)
    _, two, three = find_largest(one)
    assert as_numbers_of(two) == (2_048, 96)
    assert as_numbers_of(three) == (65_536, 5_120)


@pytest.mark.thorough
def test_deepseeks_fat_tree_of_three_tiers_can_be_built() -> None:
    """FT3 of table 3, and so the answer of 64-port switches for three tiers: 64 pods, 65,536 GPUs, 5,120 switches."""
    up = {"spines": 32, "super_spines": 1_024, "super_spine_groups": 32}
    lab = build("rail-optimized", pods=64, segments=4, hosts=32, gpus=8, switch_radix=64, **up)
    sizing = measure_sizing(lab)
    assert (sizing.gpus, sizing.switches) == (65_536, 5_120)
    assert ports(lab) == {64} and oversubscription(lab)[:2] == [1.0, 1.0] and check_sizing(lab) == ()


def test_64_pods_are_numbered() -> None:
    """Beyond 31 pods rail switches have blocks of their own within 10.0.0.0/8, and no two ports have one name."""
    lab = build("rail-optimized", pods=64, segments=4, hosts=1, gpus=8, spines=2, super_spines=4, super_spine_groups=1)
    places = [(node.name, node.place) for node in lab.switches if node.role is Role.RAIL]
    assert len({rail_aggregate(place, name, 24).base for name, place in places if place is not None}) == 64 * 4 * 8
    assert len(set(loopback_addresses(lab.switches).values())) == len(lab.switches)
    ends = [end for link in lab.links for end in (link.a, link.b)]
    assert len(set(ends)) == len(ends)


def test_faster_links_between_spines_and_super_spines_take_their_part() -> None:
    """Cores of 800G above links of 400G: of a spine's 64 ports 42 lead down, and 21 up carry as much."""
    lab = build(
        "rail-optimized",
        pods=2,
        segments=2,
        hosts=8,
        gpus=2,
        spines=8,
        super_spines=4,
        core_uplink=UplinkParams(rate=G("800G")),
        switch_radix=64,
    )
    three = find_largest(lab)[-1]
    assert (three.pods, three.segments, three.hosts, three.spines) == (64, 21, 32, 32)
    assert (three.super_spines, three.gpus) == (32 * 21, 64 * 21 * 32 * 2)


def test_what_is_largest_can_be_built() -> None:
    """The answers of 16-port switches are generated: their ports are all in use, and nothing is oversubscribed."""
    _, two, three = find_largest(build("rail-optimized", gpus=4, switch_radix=16))
    for answer in (two, three):
        lab = build(
            "rail-optimized",
            gpus=4,
            pods=answer.pods,
            segments=answer.segments,
            hosts=answer.hosts,
            spines=answer.spines,
            super_spines=answer.super_spines,
            super_spine_groups=answer.spines if answer.super_spines else 1,
            switch_radix=16,
        )
        sizing = measure_sizing(lab)
        assert (sizing.gpus, sizing.switches) == (answer.gpus, answer.switches)
        assert {role.ports for role in sizing.roles} == {16}
        assert {role.oversubscription for role in sizing.roles} <= {1.0, None}
        assert check_sizing(lab) == ()


JUNIPER = {("200G", 2): 1.0, ("200G", 4): 2.0, ("400G", 2): 0.5, ("400G", 4): 1.0, ("800G", 2): 0.25, ("800G", 4): 0.5}
"""The rate of an uplink and the servers of a stripe -> oversubscription. Two stripes of eight leaves, four spines."""


@pytest.mark.parametrize(("rate", "servers"), JUNIPER)
def test_junipers_ratios(rate: str, servers: int) -> None:
    lab = build("rail-optimized", segments=2, hosts=servers, spines=4, uplink=UplinkParams(rate=G(rate)))
    assert counts(lab)[1:3] == (16, 4)
    leaf = measure_sizing(lab).roles[0]
    assert leaf.oversubscription == JUNIPER[rate, servers]


def test_asterfusions_256_gpus_are_on_4_leaves_and_2_spines_of_128_ports_of_400g() -> None:
    """64 nodes of 4 GPUs, a rail on each leaf; switches of 64 ports of 800G (CX864E-N), each of them two of 400G."""
    up = UplinkParams(rate=G("400G"), count=32)
    lab = build("rail-optimized", segments=1, hosts=64, gpus=4, spines=2, uplink=up, switch_radix=128)
    assert counts(lab) == (64, 4, 2, 256, 256)
    sizing = measure_sizing(lab)
    assert sizing.gpus == 256 and sizing.roles[0].oversubscription == 1.0
    assert {role.ports for role in sizing.roles} == {128}
    assert check_sizing(lab) == ()


def test_asterfusions_128_gpus_without_spines_fill_4_switches_of_32_ports() -> None:
    lab = build("rail-only", hosts=32, gpus=4, switch_radix=32)
    assert counts(lab) == (32, 4, 0, 128, 0)
    assert measure_sizing(lab).roles[0].ports == 32 and check_sizing(lab) == ()
    assert check_sizing(build("rail-only", hosts=33, gpus=4, switch_radix=32))


@pytest.mark.parametrize(("radix", "gpus"), [(64, 2_048), (128, 8_192), (512, 131_072)])
def test_two_tiers_have_half_the_square_of_the_radix(radix: int, gpus: int) -> None:
    """Of switches of 51.2 Tbit/s with ports of 400G 8,192, and of 102.4 Tbit/s with ports of 200G more than 100,000."""
    assert find_largest(build("rail-optimized", hosts=4, switch_radix=radix))[1].gpus == gpus


@pytest.mark.parametrize("rails", [1, pytest.param(8, marks=pytest.mark.thorough)])
def test_4096_segments_are_numbered(rails: int) -> None:
    """Each rail switch has a block of its own that fits 10.0.0.0/8, and those of a smaller fabric are as they were."""
    lab = build("rail-optimized" if rails == 8 else "multi-rail-switch", segments=4096, hosts=1, spines=1)
    places = [(node.name, node.place) for node in lab.switches if node.role is Role.RAIL]
    bases = {rail_aggregate(place, name, 24).base for name, place in places if place is not None}
    assert len(bases) == len(places) == 4096 * rails


def test_rails_on_one_switch_and_faster_links_up_take_their_part() -> None:
    """8 rails of 100G a host, and links up of 800G: 7 hosts take 56 ports down and 7 up of 64."""
    two = find_largest(build("multi-rail-switch", rails=RailParams(per_switch=8), switch_radix=64))[1]
    assert (two.hosts, two.spines, two.segments, two.gpus) == (7, 7, 64, 64 * 7 * 8)


META = """# 24,576 GPUs as published: 8 pods x 192 racks x 2 hosts x 8 GPUs, all NICs of a rack on its ToR
name: pub-24k
fabric:
  design: multi-rail-switch
  pods: 8
  segments: 192
  hosts: 2
  gpus: 8
  nic: {rate: 400G}
  spines: 16
  uplink: {rate: 400G, count: 1}
  super_spines: 16
  routing: {bfd: off}
"""


@pytest.mark.thorough
def test_a_file_of_24576_gpus_is_read_and_numbered() -> None:
    """Every switch has a loopback of its own, and every rail switch an AS."""
    lab = load_topology_text(META, file="meta.yml")
    assert (len(lab.hosts), len(lab.switches)) == (3_072, 1_536 + 128 + 16)
    numbers = as_numbers(lab.switches, protocol=lab.routing.protocol)
    loopbacks = loopback_addresses(lab.switches)
    assert len(set(loopbacks.values())) == len(lab.switches)
    assert len({numbers[node.name] for node in lab.switches}) == 1_536 + 8 + 1


def oversubscription(lab: Lab) -> list[float | None]:
    """Of each tier, from the rail switches up."""
    return [role.oversubscription for role in measure_sizing(lab).roles]


def ports(lab: Lab) -> set[int]:
    return {role.ports for role in measure_sizing(lab).roles}


TREES = {4: (16, 20), 36: (11_664, 1_620), 40: (16_000, 2_000), 48: (27_648, 2_880), 64: (65_536, 5_120)}
"""Ports of a switch -> hosts, switches."""


@pytest.mark.parametrize("radix", TREES)
def test_three_tiers_are_a_fat_tree(radix: int) -> None:
    three = find_largest(build("rail-optimized", hosts=1, gpus=1, switch_radix=radix))[-1]
    assert (three.gpus, three.switches) == TREES[radix]


def test_the_fat_tree_of_4_port_switches_is_that_of_the_paper() -> None:
    """Figure 3: 16 hosts, four pods of two and two switches, four at the top; all ports are in use.

    16 links lead to the upper switches of the pods, and 16 on to the top.
    """
    lab = build(
        "rail-optimized",
        gpus=1,
        pods=4,
        segments=2,
        hosts=2,
        spines=2,
        super_spines=4,
        super_spine_groups=2,
        switch_radix=4,
    )
    assert counts(lab) == (16, 8, 8, 16, 32)
    assert measure_sizing(lab).switches == 20 and ports(lab) == {4}
    assert check_sizing(lab) == ()


PAIRS_OF_TIERS = {36: (648, 54), 40: (800, 60), 64: (2_048, 96), 144: (10_368, 216)}
"""Ports of a switch -> what is said of two levels of EDR, HDR, NDR and XDR; Fire-Flyer's zone is that of 40."""


@pytest.mark.parametrize("radix", PAIRS_OF_TIERS)
def test_two_levels_of_infiniband(radix: int) -> None:
    two = find_largest(build("rail-optimized", hosts=1, gpus=1, switch_radix=radix))[1]
    assert (two.gpus, two.switches) == PAIRS_OF_TIERS[radix]


def test_a_zone_of_fire_flyer_has_800_ports_on_60_switches() -> None:
    lab = build("rail-optimized", gpus=1, segments=40, hosts=20, spines=20, switch_radix=40)
    assert counts(lab) == (800, 40, 20, 800, 800)
    assert ports(lab) == {40} and oversubscription(lab)[0] == 1.0 and check_sizing(lab) == ()


@pytest.mark.parametrize(("spines", "ratio"), [(12, 4.0), (48, 1.0)])
def test_facebooks_pods_of_48_racks_reach_four_planes(spines: int, ratio: float) -> None:
    """A rack has 48 servers of 10G and four links up of 40G (3:1); a plane has 12 spines (4:1), up to 48 (1:1)."""
    lab = build(
        "rail-optimized",
        gpus=1,
        pods=2,
        segments=48,
        hosts=48,
        nic=NicParams(rate=G("10G")),
        spines=4,
        uplink=UplinkParams(rate=G("40G")),
        super_spines=4 * spines,
        super_spine_groups=4,
    )
    assert counts(lab)[:3] == (2 * 2_304, 96, 8)
    assert oversubscription(lab)[:2] == [3.0, ratio]


def test_megascale_has_64_servers_on_eight_switches_of_64_ports() -> None:
    """Half of the ports of 400G lead down, each split into two of 200G: 64 servers, 1:1."""
    nic, up = NicParams(rate=G("200G")), UplinkParams(rate=G("400G"))
    lab = build("rail-optimized", segments=1, hosts=64, gpus=8, nic=nic, spines=32, uplink=up)
    assert counts(lab) == (64, 8, 32, 512, 256)
    sizing = measure_sizing(lab)
    assert sizing.gpus == 512 and sizing.roles[0].ports == 64 + 32
    assert sizing.roles[0].oversubscription == 1.0


def test_gaudi_3_has_512_nodes_on_96_leaves_and_48_spines() -> None:
    """A node has six ports of 800G, two to each of the three leaves of its group; leaves are half full down and up."""
    nic, up = NicParams(rate=G("800G")), UplinkParams(rate=G("800G"), count=2)
    lab = build(
        "dual-rail-switch", segments=32, hosts=16, gpus=6, planes=3, nic=nic, spines=16, uplink=up, switch_radix=64
    )
    assert counts(lab) == (512, 96, 48, 3_072, 3_072)
    assert ports(lab) == {64} and oversubscription(lab)[0] == 1.0 and check_sizing(lab) == ()


def test_512_servers_in_rail_groups_need_320_switches() -> None:
    """Four pods of 32 leaves, 32 spines and 16 cores: of each rail 4 leaves, 4 spines and, over all pods, 8 cores."""
    lab = build(
        "rail-optimized",
        pods=4,
        segments=4,
        hosts=32,
        gpus=8,
        planes=8,
        spines=4,
        uplink=UplinkParams(count=8),
        super_spines=8,
        core_uplink=UplinkParams(count=4),
        switch_radix=64,
    )
    roles = {one.role: one.switches for one in measure_sizing(lab).roles}
    assert roles == {Role.RAIL: 128, Role.SPINE: 128, Role.SUPER_SPINE: 64}
    assert (len(lab.hosts), ports(lab)) == (512, {64})
    assert check_sizing(lab) == ()
