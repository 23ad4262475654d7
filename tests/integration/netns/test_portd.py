"""The pause agent on real ports: lossless classes, forged frames, storms, the watchdog, deaths of both processes."""

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import waiting
from attached_ports import attached_port
from pfc_frames import MAX_QUANTA, PfcFrame, decode_pfc, encode_pfc
from portd_lab import LOSSLESS, SINK, PauseLab, own_name, pause_lab

from testbed.base.datapath import pins
from testbed.base.datapath.abi import CLASSES
from testbed.base.linux.namespaces import NETNS_DIRECTORY
from testbed.base.unix_sockets import socket_path
from testbed.daemons.kit.process import start_module
from testbed.daemons.portd import remains
from testbed.daemons.portd.attachment import LabAttachment
from testbed.daemons.portd.client import AGENT_MODULE, PauseAgent
from testbed.daemons.portd.companion import LOG_NAME, SOCKET_NAME
from testbed.daemons.portd.errors import NoSuchPort, PauseAgentError, PauseAgentMissing
from testbed.lab.core.drivers.netlink.port_programs import PortInstaller
from testbed.lab.core.plan.operations import InstallPort
from testbed.lab.core.plan.qos.qos_plan import BufferPlan, PortProfile, QosPlan

pytestmark = pytest.mark.netns

WAIT_S = 10.0
until = partial(waiting.until, timeout_s=WAIT_S)
FORGER = bytes.fromhex("02ffffffff01")


@pytest.fixture
def run() -> Iterator[Path]:
    """A run directory, which must be empty when all labs are detached."""
    directory = Path(f"/run/testbed-portd-{os.getpid()}")
    directory.mkdir()
    agent = PauseAgent(directory)
    try:
        yield directory
        assert list(directory.iterdir()) == [], "the agent left files behind"
    finally:
        with contextlib.suppress(PauseAgentError):
            agent.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def agent(run: Path) -> PauseAgent:
    return PauseAgent(run)


@contextlib.contextmanager
def attached(agent: PauseAgent, run: Path, suffix: str = "a", **options: int) -> Iterator[PauseLab]:
    with pause_lab(own_name(suffix), run, **options) as lab:
        agent.attach(lab.attachment)
        try:
            yield lab
        finally:
            agent.detach(lab.name)


def events(lab: PauseLab) -> list[dict[str, str]]:
    if not lab.events_file.exists():
        return []
    return [json.loads(line) for line in lab.events_file.read_text().splitlines()]


def kinds(lab: PauseLab) -> list[str]:
    return [event["kind"] for event in events(lab)]


class Gate:
    """The egress queue of a port, as the maps show it."""

    def __init__(self, lab: PauseLab, node: str, towards: str, priority: int = 3) -> None:
        self._pauses = lab.maps().pauses
        self._index = lab.port(node, towards) * CLASSES + priority

    def __getitem__(self, name: str) -> int:
        return int(self._pauses[self._index][name])

    @property
    def closed(self) -> bool:
        return self["closed"] == 1


@contextlib.contextmanager
def flood(lab: PauseLab, node: str, priority: int) -> Iterator[None]:
    """Send datagrams to the sink as fast as the port takes them."""
    item = lab.udp(node, priority)
    item.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 100_000)
    done = threading.Event()

    def send() -> None:
        while not done.is_set():
            if select.select([], [item], [], 0.1)[1]:
                with contextlib.suppress(BlockingIOError, OSError):
                    item.sendto(bytes(1400), (SINK, 9))

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        item.close()


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def test_lossless_classes_lose_nothing_over_two_hops(agent: PauseAgent, run: Path) -> None:
    """2:1 into 20 Mbit/s in two lossless priorities: pause spreads to both senders, and all is let go of after."""
    with attached(agent, run) as lab, lab.packets("a", "to-s1") as tap:
        maps = lab.maps()
        with flood(lab, "a", 3), flood(lab, "b", 3), flood(lab, "a", 4):
            gates = [Gate(lab, *end, priority) for end in (("a", "s1"), ("s1", "s2")) for priority in LOSSLESS]
            until(lambda: all(gate["xoff_received"] > 10 for gate in gates), "pause at the first switch and the sender")
        lossless = [number * CLASSES + priority for number in range(1, len(maps.ports)) for priority in LOSSLESS]
        for cause in ("tail_packets", "buffer_packets", "wred_packets", "headroom_packets"):
            dropped = [index for index in lossless if maps.queues[index][cause] and index // CLASSES not in _hosts(lab)]
            assert dropped == [], cause
        until(lambda: not maps.queues["bytes"].any() and not maps.pauses["closed"].any(), "empty queues, open gates")
        assert not maps.pauses["asked_since"].any()
        frames = _pfc_frames(tap)
        assert {priority for frame in frames for priority in range(8) if frame.vector >> priority & 1} == {3, 4}
        assert {times for frame in frames for times in frame.quanta} == {0, MAX_QUANTA}
        status = agent.status().labs[lab.name]
        assert status.reaction.count > 10
        assert 0 < status.reaction.p50_ns <= status.reaction.p99_ns <= status.reaction.max_ns
        assert (lab.port("a", "s1"), 3) in status.reactions
        assert (status.failures, status.broken_events, status.strays["unknown"]) == (0, 0, 0)
        agent.reset()
        assert agent.status().labs[lab.name].reaction.count == 0


def _hosts(lab: PauseLab) -> set[int]:
    return {port.number for port in lab.attachment.ports if port.node in "abz"}


def _pfc_frames(tap: socket.socket) -> list[PfcFrame]:
    """The pause frames that a tap has seen so far, all of which must be well formed and 60 bytes long."""
    tap.setblocking(False)
    found = []
    with contextlib.suppress(BlockingIOError):
        while True:
            frame = tap.recv(2000)
            if frame[12:14] == b"\x88\x08":
                assert len(frame) == 60
                found.append(decode_pfc(frame))
    return found


def test_forged_frame_pauses_for_its_time_and_malformed_ones_do_nothing(agent: PauseAgent, run: Path) -> None:
    with attached(agent, run) as lab, lab.packets("s1", "to-a") as forger:
        gate = Gate(lab, "a", "s1")
        good = encode_pfc(FORGER, 1 << 3, (MAX_QUANTA,) * 8)
        for bad in (good[:14] + b"\x00\x01" + good[16:], good[:20], good[:14], b"\x01" + good[1:6] + bytes(54)):
            forger.send(bad)
        forger.send(encode_pfc(FORGER, 1 << 0 | 1 << 7, (MAX_QUANTA,) * 8))  # lossy priorities
        forger.send(encode_pfc(FORGER, 0, (MAX_QUANTA,) * 8))
        until(lambda: agent.status().labs[lab.name].strays["lossy"] == 1, "the frames are read")
        assert not gate.closed
        began = time.monotonic()
        forger.send(good)
        until(lambda: gate.closed, "the gate closes")
        until(lambda: not gate.closed, "the gate opens by itself")
        assert 0.6 < time.monotonic() - began < 0.9, "65,535 quanta at 50 Mbit/s are 0.67 s"
        until(lambda: "pfc-malformed" in kinds(lab), "the malformed frames are told of")


def test_closed_gate_holds_packets_and_other_priorities_pass(agent: PauseAgent, run: Path) -> None:
    with attached(agent, run) as lab, lab.packets("s1", "to-a") as forger:
        gate = Gate(lab, "a", "s1")
        queues, port = lab.maps().queues, lab.port("a", "s1") * CLASSES
        forger.send(encode_pfc(FORGER, 1 << 3, (0, 0, 0, MAX_QUANTA, 0, 0, 0, 0)))
        until(lambda: gate.closed, "the gate closes")
        held, passing = lab.udp("a", 3), lab.udp("a", 4)
        for _ in range(10):
            held.sendto(bytes(1000), (SINK, 9))
            passing.sendto(bytes(1000), (SINK, 9))
        until(lambda: queues[port + 4]["out_packets"] == 10, "the other priority passes")
        assert gate.closed
        assert queues[port + 3]["out_packets"] <= 1, "closing lets one more frame through at most"
        forger.send(encode_pfc(FORGER, 1 << 3, (0,) * 8))
        until(lambda: queues[port + 3]["out_packets"] == 10, "the kick makes the opened queue run")
        held.close()
        passing.close()


def test_storm_pauses_the_peer_until_it_ends(agent: PauseAgent, run: Path) -> None:
    with attached(agent, run) as lab:
        gate = Gate(lab, "a", "s1")
        agent.storm(lab.name, lab.port("s1", "a"), 3, 1_000_000_000)
        began = time.monotonic()
        until(lambda: gate.closed, "the storm closes the peer's gate")
        until(lambda: not gate.closed, "it ends")
        assert 0.9 < time.monotonic() - began < 1.2, "longer than one frame's 0.67 s"
        until(lambda: kinds(lab)[-2:] == ["pfc-storm-began", "pfc-storm-ended"], "both are told of")
        with pytest.raises(NoSuchPort, match="priority 0"):
            agent.storm(lab.name, lab.port("s1", "a"), 0, 1_000_000)
        with pytest.raises(NoSuchPort):
            agent.storm("nobody", 1, 3, 1_000_000)
        with pytest.raises(NoSuchPort):
            agent.storm(lab.name, 1, 3, -5)


def test_killed_agent_fails_open_and_its_successor_resumes(agent: PauseAgent, run: Path) -> None:
    with attached(agent, run) as lab, flood(lab, "a", 3):
        gate = Gate(lab, "a", "s1")
        agent.storm(lab.name, lab.port("s1", "a"), 3, 60_000_000_000)
        until(lambda: gate.closed, "a gate that only the agent would open")
        before = agent.status()
        os.kill(before.pid, signal.SIGKILL)
        until(lambda: not gate.closed, "the guard opens it", timeout_s=2.0)
        until(lambda: "portd-resumed" in kinds(lab), "another agent takes over")
        died = next(event for event in events(lab) if event["kind"] == "portd-died")
        assert "closed gates opened" in died["detail"]
        assert int(died["detail"].split("; ")[1].split()[0]) >= 1
        after = agent.status()
        assert after.pid != before.pid
        assert after.guard_pid == before.guard_pid
        received = gate["xoff_received"]
        until(lambda: gate["xoff_received"] > received + 5, "it pauses and resumes as before")
        assert gate["storm"] == 0


def test_killed_guard_is_replaced_and_the_new_one_guards(agent: PauseAgent, run: Path) -> None:
    with attached(agent, run) as lab:
        before = agent.status()
        os.kill(before.guard_pid, signal.SIGKILL)
        until(lambda: agent.status().guard_pid not in (0, before.guard_pid), "another guard")
        assert gone(before.guard_pid), "reaped"
        assert "portd-guard-died" in kinds(lab)
        os.kill(agent.status().pid, signal.SIGKILL)
        until(lambda: "portd-resumed" in kinds(lab), "the new guard does its duty")
        assert agent.status().pid != before.pid


def test_next_command_resumes_the_labs_of_an_agent_that_died_with_its_guard(agent: PauseAgent, run: Path) -> None:
    with attached(agent, run, "a") as lab:
        before = agent.status()
        for pid in (before.guard_pid, before.pid):
            os.kill(pid, signal.SIGSTOP)  # so that neither sees the other's end
        for pid in (before.guard_pid, before.pid):
            os.kill(pid, signal.SIGKILL)
        until(lambda: gone(before.pid) and gone(before.guard_pid), "both are gone")
        assert list(agent.status().labs) == [lab.name], "asking is enough"
        assert kinds(lab)[-1] == "portd-resumed"


def test_terminated_agent_opens_its_gates_first(agent: PauseAgent, run: Path) -> None:
    with attached(agent, run) as lab:
        gate = Gate(lab, "a", "s1")
        agent.storm(lab.name, lab.port("s1", "a"), 3, 60_000_000_000)
        until(lambda: gate.closed, "closed")
        os.kill(agent.status().pid, signal.SIGTERM)
        until(lambda: not gate.closed, "opened")
        until(lambda: "portd-resumed" in kinds(lab), "another agent takes over")


def test_agent_and_guard_end_with_the_last_lab(agent: PauseAgent, run: Path) -> None:
    with attached(agent, run, "a") as one:
        with attached(agent, run, "b") as two:
            both = agent.status()
            assert set(both.labs) == {one.name, two.name}
        left = agent.status()
        assert (left.pid, list(left.labs)) == (both.pid, [one.name])
    assert gone(both.pid)
    assert gone(both.guard_pid)
    with pytest.raises(PauseAgentMissing):
        agent.status()
    agent.detach(one.name)  # nothing left to detach, and no harm done


def test_detach_opens_what_is_closed(agent: PauseAgent, run: Path) -> None:
    with pause_lab(own_name("a"), run) as lab:
        agent.attach(lab.attachment)
        gate = Gate(lab, "a", "s1")
        agent.storm(lab.name, lab.port("s1", "a"), 3, 60_000_000_000)
        until(lambda: gate.closed, "closed")
        agent.detach(lab.name)
        assert not gate.closed
        assert gate["paused_since"] == 0
        item = lab.udp("a", 3)
        item.sendto(bytes(100), (SINK, 9))
        queues, index = lab.maps().queues, lab.port("a", "s1") * CLASSES + 3
        until(lambda: queues[index]["out_packets"] == 1, "packets pass")
        item.close()


def test_attaching_again_takes_the_new_ports(agent: PauseAgent, run: Path) -> None:
    with attached(agent, run) as lab:
        fewer = LabAttachment(
            lab=lab.name, pin_directory=lab.pins, events_file=lab.events_file, ports=lab.attachment.ports[:4]
        )
        agent.attach(fewer)
        assert agent.status().labs[lab.name].ports == 4


def test_attaching_again_goes_on_with_a_storm(agent: PauseAgent, run: Path) -> None:
    with attached(agent, run) as lab:
        gate = Gate(lab, "a", "s1")
        agent.storm(lab.name, lab.port("s1", "a"), 3, 60_000_000_000)
        until(lambda: gate.closed, "closed")
        agent.attach(lab.attachment)
        until(lambda: kinds(lab).count("pfc-storm-began") == 2, "it goes on in what serves the lab now")
        until(lambda: gate.closed, "closed again")


def test_lab_without_a_data_path_is_refused_and_forgotten(agent: PauseAgent, run: Path) -> None:
    attachment = LabAttachment(lab="nowhere", pin_directory=run / "none", events_file=run / "events", ports=())
    with pytest.raises(PauseAgentError, match="data path"):
        agent.attach(attachment)
    with pytest.raises(PauseAgentMissing):
        agent.status()


def test_commands_at_once_start_one_agent(agent: PauseAgent, run: Path) -> None:
    threads = [threading.Thread(target=agent.ensure_running) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    agent.stop()


def test_thousands_of_ports_attach_in_half_a_second(agent: PauseAgent, run: Path) -> None:
    """2,560 ports in 168 namespaces: none is entered before it pauses."""
    name, count = own_name("big"), 2560
    directory = pins.lab_directory(run / name)
    profile = PortProfile(
        profile=0,
        switch=True,
        rate_bps=50_000_000,
        mtu_bytes=1500,
        bdp_bytes=1,
        classes=(),
        class_of_dscp=(0,) * 64,
        control_class=0,
        trimmed_class=0,
        trimming=False,
    )
    plan = QosPlan(profiles=(profile,), buffers=(_no_buffer(),), base_rtt_ns=0, reaction_ns=0)
    installs = [
        InstallPort(
            node="n",
            name="x",
            ifindex=number,
            port=number,
            peer=0,
            rate_bps=1,
            burst_bytes=1,
            mtu_bytes=1500,
            profile=0,
            buffer=0,
            switch=True,
            seed=1,
        )
        for number in range(1, count + 1)
    ]
    ports = tuple(
        attached_port(
            number,
            ((number - 1) ^ 1) + 1,
            node=f"p1-s1-rail{number % 168}",
            interface=f"down{number}",
            namespace=str(NETNS_DIRECTORY / f"{name}-p1-s1-rail{number % 168}"),
            ifindex=number,
        )
        for number in range(1, count + 1)
    )
    PortInstaller.load(directory, plan, installs).close()
    try:
        agent.ensure_running()
        began = time.monotonic()
        agent.attach(LabAttachment(lab=name, pin_directory=directory, events_file=run / "events", ports=ports))
        took = time.monotonic() - began
        agent.detach(name)
        assert took < 0.5
    finally:
        pins.unmount(directory)
        shutil.rmtree(run / name)
        (run / "events").unlink(missing_ok=True)


def _no_buffer() -> BufferPlan:
    from testbed.lab.core.model.qos import BalancingMode, HashEngine

    return BufferPlan(
        node="", shared_bytes=1, headroom_bytes=0, mode=BalancingMode.FLOW, hash=HashEngine.EBPF, gap_ns=0, seed=1
    )


@contextlib.contextmanager
def connection(run: Path) -> Iterator[socket.socket]:
    directory = os.open(run, os.O_RDONLY | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as item:
        item.settimeout(WAIT_S)
        item.connect(socket_path(directory, SOCKET_NAME))
        os.close(directory)
        yield item


def test_hostile_clients_are_answered_or_dropped(agent: PauseAgent, run: Path) -> None:
    agent.ensure_running()
    with connection(run) as item:
        for line in (b"\n", b"{}\n", b"[1]\n", b"\xff\xfe\n", b'{"command": "attach", "lab": "../../etc"}\n'):
            item.sendall(line)
            assert json.loads(item.makefile("rb").readline())["ok"] is False
        item.sendall(b"x" * 10_000)
        with contextlib.suppress(ConnectionResetError):
            assert item.recv(100) == b"", "dropped: the line is too long"
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connection(run)) for _ in range(40)]
        half = silent[-1]
        half.sendall(b'{"command": ')
        assert len(silent) == 40
    assert agent.status().labs == {}
    agent.stop()


def test_another_user_is_not_served(agent: PauseAgent, run: Path) -> None:
    agent.ensure_running()
    assert (run / "portd.sock").stat().st_mode & 0o777 == 0o600
    (run / "portd.sock").chmod(0o666)
    run.chmod(0o755)
    child = os.fork()
    if child == 0:
        answered = 2
        with contextlib.suppress(OSError):
            os.setuid(65534)
            with socket.socket(socket.AF_UNIX) as item:
                item.connect(str(run / "portd.sock"))
                answered = 0
                item.sendall(b'{"command": "shutdown"}\n')
                answered = len(item.recv(10))
        os._exit(answered)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "reached, and not answered"
    assert agent.status().pid
    agent.stop()


def test_an_agent_whose_starter_was_killed_leaves_nothing(run: Path) -> None:
    """A deploy that is killed while its agent starts may be undone before the agent is up."""
    reader, writer = os.pipe()
    os.close(reader)
    process = start_module(AGENT_MODULE, run, LOG_NAME, ["--ready-fd", str(writer)], [writer])
    os.close(writer)
    assert process.wait(30) == 0
    assert not run.exists()
    run.mkdir()  # as the fixture wants to find it


def test_an_agent_whose_starter_was_killed_leaves_the_directory_to_a_command_that_holds_it(run: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    descriptor = os.open(run, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        process = start_module(AGENT_MODULE, run, LOG_NAME, ["--ready-fd", str(writer)], [writer])
        os.close(writer)
        assert process.wait(30) == 0
        assert (run / "portd.labs").is_dir()
    finally:
        os.close(descriptor)
        remains.remove(run)
