"""InfiniBand's congestion control: the index rises with BECNs and falls with time, and its entry is the delay."""

import pytest

from testbed.protocols.congestion.ccti import Ccti
from testbed.protocols.congestion.controller import FlowSettings
from testbed.protocols.congestion.registry import make_control
from testbed.protocols.errors import UsageError

LINE_BPS = 400_000_000_000
TIMER_NS = 1024


def flow(scale: float = 1.0, **parameters: float) -> Ccti:
    settings = FlowSettings(
        link_rate_bps=LINE_BPS, base_rtt_ns=4000, time_scale=scale, mtu_bytes=4122, overrides=parameters
    )
    found = make_control("ccti", settings)
    assert isinstance(found, Ccti)
    return found


def test_nothing_is_delayed_before_a_mark() -> None:
    control = flow()
    control.update(10**9)
    assert control.rate_bps == LINE_BPS
    assert control.notification_ns == 0, "each marked packet is answered"


def test_each_becn_raises_the_index_and_the_timer_lowers_it() -> None:
    control = flow(step=0.25)
    for _ in range(12):
        control.on_notification(1000)
    assert control.index == 12
    assert control.rate_bps == LINE_BPS / 4, "three packet times behind each packet"
    control.update(1000 + TIMER_NS - 1)
    assert control.index == 12
    control.update(1000 + 5 * TIMER_NS)
    assert control.index == 7
    control.update(10**6)
    assert (control.index, control.rate_bps) == (0, LINE_BPS)


def test_entries_are_in_eighths() -> None:
    control = flow(step=1 / 32)
    rates = []
    for _ in range(8):
        control.on_notification(0)
        rates.append(LINE_BPS / control.rate_bps - 1)
    assert rates == pytest.approx([0, 0, 0, 1 / 8, 1 / 8, 1 / 8, 1 / 8, 2 / 8])


def test_the_index_stays_between_its_bounds() -> None:
    control = flow(increase=100, limit=120, minimum=8, step=0.125)
    assert control.rate_bps == LINE_BPS / 2
    for _ in range(3):
        control.on_notification(0)
    assert control.index == 120
    control.update(10**9)
    assert control.index == 8
    assert control.state() == {"ccti": 8.0}


def test_times_are_scaled_with_the_fabric() -> None:
    control = flow(scale=1000.0)
    control.on_notification(0)
    control.update(1000 * TIMER_NS - 1)
    assert control.index == 1
    control.update(1000 * TIMER_NS)
    assert control.index == 0


@pytest.mark.parametrize(
    "wrong",
    [{"increase": 0}, {"increase": 256}, {"timer_us": 0}, {"limit": 0}, {"minimum": 2000}, {"step": 0}, {"step": 17}],
)
def test_what_no_manager_could_set_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        flow(**wrong)


@pytest.mark.parametrize("name", ["increase", "limit", "minimum"])
def test_no_part_of_an_index_is_dropped_in_silence(name: str) -> None:
    with pytest.raises((UsageError, TypeError)):  # a compiled one does not even take it
        flow(**{name: 1.5})
