"""Showing steps while they run: one line each, with a bar where a step can count."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from testbed.cli.output import error_console
from testbed.lab.core.deploy.steps import StepEvent

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


class StepDisplay:
    """Subscribes to step events. On a terminal it moves; elsewhere it prints one line a step."""

    def __init__(self, quiet: bool = False) -> None:
        self._console: Console | None = None if quiet else error_console()
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> StepDisplay:
        if self._console is not None and sys.stderr.isatty():
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            self._progress = Progress(
                TextColumn("{task.description:<10}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[detail]}"),
                TimeElapsedColumn(),
                console=self._console,
            )
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def __call__(self, event: StepEvent) -> None:
        if self._console is None:
            return
        if self._progress is None:
            if event.phase == "stop":
                self._console.print(f"{event.step:<10} {event.detail} [dim]({event.duration_s:.1f} s)[/dim]")
            return
        if event.step not in self._tasks:
            self._tasks[event.step] = self._progress.add_task(event.step, total=None, detail=event.detail)
        task = self._tasks[event.step]
        match event.phase:
            case "progress":
                detail = f"{event.done}/{event.total} {event.detail}"
                self._progress.update(task, total=event.total, completed=event.done, detail=detail)
            case "stop":
                self._progress.update(task, total=1, completed=1)
                self._progress.stop_task(task)
