"""The order of rows: as people count; and which rows words mean that are of several nodes."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.api.console.answers import RefusedRequest
from testbed.api.console.sources.shape import shape_of
from testbed.api.console.tables.nodes import GPUS, PLANES, TENANTS
from testbed.api.console.tables.table import TableQuery, _order, table_page
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.scale_up.counters import reading
from testbed.lab.features.scale_up.counters.names import LINK_COUNTERS
from testbed.lab.features.scale_up.counters.reading import DomainReading, LinkReading
from testbed.lab.features.scale_up.links import list_links
from testbed.protocols.scale_up.domain.link import LinkErrors

TWO_TENANTS = Path(__file__).parents[5] / "topologies/two-tenants.yml"


def test_text_is_sorted_by_its_letters_and_by_the_numbers_in_it() -> None:
    names = ["p10-s1", "p2-s10b", "spine", "p2-s10a", "p2-s2", "leaf"]
    assert sorted(names, key=_order) == ["leaf", "p2-s2", "p2-s10a", "p2-s10b", "p10-s1", "spine"]
    assert sorted([None, "a", 10, 2.5], key=_order) == [None, 2.5, 10, "a"]


RACK = """
name: rack
fabric: {design: rail-optimized, segments: 1, hosts: 2, gpus: 2, spines: 2, scale_up: {preset: nvl72, by: packets}}
"""


@pytest.fixture(scope="module")
def tenants() -> Any:
    """A lab with tenants, as tables see it."""
    return seen(TWO_TENANTS.read_text())


def seen(text: str) -> Any:
    """A lab of a topology, as tables see it."""
    model = load_topology_text(text, file="lab.yml")
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


def shown(page: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a page, by the names of columns."""
    names = [column["name"] for column in page["columns"]]
    return [dict(zip(names, row, strict=True)) for row in page["rows"]]


def test_gpus_stand_with_their_nics_and_their_domain() -> None:
    rack = seen(RACK)
    page = table_page(GPUS, rack, TableQuery())
    rows = shown(page)
    assert [(row["host"], row["rail"]) for row in rows] == [(f"p1-s1-h{h}", rail) for h in (1, 2) for rail in (1, 2)]
    assert {row["domain"] for row in rows} == {"p1-s1"} and {row["gpus"] for row in rows} == {1}
    assert page["keys"] == [f"port:{row['host']}:{row['nic']}" for row in rows]
    assert len(table_page(GPUS, rack, TableQuery(words="p1-s1-h2"))["rows"]) == 2
    unstated = shown(table_page(GPUS, seen(RACK.replace(", scale_up: {preset: nvl72, by: packets}", "")), TableQuery()))
    assert len(unstated) == 4 and "domain" not in unstated[0], "a file that says nothing has no domains to show"


def test_planes_have_what_the_switches_end_of_each_link_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    rack = seen(RACK)
    links = tuple(
        LinkReading(
            link=link,
            counters=dict.fromkeys((item.name for item in LINK_COUNTERS), 0)
            | {"sent_bytes": n, "llr_tx_replay": 2 * n},
            errors=LinkErrors(down=n == 3),
            channels=(),
        )
        for n, link in enumerate(list_links(rack.shape.model))
    )
    monkeypatch.setattr(reading, "read_domains", lambda _: (DomainReading(domain="p1-s1", links=links),))
    page = table_page(PLANES, rack, TableQuery())
    rows = shown(page)
    assert len(rows) == len(links) == 4 * 18
    assert [row["sent"] for row in rows] == list(range(72)) and rows[5]["again"] == 10
    assert [row["plane"] for row in rows if row["state"] == "down"] == [links[3].link.plane]
    assert {row["rate"] for row in rows} == {"400 Gbit/s"} and page["keys"][0] == "gpu:p1-s1-h1/1"
    units = {column["heading"]: column["unit"] for column in page["columns"]}
    assert (units["sent"], units["sent again"], units["state"]) == ("B", "frames", "")
    one = shown(table_page(PLANES, rack, TableQuery(words="p1-s1-h2")))
    assert len(one) == 36 and {row["gpu"].partition(".")[0] for row in one} == {"p1-s1-h2"}
