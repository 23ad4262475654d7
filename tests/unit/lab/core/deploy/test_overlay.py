"""The reason for what an overlay lacks, followed from its beginning."""

from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from testbed.base.errors import DriverError
from testbed.daemons.keeper.entries import EntryKind, ExpectedEntry
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.schema.load import load_topology
from testbed.lab.features.overlay import watch as overlay
from testbed.lab.features.overlay.watch import explain
from testbed.lab.features.overlay.watch_tenants import grouped_nics

TOPOLOGY = Path(__file__).parents[5] / "topologies" / "two-tenants.yml"
LEAF, FAR = "p1-s1-rail1", "p1-s1-rail2"
RED = f"{LEAF}-red"


@pytest.fixture(scope="module")
def plan() -> LabPlan:
    return plan_lab(load_topology(TOPOLOGY), k=1000)


def _expected(plan: LabPlan, kind: EntryKind, node: str = RED) -> ExpectedEntry:
    assert plan.overlay is not None
    return next(entry for entry in plan.overlay.expected[node] if entry.kind is kind)


def _reasons(
    plan: LabPlan,
    monkeypatch: pytest.MonkeyPatch,
    missing: dict[str, list[ExpectedEntry]],
    *,
    reachable: bool = True,
    routes: Any = None,
) -> list[str]:
    """What is said of `missing` where the far VTEP is `reachable` and bgpd has these `routes` (None: no answer)."""

    def ask(*_: object) -> Any:
        if routes is None:
            raise DriverError("bgpd does not answer")
        return routes

    monkeypatch.setattr("testbed.base.linux.vty.ask_json", ask)
    found = {IPv4Address("172.18.0.1"), IPv4Address("172.18.0.2")} if reachable else set()
    monkeypatch.setattr(overlay, "_host_routes", lambda *_: found)
    return [line.rpartition(": ")[2] for line in explain(plan, Path("/run"), missing)]


def test_a_nic_that_its_leaf_has_not_heard_is_nobodys(plan: LabPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    far = f"{FAR}-red"
    heard = _expected(plan, EntryKind.HEARD, far)
    assert plan.overlay is not None
    lost = next(e for e in plan.overlay.expected[RED] if e.kind is EntryKind.ROUTE and e.of == heard.of)
    reasons = _reasons(plan, monkeypatch, {RED: [lost], far: [heard]}, routes={})
    assert set(reasons) == {f"{FAR} has not heard it, and announces no type-2 route"}
    assert len(reasons) == 2


def test_a_nic_may_be_heard_in_one_family_and_not_in_the_other(plan: LabPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    far = f"{FAR}-red"
    assert plan.overlay is not None
    heard = next(e for e in plan.overlay.expected[far] if e.kind is EntryKind.HEARD and e.ipv6)
    lost = [e for e in plan.overlay.expected[RED] if e.kind is EntryKind.ROUTE and e.of == heard.of]
    assert [entry.ipv6 for entry in lost] == [False, True]
    of_ipv4, of_ipv6, itself = _reasons(plan, monkeypatch, {RED: lost, far: [heard]}, routes={})
    assert of_ipv4.startswith(f"{LEAF} has not received the ")
    assert of_ipv6 == f"{FAR} has not heard it, and announces no type-2 route"
    assert itself == of_ipv6


def test_a_vtep_without_a_route_comes_before_what_is_behind_it(plan: LabPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {RED: [_expected(plan, EntryKind.FLOOD)]}
    assert _reasons(plan, monkeypatch, missing, reachable=False, routes={}) == [
        f"the underlay of {LEAF} has no route to {FAR}"
    ]


def test_bgpd_that_does_not_answer_is_a_reason(plan: LabPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _reasons(plan, monkeypatch, {RED: [_expected(plan, EntryKind.FLOOD)]}) == ["bgpd does not answer"]


def test_a_route_that_was_not_received_and_one_that_was_not_installed(
    plan: LabPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    flood = _expected(plan, EntryKind.FLOOD)
    route = flood.routes[0]
    absent = _reasons(plan, monkeypatch, {RED: [flood]}, routes={})
    assert absent == [f"{LEAF} has not received the {route} from {FAR}".rpartition(": ")[2]]
    there: Any = {route.rd: {route.prefix: {}}}
    assert _reasons(plan, monkeypatch, {RED: [flood]}, routes=there) == [f"zebra of {LEAF} has not installed it"]


def test_nics_are_grouped_by_tenant_and_network(plan: LabPlan) -> None:
    groups = {group: len(nics) for group, nics in grouped_nics(plan).items()}
    assert groups == {("red", "backend"): 3, ("blue", "backend"): 3, ("", "backend"): 6}
