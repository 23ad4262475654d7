"""The report of a scenario's run: on the console, as one HTML file, and as files for other programs."""

from testbed.report.scenario.console import print_record
from testbed.report.scenario.files import write_report_files
from testbed.report.scenario.page import render_report

__all__ = ["print_record", "render_report", "write_report_files"]
