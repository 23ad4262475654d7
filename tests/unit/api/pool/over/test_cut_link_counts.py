"""The counts of the two ends of a cut link, compared: what is under way is no loss, and what is lost is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testbed.api.pool.over.live import _unequal
from testbed.lab.features.machines.watch import CutCounts

NEAR = CutCounts(port="s1:up1", peer="s2:down1", out={"0": 100}, came={"0": 40}, pausing=3)
FAR = CutCounts(port="s2:down1", peer="s1:up1", out={"0": 40}, came={"0": 100}, paused=3)


def unequal(near: CutCounts, before: CutCounts, after: CutCounts) -> list[str]:
    """What is said of `near`, whose far end was read before and after it."""
    others = {"s1:up1": replace(near, came={"0": 40}), "s2:down1": before}
    return list(_unequal(others, {near.port: near}, {**others, "s2:down1": after}))


def test_ends_that_are_equal_or_have_packets_under_way_are_right() -> None:
    assert unequal(NEAR, FAR, FAR) == []
    assert unequal(NEAR, replace(FAR, came={"0": 90}), replace(FAR, came={"0": 110}, paused=4)) == []


@pytest.mark.parametrize("lost", [{"came": {"0": 99}}, {"paused": 2}])
def test_what_did_not_come_in_is_named_unless_the_link_was_down_there(lost: dict[str, object]) -> None:
    short = replace(FAR, **lost)  # type: ignore[arg-type]
    [line] = unequal(NEAR, short, short)
    assert line.startswith("s1:up1 to s2:down1: ")
    down = replace(short, dropped=1)
    assert unequal(NEAR, down, down) == []


def test_more_than_was_sent_is_named() -> None:
    more = replace(FAR, came={"0": 101})
    assert len(unequal(NEAR, more, more)) == 1


def test_an_end_that_nobody_has_is_named() -> None:
    assert list(_unequal({}, {NEAR.port: NEAR}, {})) == ["s1:up1: nothing is known of s2:down1"]
