"""The pictures of a report: those that compare points or runs, and those of a single run."""

from testbed.record.report.scenario.plots.gallery import draw_overview, draw_run
from testbed.record.report.scenario.plots.plot import Plot

__all__ = ["Plot", "draw_overview", "draw_run"]
