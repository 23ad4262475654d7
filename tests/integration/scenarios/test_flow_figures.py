"""What the figures of flows are worth: shipped scenarios as flows and as packets, point by point."""

import pytest
from flow_ratios import SCENARIOS, Row, inside_share, measure, near_share, print_rows

LEAST_INSIDE = 0.95
"""The share of points of which a further run lies inside the band of three."""
LEAST_NEAR = 0.9
"""The share of collectives within 5 % of their packets, of those whose messages are not short: all but one."""

pytestmark = [pytest.mark.scenarios, pytest.mark.thorough, pytest.mark.timeout(14_400)]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return print_rows(measure(sorted(SCENARIOS.glob("*.yml"))))


def test_a_further_run_lies_inside_the_band_of_its_point(rows: list[Row]) -> None:
    assert len({row.scenario for row in rows}) > 10
    assert inside_share(rows) >= LEAST_INSIDE


def test_collectives_lie_close_to_their_packets(rows: list[Row]) -> None:
    assert near_share(rows) >= LEAST_NEAR
