"""Ranks on hosts that are containers: they find each other, speak PMI, and nothing of them is left."""

import os
import signal
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from launch_lab import marked, parent_of
from rank_programs import DAEMON, RING
from sandbox import Sandbox
from waiting import until

from testbed.base.datapath.build import compile_c
from testbed.base.errors import CapabilityError
from testbed.base.interrupt import Interrupt
from testbed.lab.core.deploy import node_files
from testbed.lab.core.deploy.live import RunningLab
from testbed.run.launch import LaunchOptions, LaunchResult, RankLine, launch_ranks
from testbed.run.launch.result import INTERRUPTED, UNDONE

pytestmark = [pytest.mark.docker, pytest.mark.frr, pytest.mark.timeout(600)]

TOPOLOGY = """
name: {name}
fabric: {{design: rail-optimized, hosts: 2, gpus: 1, segments: 2, spines: 2}}
topology:
  kinds: {{host: {{runtime: docker, env: {{COLOUR: green}}, binds: ["PROGRAMS:PROGRAMS:ro"]}}}}
  nodes:
    p1-s1-h2: {{runtime: netns}}
"""
SIZE = 300_000
FABRIC_CHECK = Path(__file__).parents[2] / "support" / "libfabric" / "fabric_check.c"
ENDS_WITHIN_S = 30.0
"""What waits here waits for minutes; an end takes a second or two, and others use this machine, too."""
needs_libfabric = pytest.mark.skipif(
    not Path("/usr/include/rdma/fi_tagged.h").exists(),
    reason="libfabric's headers are not installed: apt-get install libfabric-dev",
)
WAITS = f"{DAEMON}\nprint('up', flush=True)\ntime.sleep(600)"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that containers see where it is here."""
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="module")
def lab(engine: Any, shared_sandbox: Sandbox, programs: Path) -> RunningLab:
    return shared_sandbox.lab(TOPOLOGY.replace("PROGRAMS", str(programs)), k=1000.0)


def launched(lab: RunningLab, code: str, *words: str, **options: Any) -> tuple[LaunchResult, list[str]]:
    lines: list[RankLine] = []
    chosen = LaunchOptions(**({"timeout_s": 60.0} | options))
    result = launch_ranks(lab, ["python3", "-I", "-c", code, *words], chosen, on_line=lines.append)
    return result, [line.text for line in sorted(lines, key=lambda line: line.rank)]


def test_ranks_in_containers_and_namespaces_are_of_one_program(lab: RunningLab) -> None:
    result, lines = launched(lab, RING, str(SIZE))
    assert result.exit_code == 0, (result.failure, lines)
    assert lines == [f"ring {rank}" for rank in range(4)]
    assert result.rail_bytes > 4 * SIZE


@pytest.mark.parametrize("transport", ["uet", "roce"])
def test_sockets_in_containers_are_carried(lab: RunningLab, transport: str) -> None:
    """A container has no UDP of its own on the rails: datagrams that it receives are those of the endpoints."""
    counted = """
rows = [line.split() for line in open("/proc/self/net/snmp") if line.startswith("Udp:")]
print(dict(zip(*rows))["InDatagrams"])
"""
    _, before = launched(lab, counted)
    result, lines = launched(lab, RING, str(SIZE), transport=transport)
    assert result.exit_code == 0, (result.failure, lines)
    assert lines == [f"ring {rank}" for rank in range(4)]
    _, after = launched(lab, counted)
    assert all(int(new) - int(old) > SIZE / 4096 for old, new in zip(before, after, strict=True)), (before, after)


@needs_libfabric
@pytest.mark.parametrize("other", ["p1-s2-h1", "p1-s1-h2"], ids=["container", "namespace"])
def test_the_provider_of_libfabric_reaches_into_containers(lab: RunningLab, programs: Path, other: str) -> None:
    """All that an endpoint can do, by the container's own libfabric."""
    check = programs / "fabric_check"
    if not check.exists():
        compile_c([FABRIC_CHECK], check, ("-std=gnu11", "-O1", "-lfabric"), what="the check of libfabric")
    lines: list[RankLine] = []
    chosen = LaunchOptions(hosts=("p1-s1-h1", other), transport="libfabric", timeout_s=120.0)
    result = launch_ranks(lab, [str(check)], chosen, on_line=lines.append)
    assert result.exit_code == 0, (result.failure, lines)
    assert [line.text for line in lines].count("ok all") == 2
    assert result.rail_bytes > 2 << 20, "the bytes crossed the rails"


@needs_libfabric
def test_a_container_that_does_not_see_the_provider_is_named(lab: RunningLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that an older testbed has started."""
    monkeypatch.setattr(node_files, "LIBFABRIC_DIRECTORY", ".elsewhere")
    with pytest.raises(CapabilityError, match="p1-s1-h1 is a container that does not see") as refused:
        launched(lab, RING, transport="libfabric")
    assert refused.value.hint is not None and refused.value.hint.startswith("deploy the lab again")


def test_a_container_has_its_own_environment_with_the_ranks(lab: RunningLab) -> None:
    _, lines = launched(lab, "import os, socket; print(socket.gethostname(), os.environ['COLOUR'], os.environ['RANK'])")
    assert lines == ["p1-s1-h1 green 0", "p1-s1-h2 green 1", "p1-s2-h1 green 2", "p1-s2-h2 green 3"]


def test_pmi_reaches_into_containers(lab: RunningLab) -> None:
    code = (
        "import os, socket\n"
        "pmi = socket.socket(fileno=int(os.environ['PMI_FD'])).makefile('rw')\n"
        "def ask(text):\n    pmi.write(text + chr(10)); pmi.flush()\n    return pmi.readline().strip()\n"
        "ask('cmd=init pmi_version=1 pmi_subversion=1')\n"
        "ask('cmd=put kvsname=lab key=r' + os.environ['PMI_RANK'] + ' value=' + socket.gethostname())\n"
        "ask('cmd=barrier_in')\n"
        "print(*(ask(f'cmd=get kvsname=lab key=r{rank}').rpartition('=')[2] for rank in range(4)))\n"
        "ask('cmd=finalize')\n"
    )
    result, lines = launched(lab, code, pmi=True)
    assert result.exit_code == 0, result.failure
    assert lines == ["p1-s1-h1 p1-s1-h2 p1-s2-h1 p1-s2-h2"] * 4


def test_a_program_that_an_image_lacks_is_named(lab: RunningLab) -> None:
    result = launch_ranks(lab, ["numactl", "true"], LaunchOptions(hosts=("p1-s1-h1",)))
    assert (result.exit_code, result.failure) == (127, "rank 0 on p1-s1-h1: numactl: command not found")


@pytest.mark.parametrize("what", ["rank", "shim", "interrupt"])
def test_whatever_is_killed_nothing_is_left_in_containers(lab: RunningLab, what: str) -> None:
    mark, lines = uuid.uuid4().hex, []
    interrupt, begun = Interrupt(), []

    def on_line(line: RankLine) -> None:
        lines.append(line)
        if len(lines) == 4:
            begun.append(time.monotonic())
            pids = {pid for pid, env in marked(mark).items() if env["RANK"] == "2"}
            assert len(pids) == 2, "a rank and its daemon"
            match what:
                case "rank":
                    os.kill(min(pids), signal.SIGKILL)
                case "shim":
                    os.kill(parent_of(min(pids)), signal.SIGKILL)
                case _:
                    interrupt.request()

    result = launch_ranks(
        lab, ["python3", "-I", "-c", WAITS], LaunchOptions(env={"MARK": mark}), on_line=on_line, interrupt=interrupt
    )
    assert time.monotonic() - begun[0] < ENDS_WITHIN_S + 1, "and a moment for the engine's answers"
    assert not marked(mark)
    match what:
        case "rank":
            assert (result.exit_code, result.failure) == (137, "rank 2 on p1-s2-h1 was killed by signal 9")
        case "shim":
            assert result.exit_code == UNDONE
            assert result.failure.startswith("p1-s2-h1: what starts ranks there ended with 137, and with it rank 2")
        case _:
            assert result.exit_code == INTERRUPTED


def test_ranks_in_containers_end_with_the_launch(shared_sandbox: Any, lab: RunningLab) -> None:
    mark = uuid.uuid4().hex
    command = ("launch", "-n", lab.name, "--env", f"MARK={mark}", "--", "python3", "-I", "-c", WAITS)
    process = shared_sandbox.start(*command)
    until(lambda: len(marked(mark)) == 8, "ranks and their daemons are there", 30)
    process.kill()
    process.wait()
    until(lambda: not marked(mark), "all are gone", ENDS_WITHIN_S)
