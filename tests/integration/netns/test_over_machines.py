"""One lab over two machines made of namespaces: up, tested across the cut, and gone from both, whatever dies.

That it comes up, is tested across the cut and is gone afterwards has a shorter test with a run
(`test_runs_over_machines.py`).
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from namespace_machine import MachineRoom, NamespaceMachine, machines_lack
from spread_lab import LOSSLESS, TOPOLOGY, deployed, destroyed, left_on, listed, over, rows
from waiting import until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.frr,
    pytest.mark.timeout(900),  # of a busy machine
    pytest.mark.skipif(bool(machines_lack()), reason=f"machines of namespaces: {machines_lack()}"),
]

NEAR, FAR = "p1-s1-rail1", "p1-spine2"
"""The ends of a link that is cut: the first segment is on the first machine, and the second spine on the second."""
LOST_S = 2.0
NUMBERS = count(1)


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MachineRoom]:
    with MachineRoom(tmp_path_factory.mktemp("room"), mtu=9000) as found:
        yield found


@pytest.fixture
def machines(room: MachineRoom) -> Iterator[tuple[NamespaceMachine, NamespaceMachine]]:
    """Two machines of a test's own; what it has left on them goes with them."""
    number = next(NUMBERS)
    here, there = (room.start(f"m{number}{letter}") for letter in "ab")
    yield here, there
    for machine in (here, there):
        machine.die()


@pytest.fixture
def work(room: MachineRoom, tmp_path: Path) -> Path:
    shutil.rmtree(Path(room.environment["HOME"], ".local"), ignore_errors=True)
    (tmp_path / "wide.yml").write_text(TOPOLOGY.format(name="wide"))
    (tmp_path / "lossless.yml").write_text(TOPOLOGY.format(name="lossless") + LOSSLESS)
    return tmp_path


def inside(machine: NamespaceMachine, lab: str, node: str, *argv: str) -> str:
    done = machine.run("ip", "netns", "exec", f"{lab}-{node}", *argv)
    assert done.returncode == 0, done.stderr
    return done.stdout


def has_carrier(machine: NamespaceMachine, lab: str, node: str, interface: str) -> bool:
    return "LOWER_UP" in inside(machine, lab, node, "ip", "link", "show", interface)


def ends(machine: NamespaceMachine, lab: str, node: str, peer: str) -> str:
    """The port of a switch that leads to another one, by the lab's own data."""
    [path] = machine.run("sh", "-c", f"ls /var/lib/testbed/labs/{lab}/testbed-{lab}/topology-data.json").stdout.split()
    data = json.loads(machine.run("cat", path).stdout)
    [name] = [port["name"] for port in data["nodes"][node]["interfaces"] if port["peer"].startswith(f"{peer}:")]
    return str(name)


@pytest.mark.thorough
def test_a_lab_is_up_on_two_machines_crossed_tested_and_gone(
    room: MachineRoom, machines: tuple[NamespaceMachine, NamespaceMachine], work: Path
) -> None:
    shown = room.run("deploy", "-t", "wide.yml", "--over", over(*machines), "--dry-run", "-f", "json", directory=work)
    places = {row["node"]: row["machine"] for row in json.loads(shown.stdout)}
    assert left_on(*machines) == [], "a dry run touches nothing"
    said = deployed(room, work, "wide", machines)
    assert "routing converged" in said and "2 links between machines, 50%" in said
    row = listed(room, work, "wide")
    assert (row["name"], row["state"], row["hosts"], row["machines"]) == (
        "wide",
        "running",
        4,
        ", ".join(dict.fromkeys(places.values())),
    )
    for machine, found in zip(machines, rows(room, work, "inspect", "machines", "-n", "wide"), strict=True):
        assert (found["address"], found["state"], found["nodes"], found["silent"]) == (
            machine.address,
            "running",
            4,
            "",
        )
    shown = room.run("inspect", "-n", "wide", "-f", "json", directory=work)
    nodes = [node for part in json.loads(shown.stdout).values() for node in part["wide"]]
    assert {node["name"] for node in nodes} == set(places) and {node["state"] for node in nodes} == {"running"}
    address = inside(machines[1], "wide", "p1-s2-h1", "hostname", "-I").split()[0]
    pinged = room.run("exec", "p1-s1-h1", "-n", "wide", "--", "ping", "-c", "3", "-W", "2", address, directory=work)
    assert pinged.returncode == 0 and " 0% packet loss" in pinged.stdout, pinged.stdout + pinged.stderr
    checked = room.run("check", "-n", "wide", "-f", "json", directory=work)
    report = json.loads(checked.stdout)
    assert checked.returncode == 0, checked.stdout
    tests = {test["name"]: test for test in report["tests"]}
    assert tests["across machines"]["count"] == 4 and tests["cut links"]["count"] == 4
    refused = room.run("deploy", "-t", "wide.yml", "--over", over(*machines), "-q", directory=work)
    assert refused.returncode == 3 and "a lab wide is on" in refused.stderr
    unknown = room.run("exec", "p1-s1-h9", "-n", "wide", "--", "true", directory=work)
    assert unknown.returncode == 3 and "p1-s1-h1" in unknown.stderr
    destroyed(room, work, "wide")
    assert left_on(*machines) == []
    assert room.run("destroy", "-n", "wide", directory=work).returncode == 3


@pytest.mark.thorough
def test_a_port_that_goes_down_takes_the_carrier_of_its_far_end_and_back(
    room: MachineRoom, machines: tuple[NamespaceMachine, NamespaceMachine], work: Path
) -> None:
    deployed(room, work, "wide", machines)
    here, there = machines
    port, far = ends(here, "wide", NEAR, FAR), ends(there, "wide", FAR, NEAR)
    assert has_carrier(there, "wide", FAR, far)
    for state in ("down", "up"):
        inside(here, "wide", NEAR, "ip", "link", "set", port, state)
        up = state == "up"
        until(lambda up=up: has_carrier(there, "wide", FAR, far) is up, f"{FAR}:{far} is {state}", timeout_s=LOST_S)  # type: ignore[misc]
        assert has_carrier(here, "wide", NEAR, port) is up
    destroyed(room, work, "wide")
    assert left_on(*machines) == []


@pytest.mark.thorough
def test_a_link_that_is_cut_goes_down_by_its_verb_and_is_changed_at_one_end_alone(
    room: MachineRoom, machines: tuple[NamespaceMachine, NamespaceMachine], work: Path
) -> None:
    deployed(room, work, "wide", machines)
    here, there = machines
    port, far = ends(here, "wide", NEAR, FAR), ends(there, "wide", FAR, NEAR)
    for verb in ("down", "up"):
        done = room.run("link", verb, f"{FAR}:{far}", "-n", "wide", directory=work)
        assert done.returncode == 0, done.stderr
        up = verb == "up"
        until(lambda up=up: has_carrier(here, "wide", NEAR, port) is up, f"{NEAR} sees it {verb}", timeout_s=LOST_S)  # type: ignore[misc]
    half = ("--rate", "50%")
    done = room.run("link", "set", f"{NEAR}:{port}", *half, "-n", "wide", directory=work)
    assert done.returncode == 0, done.stderr
    refused = room.run("link", "set", f"{NEAR}:{port}", *half, "--both", "-n", "wide", directory=work)
    assert refused.returncode == 3 and "is on another machine" in refused.stderr
    refused = room.run("apply", "-t", "wide.yml", "-n", "wide", directory=work)
    assert refused.returncode == 3 and "does not know labs over several machines" in refused.stderr
    destroyed(room, work, "wide")


@pytest.mark.thorough
def test_a_machine_that_dies_takes_its_links_down_and_is_destroyed_later(
    room: MachineRoom, machines: tuple[NamespaceMachine, NamespaceMachine], work: Path
) -> None:
    lives, dies = machines
    deployed(room, work, "wide", (lives, dies))
    port = ends(lives, "wide", NEAR, FAR)
    assert has_carrier(lives, "wide", NEAR, port)
    dies.die()
    died = time.monotonic()
    until(lambda: not has_carrier(lives, "wide", NEAR, port), "its links have no carrier", timeout_s=LOST_S)
    assert time.monotonic() - died < 1.5, "half a second of silence, and what it takes to look"
    events = lives.run("cat", "/var/lib/testbed/labs/wide/wires-events.jsonl").stdout
    assert '"machine-lost"' in events
    checked = room.run("check", "-n", "wide", directory=work)
    assert checked.returncode != 0 and dies.address in checked.stderr
    began = time.monotonic()
    gone = room.run("destroy", "-n", "wide", directory=work)
    assert gone.returncode == 2 and "is still on" in gone.stderr and "once more" in gone.stderr
    assert left_on(lives) == [], "the one that lives has let go of it"
    row = listed(room, work, "wide")
    assert row["state"] == "destroying" and time.monotonic() - began < 90


@pytest.mark.thorough
def test_a_machine_that_is_not_reached_keeps_its_part_until_it_is(
    room: MachineRoom, machines: tuple[NamespaceMachine, NamespaceMachine], work: Path
) -> None:
    (work / "later.yml").write_text(TOPOLOGY.format(name="later"))
    deployed(room, work, "later", machines)
    port = ends(machines[0], "later", NEAR, FAR)
    machines[1].run("ip", "link", "set", "eth0", "down")
    until(lambda: not has_carrier(machines[0], "later", NEAR, port), "a link has no carrier", timeout_s=LOST_S)
    machines[1].run("ip", "link", "set", "eth0", "up")
    until(lambda: has_carrier(machines[0], "later", NEAR, port), "and has it back", timeout_s=10)
    machines[1].run("ip", "link", "set", "eth0", "down")
    gone = room.run("destroy", "-n", "later", directory=work)
    assert gone.returncode == 2 and machines[1].address in gone.stderr
    assert left_on(machines[0]) == [] and "later-p1-s2-h1" in left_on(machines[1])
    machines[1].run("ip", "link", "set", "eth0", "up")
    destroyed(room, work, "later")
    assert left_on(*machines) == []


@pytest.mark.thorough
def test_a_lab_is_replaced_when_nothing_speaks_against_the_new_one_and_else_stays(
    room: MachineRoom, machines: tuple[NamespaceMachine, NamespaceMachine], work: Path
) -> None:
    deployed(room, work, "wide", machines)
    asked = ("deploy", "-t", "wide.yml", "--over", over(*machines), "--reconfigure", "-q")
    before = left_on(*machines)
    machines[1].run("ip", "link", "set", "eth0", "mtu", "4600")  # enough for what is there, and not for larger packets
    try:
        refused = room.run(*asked, "--set", "fabric.mtu=8000", directory=work)
    finally:
        machines[1].run("ip", "link", "set", "eth0", "mtu", "9000")
    assert refused.returncode == 3 and "has an MTU of 4600 bytes" in refused.stderr
    assert left_on(*machines) == before, "the same processes, namespaces and interfaces"
    assert listed(room, work, "wide")["state"] == "running"
    done = room.run(*asked, "--set", "fabric.hosts=3", directory=work)
    assert done.returncode == 0, done.stderr
    assert (listed(room, work, "wide")["hosts"], listed(room, work, "wide")["state"]) == (6, "running")
    machines[1].die()
    lost = room.run(*asked, directory=work)
    assert lost.returncode != 0 and "wide is still on" in lost.stderr and machines[1].address in lost.stderr
    assert any("wide-p1-s1-h3" in found for found in left_on(machines[0])), "what answers was not destroyed"


@pytest.mark.thorough
@pytest.mark.parametrize("victim", ["the command", "a machine's process"])
def test_whatever_is_killed_half_way_nothing_stays(
    victim: str, room: MachineRoom, machines: tuple[NamespaceMachine, NamespaceMachine], work: Path
) -> None:
    (work / "half.yml").write_text(TOPOLOGY.format(name="half"))
    with subprocess.Popen(
        room.testbed("deploy", "-t", "half.yml", "--over", over(*machines), "-q"),
        cwd=work,
        env=room.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        until(
            lambda: running.poll() is not None or "half-p1-s2-h1" in left_on(machines[1]),
            "nodes are there",
            timeout_s=120,
        )
        assert running.poll() is None, f"it ended before: {running.communicate()[1]}"
        if victim == "the command":
            running.kill()
        else:
            machines[1].kill("testbed.api.pool.over.part_server")
        _, said = running.communicate(timeout=120)
    if victim == "the command":
        until(lambda: not left_on(*machines), "both machines have undone it", timeout_s=60)
        row = listed(room, work, "half")
        assert row["state"] == "deploying", "its record says that some of it may be there"
        destroyed(room, work, "half")
    else:
        assert running.returncode == 2 and machines[1].address in said
    until(lambda: not left_on(*machines), "all is gone", timeout_s=30)


def test_an_underlay_that_is_too_small_is_refused_before_anything_is_made(
    room: MachineRoom, machines: tuple[NamespaceMachine, NamespaceMachine], work: Path
) -> None:
    machines[1].run("ip", "link", "set", "eth0", "mtu", "1500")
    try:
        done = room.run("deploy", "-t", "wide.yml", "--over", over(*machines), "-q", directory=work)
    finally:
        machines[1].run("ip", "link", "set", "eth0", "mtu", "9000")
    assert done.returncode == 3 and "has an MTU of 1500 bytes; frames between machines need 4564" in done.stderr
    assert left_on(*machines) == [] and not list((work / "home").glob("**/wide.json"))


@pytest.mark.thorough
def test_pauses_cross_the_cut_and_nothing_is_lost(
    room: MachineRoom, machines: tuple[NamespaceMachine, NamespaceMachine], work: Path
) -> None:
    """Both hosts of the second machine send as fast as they can to one of the first, in a lossless class."""
    deployed(room, work, "lossless", machines)
    here, there = machines
    address = inside(here, "lossless", "p1-s1-h1", "hostname", "-I").split()[0]
    receiver = started(here, "lossless", "p1-s1-h1", SINK)
    assert receiver.stdout is not None and receiver.stdout.readline() == "listens\n"
    senders = [
        started(there, "lossless", f"p1-s2-h{host}", BLAST, address, "5", str(50000 + 10 * host + flow))
        for host in (1, 2)
        for flow in range(4)  # over both spines
    ]
    sent = sum(int(each.communicate(timeout=60)[0]) for each in senders)
    arrived = int(receiver.communicate(timeout=60)[0])
    assert sent == arrived > 100
    checked = room.run("check", "-n", "lossless", "-f", "json", directory=work)
    assert checked.returncode == 0, checked.stdout
    counts = [json.loads(line) for machine in machines for line in counted(machine, "lossless")]
    pauses = [(one["pausing"], other["paused"]) for one in counts for other in counts if other["peer"] == one["port"]]
    assert any(sent for sent, _ in pauses), "the incast has paused a cut link"
    assert all(sent == came for sent, came in pauses)
    destroyed(room, work, "lossless")
    assert left_on(*machines) == []


BLAST = """
import socket, sys, time
target, seconds, port = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
item = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
item.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 26 << 2 | 2)
item.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
item.bind(("", port))
item.connect((target, 4791))
end, count = time.monotonic() + seconds, 0
while time.monotonic() < end:
    item.send(bytes(4472))
    count += 1
print(count)
"""
SINK = """
import socket
item = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
item.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)
item.bind(("", 4791))
print("listens", flush=True)
count = 0
try:
    while True:
        item.recv(9000)
        item.settimeout(3)
        count += 1
except TimeoutError:
    print(count)
"""


def started(machine: NamespaceMachine, lab: str, node: str, program: str, *arguments: str) -> subprocess.Popen[str]:
    into = ["nsenter", f"--target={machine.pid}", "--mount", "--pid", "--net", "--uts", "--ipc", "--root", "--wd=/"]
    return subprocess.Popen(
        [*into, "--", "ip", "netns", "exec", f"{lab}-{node}", sys.executable, "-c", program, *arguments],
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )


COUNTS = """
import sys
from testbed.base.typed_json import encode
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.features.machines.watch import count_cuts
for item in count_cuts(RunningLab.open(sys.argv[1], StateDirectory())):
    print(encode(item).decode())
"""


def counted(machine: NamespaceMachine, lab: str) -> list[str]:
    """The counts of ports of cut links, a line of JSON each."""
    root = Path(__file__).parents[3]
    done = machine.run("env", f"PYTHONPATH={root}", str(root / ".venv/bin/python"), "-c", COUNTS, lab)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
