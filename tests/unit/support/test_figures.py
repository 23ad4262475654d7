"""What the table of figures says of each: `tests/bench/figures.py`."""

import pytest
from figures import NOISE, Figure, judge


def figure(measured: float, *, ratio: bool = False, stolen: float = 0.0) -> Figure:
    return Figure("it", measured, at_most=10.0, unit="us", ratio=ratio, stolen=stolen)


@pytest.fixture(autouse=True)
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("figures.FIGURES", [])


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (figure(10.0), "met"),
        (figure(10.0 * NOISE), "OVER, within 1.5 times: what a shared machine adds"),
        (figure(10.1 * NOISE), "OVER"),
        (figure(10.1, ratio=True), "OVER"),
        (figure(99.0, stolen=0.2), "not to be trusted: 20% of the CPU was stolen"),
    ],
)
def test_a_row_says_why_a_figure_over_its_limit_does_not_fail(one: Figure, says: str) -> None:
    assert one.row().endswith(f"<= 10     {says}")
    if says == "OVER":
        with pytest.raises(AssertionError, match="OVER"):
            judge(one)
    else:
        judge(one)
