"""Programs over libfabric on a lab's hosts, by our provider: all that an RDM endpoint can do, and how it ends."""

import importlib.util
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest
from launch_lab import marked, python
from rank_programs import ALL_REDUCE, PLAIN_ALL_REDUCE
from sandbox import Sandbox
from waiting import until

from testbed.base.datapath.build import compile_c
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.node_files import libfabric_directory
from testbed.run.launch import LaunchOptions, LaunchRefused, LaunchResult, RankLine, launch_ranks
from testbed.run.launch.libfabric import serve_provider
from testbed.run.launch.result import UNDONE

CHECK = Path(__file__).parents[2] / "support" / "libfabric" / "fabric_check.c"
HEADERS = Path("/usr/include/rdma/fi_tagged.h")
OPENMPI = Path("/usr/bin/mpirun.openmpi")
FAST_K = 1000.0
ENDS_WITHIN_S = 30.0
"""What waits here waits for minutes; an end takes a second or two, and others use this machine, too."""
CHECKS = (
    *("messages", "vectors", "tags", "peeks", "cancel", "truncation", "several messages in a buffer"),
    *("remote memory", "atomics", "waits", "many at a time", "order of closing"),
    *("forked children", "all"),
)
ONE_SIDED = """
from mpi4py import MPI
import numpy as np
c = MPI.COMM_WORLD
own = np.zeros(1000 + c.size, np.int64)
window = MPI.Win.Create(own, 8, comm=c)
after = (c.rank + 1) % c.size
window.Fence()
window.Put(np.arange(1000, dtype=np.int64) + c.rank, after, target=[c.size, 1000, MPI.LONG])
window.Fence()
before = (c.rank - 1) % c.size
assert (own[c.size:] == np.arange(1000) + before).all(), own
for rank in range(c.size):
    window.Lock(rank)
    window.Accumulate(np.array([c.rank + 1], np.int64), rank, target=[0, 1, MPI.LONG], op=MPI.SUM)
    window.Unlock(rank)
old = np.empty(1, np.int64)
window.Lock(0)
window.Fetch_and_op(np.array([1], np.int64), old, 0, 1, MPI.SUM)
window.Unlock(0)
c.Barrier()
window.Fence()
assert own[0] == c.size * (c.size + 1) // 2, own[0]
assert sorted(c.allgather(int(old[0]))) == list(range(c.size))
if c.rank == 0:
    assert own[1] == c.size, own[1]
got = np.empty(1000, np.int64)
window.Lock(after, MPI.LOCK_SHARED)
window.Get(got, after, target=[c.size, 1000, MPI.LONG])
window.Unlock(after)
assert (got == np.arange(1000) + c.rank).all()
window.Free()
print("one-sided", c.rank, flush=True)
"""

pytestmark = [
    pytest.mark.netns,
    pytest.mark.frr,
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        not HEADERS.exists(), reason="libfabric's headers are not installed: apt-get install libfabric-dev"
    ),
]
needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed: pip install 'testbed[programs]'"
)


@pytest.fixture(scope="module")
def lab(shared_sandbox: Sandbox) -> RunningLab:
    return shared_sandbox.deploy(shared_sandbox.model("f"), k=FAST_K).lab


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that checks an endpoint, compiled."""
    target = tmp_path_factory.mktemp("check") / "fabric_check"
    compile_c([CHECK], target, ("-std=gnu11", "-O1", "-Wall", "-lfabric"), what="the check of libfabric")
    return target


def launched(lab: RunningLab, command: list[str], **options: Any) -> tuple[LaunchResult, list[RankLine]]:
    lines: list[RankLine] = []
    given: dict[str, Any] = {"timeout_s": 120.0, "transport": "libfabric"} | options
    result = launch_ranks(lab, command, LaunchOptions(**given), on_line=lines.append)
    return result, lines


@pytest.mark.parametrize("words", [[], ["ordered"]], ids=["unordered", "ordered"])
def test_all_that_an_endpoint_can_do(lab: RunningLab, check: Path, words: list[str]) -> None:
    hosts = tuple(host.node for host in lab.plan.hosts)
    result, lines = launched(lab, [str(check), *words], hosts=(hosts[0], hosts[-1]))
    assert result.exit_code == 0, "\n".join(line.text for line in lines)
    for rank in (0, 1):
        assert [line.text for line in lines if line.rank == rank] == [f"ok {what}" for what in CHECKS]
    assert result.rail_bytes > 2 << 20, "the bytes crossed the rails"
    assert result.sent_again is not None


@pytest.mark.skipif(shutil.which("fi_info") is None, reason="fi_info is not installed: apt-get install libfabric-bin")
def test_the_provider_is_listed_with_the_rank_s_own_rail(lab: RunningLab) -> None:
    host = lab.plan.hosts[0].node
    result, lines = launched(lab, ["fi_info", "-p", "uet"], hosts=(host,))
    text = "\n".join(line.text for line in lines)
    assert result.exit_code == 0, text
    assert "provider: uet" in text and "type: FI_EP_RDM" in text and "domain: rail1" in text


@needs_mpi
def test_mpi_sums_and_reaches_memory_over_it(lab: RunningLab) -> None:
    result, lines = launched(lab, [sys.executable, "-c", ALL_REDUCE, "65536", "3"], pmi=True)
    assert result.exit_code == 0, [line.text for line in lines]
    one_sided, lines = launched(lab, [sys.executable, "-c", ONE_SIDED], pmi=True)
    assert one_sided.exit_code == 0, [line.text for line in lines]
    assert sorted(line.text for line in lines) == [f"one-sided {rank}" for rank in range(4)]
    assert result.rail_bytes > 100_000 and one_sided.rail_bytes > 4 * 8000


@pytest.mark.thorough
@pytest.mark.may_skip
@pytest.mark.skipif(not OPENMPI.exists(), reason="apt-get install openmpi-bin python3-mpi4py")
def test_openmpi_of_debian_goes_over_it(shared_sandbox: Any, lab: RunningLab) -> None:
    """By its component for libfabric (MTL ofi). One rank of the launch calls mpirun, and ends the others in the end."""
    near, far = lab.plan.hosts[0].node, lab.plan.hosts[-1].node
    passed = [word for name in ("FI_PROVIDER", "FI_PROVIDER_PATH", "LAB_UET_SOCKET") for word in ("-x", name)]
    ofi = ["--mca", "pml", "cm", "--mca", "mtl", "ofi"]
    program = ["/usr/bin/python3", "-c", PLAIN_ALL_REDUCE, "65536", "3"]
    mpirun = shlex.join([str(OPENMPI), *passed, *ofi, "--host", f"{near},{far}", "-n", "2", *program])
    script = f"test $LAB_RANK = 0 || exec sleep 100; {mpirun}; exit $((42 + $?))"
    done = shared_sandbox.cli(
        *("launch", "-n", lab.name, "--hosts", f"{near},{far}", "--transport", "libfabric", "--timeout", "100"),
        *("-f", "json", "--", "sh", "-c", script),
        timeout_s=120,
    )
    assert done.returncode == 42, done.stderr
    for host in (near, far):
        assert f"all-reduce 2 {host} Open" in done.stderr + done.stdout
    assert json.loads(done.stdout)["rail_bytes"] > 2 * 3 * 65536


def test_one_launch_has_the_endpoints_of_a_lab_at_a_time(lab: RunningLab) -> None:
    nics = [host.nics[0] for host in lab.plan.hosts]
    with serve_provider(lab, nics) as served:
        assert set(served.watched) and served.sent_again() == 0
        with pytest.raises(LaunchRefused, match="another launch"), serve_provider(lab, nics):
            pass
        sockets = list(libfabric_directory(lab.processes_directory).glob("*.sock"))
        assert len(sockets) == len(nics)
    assert list(libfabric_directory(lab.processes_directory).glob("*.sock")) == []


def test_the_end_of_a_process_of_ours_ends_the_ranks(lab: RunningLab) -> None:
    """And a provider whose process is gone lets a program know. No socket of it is left."""
    nics = [host.nics[0] for host in lab.plan.hosts]
    waits = "import time; print('up', flush=True); time.sleep(600)"
    results: list[LaunchResult] = []
    lines: list[RankLine] = []

    def launch() -> None:
        options = LaunchOptions(transport="libfabric", timeout_s=60.0)
        results.append(launch_ranks(lab, python(waits), options, on_line=lines.append))

    thread = threading.Thread(target=launch)
    thread.start()
    try:
        until(lambda: len(lines) == len(nics), "ranks are up", 30)
        for pid in _provider_processes(os.getpid()):
            os.kill(pid, signal.SIGKILL)
    finally:
        thread.join(30)
    assert not thread.is_alive()
    assert results[0].exit_code == UNDONE and "libfabric provider" in results[0].failure
    assert list(libfabric_directory(lab.processes_directory).glob("*.sock")) == []


def test_when_the_launch_is_killed_ranks_and_endpoints_end(shared_sandbox: Any, lab: RunningLab) -> None:
    mark = uuid.uuid4().hex
    output = shared_sandbox.root / "out-launch"
    waits = "import time; print('up', flush=True); time.sleep(600)"
    with output.open("wb") as stream:
        command = ("launch", "-n", lab.name, "--transport", "libfabric", "--env", f"MARK={mark}", "--", *python(waits))
        process = shared_sandbox.start(*command, stdout=stream, stderr=stream)
        until(lambda: output.read_bytes().count(b"] up") == len(lab.plan.hosts), "ranks are up", 60)
        providers = _provider_processes(process.pid)
        assert providers
        process.kill()
        process.wait()
        until(lambda: not marked(mark), "ranks are gone", ENDS_WITHIN_S)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in providers), "endpoints are gone", ENDS_WITHIN_S)
    assert list(libfabric_directory(lab.processes_directory).glob("*.sock")) == []


def _provider_processes(parent: int) -> list[int]:
    """The children of a launch that serve the provider."""
    found = subprocess.run(
        ["pgrep", "-P", str(parent), "-f", "testbed.endpoints.libfabric"], capture_output=True, text=True, check=False
    )
    return [int(pid) for pid in found.stdout.split()]


def test_a_rank_that_is_killed_leaves_nothing_at_the_endpoint(lab: RunningLab, check: Path) -> None:
    nics = [host.nics[0] for host in lab.plan.hosts][:2]
    with serve_provider(lab, nics) as served:
        peers = ",".join(str(nic.address.ip) for nic in nics if nic.address is not None)
        environment = os.environ | dict(served.environment(nics[0])) | {"LAB_RANK": "0", "LAB_PEERS": peers}
        process = lab.spawn(nics[0].node, [str(check)], env=environment, stdout=subprocess.DEVNULL)
        until(
            lambda: served.counters()["open"] == 1, "it has connected", 20
        )  # it waits for its peer, which never comes
        process.kill()
        process.wait()
        until(lambda: served.counters()["open"] == 0, "its connection is closed", 5)
        assert served.counters()["broken"] == 0
