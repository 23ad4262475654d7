"""Records and labs for people: tables, pages, pictures."""

from testbed.record.report.scenario import print_record, render_report, write_report_files
