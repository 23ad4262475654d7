"""The table of a page of the documentation, from what was measured: between two marks, and nothing else of the page."""

from __future__ import annotations

import math
from collections.abc import Sequence

from testbed.base.errors import RecordError
from testbed.record.report.steadiness.rows import SteadyRow, chance_of_any
from testbed.record.steady import Steadiness

MARK = "steady"
"""The word of the marks between which the table stands."""


def steadiness_markdown(found: Sequence[Steadiness], rows: Sequence[SteadyRow]) -> str:
    """Return what was measured on, a table of scenarios, and one of their expectations, in Markdown."""
    machines = sorted({_machine(one) for one in found})
    lines = [f"Measured on {machine}." for machine in machines]
    lines += ["", *_scenarios(rows), "", *_expectations(rows)]
    return "\n".join(lines) + "\n"


def with_table(page: str, table: str, mark: str = MARK) -> str:
    """Return a page with the table between the marks of this word. Raises `RecordError` for a page without them."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    before, begun, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not begun or not ended:
        raise RecordError("the page has no place for the table", hint=f"a line {begin} and, below it, a line {end}")
    return f"{before}{begin}\n\n{table}\n{end}{after}"


def _machine(one: Steadiness) -> str:
    environment = one.environment
    day = one.started[:10]
    if environment.clock == "simulated":
        return f"{day} by the simulator of testbed {environment.testbed}"
    processor = environment.cpu_model or "an unknown processor"
    return f"{day} on {environment.cores} x {processor}, kernel {environment.kernel}, testbed {environment.testbed}"


def _scenarios(rows: Sequence[SteadyRow]) -> list[str]:
    lines = [
        "| scenario | backend | runs | invalid | failed figures | chance that any expectation fails, at most |",
        "|---|---|---|---|---|---|",
    ]
    for (scenario, backend), chance in chance_of_any(rows).items():
        mine = [row for row in rows if (row.scenario, row.backend) == (scenario, backend)]
        one = mine[0]
        fails = sum(row.fails for row in mine)
        lines.append(f"| `{scenario}` | {backend} | {one.runs} | {one.invalid} | {fails} | {_share(chance)} |")
    return lines


def _expectations(rows: Sequence[SteadyRow]) -> list[str]:
    lines = [
        "| scenario | expectation | band | n | mean | s | least to most | to the limit, in s | chance | fails (95 %) |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        place = f"`{row.metric}`" + (f" at `{row.point}`" if row.point else "")
        bound = "" if row.fails_at_most is None else f" ({_share(row.fails_at_most)})"
        cells = [
            f"`{row.scenario}`",
            place,
            _band(row),
            str(row.count),
            _number(row.mean),
            _number(row.stdev),
            f"{_number(row.least)} to {_number(row.most)}",
            _distance(row.distance),
            "" if row.chance is None else _share(row.chance),
            f"{row.fails}{bound}",
        ]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines


def _band(row: SteadyRow) -> str:
    low, high = _number(row.minimum), _number(row.maximum)
    if row.minimum is not None and row.maximum is not None:
        return f"{low} to {high}"
    return f"at least {low}" if row.minimum is not None else f"at most {high}"


def _distance(deviations: float | None) -> str:
    if deviations is None:
        return ""
    if math.isinf(deviations):
        return "never varied" if deviations > 0 else "always beyond"
    return f"{deviations:.3g}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _share(value: float) -> str:
    return "0" if not value else "below 0.001 %" if value < 1e-5 else f"{100 * value:.2g} %"
