"""A lab survives the way into the state directory and back, whatever is in it."""

from __future__ import annotations

import json
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from testbed.base.units import Duration, Rate
from testbed.lab.core.model import Delay, DelayBy, End, Lab, Link, LinkKind, Node, NodeKind, Role
from testbed.lab.core.model.codec import decode_lab, encode_lab
from testbed.lab.core.schema.load import load_topology

TOPOLOGIES = sorted((Path(__file__).parents[5] / "topologies").glob("*.yml"))


@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.stem)
def test_every_shipped_topology(path: Path) -> None:
    lab = load_topology(path)
    assert decode_lab(json.loads(json.dumps(encode_lab(lab)))) == lab


def test_what_only_hand_written_labs_have() -> None:
    lab = Lab(
        name="x",
        nodes=(
            Node(name="h", kind=NodeKind.HOST, labels={"a": "b"}, env={"K": "v"}, exec=(("ip", "addr"),)),
            Node(name="s", kind=NodeKind.SWITCH, role=Role.RAIL, asn=65001),
        ),
        links=(
            Link(
                a=End(node="h", interface="e1"),
                b=End(node="s", interface="e1"),
                kind=LinkKind.ROUTED,
                rate=Rate.parse("100G"),
                mtu_bytes=9000,
                delay=Delay(value=Duration.parse("500ns"), by=DelayBy.ENDPOINT),
                prefix=IPv4Network("192.0.2.0/31"),
            ),
        ),
    )
    assert decode_lab(json.loads(json.dumps(encode_lab(lab)))) == lab


def test_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="nodes"):
        decode_lab({"name": "x"})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("name", 3, "expected str, got 3"),
        ("nodes", {}, "expected a list"),
        ("nodes", [{"name": "h", "kind": "toaster"}], "toaster"),
        ("nodes", [{"name": "h"}], "Node: no kind"),
        ("nodes", ["h"], "Node: expected a mapping, got 'h'"),
        ("nodes", [{"name": "h", "kind": "host", "asn": "65001"}], "expected int"),
        ("nodes", [{"name": "h", "kind": "host", "asn": True}], "expected int"),
        ("nodes", [{"name": "h", "kind": "host", "labels": []}], "expected a mapping"),
    ],
)
def test_a_value_of_another_type_is_refused(key: str, value: object, message: str) -> None:
    data = encode_lab(load_topology(TOPOLOGIES[0]))
    with pytest.raises(ValueError, match=message):
        decode_lab({**data, key: value})


def test_what_another_version_wrote_beside_our_fields_is_passed_over() -> None:
    lab = load_topology(TOPOLOGIES[0])
    assert decode_lab({**encode_lab(lab), "colour": "blue"}) == lab
