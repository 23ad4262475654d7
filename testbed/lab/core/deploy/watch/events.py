"""Tells what happens in a lab as it happens: daemons that end, links that change, BGP and BFD sessions, pausing."""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import os
import re
import select
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.base.cleanup import on_failure
from testbed.base.errors import LabNotFound
from testbed.base.linux import rtnetlink, syscalls
from testbed.base.linux.inotify import IN_CREATE, IN_MODIFY, DirectoryWatch
from testbed.base.linux.namespaces import enter_namespace
from testbed.base.linux.rtnetlink import RouteSocket
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.live import NodeStatus, RunningLab
from testbed.lab.core.deploy.pausing import attachment
from testbed.lab.core.deploy.records.kept_events import ACTIONS_FILE, CHANGES_FILE, LAB_CHANGED
from testbed.lab.core.feature import features

ADJACENCY = re.compile(r"%ADJCHANGE: neighbor (?P<peer>\S+?)(?:\([^)]*\))? in vrf \S+ (?P<state>Up|Down)(?P<reason>.*)")
"""A line of a log of bgpd that says that a session came up or went down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabEvent:
    """`kind`: snapshot, daemon-ended, link-up, link-down, bgp-up, bgp-down, service-ended, service-started,
    plane-down, plane-up, switch-ended, switch-started, lab-destroyed, notifications-lost, lab-changing, thing-made,
    thing-changed, thing-remade, thing-restarted, thing-removed, lab-changed.

    Of `apply`: `lab-changing` when it begins, and once all is done one for each thing, whose subject is its name and
    whose detail what of it differs; `lab-changed` is the last. What comes and goes with a node or a link is told by it.

    Of scale-up domains: `plane-down` and `plane-up` of a GPU's interface of a plane (gpu1p2 of its host) say that the
    link lost its signal, or has it again, by a fault or `link down`; the two of a switch, whose node is the domain's
    namespace, that its process ended or began.

    console-action: what a person asked for in a page of `testbed console`; its detail is the command line that does the
    same. It comes before what it brings about.

    `notifications-lost` says that things happened which nobody was told; what is known of them follows.

    Of the past alone (`past_events`): lab-deployed, power-off, power-on, daemon-killed, pfc-storm, and link-set, which
    says how what a port sends was changed; its link-up and link-down are of the ends that were told so.

    Of the overlay's keeper: router-renewed, router-lost; their subject is a tenant.

    Of the pause agent: portd-attached, portd-died, portd-resumed, portd-guard-died, pfc-watchdog-freed,
    pfc-watchdog-restored, pfc-storm-began, pfc-storm-ended, pfc-malformed, pfc-failed.

    `by` is the command that did it and its process, where testbed did; "" where nobody knows.
    """

    time: str
    lab: str
    node: str
    kind: str
    subject: str
    detail: str = ""
    by: str = ""


def session_event(lab: str, node: str, match: re.Match[str], at: datetime.datetime) -> LabEvent:
    """The event that a line of bgpd's log tells, which `ADJACENCY` matches, at a time."""
    kind, reason = f"bgp-{match['state'].lower()}", match["reason"].strip()
    return LabEvent(time=_text(at), lab=lab, node=node, kind=kind, subject=match["peer"], detail=reason)


def _text(at: datetime.datetime) -> str:
    return at.isoformat(timespec="milliseconds")


class EventStream:
    """An iterator over a lab's events; it begins with one `snapshot` for each node."""

    def __init__(self, lab: RunningLab) -> None:
        self._lab = lab
        self._epoll = select.epoll()
        self._processes: dict[int, tuple[int, tuple[str, str, str, str]]] = {}
        """The processes that are watched and the event of their end, by their descriptor."""
        self._followed: dict[Path, Callable[[Path], Iterable[LabEvent]]] = {}
        """Who says what it means that a file has changed, by its directory."""
        self._told: set[Path] = set()
        """Files with an event for each line."""
        self._links: dict[int, tuple[str, RouteSocket]] = {}
        self._carrier: dict[tuple[str, int], bool] = {}
        self._names = {(port.node, port.ifindex): port.name for port in lab.plan.ports}
        self._logs = DirectoryWatch()
        self._offsets: dict[Path, int] = {}
        self._watched: set[int] = set()
        """The numbers of these processes."""
        self._places: dict[str, int] = {}
        """The namespaces whose links are watched, each with the descriptor of its socket."""
        self._destroyed = False
        self._stopped = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._stopped, select.EPOLLIN)
        with on_failure(self.close):  # such as a namespace that a change has removed
            self._snapshot = lab.status()
            self._subscribe()

    def _subscribe(self) -> None:
        self._watch_nodes(self._snapshot)
        self.tell(attachment.EVENTS_FILE)
        self.tell(CHANGES_FILE)
        self.tell(ACTIONS_FILE)
        self._subscribe_features()
        try:
            # the events of other processes; and its removal, which is always told, ends the lab
            self._logs.add(self._lab.state_directory, IN_MODIFY | IN_CREATE)
        except FileNotFoundError:
            self._destroyed = True
        self._epoll.register(self._logs.fileno(), select.EPOLLIN)

    def _subscribe_features(self) -> None:
        """Have features tell what happens to their parts of the lab; what they are watching already stays as it is."""
        for feature in features():
            feature.subscribe(self, self._lab)

    def _watch_nodes(self, snapshot: Sequence[NodeStatus]) -> None:
        """Watch the daemons, links and sessions that are not watched yet."""
        for status in snapshot:
            for daemon, pid in status.pids.items():
                self.watch_process(pid, status.name, "daemon-ended", daemon)
        places = {node.name: node.name for node in self._lab.model.nodes}
        places |= {port.place: port.node for port in self._lab.plan.ports}
        unknown = {place: node for place, node in places.items() if place not in self._places}

        def subscribe_links() -> None:
            for place, node in unknown.items():
                enter_namespace(namespace_name(self._lab.name, place))
                item = RouteSocket(groups=(rtnetlink.RTNLGRP_LINK,))
                self._links[item.fileno()] = (node, item)
                self._places[place] = item.fileno()
                self._epoll.register(item.fileno(), select.EPOLLIN)

        if unknown:
            syscalls.in_thread(subscribe_links)
        for (node, name), up in self._lab.link_states().items():  # what changes from now on is told
            self._carrier[node, self._lab.port(node, name).ifindex] = up
        for switch in self._lab.plan.speakers:
            directory = self._lab.run_directory(switch.node)
            if directory not in self._followed:
                self.read_on(directory / "bgpd.log")
                self.follow(directory, self._session_events)

    def _follow_change(self) -> None:
        """Watch what was made meanwhile, too, also in the place of what was there before, and let go of what was
        removed: a socket would keep a namespace there."""
        before = self._lab.identities
        try:
            self._lab = RunningLab.open(self._lab.name, self._lab.state)
        except LabNotFound:
            return  # destroyed meanwhile, which is told, too
        self._names = {(port.node, port.ifindex): port.name for port in self._lab.plan.ports}
        anew = {node for node, identity in self._lab.identities.items() if before.get(node, identity) != identity}
        there = {node.name for node in self._lab.model.nodes} | {port.place for port in self._lab.plan.ports}
        gone = [place for place, at in self._places.items() if place not in there or self._links[at][0] in anew]
        for place in gone:
            descriptor = self._places.pop(place)
            self._epoll.unregister(descriptor)
            self._links.pop(descriptor)[1].close()
        others = {self._lab.processes_directory / node for node in anew}  # VRFs have none
        self._followed = {at: changed for at, changed in self._followed.items() if at.is_dir() and at not in others}
        self._watch_nodes(self._lab.status())
        self._subscribe_features()

    def tell(self, name: str) -> None:
        """Pass on what another process writes to a file of the lab's state directory, an event in a line."""
        self._told.add(self._lab.state_directory / name)
        self.read_on(self._lab.state_directory / name)

    def follow(
        self, directory: Path, changed: Callable[[Path], Iterable[LabEvent]], mask: int = IN_MODIFY | IN_CREATE
    ) -> None:
        """Have `changed` called with each file of a directory that changes, by inotify's `mask`, for its events."""
        with contextlib.suppress(FileNotFoundError):
            self._logs.add(directory, mask)
            self._followed[directory] = changed

    def read_on(self, path: Path) -> None:
        """Have `added_lines` return what a file has from now on; one that is read already is read on."""
        size = path.stat().st_size if path.exists() else 0
        if self._offsets.get(path, size + 1) > size:  # it is new, or another one than it was
            self._offsets[path] = size

    def watch_process(self, pid: int, node: str, kind: str, subject: str, detail: str = "") -> None:
        """Have the end of a process told as an event of this kind. One that is watched already is told of once."""
        if pid in self._watched:
            return
        with contextlib.suppress(ProcessLookupError):
            fd = os.pidfd_open(pid)
            self._watched.add(pid)
            self._processes[fd] = pid, (node, kind, subject, detail)
            self._epoll.register(fd, select.EPOLLIN)

    def stop(self) -> None:
        """End the iteration; may be called by another thread."""
        os.eventfd_write(self._stopped, 1)

    def close(self) -> None:
        os.close(self._stopped)
        for fd in self._processes:
            os.close(fd)
        for _, item in self._links.values():
            item.close()
        self._logs.close()
        self._epoll.close()

    def __iter__(self) -> Iterator[LabEvent]:
        for status in self._snapshot:
            yield self.event(status.name, "snapshot", status.kind, status.state)
        while not self._destroyed:
            for fd, _ in self._epoll.poll():
                if fd == self._stopped:
                    return
                if fd in self._processes:
                    pid, event = self._processes.pop(fd)
                    self._watched.discard(pid)
                    self._epoll.unregister(fd)
                    os.close(fd)
                    yield self.event(*event)
                elif fd in self._links:
                    yield from self._link_events(*self._links[fd])
                elif fd == self._logs.fileno():  # and not one that was let go of meanwhile
                    yield from self._log_events()
        yield self.event("", "lab-destroyed", self._lab.name)

    def event(self, node: str, kind: str, subject: str, detail: str = "") -> LabEvent:
        """Return an event of this moment."""
        now = _text(datetime.datetime.now(datetime.UTC))
        return LabEvent(time=now, lab=self._lab.name, node=node, kind=kind, subject=subject, detail=detail)

    def _link_events(self, node: str, item: RouteSocket) -> Iterator[LabEvent]:
        try:
            data = item.receive_now()
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            yield from self._lost_link_events(node, item)
            return
        yield from self._told_link_events(node, data)

    def _told_link_events(self, node: str, data: bytes) -> Iterator[LabEvent]:
        for kind, _, _, body in rtnetlink.messages(data):
            if kind != rtnetlink.RTM_NEWLINK:
                continue
            _, _, ifindex, flags, _ = rtnetlink.IFINFOMSG.unpack_from(body)
            up = rtnetlink.has_carrier(flags)
            yield from self._link_is(node, ifindex, up)

    def _link_is(self, node: str, ifindex: int, up: bool) -> Iterator[LabEvent]:
        name = self._names.get((node, ifindex))
        if name is not None and self._carrier.get((node, ifindex)) != up:
            self._carrier[node, ifindex] = up
            yield self.event(node, "link-up" if up else "link-down", name)

    def _lost_link_events(self, node: str, item: RouteSocket) -> Iterator[LabEvent]:
        """The kernel had no room for a node's notifications: say so, and how its links stand now.

        Those that are still waiting come first, since they are older than what is read.
        """
        yield self.event(node, "notifications-lost", "links", "some changes were not told; their state is read anew")
        while True:
            try:
                yield from self._told_link_events(node, item.receive_now())
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
        for (_, name), up in self._lab.link_states(node).items():
            yield from self._link_is(node, self._lab.port(node, name).ifindex, up)

    def _log_events(self) -> Iterator[LabEvent]:
        changed = list(dict.fromkeys(self._logs.read()))
        if self._logs.overflowed:
            self._logs.overflowed = False
            yield self.event("", "notifications-lost", "logs", "some were not told; all logs are read on")
            changed = [(path.parent, path.name) for path in self._offsets]
            self._destroyed |= not self._lab.state_directory.is_dir()
        for directory, name in changed:
            if (directory, name) == (self._lab.state_directory, ""):
                self._destroyed = True
            path = directory / name
            if path in self._told:
                for line in self.added_lines(path):
                    event = LabEvent(**json.loads(line))
                    yield event
                    if event.kind == LAB_CHANGED:
                        self._follow_change()
            elif directory in self._followed:
                yield from self._followed[directory](path)

    def _session_events(self, log: Path) -> Iterator[LabEvent]:
        """Read from a log of bgpd how sessions changed, which other files of its directory do not tell."""
        for line in self.added_lines(log) if log in self._offsets else ():
            if match := ADJACENCY.search(line):
                yield session_event(self._lab.name, log.parent.name, match, datetime.datetime.now(datetime.UTC))

    def added_lines(self, path: Path) -> list[str]:
        """The complete lines that a file has more than when it was last read."""
        try:
            with path.open("rb") as stream:
                stream.seek(self._offsets[path])
                added = stream.read()
        except FileNotFoundError:
            return []
        complete = added[: added.rfind(b"\n") + 1]
        self._offsets[path] += len(complete)
        return complete.decode("utf-8", "replace").splitlines()
