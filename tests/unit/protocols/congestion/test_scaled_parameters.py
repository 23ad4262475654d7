"""What `inspect scale` shows of controllers is what their flows are made with."""

import pytest

from testbed.protocols.congestion.controller import FlowSettings
from testbed.protocols.congestion.dcqcn import PARAMETER_SETS, Dcqcn
from testbed.protocols.congestion.registry import CONTROLLERS
from testbed.protocols.congestion.scaled_parameters import Dimension, scaled_parameters

K = 2000.0
SETTINGS = FlowSettings(link_rate_bps=200_000_000, base_rtt_ns=20_000_000, time_scale=K, mtu_bytes=4154)
FOUND = {(one.controller, one.parameters, one.name): one for one in scaled_parameters(SETTINGS)}


def test_every_set_of_every_controller_is_there() -> None:
    assert {(controller, parameters) for controller, parameters, _ in FOUND} == {
        (one.name, parameters)
        for one in CONTROLLERS.values()
        for parameters, values in one.values.items()
        if any(name.endswith(("_us", "_rtts", "_bps", "_bytes")) for name in values)
    }
    assert set(CONTROLLERS["dcqcn"].values) == set(PARAMETER_SETS) == {"hpcc-paper", "paper", "nvidia", "hpcc-vendor"}


@pytest.mark.parametrize("parameters", PARAMETER_SETS)
def test_dcqcn_is_made_with_what_is_shown(parameters: str) -> None:
    def lab(name: str) -> float:
        return FOUND["dcqcn", parameters, name].lab

    flow = Dcqcn(PARAMETER_SETS[parameters], SETTINGS)
    assert flow.notification_ns == lab("cnp_us")
    assert (flow._alpha_ns, flow._cut_ns, flow._timer_ns) == (lab("alpha_us"), lab("decrease_us"), lab("timer_us"))
    assert (flow._additive, flow._hyper) == pytest.approx((lab("additive_bps"), lab("hyper_bps")))
    assert flow._least == pytest.approx(min(lab("least_bps"), SETTINGS.link_rate_bps))


def test_times_are_longer_rates_lower_and_bytes_the_same() -> None:
    for one in FOUND.values():
        factor = {Dimension.TIME_NS: K, Dimension.RATE_BPS: 1 / K, Dimension.SIZE_BYTES: 1.0}[one.dimension]
        assert one.lab == pytest.approx(one.fabric * factor), one
    assert FOUND["dcqcn", "hpcc-paper", "additive_bps"].fabric == pytest.approx(5e6 * 400 / 25)
    assert FOUND["dcqcn", "paper", "counter_bytes"].lab == 10_000_000
    assert FOUND["timely", "paper", "low_rtts"].fabric == pytest.approx(2.5 * 10_000)
    assert FOUND["swift", "paper", "target_rtts"].lab == pytest.approx(1.25 * 20_000_000)
