"""Puts the results of the gallery of papers into its page, from the records of runs: `gallery.py RESULTS...`.

Each section of `docs/papers.md` has a number and names scenarios by marks, `<!-- NAME: begin -->` and `<!-- NAME: end
-->`, between which the table of that scenario stands. The table of all sections stands between the marks `gallery`.
Scenarios of which the directories have no runs (of `run --steady`) keep the table that they have, and a backend without
new runs keeps its column, unless the scenario expects something else by now: that is said then.

A band around an oracle is another one on each backend, whose switches hash otherwise: the table has how far from the
oracle a figure may be, and each figure the band that it had.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from testbed.record.record import Outcome
from testbed.record.report.steadiness.page import with_table
from testbed.record.report.steadiness.rows import SteadyRow, steady_rows
from testbed.record.steady import Steadiness, find_steadiness

PAGE = Path(__file__).parents[1] / "papers.md"
SCENARIOS = Path(__file__).parents[2] / "scenarios"
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
            columns = _columns(mine, [row for row in rows if row.scenario == name], around_oracles(name))
            page = with_table(page, _results(columns, _kept(page, name, columns)), name)
    return with_table(page, "\n".join(_overview(sections(page))) + "\n", OVERVIEW)


def around_oracles(name: str) -> dict[tuple[str, str], str]:
    """Return, by metric and source, how far from the oracle a figure of a shipped scenario may be."""
    files = [file for file in (SCENARIOS / f"{name}.yml", SCENARIOS / f"papers/{name}.yml") if file.exists()]
    entries = [entry for file in files for entry in yaml.safe_load(file.read_text())["expect"]]
    return {
        (entry["metric"], entry["source"]): f"within {entry['tolerance']} of the oracle"
        for entry in entries
        if "within" in entry
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """What runs on one backend came to: a sentence, and what was measured for each expectation and its band."""

    verdict: str
    cells: Mapping[tuple[str, str], str]


def _columns(
    found: Sequence[Steadiness], rows: Sequence[SteadyRow], oracles: Mapping[tuple[str, str], str]
) -> dict[str, Column]:
    """Return the columns of one scenario that was run, by the words of their backends."""
    return {
        _WORDS[backend]: Column(
            verdict=_verdict(found, backend),
            cells=dict(_cell(row, oracles) for row in rows if row.backend == backend),
        )
        for backend in {one.backend.value for one in found}
    }


def _cell(row: SteadyRow, oracles: Mapping[tuple[str, str], str]) -> tuple[tuple[str, str], str]:
    """Return what is expected of which figure and point, its band, and what was measured."""
    place = _FOLDERS.sub("", f"`{row.metric}`" + (f" at `{row.point}`" if row.point else ""))
    around = oracles.get((row.metric, row.source))
    if around is None:
        return (place, _band(row)), _measured(row)
    return (place, around), f"{_measured(row)}, expected {_band(row)}" if row.count else ""


def _between_marks(text: str, name: str) -> str:
    """Return what a text has of a scenario between its marks; "" where it has none."""
    return text.partition(f"<!-- {name}: begin -->")[2].partition(f"<!-- {name}: end -->")[0]


def _kept(page: str, name: str, new: Mapping[str, Column]) -> dict[str, Column]:
    """Return the columns that a page has of backends that were not run again; none that are of other expectations."""
    text = _between_marks(page, name)
    table = [line[1:-1].split("|") for line in text.splitlines() if line.startswith("| ")]
    titles, *lines = [[cell.strip() for cell in line] for line in table] or [[]]
    expected = {place for column in new.values() for place in column.cells}
    kept = {}
    for one in _RESULT.finditer(text):
        word = one["what"]
        if word in new or word.lower() not in titles:
            continue
        at = titles.index(word.lower())
        cells = {(line[0], line[1]): line[at] for line in lines}
        if not expected or set(cells) == expected:  # nothing is expected in runs that were cut short
            kept[word] = Column(verdict=one["verdict"], cells=cells)
        else:
            print(
                f"{name}: it expects something else than when it was {word.lower()}, which is left out", file=sys.stderr
            )
    return kept


def _results(new: Mapping[str, Column], kept: Mapping[str, Column]) -> str:
    """Return what runs of one scenario came to: a sentence for each backend, and a row for each expectation."""
    every = {**kept, **new}
    columns = {word: every[word] for word in _WORDS.values() if word in every}
    lines = [f"{word}: {column.verdict}." for word, column in columns.items()]
    titles = ["expectation", "band", *map(str.lower, columns)]
    lines += ["", f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for place, band in dict.fromkeys(key for column in (*new.values(), *kept.values()) for key in column.cells):
        measured = (column.cells.get((place, band), "") for column in columns.values())
        lines.append(f"| {place} | {band} | {' | '.join(measured)} |")
    return "\n".join(lines) + "\n"


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
    """Return what the tables of a section say of each backend, scenario by scenario, where one of them was run."""
    tables = [_between_marks(section.text, name) for name in section.scenarios]
    found = [{one["what"]: one["verdict"] for one in _RESULT.finditer(table)} for table in tables]
    words = {word for each in found for word in each}
    return {word: "; ".join(each.get(word, "not run") for each in found) for word in words}


def main(directories: Sequence[str]) -> None:
    """Write the page anew with what lies below these directories."""
    PAGE.write_text(with_results(PAGE.read_text(), find_steadiness([Path(one) for one in directories])))


if __name__ == "__main__":
    main(sys.argv[1:])
