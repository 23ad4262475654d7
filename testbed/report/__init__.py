"""Records and labs for people: tables, pages, pictures."""

from testbed.report.scenario import print_record, render_report

__all__ = ["print_record", "render_report"]
