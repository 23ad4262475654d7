"""Options of `link set`: percentages, units, and clear words for what is none."""

import math
from typing import Any

import pytest

from testbed.base.errors import TestbedError
from testbed.base.units import Duration, Rate
from testbed.cli.nodes.link_changes import link_change, parse_share
from testbed.lab.core.deploy.links.changes import LinkChange


@pytest.mark.parametrize(
    ("options", "change"),
    [
        ({"rate": "50%"}, LinkChange(rate_share=0.5)),
        ({"rate": "10G"}, LinkChange(rate=Rate(10_000_000_000))),
        ({"rate": "5M", "lab_rate": True}, LinkChange(lab_rate=Rate(5_000_000))),
        ({"delay": "5us", "jitter": "1us"}, LinkChange(delay=Duration(5_000), jitter=Duration(1_000))),
        ({"loss": "1%"}, LinkChange(loss=0.01)),
        ({"loss": "0%"}, LinkChange(loss=0.0)),
        ({"loss_every": 100}, LinkChange(loss_every=100)),
        ({"corruption": "0.1%"}, LinkChange(corruption=0.001)),
        ({"silent": True}, LinkChange(silent=True)),
        ({"silent": False}, LinkChange(silent=False)),
    ],
)
def test_options(options: dict[str, Any], change: LinkChange) -> None:
    found = link_change(**options)
    assert found == change or found.corruption == pytest.approx(0.001)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "nothing to change"),
        ({"loss": "0.01"}, "of a hundred, or of one?"),
        ({"loss": "5"}, "is more than all"),
        ({"rate": "0.5"}, "has no unit"),
        ({"delay": "200m"}, "at most 1 s"),
        ({"loss": "101%"}, "from 0% to 100%"),
        ({"loss": "-1%"}, "from 0% to 100%"),
        ({"loss": "1 pct"}, "unknown unit 'pct'"),
        ({"corruption": "lots"}, "--corruption lots: must be a share"),
        ({"rate": "0%"}, "a rate of 0 is no rate"),
        ({"rate": "fast"}, "is not a rate such as 400G"),
        ({"rate": "5Q"}, "unknown unit 'Q'"),
        ({"rate": "5"}, "has no unit"),
        ({"rate": "50%", "lab_rate": True}, "is a share of the declared rate"),
        ({"lab_rate": True}, "--lab-rate says how --rate is meant"),
        ({"delay": "5"}, "has no unit"),
        ({"delay": "soon"}, "is not a duration"),
        ({"loss_every": -2}, "one packet in so many"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TestbedError) as raised:
        link_change(**options)
    assert words in raised.value.message
    assert raised.value.exit_code == 3


@pytest.mark.parametrize(
    ("option", "wrong", "hint", "rewritten"),
    [
        ("loss", "5", "write 5%, or 5/100", ("5%", "5/100")),
        ("loss", "0.5", "write 0.5%, or 50%", ("0.5%", "50%")),
        ("rate", "0.5", "write 50% (of the link), or 0.5G", ("50%", "0.5G")),
        ("rate", "1/2", "write 50%", ("50%",)),
        ("delay", "200m", "m is minutes; for 200 m of cable, 5 ns a metre, write 1us", ("1us",)),
    ],
)
def test_hints_can_be_followed(option: str, wrong: str, hint: str, rewritten: tuple[str, ...]) -> None:
    with pytest.raises(TestbedError) as raised:
        link_change(**{option: wrong})
    assert (raised.value.hint or "").startswith(hint)
    for value in rewritten:
        link_change(**{option: value})


def test_shares() -> None:
    assert parse_share("--loss", "12.5%") == 0.125
    assert parse_share("--rate", "250 %", most=math.inf) == 2.5
