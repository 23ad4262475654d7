"""ECMP at its limits: the kernel has as many next hops as `validate` counts, and `check` says of how many ways."""

from typing import Any

import pytest
from equal_paths import equal_cost_paths

from testbed.lab.core.deploy.watch.check import CheckStatus, check_lab
from testbed.lab.core.fabric.forwarding.next_hops import MAX_ECMP
from testbed.lab.core.fabric.params import UplinkParams
from testbed.lab.core.model import End, Routing

pytestmark = [pytest.mark.netns, pytest.mark.frr]

LEAF, FAR_HOST = "p1-s1-rail1", "p1-s2-h1"


@pytest.mark.parametrize(
    ("spines", "links", "ecmp", "detail"),
    [
        (6, 11, 64, "64 of 66 equally short ways by routing.ecmp"),
        pytest.param(4, MAX_ECMP // 4, MAX_ECMP, "routes with their planned next hops", marks=pytest.mark.thorough),
    ],
)
def test_the_kernel_has_as_many_next_hops_as_are_counted(
    sandbox: Any, spines: int, links: int, ecmp: int, detail: str
) -> None:
    model = sandbox.model(
        hosts=1, gpus=1, spines=spines, uplink=UplinkParams(count=links), routing=Routing(ecmp=ecmp, bfd_auto=False)
    )
    lab = sandbox.deploy(model).lab
    subnet = lab.port(FAR_HOST, "rail1").address.network
    (route,) = (route for route in lab.routes(LEAF) if route.prefix == subnet)
    assert len(route.interfaces) == ecmp
    ends = [End(node=node, interface="rail1") for node in ("p1-s1-h1", FAR_HOST)]
    assert equal_cost_paths(model, *ends) == ecmp * links, "each spine divides over its links down"
    found = {result.name: result for result in check_lab(lab).results}
    assert {result.status for result in found.values()} == {CheckStatus.PASS}, found
    assert found["ecmp"].detail.endswith(detail)
