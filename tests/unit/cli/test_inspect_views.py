"""The views that `inspect` prints of a deployed lab."""

from __future__ import annotations

from typing import Any

import pytest
from fake_lab import small_lab

from testbed.cli.labs.inspect_views import node_columns
from testbed.cli.labs.transport_scale import transport_rows
from testbed.fabric.base_rtt import model_base_rtt


def row(runtime: str = "netns", image: str = "", missing: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"runtime": runtime, "image": image, "missing": missing}


@pytest.mark.parametrize(
    ("rows", "more"),
    [
        ([row()], []),
        ([row(), row("docker", "x:1")], ["image"]),
        ([row(), row("trees")], ["runtime"]),
        ([row("docker", "x:1"), row("trees")], ["runtime", "image"]),
    ],
)
def test_nodes_show_what_they_are_where_they_are_more_than_namespaces(
    rows: list[dict[str, Any]], more: list[str]
) -> None:
    assert node_columns(rows) == ["name", "kind", "role", *more, "state", "ipv4_address"]


def test_both_sides_of_what_transports_scale_are_shown() -> None:
    model, plan = small_lab(k=1000.0)
    rows = {row["quantity"]: (row["fabric"], row["lab"], row["law"]) for row in transport_rows(model, plan.k)}
    rtt = model_base_rtt(model)
    assert rows["base round trip"] == (str(rtt), str(rtt.scaled(1000.0)), "x k")
    assert rows["roce, dcqcn nvidia: timer_us"] == ("300 us", "300 ms", "x k")
    assert rows["roce, dcqcn paper: additive_bps"] == ("40 Mbit/s", "40 kbit/s", "/ k")
    assert rows["roce, dcqcn paper: counter_bytes"] == ("10000000 B", "10000000 B", "unchanged")
    assert rows["roce, swift paper: target_rtts"][1] == str(rtt.scaled(1250.0))


def test_nodes_show_daemons_that_are_missing() -> None:
    assert node_columns([row(), row(missing=("bgpd",))])[-1] == "missing"
