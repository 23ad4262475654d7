"""A record as the results sheet of the IETF drafts on benchmarking the networks of AI clusters.

`drafts` names the drafts and their versions; `training` and `inference` have the tables that each asks for, `sections`
what both ask for, and `sheet` puts the sections into the order of the draft's chapter "Reporting Format". What no run
measured stands there as `not measured`.
"""

from testbed.record.report.benchmark.sheet import SHEET_FILE, results_sheet
