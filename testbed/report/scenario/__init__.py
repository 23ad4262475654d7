"""The report of a scenario's run: on the console, and as one HTML file."""

from testbed.report.scenario.console import print_record
from testbed.report.scenario.page import render_report

__all__ = ["print_record", "render_report"]
