"""The stream of a lab's events: what it reads, and what it says when the kernel had no room to tell it everything."""

import copy
import errno
import json
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from testbed.base.linux import rtnetlink
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.pausing.attachment import EVENTS_FILE
from testbed.lab.core.deploy.records.journal import Journal, LabState
from testbed.lab.core.deploy.records.kept_events import CHANGES_FILE
from testbed.lab.core.deploy.watch import events as module
from testbed.lab.core.deploy.watch.events import EventStream, LabEvent

NODE = "s1"
Heard = bytes | OSError
STORM = LabEvent(time="now", lab="lab", node=NODE, kind="pfc-storm-began", subject="uplink2")


class FakeSocket:
    """The notifications of one namespace, scripted: bytes are a datagram, an error is raised."""

    def __init__(self, waiting: list[Heard]) -> None:
        self.waiting = waiting
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)

    def fileno(self) -> int:
        return self._reader.fileno()

    def wake(self) -> None:
        self._writer.send(b"x")

    def receive_now(self) -> bytes:
        if not self.waiting:
            try:
                self._reader.recv(100)
            finally:
                raise BlockingIOError(errno.EAGAIN, "nothing waits")
        item = self.waiting.pop(0)
        if isinstance(item, OSError):
            raise item
        return item

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


class FakeRunningLab:
    """One switch with the ports `uplink1` (ifindex 2) and `uplink2` (3), whose state a test sets."""

    def __init__(self, directory: Path, sockets: list[FakeSocket]) -> None:
        self.name = "lab"
        self.sockets = sockets
        self.state_directory = directory / "state"
        self.state = None
        self.identities = {NODE: 1}
        self.processes_directory = directory / "run"
        self._run = self.processes_directory / NODE
        self._run.mkdir(parents=True)
        self.up = {"uplink1": True, "uplink2": True}
        self.asked: list[str | None] = []
        self.listening_when_asked: list[bool] = []
        ports = [
            SimpleNamespace(node=NODE, place=NODE, name=f"uplink{number}", ifindex=number + 1) for number in (1, 2)
        ]
        self.plan = SimpleNamespace(
            ports=ports, speakers=[SimpleNamespace(node=NODE)], services=(), scale_up_domains=()
        )
        self.model = SimpleNamespace(nodes=[SimpleNamespace(name=NODE)])
        self.part = None

    @property
    def life_cycle(self) -> LabState | None:
        return Journal(self.state_directory).read().state

    def status(self) -> list[Any]:
        return [SimpleNamespace(name=NODE, kind="switch", state="running", pids={})]

    def port(self, node: str, name: str) -> Any:
        return next(port for port in self.plan.ports if (port.node, port.name) == (node, name))

    def link_states(self, only: str | None = None) -> dict[tuple[str, str], bool]:
        self.asked.append(only)
        self.listening_when_asked.append(bool(self.sockets))
        return {(NODE, name): up for name, up in self.up.items()}

    def run_directory(self, node: str) -> Path:
        assert node in [item.name for item in self.model.nodes], "VRFs have none"
        return self._run


@pytest.fixture
def lab(tmp_path: Path, notifications: list[FakeSocket]) -> FakeRunningLab:
    found = FakeRunningLab(tmp_path, notifications)
    Journal(found.state_directory).state(LabState.RUNNING)
    return found


@pytest.fixture
def notifications(monkeypatch: pytest.MonkeyPatch) -> list[FakeSocket]:
    made: list[FakeSocket] = []

    def make(groups: tuple[int, ...]) -> FakeSocket:
        assert groups == (rtnetlink.RTNLGRP_LINK,)
        made.append(FakeSocket([]))
        return made[-1]

    monkeypatch.setattr(module, "RouteSocket", make)
    monkeypatch.setattr(module, "enter_namespace", lambda name: None)
    return made


def link(ifindex: int, *, up: bool) -> bytes:
    flags = rtnetlink.IFF_UP | (rtnetlink.IFF_LOWER_UP if up else 0)
    return rtnetlink.message(rtnetlink.RTM_NEWLINK, 0, struct.pack("=BxHiII", 0, 0, ifindex, flags, 0))


def take(stream: Iterator[LabEvent], count: int) -> list[tuple[str, str, str]]:
    return [(event.node, event.kind, event.subject) for event in islice(stream, count)]


def open_stream(lab: FakeRunningLab) -> closing[EventStream]:
    return closing(EventStream(cast(RunningLab, lab)))


def test_the_end_of_a_lab_is_told_without_reading_its_journal(
    lab: FakeRunningLab, notifications: list[FakeSocket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal grows with the lab, and events come by the thousand; that the lab goes is told by its directory."""
    monkeypatch.setattr(Journal, "read", lambda _: pytest.fail("the journal was read"))
    with open_stream(lab) as stream:
        reader = iter(stream)
        assert take(reader, 1) == [(NODE, "snapshot", "switch")]
        notifications[0].waiting.append(link(2, up=False))
        notifications[0].wake()
        assert take(reader, 1) == [(NODE, "link-down", "uplink1")]
        Journal(lab.state_directory).state(LabState.DESTROYING)
        (lab.state_directory / EVENTS_FILE).write_text(json.dumps(asdict(STORM)) + "\n")
        assert take(reader, 1) == [(NODE, "pfc-storm-began", "uplink2")]
        shutil.rmtree(lab.state_directory)
        assert [event.kind for event in reader] == ["lab-destroyed"]


def test_a_lab_that_has_gone_before_anybody_listened_has_ended(
    lab: FakeRunningLab, notifications: list[FakeSocket]
) -> None:
    shutil.rmtree(lab.state_directory)
    with open_stream(lab) as stream:
        assert [event.kind for event in stream] == ["snapshot", "lab-destroyed"]


def test_lost_notifications_are_said_and_the_state_is_read_anew(
    lab: FakeRunningLab, notifications: list[FakeSocket]
) -> None:
    """Those that still wait are older than the state, and are told before it."""
    with open_stream(lab) as stream:
        reader = iter(stream)
        take(reader, 1)
        lab.up = {"uplink1": True, "uplink2": False}
        lab.asked.clear()
        full = OSError(errno.ENOBUFS, "No buffer space available")
        notifications[0].waiting += [full, link(2, up=False), full, link(3, up=True)]
        notifications[0].wake()
        assert take(reader, 4) == [
            (NODE, "notifications-lost", "links"),
            (NODE, "link-down", "uplink1"),
            (NODE, "link-up", "uplink1"),
            (NODE, "link-down", "uplink2"),
        ]
        assert lab.asked == [NODE], "of this node alone"
        stream.stop()
        assert list(reader) == []


@pytest.mark.process
def test_a_process_that_is_watched_twice_ends_once(lab: FakeRunningLab, notifications: list[FakeSocket]) -> None:
    """Features are asked again for what they watch when a lab has changed."""
    with open_stream(lab) as stream, subprocess.Popen(["sleep", "100"]) as process:
        reader = iter(stream)
        take(reader, 1)
        for _ in range(2):
            stream.watch_process(process.pid, NODE, "service-ended", "ssh", "sshd")
        process.kill()
        assert take(reader, 1) == [(NODE, "service-ended", "ssh")]
        (lab.state_directory / EVENTS_FILE).write_text(json.dumps(asdict(STORM)) + "\n")
        assert take(reader, 1) == [(NODE, "pfc-storm-began", "uplink2")]


def test_a_file_that_is_read_already_is_read_on(lab: FakeRunningLab, notifications: list[FakeSocket]) -> None:
    path = lab.state_directory / "other.jsonl"
    path.write_text("before\n")
    with open_stream(lab) as stream:
        stream.read_on(path)
        with path.open("a") as file:
            file.write("meanwhile\n")
        stream.read_on(path)
        assert stream.added_lines(path) == ["meanwhile"]
        path.write_text("anew\n")  # another file by that name, which is shorter
        stream.read_on(path)
        assert stream.added_lines(path) == []


def test_another_failure_of_the_socket_is_not_swallowed(lab: FakeRunningLab, notifications: list[FakeSocket]) -> None:
    with open_stream(lab) as stream:
        reader = iter(stream)
        take(reader, 1)
        notifications[0].waiting.append(OSError(errno.EIO, "broken"))
        notifications[0].wake()
        with pytest.raises(OSError, match="broken"):
            next(reader)


def test_a_change_while_the_stream_opens_is_not_missed(lab: FakeRunningLab, notifications: list[FakeSocket]) -> None:
    """The state is read once the socket listens: what it does not show any more is told."""
    with open_stream(lab) as stream:
        assert lab.listening_when_asked == [True]
        reader = iter(stream)
        take(reader, 1)
        notifications[0].waiting += [link(2, up=True), link(2, up=False)]  # the first is what was read
        notifications[0].wake()
        assert take(reader, 1) == [(NODE, "link-down", "uplink1")]


def test_logs_are_read_on_when_the_kernel_had_no_room_for_their_events(
    lab: FakeRunningLab, notifications: list[FakeSocket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More events than inotify keeps (fs.inotify.max_queued_events) while nobody reads."""
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    with open_stream(lab) as stream:
        reader = iter(stream)
        take(reader, 1)
        a, b = (lab.run_directory(NODE) / name for name in "ab")
        with a.open("w", buffering=1) as first, b.open("w", buffering=1) as second:
            for _ in range(most // 2 + 2):  # two of a kind in a row are one event
                first.write("\n")
                second.write("\n")
        (lab.state_directory / EVENTS_FILE).write_text(json.dumps(asdict(STORM)) + "\n")
        assert take(reader, 2) == [("", "notifications-lost", "logs"), (NODE, "pfc-storm-began", "uplink2")]
        shutil.rmtree(lab.state_directory)
        assert [event.kind for event in reader] == ["lab-destroyed"]


def test_a_switch_that_is_made_anew_is_watched_in_its_new_namespaces(
    lab: FakeRunningLab, notifications: list[FakeSocket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of its VRFs as well, which are places of the lab and no nodes of it."""
    vrf = f"{NODE}-red"
    lab.plan.ports.append(SimpleNamespace(node=NODE, place=vrf, name="nic1", ifindex=4))
    lab.identities[vrf] = 2
    anew = copy.copy(lab)
    anew.identities = {NODE: 3, vrf: 4}
    monkeypatch.setattr(RunningLab, "open", lambda *_: anew)
    with open_stream(lab) as stream:
        reader = iter(stream)
        take(reader, 1)
        told = [{"time": "", "lab": "lab", "node": "", "kind": "lab-changed", "subject": "lab"}]
        (lab.state_directory / CHANGES_FILE).write_text("".join(json.dumps(line) + "\n" for line in told))
        assert take(reader, 1) == [("", "lab-changed", "lab")]
        (lab.state_directory / EVENTS_FILE).write_text(json.dumps(asdict(STORM)) + "\n")
        assert take(reader, 1) == [(NODE, "pfc-storm-began", "uplink2")], "it reads on"
        assert len(notifications) == 4, "two namespaces, and two more in their place"
        notifications[2].waiting.append(link(2, up=False))
        notifications[2].wake()
        assert take(reader, 1) == [(NODE, "link-down", "uplink1")]
