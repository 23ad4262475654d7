"""Programs of one's own on a lab of 8 hosts at 20 Mbit/s: a real MPI against the ideal of a ring, what faults cost, and
how soon all has ended whoever is killed.

The library is MPICH of PyPI, with its ring, over the kernel's TCP. What is promised are ratios: of a step to the time
that a ring of so many ranks takes at the rate of a NIC, and of a step to one before.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import pytest
from figures import Figure, judge
from launch_lab import marked, parent_of, python
from rank_programs import STEPS
from waiting import until

from testbed.api import Lab, LinkChange
from testbed.cli.nodes.launch_tables import uplink_rows
from testbed.run.launch import LaunchOptions, LaunchOrder, LaunchResult, RankLine
from testbed.run.launch.result import UNDONE

pytestmark = [
    *(pytest.mark.bench, pytest.mark.netns, pytest.mark.frr, pytest.mark.timeout(900)),
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="pip install 'testbed[programs]'"),
]

TEXT = """name: {name}
scale: {{time: {k}}}
fabric:
  design: rail-optimized
  segments: 2
  hosts: 4
  gpus: 2
  nic: {{per: gpu, ports: 1, rate: 400G}}
  spines: 4
  uplink: {{rate: 400G, count: 1}}
  routing: {{bfd: off}}
"""
K = 20_000
SIZE = 1 << 20
LEAF = "p1-s1-rail1"
RING = {
    "MPIR_CVAR_CH4_NETMOD": "ucx",
    "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "ring",
    "MPIR_CVAR_DEVICE_COLLECTIVES": "none",
}

WAITS = "import time\nprint('up', flush=True)\ntime.sleep(600)"


@contextmanager
def deployed(name: str, directory: Path, k: int = K) -> Iterator[Lab]:
    with Lab.deploy(TEXT.format(name=name, k=k), directory=directory) as lab:
        yield lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with deployed("benchlaunch", tmp_path_factory.mktemp("lab")) as found:
        yield found


def ideal_s(ranks: int, k: int = K) -> float:
    """The time of a ring's all-reduce at the rate of a NIC: each rank sends 2 (n - 1) / n of the bytes."""
    return 2 * (ranks - 1) / ranks * SIZE * 8 / (400e9 / k)


class Steps:
    """The times of the steps of a program so far."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._actions: dict[int, Callable[[], None]] = {}
        self._threads: list[threading.Thread] = []

    def at(self, step: int, action: Callable[[], None]) -> None:
        """Do something once so many steps are over, in a thread of its own: whoever listens to ranks is quick."""
        self._actions[step] = action

    def hear(self, line: RankLine) -> None:
        words = line.text.split()
        if words[:1] == ["step"]:
            self.seconds.append(float(words[2]))
            if action := self._actions.get(len(self.seconds)):
                self._threads.append(threading.Thread(target=action))
                self._threads[-1].start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


def run(lab: Lab, steps: Steps, count: int, order: LaunchOrder = LaunchOrder.RACK) -> LaunchResult:
    """Run a program of so many steps, one rank on each host."""
    command = [sys.executable, "-c", STEPS, str(SIZE), str(count)]
    options = LaunchOptions(order=order, pmi=True, env=RING, timeout_s=240.0)
    result = lab.launch(command, options=options, on_line=steps.hear)
    steps.join()
    assert result.exit_code == 0 and len(steps.seconds) == count, result.failure
    return result


def busiest_uplink(lab: Lab, since: dict[str, int]) -> str:
    """The uplink of a switch that has sent most since some counters were read."""
    now = sent_by_uplinks(lab)
    return max(now, key=lambda name: now[name] - since[name])


def sent_by_uplinks(lab: Lab) -> dict[str, int]:
    counters = lab.running.counters(LEAF)
    return {name: found.tx_bytes for (_, name), found in counters.items() if name.startswith("uplink")}


def test_64_ranks_are_started(lab: Lab) -> None:
    begin, started = time.monotonic(), []
    from testbed.run.launch import launch_ranks

    result = launch_ranks(
        lab.running,
        ["sleep", "1"],
        LaunchOptions(ranks_per_host=8),
        on_started=lambda places: started.append(time.monotonic() - begin),
    )
    assert result.exit_code == 0 and len(result.ranks) == 64
    judge(Figure("launch: 64 ranks on 8 hosts are started", started[0], at_most=3, unit="s"))


def test_mpich_against_the_ideal_of_a_ring_and_at_two_scales(lab: Lab, tmp_path: Path) -> None:
    steps = Steps()
    run(lab, steps, 7)
    ratio = median(steps.seconds) / ideal_s(8)
    slower = Steps()
    with deployed("benchlaunch2k", tmp_path, 2 * K) as at_2k:
        run(at_2k, slower, 5)
    ratio_2k = median(slower.seconds) / ideal_s(8, 2 * K)
    judge(
        Figure("MPICH, 1 MiB all-reduce of 8 in rack order: step over ring ideal", ratio, at_most=1.15, ratio=True),
        Figure("the same at 2k: change of that", abs(ratio_2k / ratio - 1), at_most=0.1, ratio=True),
    )


def test_flows_that_collide_are_named_and_take_twice_as_long(lab: Lab) -> None:
    """Four flows over four uplinks: by chance alone they do not share one in 3 of 32 launches."""
    for _ in range(6):
        steps = Steps()
        result = run(lab, steps, 3, LaunchOrder.INTERLEAVE)
        named = [row.busiest or row.most_received for row in uplink_rows(result.uplinks)]
        if any(named):
            break
    judge(
        Figure(
            f"MPICH interleaved, {next(filter(None, named), 'no uplink named')}: step over ring ideal",
            median(steps.seconds) / ideal_s(8),
            at_least=1.8,
            ratio=True,
        )
    )


def test_an_uplink_at_a_quarter_and_one_that_goes_down(lab: Lab) -> None:
    slow, down = Steps(), Steps()
    before = sent_by_uplinks(lab)
    slow.at(4, lambda: lab.change_link(f"{LEAF}:{busiest_uplink(lab, before)}", LinkChange(rate_share=0.25)))
    try:
        run(lab, slow, 9)
    finally:
        lab.reset_link()
    before = sent_by_uplinks(lab)
    cut: list[str] = []

    at_cut: dict[str, int] = {}

    def take_down() -> None:
        cut.append(busiest_uplink(lab, before))
        at_cut.update(sent_by_uplinks(lab))
        lab.set_link(LEAF, cut[0], up=False)

    down.at(4, take_down)
    try:
        run(lab, down, 10)
    finally:
        for name in cut:
            lab.set_link(LEAF, name, up=True)
    moved = {name: sent - at_cut[name] for name, sent in sent_by_uplinks(lab).items()}
    assert max(sent for name, sent in moved.items() if name not in cut) > SIZE, "the flow went on by another uplink"
    usual = median(down.seconds[:4])
    judge(
        Figure(
            "uplink in use at 25 %: step over one before, at least",
            median(slow.seconds[5:]) / median(slow.seconds[:4]),
            at_least=3.5,
            ratio=True,
        ),
        Figure("the same, at most", median(slow.seconds[5:]) / median(slow.seconds[:4]), at_most=4.2, ratio=True),
        Figure(
            "uplink in use goes down: the longest step, more than usual", max(down.seconds) - usual, at_most=1, unit="s"
        ),
        Figure("and steps after it over those before", median(down.seconds[6:]) / usual, at_most=1.15, ratio=True),
    )


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def part_of(launch: int, module: str) -> int:
    """A process that serves a launch, by the module that it runs."""
    return next(
        child
        for child in children(launch)
        if module.encode() in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
    )


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("what", "transport", "code"),
    [
        ("a rank", "tcp", 137),
        ("a shim", "tcp", UNDONE),
        ("the launch", "tcp", -signal.SIGKILL),
        ("a rank", "uet", 137),
        ("the launch", "uet", -signal.SIGKILL),
        ("the carrier", "uet", UNDONE),
        ("the provider", "libfabric", UNDONE),
    ],
)
def test_whoever_is_killed_all_ends_soon(lab: Lab, tmp_path: Path, what: str, transport: str, code: int) -> None:
    mark = uuid.uuid4().hex
    words = ["launch", "-n", lab.name, "--per-gpu", "--transport", transport, "--env", f"MARK={mark}"]
    output = tmp_path / "out"
    with output.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "testbed", *words, "--", *python(WAITS)],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
        )
        try:
            until(lambda: output.read_bytes().count(b"] up") == 16, "ranks are up")
            rank = next(pid for pid, env in marked(mark).items() if env["RANK"] == "5")
            victim = {
                "a rank": lambda: rank,
                "a shim": lambda: parent_of(rank),
                "the launch": lambda: process.pid,
                "the carrier": lambda: part_of(process.pid, "testbed.run.carrier"),
                "the provider": lambda: part_of(process.pid, "testbed.endpoints.libfabric"),
            }[what]()
            helpers = children(process.pid)
            begin = time.monotonic()
            os.kill(victim, signal.SIGKILL)
            assert process.wait(60) == code, output.read_text()
            until(lambda: not marked(mark) and not any(map(is_there, helpers)), "all are gone")
            took_s = time.monotonic() - begin
        finally:
            process.kill()
            process.wait()
    judge(Figure(f"launch over {transport}: kill -9 of {what}, all has ended", took_s, at_most=5, unit="s"))
