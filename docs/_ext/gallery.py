"""Puts the results of the gallery of papers into its page, from the records of runs: `gallery.py RESULTS...`.

Each section of `docs/papers.md` has a number and names scenarios by marks, `<!-- NAME: begin -->` and `<!-- NAME: end
-->`, between which the table of that scenario stands. The table of all sections stands between the marks `gallery`.
Scenarios of which the directories have no runs (of `run --steady`) keep the table that they have.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.record.record import Outcome
from testbed.record.report.steadiness.page import with_table
from testbed.record.report.steadiness.rows import SteadyRow, steady_rows
from testbed.record.steady import Steadiness, find_steadiness

PAGE = Path(__file__).parents[1] / "papers.md"
OVERVIEW = "gallery"
_TITLE = re.compile(r"^## (?P<number>[0-9]+)\. (?P<title>.+)$", re.MULTILINE)
_MARK = re.compile(r"^<!-- (?P<name>[a-z0-9-]+): begin -->$", re.MULTILINE)
_CARRIES = re.compile(r"^\* \*\*Carries over:\*\* (?P<verdict>[^:.,;\n]+)", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_RESULT = re.compile(r"^(?P<what>Simulated|Emulated): (?P<verdict>[^.]+)\.", re.MULTILINE)
_FOLDERS = re.compile(r"(?<==)\.\./[\w./-]*/")
"""The folders of a topology in the name of a point."""
_WORDS = {"simulation": "Simulated", "emulation": "Emulated"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A claim of the page: its heading, the scenarios whose tables it has, and the verdict that people gave it."""

    number: int
    title: str
    scenarios: tuple[str, ...]
    verdict: str
    text: str


def sections(page: str) -> list[Section]:
    """Return the sections of a page that have a number."""
    found = [*_TITLE.finditer(page)]
    ends = [*(one.start() for one in found[1:]), len(page)]
    return [
        _section(int(one["number"]), one["title"], page[one.end() : end]) for one, end in zip(found, ends, strict=True)
    ]


def _section(number: int, title: str, text: str) -> Section:
    carries = _CARRIES.search(text)
    return Section(
        number=number,
        title=title,
        scenarios=tuple(one["name"] for one in _MARK.finditer(text)),
        verdict="" if carries is None else carries["verdict"],
        text=text,
    )


def with_results(page: str, found: Sequence[Steadiness]) -> str:
    """Return the page with a table for each scenario that was run, and that of all sections."""
    rows = steady_rows(found)
    for name in (name for section in sections(page) for name in section.scenarios):
        mine = [one for one in found if one.scenario == name]
        if mine:
            page = with_table(page, _results(mine, [row for row in rows if row.scenario == name]), name)
    return with_table(page, "\n".join(_overview(sections(page))) + "\n", OVERVIEW)


def _results(found: Sequence[Steadiness], rows: Sequence[SteadyRow]) -> str:
    """Return what runs of one scenario came to: a sentence for each backend, and a row for each expectation."""
    backends = sorted({one.backend.value for one in found}, reverse=True)
    lines = [f"{_WORDS[backend]}: {_verdict(found, backend)}." for backend in backends]
    titles = ["expectation", "band", *(_WORDS[backend].lower() for backend in backends)]
    lines += ["", f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for key in dict.fromkeys(_key(row) for row in rows):
        by_backend = {row.backend: row for row in rows if _key(row) == key}
        row = next(iter(by_backend.values()))
        place = _FOLDERS.sub("", f"`{row.metric}`" + (f" at `{row.point}`" if row.point else ""))
        measured = (_measured(by_backend.get(backend)) for backend in backends)
        lines.append(f"| {place} | {_band(row)} | {' | '.join(measured)} |")
    return "\n".join(lines) + "\n"


def _key(row: SteadyRow) -> tuple[str, str, bool, bool]:
    return row.metric, row.point, row.minimum is None, row.maximum is None


def _verdict(found: Sequence[Steadiness], backend: str) -> str:
    """Return how many of the runs passed, and of how many the machine was overrun."""
    verdicts = [run.verdict for one in found if one.backend.value == backend for run in one.runs]
    invalid = verdicts.count(Outcome.INVALID)
    passed = f"{verdicts.count(Outcome.PASS)} of {len(verdicts)} runs pass"
    return f"{passed}, {invalid} invalid" if invalid else passed


def _measured(row: SteadyRow | None) -> str:
    if row is None or row.mean is None:
        return ""
    mean, least, most = (f"{value:.3g}" for value in (row.mean, row.least or 0.0, row.most or 0.0))
    return mean if least == most else f"{mean} ({least} to {most})"


def _band(row: SteadyRow) -> str:
    low, high = (None if limit is None else f"{limit:.3g}" for limit in (row.minimum, row.maximum))
    if low is not None and high is not None:
        return f"{low} to {high}"
    return f"at least {low}" if low is not None else f"at most {high}"


def _overview(found: Sequence[Section]) -> Iterator[str]:
    yield "| | claim | scenario | simulated | emulated | carries over |"
    yield "|---|---|---|---|---|---|"
    for section in found:
        seen = _seen(section)
        cells = [
            str(section.number),
            _LINK.sub(r"\1", section.title),
            ", ".join(f"`{name}`" for name in section.scenarios),
            *(seen.get(word, "not run") for word in _WORDS.values()),
            section.verdict,
        ]
        yield f"| {' | '.join(cells)} |"


def _seen(section: Section) -> Mapping[str, str]:
    """Return what the tables of a section say of each backend."""
    found: dict[str, str] = {}
    for one in _RESULT.finditer(section.text):
        found[one["what"]] = "; ".join(filter(None, [found.get(one["what"], ""), one["verdict"]]))
    return found


def main(directories: Sequence[str]) -> None:
    """Write the page anew with what lies below these directories."""
    PAGE.write_text(with_results(PAGE.read_text(), find_steadiness([Path(one) for one in directories])))


if __name__ == "__main__":
    main(sys.argv[1:])
