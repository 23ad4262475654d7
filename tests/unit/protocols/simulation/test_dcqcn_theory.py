"""DCQCN's flows at one port against the fluid model of it: fair shares, the queue of the fixed point, and instability.

Reaction and notification points, RNICs and ports are our own, packet by packet under the simulator's clock. The port
has 10 Gbit/s and packets 2 or 4 KiB, so that a run takes seconds: what the papers have at 40 Gbit/s and 1 KB is the
same model where R_AI is in proportion to the rate, and the line of RED to the size of packets over the square of the
rate. `pytest -s` prints the rows of the internals' page on RoCE's congestion control.
"""

import pytest
from bottleneck import Bottleneck, Measured

TEN_GIG = {"additive_bps": 10e6}
"""R_AI of the paper is 40 Mbit/s at 40 Gbit/s."""
SLOW = {"additive_bps": 1e6}
STEEP = (20_000, 270_000, 0.5)


def row(name: str, model_bytes: float, measured: Measured) -> None:
    queue = measured.queue_bytes
    print(
        f"| {name} | {model_bytes / 1e3:.0f} | {queue.mean() / 1e3:.0f} | {queue.std() / queue.mean():.2f} "
        f"| {measured.jain:.4f} | {measured.utilisation:.3f} | {measured.swing:.3f} |"
    )


@pytest.mark.parametrize(
    ("flows", "mtu"),
    [(2, 4096), *(pytest.param(*more, marks=pytest.mark.thorough) for more in ((4, 4096), (8, 4096), (16, 2048)))],
)
def test_flows_that_begin_at_line_rate_come_to_a_fair_share_and_the_queue_of_the_fixed_point(
    flows: int, mtu: int
) -> None:
    """Of sixteen flows each has but one packet of 4 KiB in an interval of CNPs, and two of 2 KiB."""
    subject = Bottleneck(flows=flows, overrides=TEN_GIG, mtu=mtu, curve=(20_000, 3_200_000, 0.4 * mtu / 4096))
    point = subject.model.fixed_point()
    measured = subject.run(0.16).since(0.06)
    row(f"{flows} flows", point.queue_bytes, measured)
    assert measured.jain >= 0.95
    assert measured.queue_bytes.mean() == pytest.approx(point.queue_bytes, rel=0.2)
    assert 0.97 < measured.utilisation < 1.02
    assert measured.alphas.mean() == pytest.approx(point.alpha, rel=0.2)


@pytest.mark.parametrize(
    ("flows", "one_way_us", "stable"), [(2, 50, True), (16, 2, True), (16, 50, False), (16, 200, False)]
)
def test_many_flows_with_a_long_delay_swing_where_the_theory_says(flows: int, one_way_us: int, stable: bool) -> None:
    """All begin where the model stays, but for the queue, which is empty: the deviation dies out, or grows."""
    subject = Bottleneck(flows=flows, one_way_ns=1000 * one_way_us, overrides=SLOW, curve=STEEP)
    model = subject.model
    margin = model.phase_margin_degrees(subject.feedback_s)
    measured = subject.run(0.06, begin_at=model.fixed_point()).since(0.03)
    row(
        f"{flows} flows, {subject.feedback_s * 1e6:.0f} us: {margin:.0f} degrees",
        model.fixed_point().queue_bytes,
        measured,
    )
    assert (margin > 0) is stable and (model.growth_per_s(subject.feedback_s) < 0) is stable
    if stable:
        assert measured.swing < 0.02
    else:
        assert measured.swing > 0.03 and measured.queue_bytes.std() > 0.6 * measured.queue_bytes.mean()


@pytest.mark.parametrize("parameters", ["hpcc-paper", "nvidia", "hpcc-vendor"])
def test_the_other_sets_fill_the_port_and_share_it(parameters: str) -> None:
    """The model is not of NICs that look once in an interval whether a CNP has come. Nothing is said of many flows."""
    measured = Bottleneck(flows=2, parameters=parameters).run(0.06).since(0.03)
    row(f"{parameters}, 2 flows", 0.0, measured)
    assert measured.jain >= 0.95 and measured.utilisation > 0.97
    assert 20_000 < measured.queue_bytes.mean() < 3_200_000, "between Kmin and Kmax"
