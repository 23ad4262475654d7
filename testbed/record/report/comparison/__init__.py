"""Records against each other: differences, their significance, and how they are shown."""

from testbed.record.report.comparison.compare import (
    ALL,
    ALPHA,
    MIN_CHANGE,
    Comparison,
    MetricChange,
    Shift,
    compare_records,
    refuse_different_things,
)
from testbed.record.report.comparison.page import (
    COLUMNS,
    comparison_json,
    comparison_rows,
    print_comparison,
    render_comparison,
)
