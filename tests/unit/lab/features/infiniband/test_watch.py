"""What `check` says of a subnet's routes."""

from dataclasses import replace

from fat_trees import fat_tree, ring

from testbed.lab.core.deploy.watch.check import CheckStatus
from testbed.lab.features.infiniband.watch import deadlock_result, engine_result, routes_result, shifts_result
from testbed.protocols.infiniband.routes import judge_routes


def test_a_full_tree_passes() -> None:
    subnet = fat_tree(4, 4, 4)
    report = judge_routes(subnet)
    assert routes_result(report).status is CheckStatus.PASS
    shifts = shifts_result(subnet, report)
    assert (shifts.status, shifts.count) == (CheckStatus.PASS, 15)
    assert deadlock_result(report).status is CheckStatus.PASS


def test_contention_where_there_must_be_none_fails() -> None:
    subnet = fat_tree(4, 4, 4, by_destination=False)
    result = shifts_result(subnet, judge_routes(subnet))
    assert result.status is CheckStatus.FAIL
    assert "the shift by 4 has 4 flows on a link" in result.failures


def test_nothing_is_promised_of_other_trees_and_engines() -> None:
    narrow = fat_tree(4, 4, 2)
    result = shifts_result(narrow, judge_routes(narrow))
    assert result.status is CheckStatus.PASS
    assert "no full fat tree: nothing is promised" in result.detail
    other = fat_tree(4, 4, 4, by_destination=False, engine="updn")
    assert "updn's tables" in shifts_result(other, judge_routes(other)).detail


def test_pairs_without_a_route_are_named() -> None:
    subnet = fat_tree(2, 2, 2)
    result = routes_result(judge_routes(replace(subnet, links=subnet.links[1:])))
    assert result.status is CheckStatus.FAIL
    assert result.detail == "6 of 12 pairs of HCAs have no route"
    assert "no route from h0 to h1" in result.failures


def test_a_cycle_is_shown() -> None:
    result = deadlock_result(judge_routes(ring(4)))
    assert result.status is CheckStatus.FAIL
    assert result.failures[0].startswith("VL 0: s")
    assert "waits for" in result.failures[0]


def test_an_engine_that_nobody_tells_is_not_the_one_that_was_asked_for() -> None:
    assert engine_result("ftree", "ftree", "").status is CheckStatus.PASS
    assert engine_result("ftree", "updn", "ftree gave this fabric up").status is CheckStatus.FAIL
    assert engine_result("ftree", "", "").status is CheckStatus.UNKNOWN
