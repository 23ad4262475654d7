"""What a pool costs: two machines beside one, the CPU time of a run beside that of the same run here, and how soon all
is silent after an interrupt. Both sides of each ratio are measured in turn, on the same machine."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from figures import Figure, judge
from namespace_machine import MachineRoom, NamespaceMachine, machines_lack
from waiting import until

from testbed.record.store import RECORD_FILE, load_record
from testbed.run.simulated.point import SimulatedPoint
from testbed.run.sweeps import read_sweep

pytestmark = [
    pytest.mark.bench,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(machines_lack()), reason=f"machines of namespaces: {machines_lack()}"),
    pytest.mark.skipif(find_spec("distributed") is None, reason="Dask distributed: pip install 'testbed[pool]'"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two machines need a core each"),
]
TEXT = """name: measured
topology:
  inline: {name: measured, fabric: {design: rail-optimized, hosts: 8, gpus: 1, segments: 2, spines: 4}}
transport: {kind: uet}
workload: {kind: permutation, scope: inter-leaf, bytes: BYTES}
repeat: {runs: RUNS, seed: 1}
expect: [{metric: tail_fct_ratio, max: 100, source: far above any}]
"""
RUN = ("run", "--backend", "simulation", "--no-report", "-q")
RUNS, LEAST_RUN_S = 24, 1.0
ROUNDS = 2
FEW, MANY = 8, 40
"""Runs of two commands: what lies between them is no start of anything."""


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MachineRoom]:
    with MachineRoom(tmp_path_factory.mktemp("room")) as found:
        yield found


@pytest.fixture(scope="module")
def machines(room: MachineRoom) -> list[NamespaceMachine]:
    """Two machines, with a core each."""
    cpus = sorted(os.sched_getaffinity(0))[:2]
    return [room.start(f"m{cpu}", cpus=[cpu]) for cpu in cpus]


def scenario(directory: Path, size: int, runs: int) -> str:
    path = directory / f"measured-{size}-{runs}.yml"
    path.write_text(TEXT.replace("BYTES", f"{size}B").replace("RUNS", str(runs)))
    return path.name


def size_of_a_second() -> int:
    """The bytes of a run that takes a good second of a core here: longer ones take less for each byte."""
    size = 1_000_000
    for _ in range(2):
        sweep = read_sweep(TEXT.replace("BYTES", f"{size}B").replace("RUNS", "2"))
        point = SimulatedPoint(sweep.points[0], sweep.lab_of(sweep.points[0]))
        point.run(1, lambda share: False)  # what is done once in a process is no part of what a run takes
        begin = time.process_time()
        point.run(2, lambda share: False)
        size = round(1.3 * LEAST_RUN_S * size / (time.process_time() - begin))
    return size


def wall_s(room: MachineRoom, directory: Path, *words: str) -> float:
    begin = time.monotonic()
    done = room.run(*RUN, *words, directory=directory, timeout_s=600)
    assert done.returncode == 0, done.stderr
    return time.monotonic() - begin


def test_two_machines_take_little_more_than_half_of_the_time_of_one(
    room: MachineRoom, machines: list[NamespaceMachine], tmp_path: Path
) -> None:
    file = scenario(tmp_path, size_of_a_second(), RUNS)
    one, two = [], []
    for number in range(ROUNDS):
        one.append(wall_s(room, tmp_path, file, "--pool", machines[number % 2].target, "-o", f"one-{number}"))
        both = ",".join(machine.target for machine in machines)
        two.append(wall_s(room, tmp_path, file, "--pool", both, "-o", f"two-{number}"))
    print(f"one machine: {one}, two: {two}")
    ratio = min(pair[1] / pair[0] for pair in zip(one, two, strict=True))
    judge(Figure("Pool: 24 runs of a second on two machines, of the time of one", ratio, at_most=0.60, ratio=True))
    records = [next((tmp_path / f"{word}-0").glob(f"*/{RECORD_FILE}")) for word in ("one", "two")]
    assert records[0].read_bytes() == records[1].read_bytes()


def cpu_s(room: MachineRoom, directory: Path, *words: str) -> float:
    """The CPU time of a command and of all that it has waited for (s)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall_s(room, directory, *words)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def a_run_s(room: MachineRoom, directory: Path, name: str, words: Sequence[str]) -> float:
    """The CPU time of each further run of a command (s)."""
    files = [scenario(directory, 100_000, runs) for runs in (FEW, MANY)]
    few, many = (cpu_s(room, directory, file, *words, "-o", f"{name}-{file}") for file in files)
    return (many - few) / (MANY - FEW)


def test_a_run_on_a_pool_costs_little_more_cpu_than_here(room: MachineRoom, tmp_path: Path) -> None:
    """The machine is this one, so that all is waited for, and counted: the worker, its seat, the scheduler, the client.

    What a run costs beside itself is the same for a long one, of which the other limit is a share.
    """
    more = []
    for number in range(ROUNDS):
        here = a_run_s(room, tmp_path, f"here-{number}", ())
        pooled = a_run_s(room, tmp_path, f"pooled-{number}", ("--pool", "here"))
        print(f"a run here: {here * 1e3:.0f} ms of CPU, on a pool: {pooled * 1e3:.0f} ms")
        more.append(pooled - here)
    judge(
        Figure("Pool: CPU time of a run, beside that of the same run here", 1e3 * min(more), at_most=50, unit="ms"),
        Figure("Pool: that of a run of a second", 100 * min(more) / LEAST_RUN_S, at_most=5, unit="%"),
    )


def ours_on(machine: NamespaceMachine) -> list[str]:
    return [command for command in machine.processes() if "testbed" in command]


def is_running(machine: NamespaceMachine) -> bool:
    """Tell whether a run is under way: the station has forked a seat and a worker, and the seat it."""
    return sum(command.endswith("-m testbed.api.pool.station") for command in ours_on(machine)) > 3


def test_after_an_interrupt_all_machines_are_soon_silent(
    room: MachineRoom, machines: list[NamespaceMachine], tmp_path: Path
) -> None:
    file = scenario(tmp_path, 10 * size_of_a_second(), 6)
    pool = ",".join(machine.target for machine in machines)
    took = []
    for number in range(ROUNDS):
        progress = tmp_path / f"told-{number}"
        with progress.open("wb") as told:
            running = subprocess.Popen(
                room.testbed(*RUN, file, "--pool", pool, "-o", f"interrupted-{number}"),
                cwd=tmp_path,
                env=room.environment,
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=told,
                start_new_session=True,
            )
        try:
            until(lambda: all(map(is_running, machines)), "runs are under way", timeout_s=120)
            begin = time.monotonic()
            running.send_signal(signal.SIGINT)
            until(lambda: not any(map(ours_on, machines)), "all is silent", timeout_s=60)
            took.append(time.monotonic() - begin)
            assert running.wait(60) == 130, progress.read_text()
        finally:
            running.kill()
            running.wait()
        [directory] = (tmp_path / f"interrupted-{number}").iterdir()
        assert load_record(directory).incomplete.startswith("interrupted")
    print(json.dumps(took))
    judge(Figure("Pool: from an interrupt to silence on two machines", min(took), at_most=2, unit="s"))
