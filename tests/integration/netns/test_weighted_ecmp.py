"""Weighted next hops on real FRR and a real kernel: weights by the bandwidth behind each path, and after a failure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from switch_ports import PortLab, port_lab
from waiting import until

from testbed.base.linux.routes import route_key
from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl
from testbed.lab.core.deploy.watch.check import check_lab

pytestmark = [pytest.mark.netns, pytest.mark.frr]
TOPOLOGY = Path(__file__).parents[3] / "topologies" / "uneven-bundle.yml"


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> Iterator[PortLab]:
    text = TOPOLOGY.read_text().replace("name: uneven-bundle", "name: {name}", 1)
    text = text.replace("400G", "50M").replace("scale: {time: auto}", "scale: {time: 1}")
    with port_lab(shared_sandbox, text) as lab:
        yield lab


def weights(lab: PortLab, host: str = "h4") -> dict[str, int]:
    """Of leaf1's next hops to a host of leaf2, by interface, as the kernel has them."""
    names = {port.ifindex: port.name for port in lab.running.plan.ports if port.node == "leaf1"}
    (nic,) = next(one.nics for one in lab.running.plan.hosts if one.node == host)
    assert nic.address is not None
    found = lab.running.bgp_weights("leaf1").get(route_key(nic.address.network), {})
    return {names[index]: weight for index, weight in sorted(found.items())}


UNEVEN = {"eth1": 33, "eth2": 33, "eth3": 16, "eth4": 16}


def test_the_kernel_has_the_weights_that_were_planned(lab: PortLab) -> None:
    until(lambda: weights(lab) == UNEVEN, "weights of the uneven bundle")
    report = {result.name: result for result in check_lab(lab.running).results}
    assert report["ecmp"].status.value == "pass", report["ecmp"]


def test_a_bundle_that_loses_a_link_weighs_less_and_check_says_so(lab: PortLab) -> None:
    until(lambda: weights(lab) == UNEVEN, "weights of the uneven bundle")
    with LinkControl(lab.running) as control:
        control.set("spine1:eth3", LinkChange(up=False))
        try:
            until(lambda: len(set(weights(lab).values())) == 1, "one link behind each spine: the same weight for all")
        finally:
            control.reset("spine1:eth3")
    until(lambda: weights(lab) == UNEVEN, "the weights of before")
