"""The files of a results directory: the report, and the record in the formats of other programs.

The record itself is written first and by others; what fails here leaves it as it is.
"""

from __future__ import annotations

from pathlib import Path

from testbed.record.record import Record
from testbed.record.report.scenario.nccl_table import NCCL_FILE, nccl_tests_text
from testbed.record.report.scenario.page import render_report
from testbed.record.report.scenario.tables import (
    CHANNELS_FILE,
    JUNIT_FILE,
    METRICS_FILE,
    REQUESTS_FILE,
    SUMMARY_FILE,
    TRANSFERS_FILE,
    channels_csv,
    encode_summary,
    has_requests,
    junit_xml,
    metrics_csv,
    requests_csv,
    transfers_csv,
)
from testbed.record.store import REPORT_FILE, write_result


def write_report_files(record: Record, directory: Path) -> Path:
    """Write report.html and the files of `tables`; returns the report's path.

    Each is written whole or not at all. Raises `RecordError` where the disk does not take one.
    """
    # JSON can hold halves of surrogate pairs, which no encoding can write: a question mark stands for them
    collectives = nccl_tests_text(record.points)
    contents = {
        SUMMARY_FILE: encode_summary(record),
        METRICS_FILE: metrics_csv(record).encode(errors="replace"),
        TRANSFERS_FILE: transfers_csv(record).encode(errors="replace"),
        CHANNELS_FILE: channels_csv(record).encode(errors="replace"),
        **({REQUESTS_FILE: requests_csv(record).encode(errors="replace")} if has_requests(record) else {}),
        **({NCCL_FILE: collectives.encode(errors="replace")} if collectives else {}),
        JUNIT_FILE: junit_xml(record),
        REPORT_FILE: render_report(record).encode(errors="replace"),
    }
    for name, content in contents.items():
        write_result(content, directory / name)
    return directory / REPORT_FILE
