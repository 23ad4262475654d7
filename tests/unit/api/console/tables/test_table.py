"""The order of rows: as people count; and which rows words mean that are of several nodes."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.api.console.answers import RefusedRequest
from testbed.api.console.sources.shape import shape_of
from testbed.api.console.tables.nodes import TENANTS
from testbed.api.console.tables.table import TableQuery, _order, table_page
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text

TWO_TENANTS = Path(__file__).parents[5] / "topologies/two-tenants.yml"


def test_text_is_sorted_by_its_letters_and_by_the_numbers_in_it() -> None:
    names = ["p10-s1", "p2-s10b", "spine", "p2-s10a", "p2-s2", "leaf"]
    assert sorted(names, key=_order) == ["leaf", "p2-s2", "p2-s10a", "p2-s10b", "p10-s1", "spine"]
    assert sorted([None, "a", 10, 2.5], key=_order) == [None, 2.5, 10, "a"]


@pytest.fixture(scope="module")
def tenants() -> Any:
    """A lab with tenants, as tables see it."""
    model = load_topology_text(TWO_TENANTS.read_text(), file=str(TWO_TENANTS))
    plan = plan_lab(model, k=1000)
    shape = shape_of(model, plan, k=1000.0, revision="r", created="now")
    lab = SimpleNamespace(model=model, plan=plan)
    return SimpleNamespace(
        name=model.name, shape=shape, lab=lab, now=lambda: SimpleNamespace(frame=SimpleNamespace(t=0))
    )


def test_tenants_are_found_by_their_nodes_their_switches_and_their_names(tenants: Any) -> None:
    def found(words: str) -> set[str]:
        page = table_page(TENANTS, tenants, TableQuery(words=words))
        return {key.removeprefix("tenant:") for key in page["keys"]}

    overlay = tenants.shape.model.overlay
    names = {tenant.name for tenant in overlay.tenants}
    assert found("") == names and len(names) == 2
    for tenant in overlay.tenants:
        end = tenant.subnets[0].nics[0]
        assert tenant.name in found(end.node), "a host of the tenant"
        assert found(f"{end.node}:{end.interface}") == {tenant.name}, "a NIC"
        assert found(tenant.name) == {tenant.name}
    switch = table_page(TENANTS, tenants, TableQuery())["rows"][0]
    assert switch
    with pytest.raises(RefusedRequest, match="nothing in"):
        found("nobody")
