"""The records of `tests/data`, their reports as terminals show them, and pages as browsers take them in."""

import io
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

from rich.console import Console

from testbed.record.record import Record, RunResult
from testbed.record.report import print_record
from testbed.record.store import load_record

RECORDS = Path(__file__).parents[2] / "data" / "records"
NAMES = sorted(path.stem for path in RECORDS.glob("*.json"))
BESIDE = {"record.json", "summary.json", "metrics.csv", "transfers.csv", "channels.csv", "nccl-tests.txt"}
"""Files of a report that its page may refer to."""


def load(name: str) -> Record:
    return load_record(RECORDS / f"{name}.json")


def with_runs(record: Record, change: Callable[[RunResult], RunResult]) -> Record:
    """The record, every run of which is changed."""
    return replace(record, points=[replace(point, runs=list(map(change, point.runs))) for point in record.points])


def printed(print_on: Callable[[Console], None], width: int = 200) -> str:
    """Return what is printed on a console of that width that has no colours."""
    output = io.StringIO()
    print_on(Console(file=output, width=width, color_system=None))
    return output.getvalue()


def screen(record: Record, width: int = 200) -> str:
    return printed(lambda console: print_record(record, console), width)


class Page(HTMLParser):
    """A page as a browser takes it in. Fails where elements are not closed in their order."""

    VOID = frozenset({"meta", "link", "br", "img", "input", "wbr"})

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[tuple[str, str]] = []
        """Tags that are not closed yet, and their classes."""
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.nodes: list[tuple[int, str]] = []
        """Numbers of the nodes of a lab that are drawn, and the classes that they are drawn in, the innermost first."""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append((tag, values))
        if "data-n" in values:
            self.nodes.append((int(values["data-n"] or ""), " ".join(classes for _, classes in reversed(self.open))))
        if tag not in self.VOID:
            self.open.append((tag, values.get("class") or ""))
        if tag == "script":
            self.scripts.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1][0] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1][0] == "script":
            self.scripts[-1] += data

    def values(self, *names: str) -> list[str]:
        """The values of all attributes of these names."""
        return [value or "" for _, attributes in self.tags for name, value in attributes.items() if name in names]

    def references(self) -> list[str]:
        return self.values("src", "href", "xlink:href", "action", "data")

    def assert_inert(self) -> None:
        """No script, and no reference but to the page itself, to files that stand beside it, and to embedded CSV."""
        assert not self.scripts
        assert not [name for _, attributes in self.tags for name in attributes if name.startswith("on")]
        elsewhere = [one for one in self.references() if not one.startswith(("#", "data:text/csv;base64,"))]
        assert set(elsewhere) <= BESIDE
