"""The report of a scenario's run: on the console, as one HTML file, and as files for other programs."""

from testbed.record.report.scenario.console import print_record
from testbed.record.report.scenario.page import render_report, write_report_files
