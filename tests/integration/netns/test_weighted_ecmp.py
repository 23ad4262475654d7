"""Weighted next hops on real FRR and a real kernel: weights by the bandwidth behind each path, and after a failure."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from switch_ports import PortLab, port_lab
from waiting import until

from testbed.base.linux.routes import route_key
from testbed.lab.core.deploy.changing.apply import ApplyOptions, apply_lab
from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl
from testbed.lab.core.deploy.watch.check import check_lab
from testbed.lab.core.plan.changes import Allow
from testbed.lab.core.schema.load import load_topology_text

pytestmark = [pytest.mark.netns, pytest.mark.frr]
TOPOLOGY = Path(__file__).parents[3] / "topologies" / "uneven-bundle.yml"


def text_of() -> str:
    text = TOPOLOGY.read_text().replace("name: uneven-bundle", "name: {name}", 1)
    return text.replace("400G", "50M").replace("scale: {time: auto}", "scale: {time: 1}")


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> Iterator[PortLab]:
    with port_lab(shared_sandbox, text_of()) as lab:
        yield lab


def weights(lab: PortLab, host: str = "h4") -> dict[str, int]:
    """Of leaf1's next hops to a host of leaf2, by interface, as the kernel has them."""
    names = {port.ifindex: port.name for port in lab.running.plan.ports if port.node == "leaf1"}
    (nic,) = next(one.nics for one in lab.running.plan.hosts if one.node == host)
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


def test_weights_go_and_come_again_with_a_change_of_the_file(lab: PortLab, shared_sandbox: Any) -> None:
    """As two labs would be that are deployed so (`test_apply_pairs.py`, where it takes a minute)."""
    for weighted, meant in (("false", {1}), ("true", set(UNEVEN.values()))):
        text = text_of().replace("weighted: true", f"weighted: {weighted}")
        model = load_topology_text(text.replace("{name}", shared_sandbox.name()), file="<test>")
        apply_lab(model, shared_sandbox.state, ApplyOptions(k=1.0, allow=frozenset({Allow.RESTART})))
        until(lambda meant=meant: set(weights(lab).values()) == meant, f"weighted: {weighted}")  # type: ignore[misc]
        assert check_lab(shared_sandbox.running()).exit_code == 0
