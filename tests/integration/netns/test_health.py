"""Daemons that die, links that fail, routing that does not come: what status, check, events and deploy say."""

import os
import queue
import re
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from shared_lab import speaker
from waiting import until

from testbed.base.errors import ConvergenceError, DriverError
from testbed.base.linux import vty
from testbed.base.linux.processes import kill_all
from testbed.lab.core.deploy.lifecycle import DeployOptions, deploy_lab
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.journal import LabState
from testbed.lab.core.deploy.routing import start_routing, stop_routing
from testbed.lab.core.deploy.steps import StepEvent
from testbed.lab.core.deploy.watch.check import CheckReport, CheckStatus, check_lab
from testbed.lab.core.deploy.watch.events import EventStream, LabEvent
from testbed.lab.core.deploy.watch.sessions import BgpSession, read_sessions
from testbed.lab.core.drivers.routing.frr import DaemonLauncher, DaemonSet

pytestmark = [pytest.mark.netns, pytest.mark.frr]

EVENT_TIMEOUT_S = 30.0


class Listener:
    """Events of a lab, read by a thread, waited for by kind."""

    def __init__(self, stream: EventStream) -> None:
        self._events: queue.Queue[LabEvent] = queue.Queue()
        self.seen: list[LabEvent] = []
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream: EventStream) -> None:
        for event in stream:
            self._events.put(event)

    def wait(self, *wanted: tuple[str, str, str]) -> list[LabEvent]:
        """Until each (node, kind, subject) has come, in any order; what came comes back."""
        missing = set(wanted)
        got = []
        deadline = time.monotonic() + EVENT_TIMEOUT_S
        while missing:
            try:
                event = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"missing {missing}; seen {self.seen}") from None
            self.seen.append(event)
            if (event.node, event.kind, event.subject) in missing:
                missing.discard((event.node, event.kind, event.subject))
                got.append(event)
        return got

    def ended(self) -> bool:
        self._thread.join(EVENT_TIMEOUT_S)
        return not self._thread.is_alive()


@contextmanager
def _listening(lab: RunningLab) -> Iterator[Listener]:
    stream = EventStream(lab)
    listener = Listener(stream)
    yield listener
    # The reader ends with the lab; only then may its descriptors go.
    assert listener.ended()
    stream.close()


def _wait_end(pid: int) -> None:
    fd = os.pidfd_open(pid)
    try:
        assert select.select([fd], [], [], 10)[0]
    finally:
        os.close(fd)


def _failures(report: CheckReport, name: str) -> tuple[str, ...]:
    return next(result.failures for result in report.results if result.name == name)


def test_a_killed_bgpd_is_seen_by_status_check_and_events(sandbox: Any) -> None:
    lab = sandbox.deploy(sandbox.model()).lab
    victim = next(status for status in lab.status() if status.name == "p1-s1-rail1")
    with _listening(lab) as listener:
        listener.wait(("p1-s1-rail1", "snapshot", "switch"))
        killed_at = time.monotonic()
        os.kill(victim.pids["bgpd"], signal.SIGKILL)
        _wait_end(victim.pids["bgpd"])
        status = next(item for item in lab.status() if item.name == "p1-s1-rail1")
        assert time.monotonic() - killed_at < 2
        assert (status.state, status.missing_daemons) == ("degraded", ("bgpd",))
        assert {item.state for item in lab.status() if item.name != "p1-s1-rail1"} == {"running"}
        listener.wait(("p1-s1-rail1", "daemon-ended", "bgpd"))

        report = check_lab(lab)
        assert report.exit_code == 1
        assert _failures(report, "nodes") == ("p1-s1-rail1 is degraded: bgpd not running",)
        assert any("bgpd in p1-s1-rail1 does not answer" in line for line in _failures(report, "sessions"))
        sandbox.destroy()
        listener.wait(("", "lab-destroyed", lab.name))


def test_a_switch_that_starts_anew_hears_soon_of_a_neighbour_whose_bgpd_came_late(
    sandbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The 10 s between advertisements that bgpd asks for count after the next one, which may be 600 s away."""
    lab = sandbox.deploy(sandbox.model(segments=2, gpus=1, hosts=2, spines=1)).lab
    spine, leaf = "p1-spine1", "p1-s1-rail1"
    launch = DaemonLauncher._launch

    def launch_bgpd_late(launcher: DaemonLauncher, items: list[tuple[DaemonSet, str]]) -> None:
        if any(daemon == "bgpd" for _, daemon in items):
            until(lambda: _advertised(lab, spine) >= 5, "more than zebra's first four advertisements")
        launch(launcher, items)

    stop_routing(lab, spine)
    with monkeypatch.context() as patch:
        patch.setattr(DaemonLauncher, "_launch", launch_bgpd_late)
        start_routing(lab, spine)
    until(lambda: check_lab(lab).exit_code == 0, "the lab is whole")
    stop_routing(lab, leaf)
    start_routing(lab, leaf)
    until(lambda: check_lab(lab).exit_code == 0, "the sessions of the leaf are back")


def _advertised(lab: RunningLab, node: str) -> int:
    """How often zebra has sent a router advertisement out of a switch's first port."""
    try:
        said = vty.ask(lab.run_directory(node), "zebra", "show interface down1")
    except DriverError:  # zebra has opened its other socket first
        return 0
    found = re.search(r"router advertisements sent: (\d+)", said)
    return int(found[1]) if found else 0


def test_a_link_that_fails_and_comes_back(sandbox: Any) -> None:
    model = sandbox.model(bfd="auto")
    lab = sandbox.deploy(model).lab
    peer_node, peer_name = lab.port("p1-s1-rail1", "uplink1").peer.split(":")
    with _listening(lab) as listener:
        lab.set_link("p1-s1-rail1", "uplink1", up=False)
        listener.wait(
            ("p1-s1-rail1", "link-down", "uplink1"),
            (peer_node, "link-down", peer_name),
            ("p1-s1-rail1", "bgp-down", "uplink1"),
            (peer_node, "bgp-down", peer_name),
        )
        report = check_lab(lab)
        assert report.exit_code == 1
        assert set(_failures(report, "links")) == {"p1-s1-rail1:uplink1 is down", f"{peer_node}:{peer_name} is down"}
        statuses = {result.name: result.status for result in report.results}
        assert (statuses["sessions"], statuses["ecmp"]) == (CheckStatus.FAIL, CheckStatus.FAIL)
        assert statuses["rails"] is CheckStatus.PASS, "the other spine carries everything"

        lab.set_link("p1-s1-rail1", "uplink1", up=True)
        listener.wait(
            ("p1-s1-rail1", "link-up", "uplink1"),
            (peer_node, "link-up", peer_name),
            ("p1-s1-rail1", "bgp-up", "uplink1"),
            (peer_node, "bgp-up", peer_name),
        )
        again = sandbox.deploy(model)  # waits until routing has converged
        assert not again.changed
        assert check_lab(lab).exit_code == 0
        sandbox.destroy()


def test_bfd_notices_a_peer_that_falls_silent(sandbox: Any) -> None:
    """The link stays up, the peer's bfdd stops answering: BFD tears the session down, and BGP alone would not."""
    lab = sandbox.deploy(sandbox.model(bfd="auto")).lab
    spine = next(status for status in lab.status() if status.name == "p1-spine1")
    rail = speaker(lab, "p1-s1-rail1")  # the silent one would not answer

    def sessions() -> dict[str, BgpSession]:
        return {item.interface: item for item in read_sessions(rail, lab.run_directory(rail.node))}

    # FRR 10.3 (bgp_bfd.c) ignores a BFD peer that goes down within the second in which BGP came up.
    until(lambda: sessions()["uplink1"].uptime_s >= 1, "BGP has been up for a second")
    with _listening(lab) as listener:
        os.kill(spine.pids["bfdd"], signal.SIGSTOP)
        try:
            listener.wait(("p1-s1-rail1", "bgp-down", "uplink1"))  # the spine's bgpd still sends its keepalives
            assert {name: item.bfd for name, item in sessions().items()} == {"uplink1": "down", "uplink2": "up"}
        finally:
            os.kill(spine.pids["bfdd"], signal.SIGCONT)
        sandbox.destroy()


def _missing_without(lab: RunningLab, node: str, interface: str) -> set[str]:
    """The lines about routes that a time-out should print when one rail switch's uplink is down."""
    spine, port = lab.port(node, interface).peer.split(":")
    lost = {(node, interface), (spine, port)}
    own = set(speaker(lab, node).networks)
    expected = set()
    for switch, routes in lab.plan.expected_routes.items():
        for route in routes:
            left = {name for name in route.interfaces if (switch, name) not in lost}
            if switch not in (node, spine) and route.prefix in own:
                left = {name for name in left if not lab.port(switch, name).peer.startswith(f"{spine}:")}
            if not left:
                expected.add(f"{switch}: {route.prefix} is missing")
            elif left != set(route.interfaces):
                expected.add(f"{switch}: {route.prefix} has {len(left)} of {route.next_hops} next hops")
    return expected


def test_a_time_out_names_exactly_what_is_missing(sandbox: Any) -> None:
    model = sandbox.model()
    lab = sandbox.deploy(model).lab
    lab.set_link("p1-s1-rail1", "uplink1", up=False)
    with pytest.raises(ConvergenceError, match="has not converged within 3 s") as caught:
        sandbox.deploy(model, timeout_s=3.0)
    routes = {line for line in caught.value.missing if "BGP" not in line}
    assert routes == _missing_without(lab, "p1-s1-rail1", "uplink1")
    sessions = {line.partition(" is ")[0] for line in caught.value.missing if "BGP" in line}
    peer, port = lab.port("p1-s1-rail1", "uplink1").peer.split(":")
    assert sessions == {"p1-s1-rail1: BGP to p1-spine1 (uplink1)", f"{peer}: BGP to p1-s1-rail1 ({port})"}


def _when_routing_starts(action: Callable[[], None]) -> Callable[[StepEvent], None]:
    def notify(event: StepEvent) -> None:
        if (event.step, event.phase) == ("routing", "start"):
            action()

    return notify


def test_a_deploy_that_timed_out_stays_for_inspection_and_can_be_finished(sandbox: Any) -> None:
    model = sandbox.tiny()
    nodes = tuple(replace(node, exec=(("true",),)) if node.name == "p1-s1-h1" else node for node in model.nodes)
    model = replace(model, nodes=nodes)

    def cut() -> None:
        RunningLab.open(model.name, sandbox.state).set_link("p1-spine1", "down1", up=False)

    with pytest.raises(ConvergenceError) as caught:
        sandbox.deploy(model, timeout_s=3.0, notify=_when_routing_starts(cut))
    assert any("p1-spine1" in line for line in caught.value.missing)
    assert caught.value.exit_code == 1
    lab = RunningLab.open(model.name, sandbox.state)
    assert lab.life_cycle is LabState.FAILED
    assert {status.state for status in lab.status()} == {"running"}
    assert check_lab(lab).exit_code == 1

    lab.set_link("p1-spine1", "down1", up=True)
    assert not sandbox.deploy(model).changed
    assert lab.life_cycle is LabState.RUNNING
    assert check_lab(lab).exit_code == 0


def test_a_daemon_that_ends_while_routing_converges_fails_the_deploy_by_name(sandbox: Any) -> None:
    model = sandbox.model()
    directory = sandbox.state.run_directory(model.name) / "p1-spine1"

    victims: list[int] = []

    def kill(event: StepEvent) -> None:
        if event.step == "converge" and event.done and not victims:
            victims.append(int((directory / "bgpd.pid").read_text()))
            os.kill(victims[0], signal.SIGKILL)

    state = sandbox.state
    options = DeployOptions(k=10_000.0, timeout_s=90.0, directory=sandbox.work)
    with pytest.raises(DriverError, match="bgpd of p1-spine1 ended"):
        deploy_lab(model, state, options, kill)
    assert sandbox.leftovers() == []


def test_processes_that_do_not_end_are_named(sandbox: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = sandbox.deploy(sandbox.tiny(), wait=False).lab
    process = lab.spawn("p1-s1-h1", ["sleep", "300"])
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *_: None)  # as if the kernel held them
    with pytest.raises(DriverError, match=r"processes of the lab do not end: .*zebra"):
        kill_all(set(lab.identities.values()), timeout_s=0.3)
    monkeypatch.undo()
    sandbox.destroy()
    assert process.wait(5) == -signal.SIGKILL
