"""Which NIC pairs the live tests probe, and how session changes are read from a daemon's log."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch import check
from testbed.lab.core.deploy.watch.check import CheckReport, CheckResult, CheckStatus
from testbed.lab.core.deploy.watch.events import ADJACENCY
from testbed.lab.core.fabric import generate_fabric
from testbed.lab.core.fabric.params import FabricParams, NicParams
from testbed.lab.core.plan.lab import plan_lab


def _lab(**params: Any) -> RunningLab:
    """What the choice of pairs looks at: a model and its plan."""
    model = generate_fabric(FabricParams(**({"design": "rail-optimized", "spines": 2} | params)), name="x")
    return cast(RunningLab, SimpleNamespace(name="x", model=model, plan=plan_lab(model, k=1000)))


@pytest.mark.parametrize("segments", [1, 2])
def test_no_probe_stays_inside_a_host(segments: int) -> None:
    """What a host sends to its own address crosses no wire and proves nothing."""
    lab = _lab(segments=segments, hosts=3, gpus=4)
    nics = check._nics(lab)
    assert len(nics) == 12 * segments
    for pairs in (list(check._rotations(lab, nics)), check._far_pairs(lab, nics)):
        assert pairs
        assert all(a.node != b.node for a, b in pairs)
    subnets = 4 * segments
    assert len(check._far_pairs(lab, nics)) == subnets * (subnets - 1)


def test_every_nic_sends_to_every_subnet_and_is_sent_to() -> None:
    lab = _lab(segments=2, hosts=3, gpus=2)
    nics = check._nics(lab)
    pairs = list(check._rotations(lab, nics))
    assert len(pairs) == 12 * 4
    reached = {(b.node, b.name) for _, b in pairs}
    assert reached == {(nic.node, nic.name) for nic in nics}


def test_a_single_host_has_nobody_to_talk_to() -> None:
    lab = _lab(segments=1, hosts=1, gpus=4)
    assert list(check._rotations(lab, check._nics(lab))) == []
    assert check._crossings(check._nics(lab)) == []


def test_isolated_rails_are_tried_between_hosts_and_not_expected() -> None:
    lab = _lab(design="rail-only", spines=None, hosts=2, gpus=3)
    nics = check._nics(lab)
    assert all(a.rail == b.rail for a, b in check._rotations(lab, nics))
    crossings = check._crossings(nics)
    assert len(crossings) == 3 * 2
    assert all(probe.source.rail != probe.target.rail for probe in crossings)
    assert all(probe.source.node != probe.target.node for probe in crossings)


def test_planes_without_a_spine_are_not_expected_to_meet() -> None:
    lab = _lab(design="dual-switch", spines=None, hosts=2, gpus=2, nic=NicParams(ports=2))
    for a, b in check._rotations(lab, check._nics(lab)):
        assert a.peer.partition(":")[0] == b.peer.partition(":")[0]


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ((CheckStatus.PASS, CheckStatus.PASS), 0),
        ((CheckStatus.PASS, CheckStatus.UNKNOWN), 2),
        ((CheckStatus.UNKNOWN, CheckStatus.FAIL), 1),
    ],
)
def test_exit_codes(statuses: tuple[CheckStatus, ...], code: int) -> None:
    results = tuple(CheckResult(name="x", status=status, count=1, detail="") for status in statuses)
    report = CheckReport(lab="x", results=results)
    assert report.exit_code == code
    assert bool(report) is (code == 0)


def test_a_report_prints_the_rows_that_did_not_pass() -> None:
    passed = CheckResult(name="nodes", status=CheckStatus.PASS, count=4, detail="4 run")
    failed = CheckResult(
        name="links", status=CheckStatus.FAIL, count=8, detail="7 of 8 are up", failures=("a:up1: down", "b:up2: down")
    )
    unknown = CheckResult(name="rails", status=CheckStatus.UNKNOWN, count=0, detail="no root")
    report = CheckReport(lab="demo", results=(passed, failed, unknown))
    assert str(report).splitlines() == [
        "demo: 1 of 3 tests passed",
        "fail     links: 7 of 8 are up",
        "         a:up1: down",
        "         b:up2: down",
        "unknown  rails: no root",
    ]
    assert repr(report) == "<CheckReport of demo: links fail: 7 of 8 are up; rails unknown: no root>"
    assert str(CheckReport(lab="demo", results=(passed,))) == "demo: 1 of 1 tests passed"
    assert repr(CheckReport(lab="demo", results=(passed,))) == "<CheckReport of demo: pass>"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%ADJCHANGE: neighbor uplink1(p1-spine1) in vrf default Up", ("uplink1", "Up", "")),
        (
            "2026/11/21 03:15:01.603 BGP: [PXVXG-TFNNT] %ADJCHANGE: neighbor uplink1(p1-spine1) in vrf default Down"
            " Waiting for NHT",
            ("uplink1", "Down", "Waiting for NHT"),
        ),
        ("%ADJCHANGE: neighbor down3 in vrf default Down Interface down", ("down3", "Down", "Interface down")),
        ("BGP: rcvd End-of-RIB for IPv4 Unicast from down3 in vrf default", None),
    ],
)
def test_session_changes_in_bgpds_log(line: str, expected: tuple[str, str, str] | None) -> None:
    match = ADJACENCY.search(line)
    found = match and (match["peer"], match["state"], match["reason"].strip())
    assert found == expected
