"""Programs as ranks whose TCP is carried: what they move goes by the endpoints, and all of it ends together."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from launch_lab import marked, python
from rank_programs import ALL_REDUCE, RING
from sandbox import Sandbox
from waiting import until

from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.journal import Journal
from testbed.run.launch import LaunchOptions, LaunchResult, RankLine, launch_ranks
from testbed.run.launch.result import UNDONE

pytestmark = [pytest.mark.netns, pytest.mark.frr]

SIZE = 300_000
FAST_K = 2000.0
WAITS = "import time\nprint('up', flush=True)\ntime.sleep(600)"
ENDS_WITHIN_S = 30.0
"""What waits here waits for minutes; an end takes a second or two, and others use this machine, too."""

needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed: pip install 'testbed[programs]'"
)


@pytest.fixture(scope="module")
def lab(shared_sandbox: Sandbox) -> RunningLab:
    return shared_sandbox.deploy(shared_sandbox.model("c"), k=FAST_K).lab


def launched(lab: RunningLab, command: list[str], **options: Any) -> tuple[LaunchResult, list[RankLine]]:
    lines: list[RankLine] = []
    result = launch_ranks(lab, command, LaunchOptions(timeout_s=90.0, **options), on_line=lines.append)
    return result, lines


@pytest.mark.parametrize("kind", ["uet", "roce"])
def test_a_ring_of_sockets_goes_by_the_endpoints(lab: RunningLab, kind: str) -> None:
    before = udp_datagrams(lab)
    result, lines = launched(lab, [*python(RING), str(SIZE)], per_gpu=True, transport=kind)
    assert (result.exit_code, result.failure) == (0, ""), lines
    assert sorted(line.text for line in lines) == [f"ring {rank}" for rank in range(8)]
    assert result.rail_bytes > 4 * SIZE and result.sent_again is not None
    # The rank's bytes left as datagrams of the endpoints, of at most 4096 bytes of data each.
    assert udp_datagrams(lab) - before > 4 * SIZE / 4096


def udp_datagrams(lab: RunningLab) -> int:
    """UDP datagrams that hosts have received."""
    total = 0
    for host in lab.hosts:
        text = lab.run(host, ["cat", "/proc/net/snmp"]).stdout
        values = [line.split() for line in text.splitlines() if line.startswith("Udp:")][1]
        total += int(values[1])
    return total


@needs_mpi
@pytest.mark.parametrize("kind", ["uet", "roce"])
def test_mpich_over_its_sockets_adds_up(lab: RunningLab, kind: str) -> None:
    command = [sys.executable, "-c", ALL_REDUCE, str(1 << 16), "3"]
    result, lines = launched(lab, command, pmi=True, transport=kind)
    assert result.exit_code == 0, (result.failure, lines)
    assert [line.text.split()[1] for line in lines if line.text.startswith("all-reduce")] == ["4"]


@pytest.mark.parametrize("what", ["carrier", "launch"])
def test_whatever_is_killed_all_ends_and_nothing_is_left(shared_sandbox: Any, lab: RunningLab, what: str) -> None:
    mark = uuid.uuid4().hex
    output = shared_sandbox.root / f"out-{what}"
    with output.open("wb") as stream:
        command = ("launch", "-n", lab.name, "--transport", "uet", "--env", f"MARK={mark}", "--", *python(WAITS))
        process = shared_sandbox.start(*command, stdout=stream, stderr=stream)
        until(lambda: output.read_bytes().count(b"] up") == 4, "ranks are up", 60)
        carriers = carriers_of(process.pid)
        assert carriers and Journal(lab.state_directory).read().steered
        begin = time.monotonic()
        os.kill(carriers[0] if what == "carrier" else process.pid, signal.SIGKILL)
        code = process.wait(timeout=20)
        until(
            lambda: not marked(mark) and not any(map(is_there, carriers)),
            "ranks and carriers are gone",
            max(0.1, ENDS_WITHIN_S - (time.monotonic() - begin)),
        )
    said = output.read_text()
    if what == "carrier":
        assert code == UNDONE and "has ended, without which ranks reach nobody" in said and "error: carrier" in said
    assert not Journal(lab.state_directory).read().steered
    for host in lab.hosts:
        assert "lookup 300" not in lab.run(host, ["ip", "rule"]).stdout


def test_without_the_right_to_change_networks_it_is_refused_at_once(shared_sandbox: Any, lab: RunningLab) -> None:
    """And not when hosts are half steered, nor by what could not be undone."""
    words = ["launch", "-n", lab.name, "--transport", "uet", "--", *python(WAITS)]
    done = subprocess.run(
        ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", sys.executable, "-m", "testbed", *words],
        env=shared_sandbox.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3 and "stripped of CAP_NET_ADMIN" in done.stderr and "hint:" in done.stderr, done.stderr
    assert not Journal(lab.state_directory).read().steered


def carriers_of(pid: int) -> list[int]:
    """The carrier's processes that a launch has started."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [
        int(child)
        for child in found
        if b"testbed.run.carrier" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
    ]


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
