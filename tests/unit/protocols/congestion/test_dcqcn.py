"""The reaction point of DCQCN, event by event, against what the pseudo-code of its two sources computes.

`PaperPoint` is figure 7 and section 3.2 of "Congestion Control for Large-Scale RDMA Deployments" (SIGCOMM 2015),
`NicPoint` the functions of `rdma-hw.cc` in the simulator of HPCC that have `Mlx` in their names: both with timers that
fire, where ours makes up for time when it is asked.
"""

from dataclasses import replace
from random import Random

import pytest

from testbed.protocols.congestion.controller import FlowSettings
from testbed.protocols.congestion.dcqcn import PARAMETER_SETS, Dcqcn, DcqcnParameters
from testbed.protocols.congestion.registry import make_control
from testbed.protocols.errors import UsageError

LINE = 100_000_000_000
SETTINGS = FlowSettings(link_rate_bps=LINE, base_rtt_ns=12_000, time_scale=1.0, mtu_bytes=4154)
NEVER = 1 << 62
State = tuple[float, float, float, int, int]
"""RC, RT, alpha, T, BC."""


class PaperPoint:
    """RC, RT, alpha, T and BC as the paper updates them."""

    def __init__(self, parameters: DcqcnParameters) -> None:
        self.p = parameters
        self.rc = self.rt = float(LINE)
        self.alpha = 1.0
        self.t = self.bc = self.octets = 0
        self.alpha_at = self.timer_at = NEVER

    def on_cnp(self, now: int) -> None:
        self.rt = self.rc
        self.rc = max(self.p.least_bps, self.rc * (1 - self.alpha / 2))
        self.alpha = (1 - self.p.g) * self.alpha + self.p.g
        self.t = self.bc = self.octets = 0
        self.alpha_at = now + int(self.p.alpha_us * 1000)
        self.timer_at = now + int(self.p.timer_us * 1000)

    def advance(self, now: int) -> None:
        while (at := min(self.alpha_at, self.timer_at)) <= now:
            if at == self.timer_at:
                self.timer_at += int(self.p.timer_us * 1000)
                self.t += 1
                self.increase()
            else:
                self.alpha_at += int(self.p.alpha_us * 1000)
                self.alpha *= 1 - self.p.g

    def on_bytes(self, size: int) -> None:
        if self.timer_at == NEVER:
            return
        self.octets += size
        if self.octets >= self.p.counter_bytes:
            self.octets -= self.p.counter_bytes
            self.bc += 1
            self.increase()

    def increase(self) -> None:
        if max(self.t, self.bc) < self.p.fast_recovery:
            pass
        elif min(self.t, self.bc) > self.p.fast_recovery:
            self.rt += (min(self.t, self.bc) - self.p.fast_recovery) * self.p.hyper_bps
        else:
            self.rt += self.p.additive_bps
        self.rt = min(self.rt, LINE)
        self.rc = (self.rt + self.rc) / 2

    def state(self) -> State:
        return self.rc, self.rt, self.alpha, self.t, self.bc


class NicPoint:
    """m_rate, m_targetRate, m_alpha and m_rpTimeStage as HPCC's simulator of a NIC updates them."""

    def __init__(self, parameters: DcqcnParameters) -> None:
        self.p = parameters
        share = LINE / 25e9 if parameters.per_25g else 1.0
        self.rai, self.rhai, self.least = (
            share * parameters.additive_bps,
            share * parameters.hyper_bps,
            parameters.least_bps,
        )
        self.rate = self.target = float(LINE)
        self.alpha = 1.0
        self.stage = 0
        self.alpha_cnp = self.cut_cnp = False
        self.first = True
        self.alpha_at = self.cut_at = self.timer_at = NEVER

    def on_cnp(self, now: int) -> None:
        self.alpha_cnp = self.cut_cnp = True
        if self.first:
            self.alpha = 1.0
            self.alpha_cnp = False
            self.alpha_at = now + int(self.p.alpha_us * 1000)
            self.cut_at = now + int(self.p.decrease_us * 1000)
            self.target = self.rate
            self.first = False

    def advance(self, now: int) -> None:
        # At one time: raise, then alpha, then cut ("make sure rate decrease is after alpha update").
        while (at := min(self.timer_at, self.alpha_at, self.cut_at)) <= now:
            if at == self.timer_at:
                self.timer_at += int(self.p.timer_us * 1000)
                if self.stage == self.p.fast_recovery:
                    self.target = min(self.target + self.rai, LINE)
                elif self.stage > self.p.fast_recovery:
                    self.target = min(self.target + self.rhai, LINE)
                self.rate = self.rate / 2 + self.target / 2
                self.stage += 1
            elif at == self.alpha_at:
                self.alpha_at += int(self.p.alpha_us * 1000)
                self.alpha = (1 - self.p.g) * self.alpha + (self.p.g if self.alpha_cnp else 0.0)
                self.alpha_cnp = False
            else:
                self.cut_at += int(self.p.decrease_us * 1000)
                if self.cut_cnp:
                    if self.p.clamp_target or self.stage != 0:
                        self.target = self.rate
                    self.rate = max(self.least, self.rate * (1 - self.alpha / 2))
                    self.stage = 0
                    self.cut_cnp = False
                    self.timer_at = at + int(self.p.timer_us * 1000)

    def on_bytes(self, size: int) -> None:
        pass

    def state(self) -> State:
        return self.rate, self.target, self.alpha, self.stage, 0


def ours(point: Dcqcn) -> State:
    return point.rate_bps, point.target_bps, point.alpha, point.time_stage, point.byte_stage


def at_line_rate(state: State) -> bool:
    return state[0] > LINE * (1 - 1e-9)


@pytest.mark.parametrize("name", PARAMETER_SETS)
@pytest.mark.parametrize("seed", range(5))
def test_every_event_leaves_what_the_pseudo_code_computes(name: str, seed: int) -> None:
    parameters = PARAMETER_SETS[name]
    source = Random(seed)
    reference = NicPoint(parameters) if parameters.decrease_us else PaperPoint(parameters)
    point = Dcqcn(parameters, SETTINGS)
    now = 0
    events = 0
    for _ in range(2_000):
        now += source.choice([700, 3_000, 50_000, 50_000, 300_000, 2_000_000])
        reference.advance(now)
        point.update(now)
        if source.random() < 0.3:
            reference.on_cnp(now)
            point.on_notification(now)
            events += 1
        if source.random() < 0.5:
            size = source.choice([1_500, 3_000_000, 9_000_000])
            reference.on_bytes(size)
            point.on_send(now, size)
        wanted = reference.state()
        found = ours(point)
        assert found[:2] == pytest.approx(wanted[:2], rel=1e-7, abs=2)
        assert found[2] == pytest.approx(wanted[2], rel=1e-6, abs=1e-8)
        if not at_line_rate(wanted):
            assert found[3:] == wanted[3:]
    assert events > 400


def test_the_first_cnp_halves_a_flow_that_starts_at_line_rate() -> None:
    point = Dcqcn(PARAMETER_SETS["paper"], SETTINGS)
    assert point.rate_bps == LINE
    point.on_notification(0)
    assert ours(point) == (LINE / 2, LINE, 1.0, 0, 0)
    for stage in range(1, 5):
        point.update(stage * 55_000)
        assert ours(point)[0] == pytest.approx(LINE * (1 - 0.5 ** (stage + 1)))


def test_a_nic_looks_once_in_an_interval_whether_a_cnp_has_come() -> None:
    point = Dcqcn(PARAMETER_SETS["nvidia"], SETTINGS)
    for now in (0, 500, 1_500):
        point.on_notification(now)
    assert point.rate_bps == LINE
    point.update(4_000)
    assert LINE * 0.49 < point.rate_bps < LINE * 0.52


def test_without_a_cnp_nothing_changes() -> None:
    point = Dcqcn(PARAMETER_SETS["paper"], SETTINGS)
    point.on_send(0, 1 << 40)
    point.update(1 << 50)
    assert ours(point) == (LINE, LINE, 1.0, 0, 0)


@pytest.mark.parametrize("name", PARAMETER_SETS)
def test_rates_and_times_are_those_of_the_lab(name: str) -> None:
    """Divided and multiplied by k: after the same events at times k times as late, rates are a k-th."""
    k = 2_000
    lab = replace(SETTINGS, link_rate_bps=LINE // k, time_scale=float(k))
    real, slow = Dcqcn(PARAMETER_SETS[name], SETTINGS), Dcqcn(PARAMETER_SETS[name], lab)
    source = Random(1)
    now = 0
    for _ in range(500):
        now += source.choice([700, 50_000, 300_000])
        real.update(now)
        slow.update(now * k)
        if source.random() < 0.3:
            real.on_notification(now)
            slow.on_notification(now * k)
        assert slow.rate_bps * k == pytest.approx(real.rate_bps, rel=1e-6, abs=2 * k)
    assert slow.notification_ns == k * real.notification_ns


def test_single_parameters_can_be_others() -> None:
    control = make_control("dcqcn", replace(SETTINGS, parameters="paper", overrides={"timer_us": 300, "g": 0.5}))
    control.on_notification(0)
    control.on_notification(0)
    assert control.rate_bps == LINE / 4
    control.update(299_999)
    assert control.rate_bps == LINE / 4
    control.update(300_000)
    assert control.rate_bps == LINE * 3 / 8


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"parameters": "mlx"}, "parameters 'mlx' of dcqcn are none of hpcc-paper, paper, nvidia, hpcc-vendor"),
        ({"overrides": {"gain": 1}}, "dcqcn has no parameter 'gain'; it has cnp_us, alpha_us, g,"),
        ({"overrides": {"g": 2}}, "g of DCQCN is 2; it must be at most 1"),
        ({"overrides": {"timer_us": 0}}, "timer_us of DCQCN is 0; it must be above 0"),
    ],
)
def test_parameters_that_cannot_work_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make_control("dcqcn", replace(SETTINGS, **settings))


def test_a_controller_without_parameters_takes_none() -> None:
    with pytest.raises(UsageError, match="'none' has no parameters"):
        make_control("none", replace(SETTINGS, parameters="paper"))
    with pytest.raises(UsageError, match="'x' is none of dcqcn, timely, swift, dctcp, ccti, none"):
        make_control("x", SETTINGS)
