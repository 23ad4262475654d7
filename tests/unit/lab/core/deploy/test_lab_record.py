"""A lab survives the way into the state directory and back, and so does one of an earlier version."""

import json
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from testbed.base.units import Duration, Rate
from testbed.lab.core.deploy.records.lab_record import decode_lab, encode_lab, parse_record
from testbed.lab.core.model import Delay, DelayBy, End, Lab, Link, LinkKind, Node, NodeKind, Role
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology

ROOT = Path(__file__).parents[5]
TOPOLOGIES = sorted((ROOT / "topologies").glob("*.yml"))
RECORDS = sorted((ROOT / "tests/data/lab_records").glob("*.json"))
"""As a version wrote them that read them by itself, without msgspec."""


@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.stem)
def test_every_shipped_topology(path: Path) -> None:
    lab = load_topology(path)
    data = json.loads(json.dumps(encode_lab(lab)))
    assert data == encode_lab(lab)
    assert decode_lab(data) == lab


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_of_an_earlier_version_says_the_same(path: Path) -> None:
    content = path.read_text()
    record = parse_record(content, json.loads(content)["name"])
    lab = decode_lab(record.model)
    assert covers(replace(record, model=encode_lab(lab)).to_json(), json.loads(content))
    assert plan_lab(lab, slot=record.slot, k=record.k).ports


def covers(now: Any, then: Any) -> bool:
    """Tell whether a record of today says all that an earlier one says, and beside that only what is new."""
    if isinstance(then, dict):
        return then.keys() <= now.keys() and all(covers(now[key], value) for key, value in then.items())
    if isinstance(then, list):
        return len(now) == len(then) and all(map(covers, now, then))
    return bool(now == then)


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
        ("name", 3, "Expected `str`, got `int`"),
        ("nodes", {}, "Expected `array`, got `object`"),
        ("nodes", [{"name": "h", "kind": "toaster"}], "toaster"),
        ("nodes", [{"name": "h"}], "missing required field `kind`"),
        ("nodes", ["h"], "Expected `object`, got `str`"),
        ("nodes", [{"name": "h", "kind": "host", "asn": "65001"}], r"Expected `int \| null`, got `str`"),
        ("nodes", [{"name": "h", "kind": "host", "asn": True}], r"Expected `int \| null`, got `bool`"),
        ("nodes", [{"name": "h", "kind": "host", "labels": []}], "Expected `object`, got `array`"),
    ],
)
def test_a_value_of_another_type_is_refused(key: str, value: object, message: str) -> None:
    data = encode_lab(load_topology(TOPOLOGIES[0]))
    with pytest.raises(ValueError, match=message):
        decode_lab({**data, key: value})


def test_what_another_version_wrote_beside_our_fields_is_passed_over() -> None:
    lab = load_topology(TOPOLOGIES[0])
    assert decode_lab({**encode_lab(lab), "colour": "blue"}) == lab
