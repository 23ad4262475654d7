"""Programs of one's own as ranks on the hosts of a lab: what they reach, what is counted, and how all of it ends."""

import importlib.util
import json
import os
import signal
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from launch_lab import marked, parent_of, python
from rank_programs import ALL_REDUCE, PLAIN_ALL_REDUCE, RING
from sandbox import Sandbox
from waiting import until

from testbed.api import Lab
from testbed.base.linux.processes import Process, processes_in
from testbed.base.linux.views import NodeView
from testbed.lab.core.deploy.congestion_control import read_congestion_controls
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.schema.load import load_topology_text
from testbed.run.launch import LaunchOptions, LaunchOrder, LaunchRefused, LaunchResult, RankLine, launch_ranks
from testbed.run.launch.result import UNDONE

pytestmark = [pytest.mark.netns, pytest.mark.frr]

H1, H2, H3, H4 = "p1-s1-h1", "p1-s1-h2", "p1-s2-h1", "p1-s2-h2"
SIZE = 300_000
WAITS = "import time\nprint('up', flush=True)\ntime.sleep(600)"
ENDS_WITHIN_S = 30.0
"""What waits here waits for minutes; an end takes a second or two, and others use this machine, too."""
FAST_K = 1000.0
"""The labs of these tests are fast: 400 Mbit/s a NIC."""

needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed: pip install 'testbed[programs]'"
)

OPENMPI = Path("/usr/bin/mpirun.openmpi")


@pytest.fixture(scope="module")
def lab(shared_sandbox: Sandbox) -> RunningLab:
    return shared_sandbox.deploy(shared_sandbox.model("l"), k=FAST_K).lab


def launched(lab: RunningLab, command: list[str], **options: Any) -> tuple[LaunchResult, list[RankLine]]:
    lines: list[RankLine] = []
    result = launch_ranks(lab, command, LaunchOptions(**({"timeout_s": 60.0} | options)), on_line=lines.append)
    assert not [line.text for line in lines if line.is_error] or result.exit_code, lines
    return result, lines


def ring(*words: str) -> list[str]:
    """The ring of so many bytes."""
    return [*python(RING), *(words or (str(SIZE),))]


def words(lines: list[RankLine]) -> list[str]:
    return sorted(line.text for line in lines)


def test_ranks_reach_each_other_over_their_rails_and_all_is_counted(lab: RunningLab) -> None:
    result, lines = launched(lab, ring(), per_gpu=True)
    assert (result.exit_code, result.failure) == (0, "")
    assert words(lines) == [f"ring {rank}" for rank in range(8)]
    sent = {(nic.node, nic.interface): nic.tx_bytes for nic in result.nics}
    assert len(sent) == 8
    # A ring over the ranks of a host goes out by the second rail, and to the other rail of the next host.
    assert all(sent[host, "rail2"] > SIZE for host in (H1, H2, H3, H4)), sent
    assert result.rail_bytes == sum(sent.values()) > 4 * SIZE
    used = [port for port in result.uplinks if port.tx_bytes > SIZE]
    assert used
    for node in {port.node for port in used}:  # a flow is on one of two uplinks, and two may be on one or on both
        assert sum(port.tx_share for port in used if port.node == node) == pytest.approx(2, abs=0.3), used
    assert result.sent_again is not None and result.congestion_control == "cubic"


def test_interleaved_ranks_meet_over_the_spines_and_those_of_a_rack_do_not(lab: RunningLab) -> None:
    def crossed(order: LaunchOrder) -> int:
        result, _ = launched(lab, ring(), order=order)
        return sum(port.tx_bytes > SIZE for port in result.uplinks if port.node.endswith("rail1"))

    assert crossed(LaunchOrder.RACK) == 2, "one flow each way"
    rows = launched(lab, ring(), order=LaunchOrder.INTERLEAVE)[0].uplinks
    assert sum(port.tx_bytes for port in rows if port.node.startswith("p1-s1")) > 2 * SIZE, "two flows"


def test_a_rank_is_on_a_host_of_its_own(lab: RunningLab) -> None:
    code = (
        "import os, socket; host = socket.gethostname()\n"
        "print(host, socket.gethostbyname('p1-s2-h2'), *sorted(os.listdir('/sys/class/net')))"
    )
    _, lines = launched(lab, python(code))
    address = str(lab.port(H4, "rail1").address.ip)  # type: ignore[union-attr]
    assert [line.text for line in sorted(lines, key=lambda line: line.rank)] == [
        f"{host} {address} lo rail1 rail2" for host in (H1, H2, H3, H4)
    ]


def test_ranks_of_a_host_share_its_memory_and_see_their_processes_alone(lab: RunningLab) -> None:
    code = (
        "import os, pathlib, time\n"
        "mine = pathlib.Path('/dev/shm/mark-' + os.environ['RANK']); mine.touch()\n"
        "def found(): return sorted(path.name for path in pathlib.Path('/dev/shm').glob('mark-*'))\n"
        "while len(found()) < 2: time.sleep(0.01)\n"
        "time.sleep(0.2)\n"
        "print(*found(), sum(name.isdigit() for name in os.listdir('/proc')), os.readlink('/proc/self/ns/ipc'))\n"
    )
    _, lines = launched(lab, python(code), hosts=(H1, H2), ranks_per_host=2)
    by_rank = [line.text.split() for line in sorted(lines, key=lambda line: line.rank)]
    assert [line[:2] for line in by_rank] == [["mark-0", "mark-1"]] * 2 + [["mark-2", "mark-3"]] * 2
    assert {line[2] for line in by_rank} <= {"2", "3"}, "the shim, and the ranks that are there still"
    assert by_rank[0][3] == by_rank[1][3] != by_rank[2][3] == by_rank[3][3]
    assert str(Path("/proc/self/ns/ipc").readlink()) not in {line[3] for line in by_rank}


def test_rank_0_may_come_last(lab: RunningLab) -> None:
    result, lines = launched(lab, ring("1000", "0.5"))
    assert result.exit_code == 0 and len(lines) == 4


def test_two_labs_have_programs_at_once(shared_sandbox: Any, lab: RunningLab) -> None:
    other = shared_sandbox.deploy(shared_sandbox.tiny("o"), k=FAST_K).lab
    try:
        with ThreadPoolExecutor() as pool:
            both = [pool.submit(launched, each, ring()) for each in (lab, other)]
            results = [one.result()[0] for one in both]
    finally:
        shared_sandbox.destroy("o")
    assert [(result.exit_code, len(result.ranks)) for result in results] == [(0, 4), (0, 2)]


def test_a_program_finds_its_peers_by_ipv6(shared_sandbox: Any) -> None:
    text = f"""name: {shared_sandbox.name("six")}
fabric: {{design: rail-optimized, segments: 2, hosts: 1, gpus: 1, spines: 2, overlay: evpn, mtu: 4200}}
tenants:
  red:
    subnets:
      web: {{prefix: 172.30.0.0/24, prefix6: "fd00:30::/64", nics: ["{H1}:rail1", "{H3}:rail1"]}}
"""
    lab = shared_sandbox.deploy(load_topology_text(text, file="six.yml"), k=FAST_K).lab
    try:
        result, lines = launched(lab, ring(), ipv6=True)
        assert result.exit_code == 0, (result.failure, lines)
        assert words(lines) == ["ring 0", "ring 1"] and result.rail_bytes > 2 * SIZE
    finally:
        shared_sandbox.destroy("six")


def test_rails_that_do_not_reach_each_other_have_no_program_together(shared_sandbox: Any) -> None:
    model = shared_sandbox.model("r", design="rail-only", segments=None, hosts=2, spines=None)
    lab = shared_sandbox.deploy(model, k=FAST_K).lab
    try:
        with pytest.raises(LaunchRefused, match="do not reach each other"):
            launched(lab, ring(), per_gpu=True)
        result, _ = launched(lab, ring(), ranks_per_host=2)
        assert result.exit_code == 0, "all ranks are on the first rail"
        assert {nic.interface for nic in result.nics} == {"rail1"}
    finally:
        shared_sandbox.destroy("r")


def test_the_verb_prints_ranks_and_tables(shared_sandbox: Any, lab: RunningLab) -> None:
    done = shared_sandbox.cli("launch", "-n", lab.name, "--", *ring())
    assert done.returncode == 0, done.stderr
    assert {f"[{rank}] ring {rank}" for rank in range(4)} < set(done.stdout.splitlines())
    assert "max/mean" in done.stdout and "rail1" in done.stdout
    assert "4 ranks on 4 hosts" in done.stderr and "over tcp (cubic)" in done.stderr
    document = json.loads(shared_sandbox.cli("launch", "-n", lab.name, "-f", "json", "--", *ring()).stdout)
    assert document["rail_bytes"] > 4 * SIZE and [rank["status"] for rank in document["ranks"]] == [0] * 4


def test_a_program_that_is_not_there_is_127(shared_sandbox: Any, lab: RunningLab) -> None:
    done = shared_sandbox.cli("launch", "-n", lab.name, "--", "no-such-program")
    assert done.returncode == 127 and "no-such-program: command not found" in done.stderr


def test_python_launches_as_well(shared_sandbox: Any, lab: RunningLab) -> None:
    found: list[str] = []
    result = Lab.open(lab.name, state=shared_sandbox.state).launch(
        python("print('here')"), options=LaunchOptions(hosts=(H1,)), on_line=lambda line: found.append(line.text)
    )
    assert result.exit_code == 0 and found == ["here"]


def controls(lab: RunningLab) -> set[str]:
    return set(read_congestion_controls(lab, (H1, H2, H3, H4)).values())


READ_CC = "print(open('/proc/sys/net/ipv4/tcp_congestion_control').read().strip(), flush=True)"


def test_congestion_control_is_as_asked_for_and_then_as_before(lab: RunningLab) -> None:
    assert controls(lab) == {"cubic"}
    result, lines = launched(lab, python(READ_CC), cc="reno")
    assert {line.text for line in lines} == {"reno"} and result.congestion_control == "reno"
    assert controls(lab) == {"cubic"}
    with pytest.raises(LaunchRefused, match="no congestion control 'renno'"):
        launched(lab, python(READ_CC), cc="renno")
    assert controls(lab) == {"cubic"}


def test_congestion_control_is_as_before_though_the_launch_was_killed(shared_sandbox: Any, lab: RunningLab) -> None:
    mark = uuid.uuid4().hex
    command = ("launch", "-n", lab.name, "--cc", "reno", "--env", f"MARK={mark}", "--", *python(WAITS))
    process = shared_sandbox.start(*command)
    until(lambda: len(marked(mark)) == 4, "ranks are there", 20)
    assert controls(lab) == {"reno"}
    process.kill()
    process.wait()
    until(lambda: not marked(mark), "ranks are gone", ENDS_WITHIN_S)
    until(lambda: controls(lab) == {"cubic"}, "hosts are as before", ENDS_WITHIN_S)


@pytest.mark.parametrize("what", ["rank", "shim", "launch", "ctrl-c"])
def test_whatever_is_killed_all_ranks_end(shared_sandbox: Any, lab: RunningLab, what: str) -> None:
    mark = uuid.uuid4().hex
    output = shared_sandbox.root / f"out-{what}"
    with output.open("wb") as stream:
        command = ("launch", "-n", lab.name, "--per-gpu", "--env", f"MARK={mark}", "--", *python(WAITS))
        process = shared_sandbox.start(*command, stdout=stream, stderr=stream)
        until(lambda: output.read_bytes().count(b"] up") == 8, "ranks are up", 20)
        pids = {env["RANK"]: pid for pid, env in marked(mark).items()}
        assert len(pids) == 8
        begin = time.monotonic()
        if what == "rank":
            os.kill(pids["5"], signal.SIGKILL)
        elif what == "shim":
            os.kill(parent_of(pids["2"]), signal.SIGKILL)
        else:
            process.send_signal(signal.SIGKILL if what == "launch" else signal.SIGINT)
        code = process.wait(timeout=20)
        until(lambda: not marked(mark), "ranks are gone", max(0.1, ENDS_WITHIN_S - (time.monotonic() - begin)))
    said = output.read_text()
    match what:
        case "rank":
            assert code == 137 and f"error: rank 5 on {H3} was killed by signal 9" in said
        case "shim":
            assert code == UNDONE and f"error: {H2}: what starts ranks there was killed by signal 9" in said
        case "launch":
            assert code == -signal.SIGKILL
        case _:
            assert code == 130 and "error: interrupted" in said
    until(lambda: not in_hosts(lab), "nothing is left in hosts", ENDS_WITHIN_S)


def in_hosts(lab: RunningLab) -> list[Process]:
    return processes_in({lab.identities[host] for host in (H1, H2, H3, H4)})


def test_a_lab_may_go_while_its_program_runs(sandbox: Any) -> None:
    lab = sandbox.deploy(sandbox.tiny(), k=FAST_K).lab
    mark = uuid.uuid4().hex
    output = sandbox.root / "out-destroyed"
    with output.open("wb") as stream:
        command = ("launch", "-n", lab.name, "--env", f"MARK={mark}", "--", *python(WAITS))
        process = sandbox.start(*command, stdout=stream, stderr=stream)
        until(lambda: output.read_bytes().count(b"] up") == 2, "ranks are up", 20)
        sandbox.destroy()
        assert process.wait(timeout=20) != 0
    assert not marked(mark)
    assert "was killed by signal 9" in output.read_text()
    output.unlink()
    assert sandbox.leftovers() == []


def all_reduce(lab: RunningLab, size: int = 1 << 16, **options: Any) -> LaunchResult:
    command = [sys.executable, "-c", ALL_REDUCE, str(size), "3"]
    result, lines = launched(lab, command, pmi=True, **options)
    assert result.exit_code == 0, (result.failure, lines)
    (said,) = [line.text for line in lines if line.text.startswith("all-reduce")]
    assert said.split()[1] == str(len(result.ranks)), "all ranks are of one program"
    return result


@needs_mpi
@pytest.mark.parametrize("netmod", ["ofi", "ucx"])
def test_mpich_reduces_over_the_rails(lab: RunningLab, netmod: str) -> None:
    result = all_reduce(lab, env={"MPIR_CVAR_CH4_NETMOD": netmod}, per_gpu=True)
    assert result.rail_bytes > 3 * (1 << 16) * 4


@needs_mpi
def test_ucx_takes_no_host_for_its_own(lab: RunningLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all of its transports, of which some are for one machine alone, the bytes cross the rails nevertheless."""
    env = {"MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_TLS": "all"}
    size = 1 << 18
    assert all_reduce(lab, size, env=env).rail_bytes > 3 * size * 2
    bare = NodeView(hostname=os.uname().nodename, binds={})
    monkeypatch.setattr(RunningLab, "view", lambda self, node: bare)
    without = all_reduce(lab, size, env=env).rail_bytes
    assert without < size, f"without memory of their own hosts are one machine: {without} bytes crossed rails"


@needs_mpi
def test_mpiexec_starts_ranks_on_other_hosts_by_our_shell(shared_sandbox: Any, lab: RunningLab) -> None:
    mpiexec = Path(sys.executable).with_name("mpiexec")
    hosts = ",".join((H1, H3))
    done = shared_sandbox.cli(
        *("launch", "-n", lab.name, "--hosts", H1, "--timeout", "60", "--"),
        *(str(mpiexec), "-hosts", hosts, "-n", "2", sys.executable, "-c", ALL_REDUCE, "65536", "3"),
    )
    assert done.returncode == 0, done.stderr
    assert "[0] all-reduce 2 " in done.stdout
    document = shared_sandbox.cli("exec", "-n", lab.name, H1, "--", "lab_rsh", "-x", H3, "hostname; echo $LAB_HOST")
    assert document.stdout.split() == [H3, H3], document.stderr


@pytest.mark.thorough
@pytest.mark.may_skip
@pytest.mark.skipif(not OPENMPI.exists(), reason="apt-get install openmpi-bin python3-mpi4py")
@pytest.mark.parametrize("told", ["environment", "option"])
def test_mpirun_of_openmpi_starts_ranks_on_other_hosts_by_our_shell(
    shared_sandbox: Any, lab: RunningLab, told: str
) -> None:
    """The launch has told it of our shell, or whoever calls it does, as its manual says."""
    shell = Path(sys.executable).with_name("lab_rsh")
    option = ["--mca", "plm_rsh_agent", str(shell)] if told == "option" else []
    wanted = ["env", *(["-u", "OMPI_MCA_plm_rsh_agent"] if option else []), str(OPENMPI), *option]
    done = shared_sandbox.cli(
        *("launch", "-n", lab.name, "--hosts", H1, "--timeout", "60", "--"),
        *(*wanted, "--host", f"{H1},{H3}", "-n", "2", "/usr/bin/python3", "-c", PLAIN_ALL_REDUCE, "65536", "3"),
    )
    assert done.returncode == 0, done.stderr
    said = {line for line in done.stdout.splitlines() if "all-reduce" in line}
    assert said == {f"[0] all-reduce 2 {host} Open" for host in (H1, H3)}
