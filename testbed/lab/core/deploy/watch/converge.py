"""Waiting until routing has converged: every planned prefix in every kernel table with the planned next hops.

Nothing here sleeps. Each switch has a netlink socket that hears of route changes; a switch that heard one
is compared with the plan once it has been quiet for a moment, and at least every half second. When all
tables are right, the BGP sessions and BFD peers that no table proves are asked for, again at each change; a table
that has changed meanwhile is compared once more: a session that was made anew took its routes along, and brings them.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testbed.base.errors import ConvergenceError
from testbed.base.linux import syscalls
from testbed.base.linux.inotify import IN_MODIFY, DirectoryWatch
from testbed.base.linux.namespaces import enter_namespace
from testbed.base.linux.routes import (
    Mismatch,
    RouteKey,
    RouteMonitor,
    WantedRoute,
    are_weighted,
    bgp_routes,
    bgp_weights,
    difference,
    key_text,
    wanted_routes,
)
from testbed.base.linux.rtnetlink import RouteSocket
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.steps import StepCallback, StepEvent
from testbed.lab.core.deploy.watch.sessions import missing_sessions
from testbed.lab.core.feature import features
from testbed.lab.core.plan.lab_plan import LabPlan, SwitchPlan

QUIET_S = 0.04
"""The longest time for which a table has to be quiet before it is looked at."""
_LOOKS_APART = 4
"""It need not be longer than so many times what a look at all tables takes: of a few it is a moment."""
LONGEST_UNCHECKED_S = 0.5
MISSING_SHOWN = 12
DAEMONS_CHECKED_S = 0.5


@dataclass(slots=True, kw_only=True)
class _Table:
    """A switch's planned routes against its kernel's."""

    node: str
    expected: Mapping[RouteKey, WantedRoute]
    weighted: bool
    monitor: RouteMonitor
    query: RouteSocket
    changed_at: float
    checked_at: float = 0.0
    dirty: bool = True
    took_s: float = QUIET_S
    """The time that the last look at it took."""
    missing: dict[RouteKey, Mismatch] = field(default_factory=dict)

    def due(self, quiet_s: float) -> float:
        """Return when it should be looked at next, which is once it has been quiet."""
        return min(self.changed_at + quiet_s, self.checked_at + LONGEST_UNCHECKED_S)

    def hear(self) -> bool:
        """Take note of changes, and tell whether there were any."""
        if heard := self.monitor.drain():
            self.changed_at = time.monotonic()
            self.dirty = True
        return heard

    def check(self, now: float) -> None:
        # Where a session came up just now, the bandwidth of a path may be on its way, and all next hops are alike.
        weights = bgp_weights(self.query) if self.weighted else {}
        self.missing = difference(self.expected, bgp_routes(self.query), weights)
        self.checked_at = now
        self.took_s = time.monotonic() - now
        self.dirty = False

    def close(self) -> None:
        self.monitor.close()
        self.query.close()


class ConvergenceWatch:
    """Subscribes to the routes of all switches of a lab, or of `only` some; make it before the daemons start."""

    def __init__(
        self, plan: LabPlan, run_directory: Path, only: Container[str] | None = None, before: LabPlan | None = None
    ) -> None:
        """`before` is the plan of the lab as it is, where it changes: weights that it has may have to go."""
        self.plan = plan
        """The plan of the lab whose routing it watches."""
        self._run = run_directory
        self._speakers = [switch for switch in plan.speakers if only is None or switch.node in only]
        indexes = {(port.node, port.name): port.ifindex for port in plan.ports}
        now = time.monotonic()

        def subscribe() -> list[_Table]:
            tables = []
            for switch in self._speakers:
                enter_namespace(namespace_name(plan.lab, switch.node))
                expected = wanted_routes(plan.expected_routes.get(switch.node, ()), indexes, switch.node)
                former = () if before is None else before.expected_routes.get(switch.node, ())
                tables.append(
                    _Table(
                        node=switch.node,
                        expected=expected,
                        weighted=are_weighted(expected) or any(route.weights for route in former),
                        monitor=RouteMonitor(),
                        query=RouteSocket(),
                        changed_at=now,
                    )
                )
            return tables

        self._tables = syscalls.in_thread(subscribe)
        begun = [feature.watch(plan, run_directory) for feature in features()]
        self._watches = [watch for watch in begun if watch is not None]

    def close(self) -> None:
        for watch in self._watches:
            watch.close()
        for table in self._tables:
            table.close()

    def wait(
        self,
        timeout_s: float,
        notify: StepCallback,
        check_daemons: Callable[[], None] = lambda: None,
        wait_hosts: Callable[[], None] = lambda: None,
    ) -> None:
        """Return when converged; raise `ConvergenceError` naming what is missing after `timeout_s`.

        `check_daemons` is called now and then, and may raise: without a daemon the wait would be in vain. `wait_hosts`
        is called before what features wait for: an overlay hears of hosts whose NICs are up.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            self._wait_tables(deadline, notify, timeout_s, check_daemons)
            wait_sessions(self._speakers, self._run, deadline, timeout_s, check_daemons)
            if not self._has_changed():
                break
        wait_hosts()
        for watch in self._watches:
            if missing := watch.wait(deadline, notify, check_daemons):
                raise convergence_error(missing, timeout_s)

    def _has_changed(self) -> bool:
        """Tell whether a table has changed since all were right."""
        heard = [table.hear() for table in self._tables]
        return any(heard)

    def _wait_tables(
        self, deadline: float, notify: StepCallback, timeout_s: float, check_daemons: Callable[[], None]
    ) -> None:
        total = sum(len(table.expected) for table in self._tables)
        by_fd = {table.monitor.fileno(): table for table in self._tables}
        poller = select.epoll()
        for fd in by_fd:
            poller.register(fd, select.EPOLLIN)
        shown = -1
        daemons_due = 0.0
        with contextlib.closing(poller):
            while True:
                now = time.monotonic()
                quiet_s = min(QUIET_S, _LOOKS_APART * sum(table.took_s for table in self._tables))
                for table in self._tables:
                    if table.dirty and table.due(quiet_s) <= now:
                        table.check(time.monotonic())
                open_routes = sum(len(t.missing) if t.checked_at else len(t.expected) for t in self._tables)
                if total - open_routes != shown:
                    shown = total - open_routes
                    notify(StepEvent(step="converge", phase="progress", done=shown, total=total, detail="routes"))
                if not any(table.dirty or table.missing for table in self._tables):
                    return
                if now >= deadline:
                    raise self._error(timeout_s)
                if now >= daemons_due:
                    check_daemons()
                    daemons_due = now + DAEMONS_CHECKED_S
                waits = [table.due(quiet_s) - now for table in self._tables if table.dirty]
                for fd, _ in poller.poll(max(0.0, min([*waits, deadline - now, daemons_due - now]))):
                    by_fd[fd].hear()

    def _error(self, timeout_s: float) -> ConvergenceError:
        missing = [
            f"{table.node}: {key_text(key)} {mismatch}"
            for table in self._tables
            for key, mismatch in sorted(table.missing.items(), key=lambda item: item[0])
        ]
        missing += missing_sessions(self._speakers, self._run)
        return convergence_error(missing, timeout_s)


def convergence_error(missing: Sequence[str], timeout_s: float) -> ConvergenceError:
    shown = [f"  {line}" for line in missing[:MISSING_SHOWN]]
    if len(missing) > MISSING_SHOWN:
        shown.append(f"  ... and {len(missing) - MISSING_SHOWN} more")
    return ConvergenceError(
        f"routing has not converged within {timeout_s:g} s; missing:\n" + "\n".join(shown),
        missing=missing,
        hint="the lab is up: look with `testbed inspect bgp` and `testbed logs NODE`, or `testbed destroy` it",
    )


def wait_sessions(
    speakers: Sequence[SwitchPlan],
    run: Path,
    deadline: float,
    timeout_s: float,
    check_daemons: Callable[[], None] = lambda: None,
) -> None:
    """Wait until every planned BGP session of some switches is established, and every BFD peer is up.

    Woken by the logs of bgpd and bfdd, to which they write each session and each peer that changes state.
    """
    with contextlib.closing(DirectoryWatch()) as watch:
        pending = speakers
        for switch in pending:
            watch.add(run / switch.node, IN_MODIFY)
        while True:
            list(watch.read())
            missing: list[str] = []
            still: list[SwitchPlan] = []
            for switch in pending:
                lines = missing_sessions([switch], run)
                if lines:
                    still.append(switch)
                    missing += lines
            if not missing:
                return
            pending = still
            check_daemons()
            left = deadline - time.monotonic()
            if left <= 0:
                raise convergence_error(missing, timeout_s)
            watch.wait(min(left, DAEMONS_CHECKED_S))
