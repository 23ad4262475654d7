"""The views that `inspect` prints of a deployed lab."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.cli.labs.inspect_views import node_columns


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


def test_nodes_show_daemons_that_are_missing() -> None:
    assert node_columns([row(), row(missing=("bgpd",))])[-1] == "missing"
