"""Trust: rates of ports with a backlog, late wake-ups; and what faults are made of."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from run_rows import channel, run_result, transfers
from waiting import until

from testbed.base.units import Duration, Rate
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.record.record import RunResult
from testbed.run.faults.acts import plan_acts
from testbed.run.faults.links import link_change
from testbed.run.faults.registry import lab_fault
from testbed.run.machine.canary import Canary, Lateness
from testbed.run.machine.cpu import SoftnetCounts
from testbed.run.schema.model import Fault
from testbed.run.trust.ideals import ahead_bytes, check_ideals
from testbed.run.trust.machine import check_backlogs, check_late_steps, check_lateness
from testbed.run.trust.machines import MachinesCompared, check_machines
from testbed.run.trust.ports import _deviation
from testbed.run.trust.registry import mtus_of
from testbed.run.trust.traffic import check_request_lateness

RATE_BPS = 8e6
TIMES = np.arange(0.0, 2.0, 0.01)


def sent_at(share: float) -> np.ndarray:
    return TIMES * RATE_BPS / 8 * share


@pytest.mark.parametrize("share", [1.0, 0.9, 1.1])
def test_a_port_with_a_backlog_is_judged_by_its_rate(share: float) -> None:
    backlog = np.full_like(TIMES, 20_000.0)
    assert _deviation(TIMES, backlog, sent_at(share), RATE_BPS, 1_500) == pytest.approx(share - 1, abs=0.001)


@pytest.mark.parametrize(("share", "seconds", "expected"), [(1.0, 0.35, 0), (1.0, 2, 0), (0.9, 2, -0.1), (1.1, 2, 0.1)])
def test_a_packet_more_or_less_is_not_the_ports_doing(share: float, seconds: float, expected: float) -> None:
    """Of packets that take 18 ms each, a stretch of 0.3 s sees one more or one less: up to 6 % that mean nothing."""
    packet, rate_bps = 9_000, 4e6
    times = TIMES[: int(seconds * 100)]
    for phase in np.linspace(0, 1, 20):
        sent = packet * np.floor(times * rate_bps / 8 * share / packet + phase)
        found = _deviation(times, np.full_like(times, 50_000.0), sent, rate_bps, packet)
        assert found == pytest.approx(expected, abs=0.02 if expected else 0.001)


def test_windows_without_a_backlog_do_not_count() -> None:
    backlog = np.where(TIMES < 1.0, 20_000.0, 0.0)
    sent = np.where(TIMES < 1.0, sent_at(1.0), sent_at(1.0)[100])
    assert _deviation(TIMES, backlog, sent, RATE_BPS, 1_500) == pytest.approx(0.0, abs=1e-9)


def test_a_backlog_that_comes_and_goes_says_nothing() -> None:
    backlog = np.where((TIMES * 100).round() % 5 == 0, 0.0, 20_000.0)
    assert _deviation(TIMES, backlog, sent_at(0.5), RATE_BPS, 1_500) is None


def test_a_backlog_that_may_have_gone_between_two_samples_says_nothing() -> None:
    backlog = np.full_like(TIMES, 9_000.0)  # 10 kB leave until the next sample
    assert _deviation(TIMES, backlog, sent_at(0.8), RATE_BPS, 1_500) is None


@pytest.mark.parametrize(("error_ns", "ok"), [(2_000_000, True), (2_000_001, False)])
def test_clocks_of_machines_agree_within_a_fiftieth_of_a_base_round_trip(error_ns: int, ok: bool) -> None:
    seen = MachinesCompared(error_ns=error_ns, machine="b", cuts=4)
    clocks, cuts = check_machines(seen, 100_000_000)
    assert (clocks.name, clocks.ok, cuts.name, cuts.ok) == ("clocks", ok, "cut-links", True)
    assert "within 2 ms, 2.00% of a base round trip" in clocks.message and clocks.message.endswith("least of b")
    assert cuts.message.startswith("at 4 ends of links between machines")


def test_packets_that_did_not_come_from_another_machine_are_named() -> None:
    seen = MachinesCompared(error_ns=0, machine="a", cuts=4, unequal=[f"port {n}: 5 left" for n in range(4)])
    _, cuts = check_machines(seen, 100_000_000)
    assert (cuts.ok, cuts.value) == (False, 4)
    assert cuts.message == "port 0: 5 left; port 1: 5 left; port 2: 5 left and 1 more"


def test_late_wake_ups() -> None:
    fine, late = (Lateness(count=100, p50_ns=50_000, p99_ns=p99, max_ns=10**7) for p99 in (400_000, 6_000_000))
    assert next(check_lateness(fine)).ok and not next(check_lateness(late)).ok
    assert list(check_lateness(None)) == []
    assert "p99 6.00" in next(check_lateness(late)).message


@pytest.mark.parametrize("late", ["request_lateness_p99_us", "token_lateness_p99_us"])
def test_a_generator_that_is_late_makes_a_run_invalid(late: str) -> None:
    counters = {"requests_begun": 10.0, "request_lateness_p99_us": 900.0, "token_lateness_p99_us": 1100.0}
    [fine], [bad] = check_request_lateness(counters), check_request_lateness(counters | {late: 5_100.0})
    assert fine.ok and not bad.ok
    assert "5.10 ms late" in bad.message
    assert list(check_request_lateness({})) == [], "there were no requests"


def test_packets_that_nobody_counted() -> None:
    before, after = SoftnetCounts(dropped=5, squeezed=1), SoftnetCounts(dropped=6, squeezed=4)
    assert next(check_backlogs(before, before)).ok and not next(check_backlogs(before, after)).ok


@pytest.mark.process
def test_the_canary_answers_and_begins_anew() -> None:
    with Canary() as canary:
        counts: list[int] = []

        def woken_three_times() -> bool:
            if found := canary.read():
                assert 0 <= found.p50_ns <= found.p99_ns <= found.max_ns
                counts.append(found.count)
            return sum(counts) >= 3

        until(woken_three_times, "three wake-ups")
        again = canary.read()
        assert again is None or again.count < sum(counts) + 3


def fault(**values: object) -> Fault:
    texts = {key: Duration.parse(str(values[key])) for key in ("at", "until", "period") if key in values}
    return Fault(**(values | texts))  # type: ignore[arg-type]


def test_a_flap_is_down_for_half_of_each_period() -> None:
    flap = fault(at="1s", until="3s", period="1s", kind="link-flap", target="a:b")
    acts = sorted((act.at_ns / 1e9, act.undo) for act in plan_acts([lab_fault(flap)]))
    assert acts == [(1.0, False), (1.5, True), (2.0, False), (2.5, True)]


def test_without_an_end_it_lasts() -> None:
    lasting = lab_fault(fault(at="1s", kind="link-down", target="a:b"))
    assert [act.undo for act in plan_acts([lasting])] == [False]


def test_the_words_of_a_file_as_a_change() -> None:
    assert link_change({"rate": "50%", "both": True}).rate_share == 0.5
    assert link_change({"rate": "100G"}).rate == Rate.parse("100G")
    change = link_change({"delay": "500ns", "loss": "1%", "silent": True, "loss_every": 10})
    assert (change.delay, change.loss, change.silent, change.loss_every) == (Duration.parse("500ns"), 0.01, True, 10)


def test_the_last_up_of_a_flap_is_not_late() -> None:
    flap = fault(at="1s", until="2200ms", period="1s", kind="link-flap", target="a:b")
    assert max(act.at_ns for act in plan_acts([lab_fault(flap)])) == 2_200_000_000


def test_ports_have_the_mtu_of_their_number_in_the_lab_whatever_network_is_seen() -> None:
    """The numbers of a network's ports begin after those of the back end, and those of a carried one are among its."""
    lab = load_topology_text(
        "name: conv\nfabric: {design: single-switch, hosts: 2, gpus: 1, mtu: 5000}\nqos: {preset: dcqcn}\n"
        "networks:\n  frontend: {overlay: evpn, mtu: 4000, qos: {preset: dcqcn}}\n"
        "  storage: {on: frontend, mtu: 3000}\n",
        file="conv.yml",
    )
    plan = plan_lab(lab, k=1000).of_network("storage")
    mtus = mtus_of(SimpleNamespace(lab=SimpleNamespace(plan=plan)))  # type: ignore[arg-type]
    wanted = {f"{port.node}:{port.name}": port.mtu_bytes for port in plan.ports}
    assert mtus == {plan.port_numbers[place]: mtu_bytes for place, mtu_bytes in wanted.items()}
    assert {3000, 4000} == set(mtus.values()) and min(mtus) > 4


def run_with(metrics: dict[str, float | None], *, sizes: Sequence[int] = (), goodput_bps: float = 1e6) -> RunResult:
    moved = sum(sizes)
    one = channel("h1", "h1", sent_bytes=moved, received_bytes=moved, ideal_bps=8e6, goodput_bps=goodput_bps)
    rows = replace(transfers(*[(0.0, 1.0)] * len(sizes)), size_bytes=list(sizes), channel=[0] * len(sizes))
    return run_result(metrics=metrics, transfers=rows, channels=[one])


@pytest.mark.parametrize(
    ("metric", "value", "ok"),
    [
        ("tail_fct_ratio", 1.2, True),
        ("tail_fct_ratio", 0.9999, True),
        ("tail_fct_ratio", 0.99, False),
        ("jct_ratio[tenant=red]", 0.10, False),
        ("busbw_share", 1.71, False),
        ("busbw_share", 1.004, True),
        ("victim_share", 1.02, False),
        ("retransmits", 0.0, True),
        ("queue_p50", 1e6, True),
        ("rdma_latency_ratio", 0.93, True),  # idle ports do not store and forward
    ],
)
def test_no_figure_is_better_than_its_ideal(metric: str, value: float, *, ok: bool) -> None:
    [check] = check_ideals(run_with({metric: value, "drops": None}))
    assert check.ok is ok and check.name == "ideal"
    if not ok:
        assert f"{metric} is {value:.4g} where 1 is ideal" in check.message and "limit 0.5%" in check.message


def test_a_port_may_be_ahead_of_its_rate_by_its_shapers_window_and_a_frame() -> None:
    """9 kB of each transfer: 0.9 % of a MB, and of a run with transfers of 36 kB 5 % instead of a quarter."""
    assert next(check_ideals(run_with({"jct_ratio": 0.99}, sizes=[1_000_000]), ahead=9_000)).ok
    assert not next(check_ideals(run_with({"jct_ratio": 0.98}, sizes=[1_000_000]), ahead=9_000)).ok
    assert next(check_ideals(run_with({"jct_ratio": 0.95}, sizes=[36_000] * 3), ahead=9_000)).ok
    [check] = check_ideals(run_with({"jct_ratio": 0.94}, sizes=[36_000] * 3), ahead=9_000)
    assert not check.ok and "limit 5.5%" in check.message
    assert next(check_ideals(run_with({}, sizes=[4_000], goodput_bps=8e8), ahead=9_000)).ok, "a frame passes at once"
    [check] = check_ideals(run_with({}, sizes=[1_000_000], goodput_bps=8.2e6), ahead=9_000)
    assert not check.ok and "goodput of h1:rail1 to h1:rail1 is 0.0082 Gbit/s of 0.008, 2.4%" in check.message
    fabric = "{design: rail-optimized, hosts: 2, gpus: 1, spines: 1, nic: {rate: 400G}}"
    lab = load_topology_text(f"name: x\nscale: {{time: 1000}}\nfabric: {fabric}", file="x.yml")
    assert ahead_bytes(plan_lab(lab, k=1000)) == pytest.approx(400e6 / 8 * 500e-6 + lab.links[0].mtu_bytes + 14)


@pytest.mark.parametrize(
    ("late_ms", "elapsed_s", "ok"), [(38, 0.93, False), (4, 0.66, True), (6, 0.1, False), (82, 16.9, True)]
)
def test_who_begins_late_is_no_slow_fabric(late_ms: float, elapsed_s: float, ok: bool) -> None:
    """38 ms of 0.93 s: a host that heard of the common start late, whose flows seemed 4 % slower."""
    [check] = check_late_steps({"latest_timer_us": late_ms * 1e3}, elapsed_s)
    assert check.ok == ok and f"{late_ms:.2f} ms late" in check.message


def test_nothing_is_said_where_no_step_was_late() -> None:
    assert list(check_late_steps({}, 1.0)) == list(check_late_steps({"latest_timer_us": 0.0}, 1.0)) == []
