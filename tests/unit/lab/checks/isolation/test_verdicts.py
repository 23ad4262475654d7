"""What `check --isolation` makes of what it saw: silence is no proof, and what is intended is told from what is not."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from testbed.base.errors import DriverError
from testbed.lab.checks.isolation import check
from testbed.lab.checks.isolation.arena import Fate, Outcome
from testbed.lab.checks.isolation.attacks import GatewayArp, MacFlood
from testbed.lab.checks.isolation.reachability import MOST_PAIRS, Matrix, Protocol, intended_matrix
from testbed.lab.checks.isolation.sites import Site, find_sites
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.journal import LabState
from testbed.lab.core.deploy.watch.check import CheckStatus
from testbed.lab.core.model import Lab, Service, ServiceProtocol
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text


class FakeLab:
    """What the check asks of a lab that is not there."""

    life_cycle: LabState | None = LabState.RUNNING

    def __init__(self, model: Lab) -> None:
        self.model = model
        self.plan = plan_lab(model, k=1000)
        self.name = model.name

    def of_network(self, name: str) -> Any:
        return SimpleNamespace(model=self.model.of_network(name), plan=self.plan.of_network(name), name=self.name)


def lab_of(hosts: int = 3, guards: str = "on", design: str = "rail-optimized") -> RunningLab:
    text = f"""name: dc
fabric: {{design: {design}, hosts: {hosts}, gpus: 2, segments: 1}}
networks: {{frontend: {{leaves: 2, nic: {{ports: 2}}, guards: {guards}}}}}
"""
    return cast(RunningLab, FakeLab(load_topology_text(text, file="dc.yml")))


@pytest.fixture
def sites() -> list[Site]:
    lab = lab_of()
    return find_sites(lab.model.of_network("frontend"), lab.plan, "frontend")


def outcomes(sites: list[Site], *fates: Fate) -> list[Outcome]:
    return [Outcome(site=site, fate=fate, dropped=1) for site, fate in zip(sites, fates, strict=False)]


@pytest.mark.parametrize(
    ("fates", "status", "words"),
    [
        ((Fate.STOPPED, Fate.STOPPED), CheckStatus.PASS, "stopped at 2 ports, 2 packets dropped; guard arp"),
        ((Fate.STOPPED, Fate.UNSEEN), CheckStatus.UNKNOWN, "neither arrived nor was counted at 1 of 2 ports"),
        ((Fate.SUCCEEDED, Fate.UNSEEN), CheckStatus.FAIL, "succeeded at 1 of 2 ports; guard arp"),
        ((Fate.STOPPED, Fate.SUCCEEDED), CheckStatus.FAIL, "succeeded at 1 of 2 ports"),
    ],
)
def test_one_port_that_is_not_stopped_is_enough(
    sites: list[Site], fates: tuple[Fate, ...], status: CheckStatus, words: str
) -> None:
    result = check._result("frontend", GatewayArp(), outcomes(sites, *fates))
    assert result.status is status and result.count == 2
    assert words in result.detail
    wrong = [site for site, fate in zip(sites, fates, strict=False) if fate is not Fate.STOPPED]
    assert all(any(str(site) in line for line in result.failures) for site in wrong)


def test_a_summary_says_where_an_attack_was_not_stopped(sites: list[Site]) -> None:
    found = check._summary("frontend", GatewayArp(), outcomes(sites, Fate.STOPPED, Fate.SUCCEEDED), sites, {})
    assert (found.ports, found.stopped, found.succeeded, found.unseen, found.dropped) == (2, 1, 1, 0, 2)
    assert found.not_stopped_at == (str(sites[1]),)
    assert found.guarded and found.guard == "arp"
    assert check.untried_lines([found]) == []


def test_what_was_not_tried_is_said_with_the_reason(sites: list[Site]) -> None:
    tried = outcomes(sites, Fate.STOPPED, Fate.STOPPED)
    partly = check._summary("frontend", GatewayArp(), tried, sites, {"it is alone": 1})
    never = check._summary("frontend", MacFlood(), [], sites, {"it is alone": 2, "it is in no bridge": 1})
    assert (partly.why_not_tried, never.why_not_tried) == ("", "it is alone; it is in no bridge")
    assert check.untried_lines([partly, never]) == [
        "not tried, frontend at 1 of 3 ports, as it is alone: ARP: I am the gateway",
        "not tried, frontend at 2 of 3 ports, as it is alone: MAC flood",
        "not tried, frontend at 1 of 3 ports, as it is in no bridge: MAC flood",
    ]


def test_pairs_of_one_network_reach_each_other_and_no_others() -> None:
    matrix = intended_matrix(lab_of(), ["backend", "frontend"], Protocol.UDP)
    assert len(matrix.pairs) == matrix.total == 12 * 8
    for index, (a, b) in enumerate(matrix.pairs):
        assert a.node != b.node
        assert (index in matrix.intended) == (a.network == b.network)
    only = matrix.only_intended()
    assert len(only.pairs) == len(only.intended) == len(matrix.intended)


def test_rails_that_are_apart_are_not_to_reach_each_other() -> None:
    matrix = intended_matrix(lab_of(design="rail-only"), ["backend"], Protocol.UDP)
    assert {a.rail == b.rail for index, (a, b) in enumerate(matrix.pairs) if index in matrix.intended} == {True}
    assert 0 < len(matrix.intended) < len(matrix.pairs)


def test_of_many_pairs_an_even_choice_is_tried_and_the_table_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = lab_of(hosts=20)
    matrix = intended_matrix(lab, ["backend", "frontend"], Protocol.UDP)
    assert len(matrix.pairs) == MOST_PAIRS < matrix.total
    assert len({a.node for a, _ in matrix.pairs}) == 20
    monkeypatch.setattr(check, "reached", lambda *_: set(matrix.intended))
    assert f"{MOST_PAIRS} of {matrix.total} NIC pairs" in check._reach(lab, [("UDP", matrix)])[0].detail


def test_what_is_lost_and_what_leaks_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = lab_of()
    matrix = intended_matrix(lab, ["backend", "frontend"], Protocol.UDP)
    lost, leak = min(matrix.intended), min(set(range(len(matrix.pairs))) - matrix.intended)
    monkeypatch.setattr(check, "reached", lambda *_: (matrix.intended - {lost}) | {leak})
    (result,) = check._reach(lab, [("TCP", matrix)])
    assert result.status is CheckStatus.FAIL
    assert [line.rpartition(" ")[2] for line in result.failures] == ["arrived", "lost"]


def test_no_two_hosts_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "reached", lambda *_: set())
    udp = Service(protocol=ServiceProtocol.UDP)
    empty = Matrix(pairs=(), intended=frozenset(), total=0, service=udp)
    assert check._reach(lab_of(), [("UDP", empty)])[0].status is CheckStatus.UNKNOWN


def test_a_lab_that_is_not_running_is_not_attacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "reached", lambda *_: pytest.fail("a packet was sent"))
    lab = lab_of()
    cast(Any, lab).life_cycle = LabState.DEPLOYING
    report = check.check_isolation(lab)
    assert report.exit_code == 2 and "deploying" in report.results[0].detail


def test_what_cannot_be_tried_is_unknown_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise DriverError("the network namespace dc-p1-s1-h1 is gone")

    monkeypatch.setattr(check, "reached", refuse)
    report = check.check_isolation(lab_of())
    assert report.exit_code == 2
    assert report.results[-1].detail == "the network namespace dc-p1-s1-h1 is gone"
