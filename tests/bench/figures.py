"""A table of measured figures beside what was promised, printed at the end of a bench run."""

from __future__ import annotations

from dataclasses import dataclass

NOISE = 1.5
"""Absolute times on a shared machine are marked when over, and fail only beyond this factor; ratios fail at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """`measured` and `limit` in `unit`; `at_least` turns the comparison round; `ratio` figures allow no noise."""

    what: str
    measured: float
    limit: float
    unit: str
    at_least: bool = False
    ratio: bool = False

    @property
    def met(self) -> bool:
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    @property
    def acceptable(self) -> bool:
        if self.met or self.ratio:
            return self.met
        return self.measured >= self.limit / NOISE if self.at_least else self.measured <= self.limit * NOISE

    def row(self) -> str:
        sign = ">=" if self.at_least else "<="
        verdict = "met" if self.met else "OVER"
        return f"{self.what:<62} {self.measured:>9.2f} {self.unit:<3} {sign} {self.limit:<6g} {verdict}"


FIGURES: list[Figure] = []


def judge(*figures: Figure) -> None:
    """Record figures for the table and fail the test for one that is not acceptable."""
    FIGURES.extend(figures)
    bad = [figure.row() for figure in figures if not figure.acceptable]
    assert not bad, "\n".join(bad)
