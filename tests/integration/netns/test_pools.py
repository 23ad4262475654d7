"""Sweeps over machines made of namespaces: one record, the same to the byte, whatever dies; and nothing stays."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from namespace_machine import MachineRoom, NamespaceMachine, machines_lack
from waiting import until

from testbed.record.record import Outcome, Record
from testbed.record.store import RECORD_FILE, SESSION_FILE, load_record

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(bool(machines_lack()), reason=f"machines of namespaces: {machines_lack()}"),
    pytest.mark.skipif(find_spec("distributed") is None, reason="Dask distributed: pip install 'testbed[pool]'"),
]

SIMULATED = """name: pooled
topology:
  inline: {name: pooled, fabric: {design: rail-optimized, hosts: 4, gpus: 1, segments: 2, spines: 2}}
transport: {kind: uet}
workload: {kind: permutation, scope: inter-leaf, bytes: BYTES}
repeat: {runs: 2, seed: 1}
matrix: {transport.paths: [oblivious, reps, single], fabric.hosts: [2, 4]}
expect:
  - {metric: tail_fct_ratio, max: 30, source: far above any}
"""
EMULATED = """name: pooled-labs
topology:
  inline:
    name: pooled-labs
    fabric: {design: rail-optimized, hosts: 2, gpus: 1, segments: 2, spines: 2}
transport: {kind: uet}
workload: {kind: permutation, scope: inter-leaf, bytes: 1MB}
repeat: {runs: 1, seed: 1}
matrix: {transport.paths: [oblivious, reps]}
expect:
  - {metric: tail_fct_ratio, max: 1000000, source: far above any}
"""
PYTHON = f"{Path(__file__).parents[3]}/.venv/bin/python"
SEATS = "machines:\n  - {{ssh: 'root@{0}', simulation: 1}}\n  - {{ssh: 'root@{1}', simulation: 1}}\n"


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MachineRoom]:
    with MachineRoom(tmp_path_factory.mktemp("room")) as found:
        yield found


@pytest.fixture(scope="module")
def machines(room: MachineRoom) -> list[NamespaceMachine]:
    return [room.start("m1"), room.start("m2")]


@pytest.fixture
def work(tmp_path: Path, machines: list[NamespaceMachine]) -> Path:
    """A user's directory, with scenarios and a file of the machines, each of which simulates one run at a time."""
    (tmp_path / "small.yml").write_text(SIMULATED.replace("BYTES", "100kB"))
    (tmp_path / "long.yml").write_text(SIMULATED.replace("BYTES", "1MB"))
    (tmp_path / "labs.yml").write_text(EMULATED)
    places = [machine.target.removeprefix("ssh://root@") for machine in machines]
    (tmp_path / "pool.yml").write_text(SEATS.format(*places))
    return tmp_path


SIMULATE = ("run", "--backend", "simulation", "--no-report", "-q")


def content(directory: Path) -> bytes:
    [path] = directory.glob(f"*/{RECORD_FILE}")
    return path.read_bytes()


def record_in(directory: Path) -> Record:
    [path] = directory.glob(f"*/{RECORD_FILE}")
    return load_record(path)


def left_on(*machines: NamespaceMachine) -> list[str]:
    """The processes, labs and files of ours that are on machines."""
    found: list[str] = []
    for machine in machines:
        found += machine.processes()
        found += machine.run("find", "/root/.testbed-work/pool", "-mindepth", "1").stdout.splitlines()
        found += machine.run("find", "/var/lib/testbed/labs", "-mindepth", "1", "-maxdepth", "1").stdout.splitlines()
    return found


def here(room: MachineRoom, work: Path, name: str) -> bytes:
    done = room.run(*SIMULATE, f"{name}.yml", "-o", "alone", directory=work)
    assert done.returncode == 0, done.stderr
    return content(work / "alone")


def test_the_record_is_the_same_to_the_byte_and_says_who_did_what(
    room: MachineRoom, machines: list[NamespaceMachine], work: Path
) -> None:
    done = room.run(*SIMULATE, "small.yml", "--pool", "pool.yml", "-o", "pooled", directory=work)
    assert done.returncode == 0, done.stderr
    assert content(work / "pooled") == here(room, work, "small")
    [session] = (work / "pooled").glob(f"*/{SESSION_FILE}")
    parts = json.loads(session.read_text())["machines"]
    assert set(parts) == {machine.address for machine in machines}
    until(lambda: not left_on(*machines), "all is quiet", timeout_s=20)


@pytest.mark.thorough
def test_a_worker_that_is_killed_changes_nothing(
    room: MachineRoom, machines: list[NamespaceMachine], work: Path
) -> None:
    with started(room, work, *SIMULATE, "long.yml", "--pool", "pool.yml", "-o", "pooled") as running:
        victim = machines[0]
        until(lambda: runs_on(victim), "a run is under way on m1", timeout_s=120)
        victim.run("kill", "-KILL", str(worker_of(victim)))
        _, said = running.communicate(timeout=240)
    assert running.returncode == 0, said
    assert content(work / "pooled") == here(room, work, "long")
    until(lambda: not left_on(*machines), "all is quiet", timeout_s=20)


def test_an_interrupt_ends_all_and_resume_goes_on(
    room: MachineRoom, machines: list[NamespaceMachine], work: Path
) -> None:
    with started(room, work, *SIMULATE, "long.yml", "--pool", "pool.yml", "-o", "pooled") as running:
        journal = work / "pooled"
        until(lambda: list(journal.glob(f"*/{RECORD_FILE}")), "a point is done", timeout_s=120)
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)
    assert running.returncode == 130
    until(lambda: not left_on(*machines), "all is quiet", timeout_s=20)
    record = record_in(work / "pooled")
    assert record.incomplete.startswith("interrupted after") and 0 < len(record.points) < 6
    [directory] = (work / "pooled").iterdir()
    done = room.run(*SIMULATE, "long.yml", "--pool", "pool.yml", "--resume", str(directory), directory=work)
    assert done.returncode == 0, done.stderr
    whole = load_record(directory)
    assert len(whole.points) == 6 and whole.verdict.outcome is Outcome.PASS


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["killed", "cut off", "switched off"])
def test_a_machine_that_is_lost_is_told_and_the_other_does_its_runs(how: str, room: MachineRoom, work: Path) -> None:
    """One that is switched off does not say so: it is silent for 45 s first. Of one, the station is killed."""
    lives, dies = (room.start(f"m{word}{len(how)}") for word in ("lives", "dies"))
    pool = ",".join(machine.target for machine in (lives, dies))
    with started(room, work, *SIMULATE, "long.yml", "--pool", pool, "-o", "pooled") as running:
        until(lambda: runs_on(dies), "a run is under way there", timeout_s=120)
        if how == "cut off":
            dies.run("pkill", "-KILL", "sshd")
        elif how == "killed":
            dies.run("kill", "-KILL", str(station_of(dies)))
        else:
            dies.die()
        _, said = running.communicate(timeout=280)
    assert running.returncode == 0, said
    assert f"{dies.address} is lost" in said
    assert content(work / "pooled") == here(room, work, "long")
    until(lambda: not left_on(lives), "all is quiet", timeout_s=20)
    if how != "switched off":
        until(lambda: not left_on(dies), "its tether has ended all there", timeout_s=30)


@pytest.mark.thorough
def test_when_the_command_is_killed_nothing_is_left_on_the_machines(
    room: MachineRoom, machines: list[NamespaceMachine], work: Path
) -> None:
    with started(room, work, *SIMULATE, "long.yml", "--pool", "pool.yml", "-o", "pooled") as running:
        until(lambda: all(map(runs_on, machines)), "runs are under way", timeout_s=120)
        running.kill()
    until(lambda: not left_on(*machines), "all is quiet, and no file is left", timeout_s=30)


@pytest.mark.thorough
def test_a_machine_of_another_build_is_refused_by_name(room: MachineRoom, work: Path) -> None:
    odd = room.start("m5")
    source = str(Path(__file__).parents[3] / "testbed/protocols/simulation/port.py")
    assert odd.run("sh", "-c", 'echo "# changed" >>"$1"', "sh", source).returncode == 0
    done = room.run(*SIMULATE, "small.yml", "--pool", odd.target, "-o", "pooled", directory=work)
    assert done.returncode == 3 and "other sources of the transports" in done.stderr
    assert f"{odd.address} has " in done.stderr
    assert not (work / "pooled").exists(), "nothing was begun"
    checked = room.run("pool", "check", odd.target, "-f", "json", directory=work)
    [row] = json.loads(checked.stdout)
    assert checked.returncode == 1 and "other sources" in row["remark"] and row["reached"] is True
    forced = room.run(*SIMULATE, "small.yml", "--pool", odd.target, "--force", "-o", "pooled", directory=work)
    assert forced.returncode == 3, "figures of another simulator are never those of this one"


def test_a_machine_that_cannot_be_reached_is_named_with_the_others(room: MachineRoom, work: Path) -> None:
    nowhere = "ssh://root@10.99.0.99,ssh://root@10.99.0.98"
    done = room.run(*SIMULATE, "small.yml", "--pool", nowhere, directory=work)
    assert done.returncode == 3
    assert "10.99.0.99: no SSH connection" in done.stderr and "10.99.0.98: no SSH connection" in done.stderr


@pytest.mark.thorough
def test_points_are_emulated_on_two_machines_and_their_labs_removed(
    room: MachineRoom, machines: list[NamespaceMachine], work: Path
) -> None:
    pool = ",".join(machine.target for machine in machines)
    done = room.run("run", "labs.yml", "--pool", pool, "--no-report", "-q", "-o", "pooled", directory=work)
    record = record_in(work / "pooled")
    assert [point.name for point in record.points] == ["paths=oblivious", "paths=reps"], done.stderr
    assert record.incomplete == ""
    assert len({point.lab.k for point in record.points}) == 1, "one time scale for all"
    assert {part.name for part in record.machines} == {machine.address for machine in machines}
    assert sorted(name for part in record.machines for name in part.points) == ["paths=oblivious", "paths=reps"]
    assert list((work / "pooled").glob("*/labs/*.json"))
    until(lambda: not left_on(*machines), "all is quiet", timeout_s=20)


# --- what is under way ---------------------------------------------------------------------------------


def started(room: MachineRoom, work: Path, *arguments: str) -> subprocess.Popen[str]:
    """A command at the desk that goes on."""
    return subprocess.Popen(
        room.testbed(*arguments),
        cwd=work,
        env=room.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def at_work(machine: NamespaceMachine) -> dict[int, int]:
    """The processes of a station there, by number, with their parents: itself, seats, workers, and runs."""
    lines = machine.run("ps", "-eo", "pid=,ppid=,args=").stdout.splitlines()
    words = [line.split() for line in lines]
    return {int(pid): int(parent) for pid, parent, *args in words if args == [PYTHON, "-m", "testbed.api.pool.station"]}


def runs_on(machine: NamespaceMachine) -> bool:
    """Tell whether a run is under way: the child of a seat, which is a child of the station, as is a worker.

    The child that says what the machine is has children, too, before there is any seat.
    """
    found = at_work(machine)
    return len(found) > 3 and any(parent in found and found[parent] in found for parent in found.values())


def worker_of(machine: NamespaceMachine) -> int:
    """The number of a worker there: the station forks a seat, and then its worker."""
    station = station_of(machine)
    return sorted(pid for pid, parent in at_work(machine).items() if parent == station)[1]


def station_of(machine: NamespaceMachine) -> int:
    """The number of the station there."""
    found = at_work(machine)
    [station] = [pid for pid, parent in found.items() if parent not in found]
    return station
