"""Changes of labs that are killed, interrupted or refused by the kernel anywhere: what follows ends them whole."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab_snapshot import Snapshot, differences, snapshot
from sandbox import Sandbox

from testbed.lab.core.deploy.live import RunningLab

pytestmark = [pytest.mark.netns, pytest.mark.frr]

TOPOLOGY = """
name: {name}
scale: {{time: 10000}}
fabric: {{design: rail-optimized, hosts: {hosts}, gpus: 2, spines: {spines}, nic: {{rate: {rate}}}}}
qos: {{preset: uec}}
"""
BESIDE = {
    "link groups": """\
networks:
  frontend: {design: leaf-spine, homing: mlag, leaves: 2, spines: 1, nic: {per: host, ports: 2, rate: 100G}}
""",
    "scale-up": "",
}
"""The further parts of a lab whose changes are killed, too: there are more hosts afterwards, and so they change."""
CUT_SHORT = """
import os, signal, sys
from pathlib import Path

acts, number = 0, int(sys.argv[2])
watched = {"socket.sendto", "socket.connect", "os.rename", "os.remove", "os.mkdir", "subprocess.Popen", "open"}
armed = False


def count(event, arguments):
    global acts
    if armed and event in watched:
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            return
        acts += 1
        if acts == number:
            os.kill(os.getpid(), signal.SIGKILL)


from testbed.lab.core.deploy.changing.apply import ApplyOptions, apply_lab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.schema.load import load_topology

lab = load_topology(Path(sys.argv[1]))
sys.addaudithook(count)
armed = True
apply_lab(lab, StateDirectory(), ApplyOptions(k=lab.scale.time))
armed = False
print(acts)
"""
"""Applies a topology, and dies right before it does one thing more to the machine than it is told to; else it says how
many things it did: messages to the kernel, connections to daemons, files written, renamed and removed, programs
started."""
FEW, SOME, MANY = 2, 12, 40
FEW_DESTROYS, MANY_DESTROYS = 1, 30


class Bench:
    """A lab that is deployed as `before`, its file; `after` is another file of it."""

    def __init__(self, sandbox: Any, kind: str = "") -> None:
        self.sandbox = sandbox
        self._kind = kind
        self.before = self.write("before", hosts=2, spines=2, rate="400G")
        self.after = self.write("after", hosts=3, spines=1, rate="200G")

    def write(self, file: str, **values: Any) -> Path:
        path: Path = self.sandbox.root / f"{file}.yml"
        text = TOPOLOGY.format(name=self.sandbox.name(), **values)
        if self._kind == "scale-up":
            text = text.replace("nic:", "scale_up: {rate: 3.6T, by: packets, planes: 2, credits: {limit: 64}}, nic:")
        path.write_text(text + BESIDE.get(self._kind, ""))
        return path

    def deploy(self) -> None:
        self._done("deploy", "-q", "-t", str(self.before))

    def apply(self, path: Path) -> None:
        self._done("apply", "-q", "-t", str(path))
        assert not self.sandbox.state.is_changing(self.sandbox.name())

    def _done(self, *words: str) -> None:
        result = self.sandbox.cli(*words)
        self.sandbox.note_daemons()
        assert result.returncode == 0, result

    def cut_short(self, path: Path, number: int) -> subprocess.CompletedProcess[str]:
        """Apply a file, and be killed right before it does its act of that number; 0 is none."""
        argv = [sys.executable, "-c", CUT_SHORT, str(path), str(number)]
        box = self.sandbox
        result = subprocess.run(
            argv, env=box.environment, cwd=box.work, capture_output=True, text=True, timeout=120, check=False
        )
        box.note_daemons()
        assert result.returncode in (0, -signal.SIGKILL), result
        return result

    def acts(self) -> int:
        """How many things it does to change the lab."""
        count = int(self.cut_short(self.after, 0).stdout)
        self.apply(self.before)
        return count

    @property
    def lab(self) -> RunningLab:
        return self.sandbox.running()

    def seen(self) -> Snapshot:
        """All that the kernel, FRR and our files have of the lab."""
        return snapshot(self.lab)


@pytest.fixture
def bench(sandbox: Sandbox) -> Bench:
    return Bench(sandbox)


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("points", [FEW, pytest.param(MANY, marks=pytest.mark.soak)])
def test_a_change_killed_anywhere_is_finished_or_taken_back(bench: Bench, points: int) -> None:
    bench.deploy()
    first = bench.seen()
    acts = bench.acts()
    assert differences(bench.seen(), first) == [], "changed there and back it is the lab that it was"
    bench.apply(bench.after)
    wanted = bench.seen()
    bench.apply(bench.before)
    random_numbers = random.Random(f"changes {points}")
    killed = 0
    for point in range(points):
        number = 1 + int(acts * (point + random_numbers.random()) / points)
        killed += bench.cut_short(bench.after, number).returncode != 0
        path, expected = (bench.after, wanted) if point % 2 == 0 else (bench.before, first)
        bench.apply(path)
        assert differences(bench.seen(), expected) == [], f"{path.name} after a SIGKILL at act {number} of {acts}"
        bench.apply(bench.before)
    assert killed >= points // 2, "most of the moments lay within the change"
    assert bench.sandbox.cli("check", "-n", bench.sandbox.name()).returncode == 0


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kind", BESIDE)
def test_a_change_of_what_features_run_is_finished_or_taken_back(sandbox: Any, kind: str) -> None:
    bench = Bench(sandbox, kind)
    bench.deploy()
    first = bench.seen()
    acts = bench.acts()
    assert differences(bench.seen(), first) == [], "changed there and back it is the lab that it was"
    bench.apply(bench.after)
    wanted = bench.seen()
    bench.apply(bench.before)
    random_numbers = random.Random(kind)
    for point in range(SOME):
        number = 1 + int(acts * (point + random_numbers.random()) / SOME)
        bench.cut_short(bench.after, number)
        path, expected = (bench.after, wanted) if point % 2 == 0 else (bench.before, first)
        bench.apply(path)
        assert differences(bench.seen(), expected) == [], f"{path.name} after a SIGKILL at act {number} of {acts}"
        bench.apply(bench.before)
    assert bench.sandbox.cli("check", "-n", bench.sandbox.name()).returncode == 0


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("points", [FEW_DESTROYS, pytest.param(MANY_DESTROYS, marks=pytest.mark.soak)])
def test_destroy_removes_a_lab_whose_change_was_killed(bench: Bench, points: int) -> None:
    bench.deploy()
    acts = bench.acts()
    random_numbers = random.Random(f"destroys {points}")
    for point in range(points):
        number = 1 + int(acts * (point + random_numbers.random()) / points)
        bench.cut_short(bench.after, number)
        result = bench.sandbox.cli("destroy", "-n", bench.sandbox.name())
        assert result.returncode == 0, result
        assert bench.sandbox.leftovers() == [], f"SIGKILL at act {number} of {acts}"
        bench.deploy()


@pytest.mark.timeout(900)
def test_an_interrupted_change_is_undone(bench: Bench) -> None:
    bench.deploy()
    first = bench.seen()
    for step in ("nodes", "links", "routing", "removals"):
        journal = bench.sandbox.state.lab_directory(bench.sandbox.name()) / "journal.jsonl"
        seen = journal.read_text().count(f'"{step}"')
        process = bench.sandbox.start("apply", "-q", "-t", str(bench.after))
        while journal.read_text().count(f'"{step}"') == seen:
            assert process.poll() is None, (bench.sandbox.root / "out").read_text()
        process.send_signal(signal.SIGINT)
        status = process.wait(60)
        bench.sandbox.note_daemons()
        assert status in (0, 130), (bench.sandbox.root / "out").read_text()
        if status == 0:  # it had ended already
            bench.apply(bench.before)
        assert not bench.sandbox.state.is_changing(bench.sandbox.name())
        assert differences(bench.seen(), first) == [], f"SIGINT in the step {step}, status {status}"


def _uptimes(lab: RunningLab) -> dict[tuple[str, str], float]:
    return {(item.node, item.interface): item.uptime_s for item in lab.sessions()}


def test_what_the_kernel_refuses_half_way_is_undone_and_sessions_stay(bench: Bench) -> None:
    """Somebody has given a switch an interface that has the name of one that is to be made."""
    bench.deploy()
    switch = bench.lab.namespace("p1-s1-rail2")
    subprocess.run(["ip", "-n", switch, "link", "add", "down3", "type", "bridge"], check=True)
    first, uptimes = bench.seen(), _uptimes(bench.lab)
    result = bench.sandbox.cli("apply", "-q", "-t", str(bench.after))
    assert result.returncode == 2, result
    assert "could not be changed, and is as it was" in result.stderr and "File exists" in result.stderr, result
    assert differences(bench.seen(), first) == []
    assert all(uptime >= uptimes[key] for key, uptime in _uptimes(bench.lab).items()), "no session was reset"
    assert bench.sandbox.cli("check", "-n", bench.sandbox.name()).returncode == 0
    subprocess.run(["ip", "-n", switch, "link", "delete", "down3"], check=True)
    bench.apply(bench.after)


def test_a_name_of_somebody_else_is_refused_before_anything_is_touched(bench: Bench) -> None:
    bench.deploy()
    first = bench.seen()
    name = bench.lab.namespace("p1-s1-h1").replace("-h1", "-h3")
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        result = bench.sandbox.cli("apply", "-q", "-t", str(bench.after))
        assert result.returncode == 3 and f"the network namespace {name} exists and is not ours" in result.stderr
        assert differences(bench.seen(), first) == []
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


def _other_verbs(bench: Bench) -> list[tuple[tuple[str, ...], Callable[[Any], bool]]]:
    name, says = bench.sandbox.name(), f"testbed apply -n {bench.sandbox.name()}"
    return [
        (("link", "set", "p1-s1-h1:rail1", "--loss", "1%", "-n", name), lambda done: done.returncode == 3),
        (("power", "off", "p1-s1-h1", "-n", name), lambda done: done.returncode == 3),
        (("deploy", "-q", "-t", str(bench.before)), lambda done: done.returncode == 3),
        (("check", "-n", name), lambda done: done.returncode == 2 and "changing" in done.stdout),
        (("inspect", "-n", name), lambda done: done.returncode == 0 and says in done.stderr),
        (("list",), lambda done: done.returncode == 0 and "changing" in done.stdout),
    ]


def test_other_verbs_say_what_to_do_with_a_lab_in_the_middle_of_a_change(bench: Bench) -> None:
    bench.deploy()
    bench.cut_short(bench.after, 10)
    assert bench.sandbox.state.is_changing(bench.sandbox.name())
    for words, is_right in _other_verbs(bench):
        done = bench.sandbox.cli(*words)
        assert is_right(done), done
        if words[0] not in ("list", "inspect"):
            assert f"testbed apply -n {bench.sandbox.name()}" in done.stdout + done.stderr, done
    bench.apply(bench.before)
