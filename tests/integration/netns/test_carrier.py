"""TCP of programs carried over UET and RoCE: true addresses, every byte, half-closed and reset connections, refusals,
a thousand connections, and nothing left behind whoever is killed."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from carried import CALL, ECHO, HostProgram, address
from waiting import until

from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.journal import Journal
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.carrier import planning
from testbed.run.carrier.carrying import CarrierBusy, RunningCarrier, carry

pytestmark = [pytest.mark.netns, pytest.mark.frr]

K = 2000.0
"""200 Mbit/s: more than Python endpoints need to be quick."""
PORT = 5300


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> RunningLab:
    """Four hosts of two NICs, in two segments."""
    model = shared_sandbox.model()
    shared_sandbox.deploy(model, k=K)
    return RunningLab.open(model.name, shared_sandbox.state)


def nics(lab: RunningLab) -> list[PortPlan]:
    return [nic for host in lab.plan.hosts for nic in host.nics]


def rail_1(lab: RunningLab) -> list[PortPlan]:
    """The first NIC of each host; hosts of the two segments in turn."""
    found = [host.nics[0] for host in lab.plan.hosts]
    return [found[0], found[2], found[1], found[3]]


@pytest.fixture(params=["uet", "roce"])
def carrying(
    lab: RunningLab, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunningCarrier]:
    monkeypatch.setattr(planning, "PATIENCE_S", 2.0)
    with carry(lab, nics(lab), request.param) as found:
        yield found
    assert remains(lab) == []


@pytest.fixture
def over_uet(lab: RunningLab, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningCarrier]:
    monkeypatch.setattr(planning, "PATIENCE_S", 2.0)
    with carry(lab, nics(lab), "uet") as found:
        yield found
    assert remains(lab) == []


def remains(lab: RunningLab) -> list[str]:
    """What is left of the carrier in the lab's hosts: rules, routes, sockets of ours, and processes."""
    found = []
    for host in lab.hosts:
        for words in (["rule"], ["-6", "rule"]):
            output = ip(lab, host, *words)
            found += [f"{host}: {line}" for line in output.splitlines() if line.split(":")[0] in PRIORITIES]
        for words in (["route"], ["-6", "route"]):
            argv = ["ip", "-n", lab.namespace(host), *words, "show", "table", "300"]
            output = subprocess.run(argv, capture_output=True, text=True, check=False).stdout  # fails without the table
            found += [f"{host}: {line}" for line in output.splitlines()]
        sockets = lab.run(host, ["ss", "-Hlnu", "sport = :4793"]).stdout
        found += [f"{host}: {line}" for line in sockets.splitlines()]
    if Journal(lab.state_directory).read().steered:
        found.append("the journal")
    return found


PRIORITIES = {"500", "501", "502", "503"}


def ip(lab: RunningLab, host: str, *words: str) -> str:
    argv = ["ip", "-n", lab.namespace(host), *words]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def rail_bytes(lab: RunningLab) -> int:
    counters = lab.counters()
    return sum(counters[nic.node, nic.name].tx_bytes for nic in nics(lab))


@pytest.mark.parametrize("bound", ["any", "own"])
def test_programs_see_true_addresses_and_every_byte(lab: RunningLab, carrying: RunningCarrier, bound: str) -> None:
    near, far, *_ = rail_1(lab)
    size = 300_000
    before = rail_bytes(lab)
    server = HostProgram(lab, far.node, ECHO, "0.0.0.0" if bound == "any" else address(far), PORT, 1)
    assert server.hear() == {"listening": True}
    client = HostProgram(lab, near.node, CALL, address(far), PORT, size)
    seen, served = client.hear(), server.hear()
    assert seen["right"] and served["size"] == size
    assert seen["peer"] == served["name"] == [address(far), PORT]
    assert seen["name"] == served["peer"] and seen["name"][0] == address(near)
    assert (client.end(), server.end()) == (0, 0)
    counters = carrying.counters()
    assert counters["bytes"] == 2 * size  # both ends' bytes: there and back
    assert (counters["opened"], counters["accepted"]) == (1, 1)
    assert rail_bytes(lab) - before > 2 * size
    until(lambda: carrying.counters()["ends"] == 0, "both ends are closed")


def test_a_program_that_has_bound_its_socket_to_a_port_has_the_address_that_it_always_has(
    lab: RunningLab, carrying: RunningCarrier
) -> None:
    """As nuttcp and programs with `--cport` do, before they connect."""
    near, far = rail_1(lab)[:2]
    server = HostProgram(lab, far.node, ECHO, "0.0.0.0", PORT, 1)
    server.hear()
    call = CALL.replace("item.connect", 'item.bind(("0.0.0.0", 0))\nitem.connect')
    client = HostProgram(lab, near.node, call, address(far), PORT, 10)
    assert client.hear()["name"][0] == server.hear()["peer"][0] == address(near)
    assert (client.end(), server.end()) == (0, 0)
    assert carrying.counters()["opened"] == 1


def test_connections_between_rails_have_the_source_that_they_always_have(
    lab: RunningLab, over_uet: RunningCarrier
) -> None:
    hosts = {nic.node: [each for each in nics(lab) if each.node == nic.node] for nic in nics(lab)}
    near, far = rail_1(lab)[:2]
    other = hosts[far.node][1]
    route = json.loads(ip(lab, near.node, "-j", "route", "get", address(other)))
    server = HostProgram(lab, far.node, ECHO, address(other), PORT, 1)
    server.hear()
    client = HostProgram(lab, near.node, CALL, address(other), PORT, 10)
    assert client.hear()["name"][0] == route[0]["prefsrc"]
    assert server.hear()["peer"][0] == route[0]["prefsrc"]
    assert (client.end(), server.end()) == (0, 0)


REFUSED = """
item = socket.socket()
begin = time.monotonic()
item.connect((sys.argv[1], int(sys.argv[2])))
say(connected_s=time.monotonic() - begin)
try:
    item.sendall(b"hello")
    item.recv(1)
    say(error="")
except OSError as error:
    say(error=errno.errorcode[error.errno], after_s=time.monotonic() - begin)
"""


def test_a_connection_that_nobody_takes_is_reset_after_the_stated_wait(
    lab: RunningLab, carrying: RunningCarrier
) -> None:
    near, far, *_ = rail_1(lab)
    client = HostProgram(lab, near.node, REFUSED, address(far), PORT + 1)
    assert client.hear()["connected_s"] < 1
    found = client.hear()
    assert found["error"] == "ECONNRESET" and 1.5 < found["after_s"] < 4
    assert client.end() == 0
    assert carrying.counters()["refused"] >= 6


def test_who_listens_late_is_found(lab: RunningLab, carrying: RunningCarrier) -> None:
    near, far, *_ = rail_1(lab)
    client = HostProgram(lab, near.node, CALL, address(far), PORT + 2, 1000)
    until(lambda: carrying.counters().get("refused", 0) >= 2, "it was refused")
    server = HostProgram(lab, far.node, ECHO, "0.0.0.0", PORT + 2, 1)
    assert client.hear()["right"]
    assert (client.end(), server.end()) == (0, 0)


RESETTING = """
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("0.0.0.0", int(sys.argv[1])))
listener.listen()
say(listening=True)
item, _ = listener.accept()
item.recv(1)
item.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
item.close()
"""


def test_a_reset_reaches_the_other_program(lab: RunningLab, carrying: RunningCarrier) -> None:
    near, far, *_ = rail_1(lab)
    server = HostProgram(lab, far.node, RESETTING, PORT + 3)
    server.hear()
    client = HostProgram(lab, near.node, REFUSED, address(far), PORT + 3)
    client.hear()
    assert client.hear()["error"] == "ECONNRESET"
    assert (client.end(), server.end()) == (0, 0)
    until(lambda: carrying.counters()["ends"] == 0, "both ends are closed")


def test_what_is_for_the_host_itself_or_for_bgp_stays_out(lab: RunningLab, over_uet: RunningCarrier) -> None:
    near, far, *_ = rail_1(lab)
    for at in (address(near), "127.0.0.1"):
        server = HostProgram(lab, near.node, ECHO, at, PORT + 4, 1)
        server.hear()
        client = HostProgram(lab, near.node, CALL, at, PORT + 4, 1000)
        assert client.hear()["right"]
        assert (client.end(), server.end()) == (0, 0)
    server = HostProgram(lab, far.node, ECHO, address(far), 179, 1)
    server.hear()
    client = HostProgram(lab, near.node, CALL, address(far), 179, 100_000)
    assert client.hear()["right"]
    assert (client.end(), server.end()) == (0, 0)
    assert over_uet.counters().get("opened", 0) == 0


MANY_SERVE = """
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("0.0.0.0", int(sys.argv[1])))
listener.listen(4096)
count = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
say(listening=True)
items = [listener.accept()[0] for _ in range(count)]
for item in items:
    item.sendall(whole(item, 100)[::-1])
for item in items:
    item.close()
"""
MANY_CALL = """
count = int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
items = []
for number in range(count):
    item = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    item.sendall(b"%4d" % number * 25)
    items.append(item)
right = sum(whole(item, 100) == (b"%4d" % number * 25)[::-1] for number, item in enumerate(items))
ends = sum(item.recv(1) == b"" for item in items)
say(right=right, ends=ends)
"""


def test_a_thousand_connections_at_a_time(lab: RunningLab, carrying: RunningCarrier) -> None:
    near, far, *_ = rail_1(lab)
    count = 1000
    server = HostProgram(lab, far.node, MANY_SERVE, PORT + 5, count)
    server.hear()
    client = HostProgram(lab, near.node, MANY_CALL, address(far), PORT + 5, count)
    assert client.hear() == {"right": count, "ends": count}
    assert (client.end(), server.end()) == (0, 0)
    counters = carrying.counters()
    assert counters["opened"] == counters["accepted"] == count
    until(lambda: carrying.counters()["ends"] == 0, "all are closed")


STUCK_SERVE = """
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
listener.bind(("0.0.0.0", int(sys.argv[1])))
listener.listen()
say(listening=True)
item, _ = listener.accept()
sys.stdin.readline()
size = 0
while more := item.recv(1 << 16):
    size += len(more)
say(size=size)
"""
STUCK_CALL = """
item = socket.create_connection((sys.argv[1], int(sys.argv[2])))
item.setblocking(False)
size = 0
while select.select([], [item], [], 1.0)[1]:
    size += item.send(bytes(1 << 16))
say(stuck=size)
sys.stdin.readline()
item.close()
"""


def test_what_is_not_read_fills_a_window_and_no_more(lab: RunningLab, over_uet: RunningCarrier) -> None:
    near, far, *_ = rail_1(lab)
    server = HostProgram(lab, far.node, STUCK_SERVE, PORT + 6)
    server.hear()
    client = HostProgram(lab, near.node, STUCK_CALL, address(far), PORT + 6)
    stuck = client.hear()["stuck"]
    assert stuck < 32 << 20  # buffers of sockets, and a window
    carried = over_uet.counters()["bytes"]
    assert carried < 4 << 20
    for program in (client, server):
        program.process.stdin.write("\n")
    assert server.hear() == {"size": stuck}
    assert (client.end(), server.end()) == (0, 0)


def test_only_one_carries_a_lab(lab: RunningLab, over_uet: RunningCarrier) -> None:
    with pytest.raises(CarrierBusy, match="carried already"), carry(lab, nics(lab), "uet"):
        pass
    assert remains(lab) != []  # the first one goes on


def test_when_a_process_of_the_carrier_is_killed_its_starter_hears_and_undoes(lab: RunningLab) -> None:
    near, far, *_ = rail_1(lab)
    with carry(lab, nics(lab), "uet") as carrying:
        server = HostProgram(lab, far.node, RESETTING, PORT + 7)
        server.hear()
        killed = next(iter(carrying.watched.values()))
        begin = time.monotonic()
        signal.pidfd_send_signal(killed, signal.SIGKILL)
        assert select.select([killed], [], [], 5.0)[0] and time.monotonic() - begin < 1
        assert carrying.sent_again() is None
        server.kill()
    assert remains(lab) == []
    server = HostProgram(lab, far.node, ECHO, "0.0.0.0", PORT + 7, 1)  # plain TCP goes its way again
    server.hear()
    client = HostProgram(lab, near.node, CALL, address(far), PORT + 7, 1000)
    assert client.hear()["right"]
    assert (client.end(), server.end()) == (0, 0)


STARTER = """
import os, sys, time
from pathlib import Path
from testbed.run.carrier.carrying import carry
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
lab = RunningLab.open(sys.argv[1], StateDirectory(Path(sys.argv[2]), Path(sys.argv[3])))
with carry(lab, [nic for host in lab.plan.hosts for nic in host.nics], "uet") as carrying:
    pids = [Path(f"/proc/self/fdinfo/{fd}").read_text().split("Pid:")[1].split()[0] for fd in carrying.watched.values()]
    print(*pids, flush=True)
    time.sleep(600)
"""


def start_elsewhere(lab: RunningLab, shared_sandbox: Any) -> tuple[subprocess.Popen[str], list[int]]:
    """A process that carries the lab, and the processes of its carrier."""
    state = shared_sandbox.state
    process = subprocess.Popen(
        [sys.executable, "-c", STARTER, lab.name, str(state.state), str(state.run)],
        stdout=subprocess.PIPE,
        text=True,
        env=shared_sandbox.environment,
    )
    assert process.stdout is not None
    return process, [int(word) for word in process.stdout.readline().split()]


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def test_when_the_starter_is_killed_the_carrier_undoes_and_ends(lab: RunningLab, shared_sandbox: Any) -> None:
    process, pids = start_elsewhere(lab, shared_sandbox)
    assert pids and remains(lab) != []
    process.kill()
    process.communicate()
    until(lambda: all(map(has_ended, pids)), "the carrier has ended", 5.0)
    assert remains(lab) == []


def test_when_all_are_killed_the_next_one_undoes(lab: RunningLab, shared_sandbox: Any) -> None:
    """First the carrier's processes, which must not hear of their starter's end; it sleeps, and hears nothing."""
    process, pids = start_elsewhere(lab, shared_sandbox)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    until(lambda: all(map(has_ended, pids)), "the carrier has ended", 5.0)
    process.kill()
    process.communicate()
    assert pids and remains(lab) != []
    with carry(lab, nics(lab), "uet"):
        pass
    assert remains(lab) == []


def test_a_lab_is_destroyed_while_it_is_carried(sandbox: Any) -> None:
    model = sandbox.tiny("z")
    sandbox.deploy(model, k=K)
    lab = RunningLab.open(model.name, sandbox.state)
    process, pids = start_elsewhere(lab, sandbox)
    sandbox.destroy("z")
    until(lambda: all(map(has_ended, pids)), "the carrier has ended", 5.0)
    process.kill()
    process.communicate()
