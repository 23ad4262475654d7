"""Printing what the queues of a lab saw, for `stats`: once, or refreshed in place."""

from __future__ import annotations

import csv
import json
import re
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from testbed.base.descriptors import wait_readable
from testbed.base.errors import LabNotFound, TestbedError
from testbed.base.interrupt import Interrupt
from testbed.base.units import TIME, QuantityError
from testbed.cli.counters.sources import StatsFrame, StatsSource, open_source
from testbed.cli.options import Format
from testbed.cli.output import console, emit_json
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory

if TYPE_CHECKING:
    from rich.live import Live

DEFAULT_INTERVAL_S = 1.0
SHORTEST_INTERVAL_S = 0.1
_SPAN = re.compile(r"^\d")
"""No node is called so: names start with a letter."""


def print_stats(
    lab: RunningLab,
    arguments: Sequence[str],
    form: Format,
    *,
    class_name: str | None,
    every: bool,
    scale_up: bool,
    watch: bool,
    reset: bool,
) -> None:
    """Print counters since the deploy, those of a span of time, or with `watch` those of one span after another.

    `arguments` name ports by patterns, and the span. `scale_up` shows links of scale-up domains instead of queues,
    `every` queues that saw nothing, too; `reset` lets maxima start anew.
    """
    patterns = [argument for argument in arguments if not _SPAN.match(argument)]
    spans = [parse_span_s(argument) for argument in arguments if _SPAN.match(argument)]
    if len(spans) > 1:
        raise TestbedError("two spans of time are given", hint="for example `testbed stats --watch 2s`")
    source: StatsSource
    if scale_up:
        from testbed.cli.counters.plane_source import PlaneSource

        source = PlaneSource(lab, patterns, every=every)
    else:
        source = open_source(lab, patterns, class_name=class_name, every=every)
    if reset:
        source.reset_maxima()
    if watch:
        _watch(lab, source, spans[0] if spans else DEFAULT_INTERVAL_S, form)
    elif spans:
        with Interrupt() as interrupt:
            before = source.read(None)
            if not wait_readable(interrupt, spans[0]):
                _print(source.read(before), form)
    else:
        _print(source.read(None), form)


def parse_span_s(text: str) -> float:
    """Read `2`, `0.5` (seconds) or `500ms`. Raises `TestbedError` for anything else."""
    try:
        seconds = float(TIME.counted_in("s").read(text))
    except QuantityError as error:
        raise TestbedError(f"{text!r} is not a span of time", hint="for example 2, 0.5 or 500ms") from error
    if seconds < SHORTEST_INTERVAL_S:
        raise TestbedError(f"{text} is too short a span", hint=f"{SHORTEST_INTERVAL_S:g} s or more")
    return seconds


def _print(frame: StatsFrame, form: Format) -> None:
    match form:
        case Format.JSON:
            emit_json(frame.document())
        case Format.CSV:
            _print_csv(frame, heading=True)
        case Format.TABLE:
            screen = console()
            screen.print(frame.table(None))
            screen.print(frame.footer(), soft_wrap=True)


def _print_csv(frame: StatsFrame, *, heading: bool) -> None:
    rows = frame.rows()
    writer = csv.DictWriter(sys.stdout, frame.columns, lineterminator="\n", extrasaction="ignore")
    if heading:
        writer.writeheader()
    writer.writerows(rows)


def _watch(lab: RunningLab, source: StatsSource, interval_s: float, form: Format) -> None:
    """Show one frame after each interval until interrupted: in place on a terminal, one below the other elsewhere."""
    display = _Display(form)
    with Interrupt() as interrupt, display:
        due = time.monotonic()
        before = source.read(None)
        while True:
            due = max(due + interval_s, time.monotonic())
            if wait_readable(interrupt, due - time.monotonic()):
                return
            _require_same_lab(lab)
            frame = source.read(before)
            display.show(frame)
            before = frame


def _require_same_lab(lab: RunningLab) -> None:
    """Raise `LabNotFound` once the lab is gone or another one has its name."""
    if StateDirectory().read(lab.name).created != lab.record.created:
        raise LabNotFound(f"{lab.name} was deployed anew meanwhile", hint="start again to see the new lab")


class _Display:
    def __init__(self, form: Format) -> None:
        self._form = form
        self._shown = 0
        self._live: Live | None = None

    def __enter__(self) -> _Display:
        if self._form is Format.TABLE and sys.stdout.isatty():
            from rich.live import Live

            self._live = Live(console=console(), auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, frame: StatsFrame) -> None:
        if self._live is not None:
            from rich.console import Group

            room = max(1, self._live.console.height - 8)
            self._live.update(Group(frame.table(room), frame.footer()), refresh=True)
        elif self._form is Format.JSON:
            sys.stdout.write(json.dumps(frame.document()) + "\n")
        elif self._form is Format.CSV:
            _print_csv(frame, heading=not self._shown)
        else:
            _print(frame, self._form)
        self._shown += 1
        sys.stdout.flush()
