"""Storage targets of the back end: on which switches they stand, what they are counted as, and what cannot be built."""

from ipaddress import IPv4Interface

import pytest

from testbed.base.errors import FabricError
from testbed.base.units import ByteCount, Rate
from testbed.lab.core.fabric import FabricParams, NicParams, RailParams, check_sizing, generate_fabric, measure_sizing
from testbed.lab.core.fabric.networks import TargetParams
from testbed.lab.core.model import BACKEND, Lab, NodeKind
from testbed.lab.core.model.storage import StorageTarget
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.features.targets.fabric import attach_backend_targets, check_backend_targets

DISK = StorageTarget(capacity=ByteCount.parse("1TB"))


def flash(*numbers: int, rails: tuple[int, ...] = (), rate: Rate | None = None) -> tuple[TargetParams, ...]:
    return tuple(
        TargetParams(name=f"flash{number}", key="flash", target=DISK, rails=rails, rate=rate) for number in numbers
    )


def fabric(design: str = "rail-optimized", **written: object) -> Lab:
    return generate_fabric(FabricParams(design=design, **written), name="lab")  # type: ignore[arg-type]


def wiring(lab: Lab) -> list[tuple[str, str]]:
    targets = {node.name for node in lab.targets}
    return [(str(link.a), str(link.b)) for link in lab.links if link.a.node in targets]


def addresses(lab: Lab) -> dict[str, IPv4Interface | None]:
    return {f"{nic.node}:{nic.name}": nic.address for host in plan_lab(lab, k=1000).hosts for nic in host.nics}


def test_a_target_has_a_nic_on_every_rail_of_its_segment_and_targets_take_segments_in_turn() -> None:
    plain = fabric(segments=2, hosts=2, gpus=2, spines=1)
    lab = attach_backend_targets(plain, flash(1, 2, 3))
    assert wiring(lab) == [
        ("flash1:rail1", "p1-s1-rail1:storage1"),
        ("flash1:rail2", "p1-s1-rail2:storage1"),
        ("flash2:rail1", "p1-s2-rail1:storage1"),
        ("flash2:rail2", "p1-s2-rail2:storage1"),
        ("flash3:rail1", "p1-s1-rail1:storage2"),
        ("flash3:rail2", "p1-s1-rail2:storage2"),
    ]
    assert [(node.kind, node.network, node.target) for node in lab.targets] == [(NodeKind.STORAGE, BACKEND, DISK)] * 3
    assert lab.nodes[: len(plain.nodes)] == plain.nodes and lab.links[: len(plain.links)] == plain.links
    assert {link.rate for link in lab.links} == {Rate.parse("400G")}, "a target's ports are as fast as hosts'"


def test_rails_and_a_rate_may_be_chosen() -> None:
    lab = attach_backend_targets(fabric(hosts=2, gpus=4, spines=1), flash(1, rails=(2, 4), rate=Rate.parse("800G")))
    links = [link for link in lab.links if link.a.node == "flash1"]
    assert [link.rail for link in links] == [2, 4]
    assert {str(link.rate) for link in links} == {"800 Gbit/s"}


def test_a_nic_of_two_ports_is_on_both_planes() -> None:
    lab = attach_backend_targets(fabric(hosts=2, gpus=1, spines=1, nic=NicParams(ports=2)), flash(1))
    assert wiring(lab) == [("flash1:rail1a", "p1-s1-rail1a:storage1"), ("flash1:rail1b", "p1-s1-rail1b:storage1")]


def test_rails_that_share_a_switch_have_ports_of_their_own_on_it() -> None:
    lab = attach_backend_targets(fabric("multi-rail-switch", segments=1, hosts=2, gpus=2), flash(1, 2))
    assert [port for _, port in wiring(lab)] == [f"p1-s1-rail1:storage{number}" for number in (1, 2, 3, 4)]


def test_addresses_go_from_the_last_one_down_so_that_no_host_renumbers_a_target() -> None:
    few = addresses(attach_backend_targets(fabric(hosts=2, gpus=1, spines=1), flash(1, 2)))
    assert [str(few[f"flash{number}:rail1"]) for number in (1, 2)] == ["10.0.1.254/24", "10.0.1.253/24"]
    more = addresses(attach_backend_targets(fabric(hosts=3, gpus=1, spines=1), flash(1, 2, 3)))
    assert more.items() >= few.items()


def test_targets_have_ports_and_links_and_no_gpus() -> None:
    plain = fabric(segments=1, hosts=2, gpus=2, spines=1, switch_radix=4)
    lab = attach_backend_targets(plain, flash(1, 2))
    before, after = measure_sizing(plain), measure_sizing(lab)
    assert (after.hosts, after.gpus, after.nics, after.targets) == (2, 4, 4, 2)
    assert (before.host_links, after.host_links) == (4, 8)
    assert after.paths == before.paths and after.bisection == before.bisection
    rail = next(sizing for sizing in after.roles if sizing.role == "rail")
    assert (rail.ports, rail.oversubscription) == (5, 4.0), "two hosts and two targets under one uplink"
    assert not check_sizing(plain)
    assert [error.code for error in check_sizing(lab)] == ["radix"]


def test_a_rail_that_is_not_there_is_refused() -> None:
    lab = fabric(hosts=2, gpus=2, spines=1)
    (fault,) = check_backend_targets(lab, flash(1, rails=(1, 3)))
    assert (fault.code, fault.field, fault.hint) == ("unknown-rail", "targets.flash.rails", "its rails are 1 to 2")
    with pytest.raises(FabricError, match="flash1 is on rail 3"):
        attach_backend_targets(lab, flash(1, rails=(3,)))


def test_hosts_and_targets_fit_into_the_subnet_of_a_rail() -> None:
    """A /28 has a gateway and room for 13 more."""
    lab = fabric(hosts=11, gpus=1, spines=1, rails=RailParams(prefix_length=28))
    assert not check_backend_targets(lab, flash(1, 2))
    (fault,) = check_backend_targets(lab, flash(1, 2, 3))
    assert fault.message == (
        "rail 1 of p1-s1-rail1 has 11 hosts and 3 storage targets, and its subnet (a /28) room for 13"
    )
    assert len(set(addresses(attach_backend_targets(lab, flash(1, 2))).values())) == 13
