"""The console itself: what all requests share."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.api.console.action import PageAction
from testbed.api.console.answers import RefusedRequest, encode, not_found
from testbed.api.console.counters.history import KEPT_S, TICK_S
from testbed.api.console.failures import RETRY_S, PartFailure, PartFailures
from testbed.api.console.files import StartDirectories
from testbed.api.console.live.lab import WatchedLab
from testbed.api.console.machine.labs import LabRow, LabsWatch
from testbed.api.console.machine.trust import Trust, TrustWatch
from testbed.api.console.sources.source import Source
from testbed.api.console.stream.feed import Feed
from testbed.api.console.tasks import Task, Tasks
from testbed.api.console.view import Readers, View
from testbed.base.names import check_lab_name
from testbed.base.version import __version__
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.observe.sampler import TickSchedule

if TYPE_CHECKING:
    from testbed.api.console.machine.others import OtherMachines

MOST_STREAMS = 256
MOST_SHELLS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """The settings of a console. `opens` is the address that a page shows first; None: the list of labs.

    `only` is the one lab that it shows, where it is a service of that lab, and `also` names other machines, whose labs
    it lists, too, as `--on` takes them.
    """

    roots: tuple[Path, ...]
    write: bool = False
    opens: str | None = None
    only: str | None = None
    also: tuple[str, ...] = ()


class Console:
    """The state of one console. It belongs to the loop's thread, where nothing else is said.

    `play` returns the source of a record's run, by its directory, point and run; it keeps those that are open.
    """

    def __init__(
        self,
        settings: ConsoleSettings,
        state: StateDirectory,
        *,
        views: Sequence[View] = (),
        actions: Sequence[PageAction] = (),
        tables: Sequence[Mapping[str, Any]] = (),
        play: Callable[[StartDirectories, str, int, int], Source] | None = None,
    ) -> None:
        self.settings = settings
        self.state = state
        self.write = settings.write
        self.views = {view.name: view for view in views}
        self.actions = {action.name: action for action in actions}
        self.tables = list(tables)
        self.files = StartDirectories(settings.roots)
        self.readers = Readers()
        self.loop = asyncio.get_running_loop()
        self.feed = Feed(self.common)
        self.tasks = Tasks(self.loop, Path.cwd(), self._tell_task)
        self.streams = 0
        self.shells = 0
        self._play = play
        self._live: dict[str, WatchedLab] = {}
        self._recorded: dict[Source, Feed] = {}
        self._opening: dict[str, asyncio.Future[WatchedLab]] = {}
        self._watching: dict[tuple[str, str], threading.Event] = {}
        self.failures = PartFailures(self._tell_failures)
        self._trust = TrustWatch(self._tell_trust, self._is_looked_at, self.failures)
        self._labs = LabsWatch(state, self._tell_labs, self._is_looked_at, self._states_of, self.failures)
        self.others: OtherMachines | None = None
        self._stopped = threading.Event()
        self._ticker = threading.Thread(target=self._tick_on, name="ticker", daemon=True)
        self.tick_cpu_s = 0.0
        """The CPU time that the ticker's thread has taken."""
        self.ticks = 0

    def start(self) -> None:
        """Begin to read the machine and the labs."""
        self._trust.start()
        self._labs.start()
        if self.others is not None:
            self.others.start()
        self._ticker.start()

    async def close(self, tell: Callable[[str], None] = lambda sentence: None) -> None:
        """End all that goes on: streams, tasks, threads. `tell` gets a sentence where that takes long."""
        self._stopped.set()
        for stop in list(self._watching.values()):  # whose threads take themselves out
            stop.set()
        for feed in self._feeds():
            feed.close()
        await self.tasks.close(tell)
        await asyncio.to_thread(self._close_threads)
        self.readers.close()

    def _close_threads(self) -> None:
        self._trust.close()
        self._labs.close()
        if self.others is not None:
            self.others.close()
        if self._ticker.is_alive():
            self._ticker.join(timeout=5)
        for lab in list(self._live.values()):
            lab.close()

    def require_write(self) -> None:
        """Raise `RefusedRequest` in a console that only reads."""
        if not self.write:
            raise RefusedRequest(
                403, "this console only reads", hint="start it with --write to change labs from it", code="read-only"
            )

    # --- what is looked at ------------------------------------------------------------------------------

    async def live_lab(self, name: str) -> WatchedLab:
        """Return the lab of a name, which is opened when it is asked for first.

        Raises `LabNotFound`, and `RefusedRequest` for one that this console does not show.
        """
        try:
            check_lab_name(name)
        except ValueError as error:
            raise not_found(f"there is no lab {name!r}") from error
        if self.settings.only not in (None, name):
            raise not_found(f"this console shows the lab {self.settings.only} alone")
        found = self._live.get(name)
        if found is not None and not found.ended:
            return found
        if found is not None:
            del self._live[name]
            await asyncio.to_thread(found.close)
            return await self.live_lab(name)  # somebody else may have opened it meanwhile
        if name not in self._opening:
            work = asyncio.ensure_future(self.readers.run(lambda: self._open(name)))
            self._opening[name] = work
            work.add_done_callback(lambda done: self._opened(name, done))
        return await asyncio.shield(self._opening[name])

    def _open(self, name: str) -> WatchedLab:
        return WatchedLab(name, self.state, self.loop, self.common, self.failures)

    def _opened(self, name: str, done: asyncio.Future[WatchedLab]) -> None:
        self._opening.pop(name, None)
        if not done.cancelled() and done.exception() is None:
            self._live[name] = done.result()

    def played(self, directory: str, point: int, run: int) -> Source:
        """Return a run of a record. Among the readers. Raises `RefusedRequest`, `RecordError`."""
        if self._play is None:
            raise not_found("this console shows no records")
        return self._play(self.files, directory, point, run)

    def feed_of_record(self, source: Source, snapshot: Callable[[], bytes]) -> Feed:
        """Return the feed of a run that is played back, which all pages share that look at it."""
        if source not in self._recorded:
            self._recorded[source] = Feed(snapshot)
        return self._recorded[source]

    def leave_record(self, source: Source) -> None:
        """Forget the feed of a run that no page looks at any more."""
        if source in self._recorded and self._recorded[source].listeners == 0:
            del self._recorded[source]

    def labs(self) -> tuple[LabRow, ...]:
        """Return the list of labs as it is now. Among the readers."""
        return self._shown_labs(self._labs.read())

    def labs_changed(self) -> None:
        """Have the list of labs read at once. In any thread."""
        self._labs.ask()

    def _states_of(self, name: str) -> Sequence[str]:
        found = self._live.get(name)
        return () if found is None or found.ended else found.now().state.nodes

    def _shown_labs(self, rows: Sequence[LabRow]) -> tuple[LabRow, ...]:
        own = tuple(row for row in rows if self.settings.only in (None, row.name))
        return own if self.others is None else own + self.others.labs

    def watch_views(self, source: WatchedLab) -> None:
        """Let the views that watch a lab begin, where they have not: a page looks at it."""
        for view in self.views.values():
            key = (source.base, view.name)
            if view.watch is not None and key not in self._watching:
                self._watching[key] = stop = threading.Event()
                threading.Thread(
                    target=self._watch_view,
                    args=(view, source, stop),
                    name=f"{view.name} of {source.name}",
                    daemon=True,
                ).start()

    def _watch_view(self, view: View, source: WatchedLab, stop: threading.Event) -> None:
        watch = view.watch
        assert watch is not None
        part = f'the view "{view.title}" of {source.name}'

        def publish(data: object) -> None:
            self.failures.clear(part)
            source.publish_view(view.name, data)

        try:
            while not self.failures.run(part, lambda: watch(source, publish, stop)):
                if stop.wait(RETRY_S):
                    break
        finally:
            self.failures.clear(part)
            if self._watching.get((source.base, view.name)) is stop:
                self._watching.pop((source.base, view.name), None)

    def unwatch_views(self, source: WatchedLab) -> None:
        """Let the views of a lab end that no page looks at any more."""
        if source.feed.listeners == 0:
            for key in [key for key in list(self._watching) if key[0] == source.base]:
                if (stop := self._watching.pop(key, None)) is not None:
                    stop.set()

    # --- what all pages are told ------------------------------------------------------------------------

    def described(self) -> dict[str, Any]:
        """Return what a page has to know of the console."""
        return {
            "version": __version__,
            "write": self.write,
            "machine": socket.gethostname(),
            "roots": self.files.names,
            "open": self.settings.opens,
            "only": self.settings.only,
            "history_s": KEPT_S,
            "tick_s": TICK_S,
            "views": [view.to_json() for view in sorted(self.views.values(), key=lambda view: view.order)],
            "actions": [action.to_json() for action in self.actions.values()],
            "tables": self.tables,
            "limits": {"shells": MOST_SHELLS, "streams": MOST_STREAMS},
        }

    def cost(self) -> dict[str, Any]:
        """Return what the console takes: CPU time of its process, its memory, its pages."""
        with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123
            resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return {
            "cpu_s": time.process_time(),
            "tick_cpu_s": self.tick_cpu_s,
            "ticks": self.ticks,
            "resident_bytes": resident,
            "streams": self.streams,
            "shells": self.shells,
            "kept_bytes": sum(feed.kept_bytes for feed in self._feeds()),
            "threads": _cpu_of_threads(),
        }

    def _feeds(self) -> list[Feed]:
        return [self.feed, *(lab.feed for lab in list(self._live.values())), *list(self._recorded.values())]

    def _is_looked_at(self) -> bool:
        return self.streams > 0

    def common(self) -> bytes:
        return encode(
            {
                "trust": self._trust.latest,
                "labs": self._shown_labs(self._labs.latest),
                "tasks": self.tasks.to_json(0),
                "write": self.write,
                "failing": self.failures.latest,
                "machines": () if self.others is None else self.others.machines,
            }
        )

    def _publish(self, event: str, document: object) -> None:
        """Tell all pages, whatever they look at. In any thread."""
        data = encode(document)
        try:
            self.loop.call_soon_threadsafe(self._publish_now, event, data)
        except RuntimeError:  # the loop has ended
            return

    def _publish_now(self, event: str, data: bytes) -> None:
        for feed in self._feeds():
            feed.publish(event, data)

    def _tell_trust(self, trust: Trust) -> None:
        self._publish("trust", trust)

    def _tell_labs(self, rows: tuple[LabRow, ...]) -> None:
        self._publish("labs", self._shown_labs(rows))

    def others_changed(self) -> None:
        """Tell pages of the labs of other machines. In any thread."""
        self._publish("machines", () if self.others is None else self.others.machines)
        self._publish("labs", self._shown_labs(self._labs.latest))

    def is_looked_at(self) -> bool:
        """Tell whether a page looks. In any thread."""
        return self._is_looked_at()

    def _tell_failures(self, failures: tuple[PartFailure, ...]) -> None:
        self._publish("failing", failures)

    def _tell_task(self, task: Task, lines: list[str]) -> None:
        self._publish("task", task.to_json(0) | {"new": lines})
        if task.ended:
            self.labs_changed()

    # --- the ticker's thread ----------------------------------------------------------------------------

    def _tick_on(self) -> None:
        interval_ns = round(TICK_S * 1e9)
        schedule = TickSchedule(time.monotonic_ns(), interval_ns)
        while not self._stopped.wait(max(0, schedule.due_ns - time.monotonic_ns()) / 1e9):
            schedule.take(time.monotonic_ns())
            for lab in list(self._live.values()):
                if not lab.ended:
                    self.failures.run(f"the counters of {lab.name}", lab.tick)
            self.ticks += 1
            self.tick_cpu_s = time.thread_time()


def _cpu_of_threads() -> dict[str, float]:
    """Return the CPU time of each thread that is there, by its name, in seconds."""
    found = {}
    for thread in threading.enumerate():
        if thread.ident is not None and thread.is_alive():
            with suppress(OSError):  # it has ended meanwhile
                found[thread.name] = round(time.clock_gettime(time.pthread_getcpuclockid(thread.ident)), 4)
    return found
