"""Nodes are what they say: a program in one sees its name, the names of all others, and of a switch its FRR."""

import json
import os
import shutil
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sandbox import Sandbox
from waiting import until

from testbed.api import Lab
from testbed.base.linux.processes import spawn
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.routing import start_routing, stop_routing

pytestmark = [pytest.mark.netns, pytest.mark.frr]

HOST, OTHER, SWITCH, SPINE = "p1-s1-h1", "p1-s2-h1", "p1-s1-rail1", "p1-spine1"
LOOK = "hostname; cat /etc/hostname; getent hosts p1-s2-h1"


@pytest.fixture(scope="module")
def lab(shared_sandbox: Sandbox) -> RunningLab:
    return shared_sandbox.deploy(shared_sandbox.model("v", gpus=1)).lab


def address_of(lab: RunningLab, node: str) -> str:
    port = lab.port(node, "rail1")
    return str(port.address.ip)


def executed(sandbox: Any, lab: RunningLab, node: str, *argv: str) -> subprocess.CompletedProcess[str]:
    done: subprocess.CompletedProcess[str] = sandbox.cli("exec", "-n", lab.name, node, "--", *argv)
    return done


def machine() -> dict[str, Any]:
    """What a view must leave as it is: the machine's name, its files, and the mounts of the test."""
    files = {path: Path(path).read_bytes() for path in ("/etc/hosts", "/etc/hostname") if Path(path).exists()}
    frr = Path("/etc/frr")
    files |= {str(path): path.read_bytes() for path in frr.iterdir() if path.is_file()} if frr.is_dir() else {}
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    seen = [place for place in mounts if place.startswith(("/etc/", "/run/frr", "/sys"))]
    return {"name": socket.gethostname(), "files": files, "mounts": seen}


@pytest.mark.parametrize("node", [HOST, SWITCH, SPINE])
def test_a_node_has_its_name_and_knows_the_others(shared_sandbox: Any, lab: RunningLab, node: str) -> None:
    before = machine()
    done = executed(shared_sandbox, lab, node, "sh", "-c", LOOK)
    name, written, found = done.stdout.splitlines()
    assert (name, written) == (node, node)
    assert found.split()[:2] == [address_of(lab, OTHER), OTHER]
    assert machine() == before


def test_without_the_view_a_program_is_on_this_machine(lab: RunningLab) -> None:
    """The namespace of a node alone, as `ip netns exec` enters it, knows nobody."""
    process = spawn(lab.namespace(SWITCH), ["sh", "-c", f"{LOOK}; vtysh -c 'show version'"], stdout=subprocess.PIPE)
    said = process.communicate(timeout=30)[0].decode()
    assert SWITCH not in said and address_of(lab, OTHER) not in said


MAKE_MEMORY = "ipcmk -M 4096 >/dev/null; echo here >/dev/shm/mark-$$; ls /dev/shm; ipcs -m | grep -c 0x"


def test_a_nodes_shared_memory_is_its_own_and_all_its_programs_have_it(shared_sandbox: Any, lab: RunningLab) -> None:
    before = machine_memory()
    made = executed(shared_sandbox, lab, HOST, "sh", "-c", MAKE_MEMORY)
    (mark, segments) = made.stdout.split()
    assert mark.startswith("mark-") and segments == "1", made.stderr
    look = ("sh", "-c", "ls /dev/shm; ipcs -m | grep -c 0x")
    assert executed(shared_sandbox, lab, HOST, *look).stdout.split() == [mark, "1"], "another program of the node"
    assert executed(shared_sandbox, lab, OTHER, *look).stdout.split() == ["0"], "another node"
    assert machine_memory() == before
    assert executed(shared_sandbox, lab, OTHER, "stat", "-fc", "%T", "/dev/shm").stdout == "tmpfs\n"


def test_without_the_view_all_nodes_have_the_memory_of_the_machine(lab: RunningLab) -> None:
    """By it, libraries of MPI take their peers for neighbours, and send nothing over the network."""
    mark = Path(f"/dev/shm/testbed-{lab.name}")
    mark.touch()
    try:
        for node in (HOST, OTHER):
            process = spawn(lab.namespace(node), ["ls", str(mark)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            assert process.communicate(timeout=30)[0].decode().strip() == str(mark)
            process = lab.spawn(node, ["ls", str(mark)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            process.communicate(timeout=30)
            assert process.returncode != 0
    finally:
        mark.unlink()


def machine_memory() -> list[str]:
    said = subprocess.run(["ipcs", "-m"], capture_output=True, text=True, check=True).stdout
    return [*sorted(path.name for path in Path("/dev/shm").iterdir()), said]


def test_many_programs_that_begin_at_once_have_one_memory(lab: RunningLab) -> None:
    argv = ["readlink", "/proc/self/ns/ipc"]
    running = [lab.spawn(SPINE, argv, stdout=subprocess.PIPE) for _ in range(2)]
    with ThreadPoolExecutor(8) as pool:
        running += pool.map(lambda _: lab.spawn(SWITCH, argv, stdout=subprocess.PIPE), range(16))
    found = [process.communicate(timeout=30)[0] for process in running]
    assert len(set(found[:2])) == len(set(found[2:])) == 1 and found[0] != found[-1]


def test_the_memory_of_a_node_goes_with_what_ran_there(sandbox: Any) -> None:
    lab = sandbox.deploy(sandbox.tiny()).lab
    leave = ("sh", "-c", "ipcmk -M 4096 >/dev/null; touch /dev/shm/mark")
    for node in (HOST, "p1-s1-h2"):
        assert executed(sandbox, lab, node, *leave).returncode == 0
    done = sandbox.cli("node", "restart", HOST, "-n", lab.name)
    assert done.returncode == 0, done.stderr
    look = ("sh", "-c", "ls /dev/shm; ipcs -m | grep -c 0x")
    assert executed(sandbox, lab, HOST, *look).stdout.split() == ["0"]
    assert executed(sandbox, lab, "p1-s1-h2", *look).stdout.split() == ["mark", "1"]
    sandbox.destroy()
    assert sandbox.leftovers() == []


def test_vtysh_in_a_switch_is_that_of_the_switch(shared_sandbox: Any, lab: RunningLab) -> None:
    for node, neighbours in ((SWITCH, 2), (SPINE, 2)):
        done = executed(shared_sandbox, lab, node, "vtysh", "-c", "show bgp summary json")
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(json.loads(done.stdout)["ipv4Unicast"]["peers"]) == neighbours
        assert done.stderr == ""
        (plan,) = (switch for switch in lab.plan.switches if switch.node == node)
        assert f"router bgp {plan.asn}" in executed(shared_sandbox, lab, node, "vtysh", "-c", "show run").stdout
    machines = Path("/run/frr", f"of-this-machine-{os.getpid()}")
    machines.touch()
    try:
        done = executed(shared_sandbox, lab, HOST, "sh", "-c", "ls /run/frr | wc -l; touch /run/frr/of-the-host")
    finally:
        machines.unlink()
    assert done.stdout.strip() == "0", "a host has no FRR, and nobody else's"
    assert not machines.with_name("of-the-host").exists()


def test_what_vtysh_saves_is_the_nodes_and_not_the_machines(shared_sandbox: Any, lab: RunningLab) -> None:
    before = machine()
    done = executed(shared_sandbox, lab, SWITCH, "vtysh", "-c", "write memory")
    assert "saved" in done.stdout.lower() or "OK" in done.stdout, done.stdout + done.stderr
    assert machine() == before
    assert f"hostname {SWITCH}" in (lab.run_directory(SWITCH) / "vtysh" / "frr.conf").read_text()


def test_python_and_mininets_shells_see_the_same(shared_sandbox: Any, lab: RunningLab) -> None:
    found = Lab.open(lab.name, state=shared_sandbox.state).node(SWITCH).run(["sh", "-c", LOOK]).stdout.splitlines()
    assert found[:2] == [SWITCH, SWITCH]
    script = shared_sandbox.work / "commands"
    script.write_text(f"{SWITCH} hostname; getent hosts {OTHER}; vtysh -c 'show bgp summary' | grep -c rail\n")
    done = shared_sandbox.cli("mininet-cli", "-n", lab.name, "--script", str(script))
    if "Mininet is not installed" in done.stderr:
        pytest.skip("Mininet is not installed: pip install mininet")
    lines = (done.stdout + done.stderr).splitlines()
    assert SWITCH in lines
    assert any(line.split()[:2] == [address_of(lab, OTHER), OTHER] for line in lines if line)


def test_a_shell_that_is_open_sees_the_daemons_that_are_started_anew(lab: RunningLab) -> None:
    shell = lab.spawn(SPINE, ["sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert shell.stdin is not None and shell.stdout is not None
    try:
        stop_routing(lab, SPINE)
        assert start_routing(lab, SPINE)

        def established() -> bool:
            shell.stdin.write(b"vtysh -c 'show bgp summary json' 2>&1 | tr -d '\\n'; echo\n")
            shell.stdin.flush()
            return b'"state":"Established"' in shell.stdout.readline().replace(b" ", b"")

        until(established, "a session that the shell sees")
    finally:
        shell.kill()
        shell.communicate()


@pytest.mark.skipif(
    shutil.which("traceroute") is None, reason="traceroute is not installed: apt-get install traceroute"
)
def test_traceroute_names_the_hops(shared_sandbox: Any, lab: RunningLab) -> None:
    done = executed(shared_sandbox, lab, HOST, "traceroute", "-w", "2", OTHER)
    assert done.returncode == 0, done.stderr
    hops = [line for line in done.stdout.splitlines() if line.strip()[:1].isdigit()]
    named = [[word for word in line.split() if word.rpartition(".")[2].startswith("p1-")] for line in hops]
    nodes = [found[0].rpartition(".")[2] for found in named]
    assert nodes[0] == SWITCH and nodes[1].startswith("p1-spine") and nodes[-2:] == ["p1-s2-rail1", OTHER], done.stdout


def test_a_wrong_name_is_answered_with_what_may_be_meant(shared_sandbox: Any, lab: RunningLab) -> None:
    for arguments, meant in (
        (("exec", "h1", "--", "true"), "did you mean p1-s1-h1 or p1-s2-h1? there are p1-s1-rail1"),
        (("link", "down", HOST), f"there is {HOST}:rail1"),
        (("capture", f"{HOST}:eth0"), f"there is {HOST}:rail1"),
        (("capture", SWITCH), f"there are {SWITCH}:"),
        (("link", "set", f"{SWITCH}:uplink9", "--rate", "50%"), f"did you mean {SWITCH}:uplink"),
        (("inspect", "routes", "h1"), "did you mean p1-s1-h1"),
    ):
        done = shared_sandbox.cli(*arguments[:1], "-n", lab.name, *arguments[1:]) if arguments[0] != "link" else None
        done = done or shared_sandbox.cli("link", arguments[1], "-n", lab.name, *arguments[2:])
        assert done.returncode not in (0, 1), arguments
        assert meant in done.stderr, (arguments, done.stderr)


def test_a_rate_that_a_port_cannot_is_refused(shared_sandbox: Any, lab: RunningLab) -> None:
    done = shared_sandbox.cli("link", "set", "-n", lab.name, f"{HOST}:rail1", "--rate", "400%")
    assert done.returncode not in (0, 1) and "is more than the" in done.stderr
    assert shared_sandbox.cli("link", "show", "-n", lab.name).stdout.startswith("every link is as declared")


def test_the_configuration_that_runs_is_shown_with_what_differs(shared_sandbox: Any, lab: RunningLab) -> None:
    def lines(*options: str) -> list[dict[str, str]]:
        done = shared_sandbox.cli("inspect", "config", SWITCH, "-n", lab.name, "-f", "json", *options)
        assert done.returncode == 0, done.stderr
        found: list[dict[str, str]] = json.loads(done.stdout)
        return found

    planned = lines()
    assert {line["differs"] for line in planned} == {""} and {line["node"] for line in planned} == {SWITCH}
    assert {"zebra", "bgpd"} <= {line["daemon"] for line in planned}
    table = shared_sandbox.cli("inspect", "config", SWITCH, "-n", lab.name).stdout
    assert table.startswith(f"{SWITCH}: as planned\n")
    (plan,) = (switch for switch in lab.plan.switches if switch.node == SWITCH)
    words = ("conf t", f"router bgp {plan.asn}", "timers bgp 7 21", "no bgp log-neighbor-changes")
    change = [word for line in words for word in ("-c", line)]
    assert executed(shared_sandbox, lab, SWITCH, "vtysh", *change).returncode == 0
    try:
        changed = [(line["differs"], line["line"].strip()) for line in lines() if line["differs"]]
        assert ("+", "timers bgp 7 21") in changed
        assert any(differs == "-" and text == "bgp log-neighbor-changes" for differs, text in changed)
        shown = shared_sandbox.cli("inspect", "config", SWITCH, "-n", lab.name).stdout
        assert "lines differ from the plan" in shown and "\n+  timers bgp 7 21" in shown
    finally:
        undo = ("conf t", f"router bgp {plan.asn}", "no timers bgp", "bgp log-neighbor-changes")
        executed(shared_sandbox, lab, SWITCH, "vtysh", *[word for line in undo for word in ("-c", line)])
    assert {line["differs"] for line in lines()} == {""}


def test_the_routes_of_a_host_are_shown_by_their_tables(shared_sandbox: Any, lab: RunningLab) -> None:
    done = shared_sandbox.cli("inspect", "routes", HOST, "-n", lab.name, "-f", "json")
    rows = json.loads(done.stdout)
    assert {row["node"] for row in rows} == {HOST}
    own = [row for row in rows if row["from"] == address_of(lab, HOST)]
    port = lab.port(HOST, "rail1")
    assert [(row["prefix"], row["via"], row["interfaces"]) for row in own] == [
        ("0.0.0.0/0", str(port.gateway), ["rail1"]),
        (str(port.address.network), "", ["rail1"]),  # type: ignore[union-attr]
    ]
    assert [row["table"] for row in rows if row["prefix"] == "0.0.0.0/0"] == ["main", own[0]["table"]]
    switches = json.loads(shared_sandbox.cli("inspect", "routes", "-n", lab.name, "-f", "json").stdout)
    assert HOST not in {row["node"] for row in switches}, "a lab has many hosts: their routes are asked for"


def test_past_events_are_told(shared_sandbox: Any, lab: RunningLab) -> None:
    place = f"{SWITCH}:uplink1"
    for words in (("down", place), ("up", place)):
        assert shared_sandbox.cli("link", words[0], "-n", lab.name, words[1]).returncode == 0
    assert shared_sandbox.cli("link", "set", "-n", lab.name, place, "--rate", "50%").returncode == 0
    assert shared_sandbox.cli("link", "reset", "-n", lab.name, place).returncode == 0

    def kinds() -> list[str]:
        done = shared_sandbox.cli("events", "--since", "10m", "-n", lab.name)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        assert [event["time"] for event in events] == sorted(event["time"] for event in events)
        return [event["kind"] for event in events if event["node"] in (SWITCH, "")]

    until(lambda: {"link-down", "link-up", "link-set", "bgp-down", "bgp-up"} <= set(kinds()), "all of them", 30)
    found = kinds()
    assert found[0] == "lab-deployed" and found.index("link-down") < found.index("link-set")
    table = shared_sandbox.cli("events", "--since", "deploy", "-f", "table", "-n", lab.name).stdout.splitlines()
    assert table[0].split() == ["time", "node", "kind", "subject", "detail", "by"]
    assert any("link-set" in line and "rate_bps" in line for line in table)
    wrong = shared_sandbox.cli("events", "--since", "yesterday-ish", "-n", lab.name)
    assert wrong.returncode not in (0, 1) and "for example 10m" in wrong.stderr
    csv = shared_sandbox.cli("events", "-c", "2", "-f", "csv", "-n", lab.name).stdout.splitlines()
    assert csv[0] == "time,lab,node,kind,subject,detail,by" and len(csv) == 3


def test_nothing_of_a_view_is_left(sandbox: Any) -> None:
    lab = sandbox.deploy(sandbox.tiny()).lab
    running = lab.spawn(SWITCH, ["sleep", "1000"])
    sandbox.destroy()
    running.wait(timeout=20)
    assert sandbox.leftovers() == []
    for_ip = Path("/etc/netns")  # where `ip netns exec` looks for files of a namespace
    assert not for_ip.is_dir() or not [path for path in for_ip.iterdir() if path.name.startswith(sandbox.prefix)]
