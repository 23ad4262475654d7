"""The console of a lab that is up: what pages are told, and when; what is done from one; and that it ends with all it
began."""

import contextlib
import itertools
import os
import signal
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from console_browser import ConsoleProcess
from console_client import Page, Told
from waiting import until

from testbed.lab.core.deploy.changing.node import recreate_node
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.event_history import past_events

pytestmark = [pytest.mark.netns, pytest.mark.frr]

SOON_S = 0.7
"""The time in which an event of the lab is on the page, at the 95th percentile."""
ECHO_S = 0.05
PATIENCE_S = 20.0


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> RunningLab:
    """A small fabric; its ports have no queues of the data path."""
    deployed: RunningLab = shared_sandbox.deploy(shared_sandbox.model()).lab
    return deployed


@pytest.fixture
def started(lab: RunningLab, shared_sandbox: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Page]]:
    """Starts consoles, and returns pages of them."""
    consoles: list[ConsoleProcess] = []
    for name in ("TESTBED_STATE_DIR", "TESTBED_RUN_DIR", "PYTHONPATH"):
        monkeypatch.setenv(name, shared_sandbox.environment[name])

    def start(*words: str) -> Page:
        console = ConsoleProcess("--bind", "127.0.0.1:0", lab.name, *words, directory=shared_sandbox.work)
        consoles.append(console)
        return Page.by_link(console.link())

    yield start
    for console in consoles:
        assert console.close() == 0, console.said


def next_of(events: Iterator[Told], wanted: Callable[[Told], bool]) -> Told:
    """Return the next event that is wanted, within some seconds."""
    end = time.monotonic() + PATIENCE_S
    for event in events:
        if wanted(event):
            return event
        assert time.monotonic() < end, "it was not told"
    raise AssertionError("the stream ended")


def test_a_page_is_told_of_the_lab_and_of_each_tick(lab: RunningLab, started: Callable[..., Page]) -> None:
    page = started()
    base = f"/api/labs/{lab.name}"
    shape = page.get(base)
    assert shape["nodes"]["name"] == [node.name for node in lab.model.nodes]
    assert len(shape["ports"]["name"]) == 2 * len(lab.model.links)
    with page.stream(f"{base}/stream") as events:
        snapshot = next(events)
        assert (snapshot.event, snapshot.data["revision"]) == ("snapshot", shape["revision"])
        ticks = [next_of(events, lambda event: event.event == "tick") for _ in range(4)]
        spans = [after.data["t"] - before.data["t"] for before, after in itertools.pairwise(ticks)]
        assert statistics.median(spans) == pytest.approx(0.5, abs=0.1)
    with page.stream(f"{base}/stream", last=ticks[0].id) as events:  # what was missed is told, and no snapshot
        assert next(events).id.rpartition("-")[2] == str(int(ticks[0].id.rpartition("-")[2]) + 1)
    state = page.get(f"{base}/moment?t={time.time()}")["state"]
    assert set(state["nodes"]) == {"running"}
    assert set(state["links"]) == {1}
    assert state["sessions_up"] == state["sessions_planned"] > 0


def test_traffic_is_seen_at_the_ports_that_it_takes(lab: RunningLab, started: Callable[..., Page]) -> None:
    page = started()
    host, other = lab.plan.hosts[0].nics[0], lab.plan.hosts[1].nics[0]
    assert other.address is not None
    base = f"/api/labs/{lab.name}"
    number = page.get(base)["ports"]["name"].index(host.name)
    with page.stream(f"{base}/stream") as events:
        next(events)
        process = lab.spawn(host.node, ["ping", "-q", "-i", "0.01", "-s", "1400", "-c", "200", str(other.address.ip)])
        try:
            next_of(events, lambda event: event.event == "tick" and number in event.data["d"].get("use", [[]])[0])
        finally:
            process.terminate()
            process.wait()
    series = page.get(f"{base}/history?ports={host.node}:{host.name}&metrics=use")["series"]["use"][0]
    assert max(value for value in series if value is not None) > 0
    total = page.get(f"{base}/history/total?metrics=use,losses")["series"]
    assert len(total["use"][0]) == len(total["losses"][0])


def test_an_event_of_the_lab_is_on_the_page_soon(lab: RunningLab, started: Callable[..., Page]) -> None:
    page = started()
    nic = lab.plan.hosts[0].nics[0]
    number = str([f"{port.node}:{port.name}" for port in lab.plan.ports].index(f"{nic.node}:{nic.name}"))
    waits = []
    with page.stream(f"/api/labs/{lab.name}/stream") as events:
        next_of(events, lambda event: event.event == "tick")
        for turn in range(10):
            up = turn % 2 == 1
            begin = time.monotonic()
            lab.set_link(nic.node, nic.name, up=up)
            word = int(up)
            next_of(
                events,
                lambda event, word=word: event.event == "state" and event.data.get("links", {}).get(number) == word,
            )  # type: ignore[misc]
            waits.append(time.monotonic() - begin)
    assert sorted(waits)[-1] <= SOON_S
    kinds = [event["kind"] for event in page.get(f"/api/labs/{lab.name}/events?count=50")]
    assert {"link-down", "link-up"} <= set(kinds)


def test_what_is_done_from_a_page_is_an_event_of_the_lab(lab: RunningLab, started: Callable[..., Page]) -> None:
    page = started("--write")
    nic = lab.plan.hosts[0].nics[0]
    place = f"{nic.node}:{nic.name}"
    path = f"/api/labs/{lab.name}/actions/link-down"
    body = {"targets": [place]}
    status, shown = page.ask("POST", path, {**body, "dry": True})
    assert (status, shown["command"]) == (200, [f"testbed link down {place} -n {lab.name}"])
    assert lab.link_states()[nic.node, nic.name]
    status, done = page.ask("POST", path, {**body, "confirmed": True})
    assert status == 200, done
    until(lambda: not lab.link_states()[nic.node, nic.name], "the link is down")
    kept = [event for event in past_events(lab, _hour_ago()) if event.kind == "console-action"]
    assert kept[-1].detail == shown["command"][0]
    undo = done["undo"]
    page.ask("POST", f"/api/labs/{lab.name}/actions/{undo['action']}", {**undo, "confirmed": True})
    until(lambda: lab.link_states()[nic.node, nic.name], "the link is up")


def test_a_node_that_was_made_anew_is_seen_as_it_is_now(lab: RunningLab, started: Callable[..., Page]) -> None:
    """It has another namespace: what was read of the one before would be read for ever."""
    page = started()
    nic, other = lab.plan.hosts[1].nics[0], lab.plan.hosts[0].nics[0]
    assert other.address is not None
    base = f"/api/labs/{lab.name}"
    number = [f"{port.node}:{port.name}" for port in lab.plan.ports].index(f"{nic.node}:{nic.name}")
    with page.stream(f"{base}/stream") as events:
        next_of(events, lambda event: event.event == "tick")
        recreate_node(RunningLab.open(lab.name, lab.state), nic.node, timeout_s=60)
        next_of(events, lambda event: event.event == "event" and event.data["kind"] == "thing-remade")
        anew = RunningLab.open(lab.name, lab.state)
        process = anew.spawn(nic.node, ["ping", "-q", "-i", "0.01", "-s", "1400", "-c", "600", str(other.address.ip)])
        try:
            next_of(events, lambda event: event.event == "tick" and number in event.data["d"].get("use", [[]])[0])
        finally:
            process.terminate()
            process.wait()
        for up in (False, True):
            anew.set_link(nic.node, nic.name, up=up)
            next_of(
                events,
                lambda event, up=up: event.event == "state" and event.data.get("links", {}).get(str(number)) == int(up),  # type: ignore[misc]
            )
    until(lambda: set(page.get(f"{base}/moment?t={time.time()}")["state"]["nodes"]) == {"running"}, "all nodes run")


def _hour_ago() -> Any:
    from datetime import UTC, datetime, timedelta

    return datetime.now(UTC) - timedelta(hours=1)


def test_a_page_that_only_looks_changes_nothing(lab: RunningLab, started: Callable[..., Page]) -> None:
    page = started()
    nic = lab.plan.hosts[0].nics[0]
    body = {"targets": [f"{nic.node}:{nic.name}"], "confirmed": True}
    status, refused = page.ask("POST", f"/api/labs/{lab.name}/actions/link-down", body)
    assert (status, refused["error"]["code"]) == (403, "read-only")
    assert lab.link_states()[nic.node, nic.name]


class Shell:
    """A shell in a node, as a page has it."""

    def __init__(self, page: Page, lab: str, node: str) -> None:
        from websockets.sync.client import connect

        self._socket = connect(
            f"ws://{page.host}/api/labs/{lab}/shell/{node}?cols=100&rows=30",
            additional_headers={"Cookie": page.cookie},
            origin=f"http://{page.host}",  # type: ignore[arg-type]
        )
        self.text = ""

    def type(self, text: str) -> None:
        self._socket.send(text.encode())

    def until(self, words: str) -> str:
        end = time.monotonic() + PATIENCE_S
        while words not in self.text:
            assert time.monotonic() < end, self.text
            content = self._socket.recv(timeout=PATIENCE_S)
            self.text += content.decode() if isinstance(content, bytes) else content
        found, words, self.text = self.text.partition(words)
        return found + words

    def close(self) -> None:
        self._socket.close()


def test_a_shell_echoes_soon_and_ends_with_its_page(lab: RunningLab, started: Callable[..., Page]) -> None:
    page = started("--write")
    node = lab.plan.hosts[0].node
    shell = Shell(page, lab.name, node)
    shell.until("# ")
    shell.type("trap '' HUP; sleep 1234 & echo pid=$! of=$$ by=$(stty size)\n")
    said = shell.until("by=30 100")
    pids = [
        int(word.partition("=")[2]) for word in said.split() if word.startswith(("pid=", "of=")) and word[-1].isdigit()
    ]
    assert len(pids) == 2
    shell.until("# ")
    waits = []
    for _ in range(40):
        begin = time.perf_counter()
        shell.type("x")
        shell.until("x")
        waits.append(time.perf_counter() - begin)
    assert sorted(waits)[int(len(waits) * 0.95)] <= ECHO_S
    shell.close()
    until(lambda: not any(_lives(pid) for pid in pids), "what ran in the shell has ended")
    assert page.get("/api/cost")["shells"] == 0


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_killed_console_leaves_no_shell_behind(
    lab: RunningLab, shared_sandbox: Any, started: Callable[..., Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    console = ConsoleProcess("--bind", "127.0.0.1:0", "--write", lab.name, directory=shared_sandbox.work)
    try:
        shell = Shell(Page.by_link(console.link()), lab.name, lab.plan.hosts[0].node)
        shell.until("# ")
        shell.type("echo of=$$ e''nd\n")
        said = shell.until(" end\r\n").split()
        pid = int(next(word[3:] for word in said if word.startswith("of=") and word[3:].isdigit()))
    finally:
        os.kill(console.process.pid, signal.SIGKILL)
        console.close()
    until(lambda: not _lives(pid), "the shell has ended with its terminal")


def _with_words(*words: str) -> list[int]:
    """The processes in whose command lines all of these words stand."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if all(word in line for word in words) and _lives(int(path.parent.name)):
                found.append(int(path.parent.name))
    return found


def test_a_killed_console_leaves_no_capture_and_no_followed_log_behind(
    lab: RunningLab, shared_sandbox: Any, started: Callable[..., Page]
) -> None:
    """On a port without traffic, where tcpdump never notices that nobody reads."""
    console = ConsoleProcess("--bind", "127.0.0.1:0", "--write", lab.name, directory=shared_sandbox.work)
    nic, switch = lab.plan.hosts[0].nics[0], lab.plan.speakers[0].node
    port = f"{nic.node}:{nic.name}"
    quiet = "udp port 9 and udp port 10"
    try:
        page = Page.by_link(console.link())
        base = f"/api/labs/{lab.name}/views"
        status, begun = page.ask("POST", f"{base}/capture/start", {"ports": [port], "filter": quiet})
        assert status == 200, begun
        host, _, tcp_port = page.host.rpartition(":")
        follower = socket.create_connection((host, int(tcp_port)), timeout=30)
        request = f"GET {base}/logs/{switch} HTTP/1.1\r\nHost: {page.host}\r\nCookie: {page.cookie}\r\n\r\n"
        follower.sendall(request.encode())
        until(lambda: _with_words("tcpdump", quiet), "tcpdump captures", 30)
        until(lambda: _with_words("logs", switch, "-F", lab.name), "the log is followed", 30)
    finally:
        os.kill(console.process.pid, signal.SIGKILL)
        console.close()
    until(lambda: not _with_words("tcpdump", quiet), "tcpdump has ended", 15)
    until(lambda: not _with_words("logs", switch, "-F", lab.name), "the follower has ended", 15)
    follower.close()


def test_a_lab_that_is_destroyed_ends_its_streams(shared_sandbox: Any, started: Callable[..., Page]) -> None:
    deployed = shared_sandbox.deploy(shared_sandbox.tiny("z")).lab
    page = started()
    with page.stream(f"/api/labs/{deployed.name}/stream") as events:
        next(events)
        shared_sandbox.destroy("z")
        assert next_of(events, lambda event: event.event == "gone").data["reason"]
        assert list(events) == []
    assert page.ask("GET", f"/api/labs/{deployed.name}")[0] == 404
