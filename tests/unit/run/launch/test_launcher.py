"""Ranks from their start to their end, whatever ends them: real shims and processes, on this machine without a lab."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from launch_lab import FakeLaunchLab, marked, parent_of, python
from rank_programs import DAEMON
from waiting import until

from testbed.base.interrupt import Interrupt
from testbed.run.launch import launcher
from testbed.run.launch.host_shim import MAX_FRAME_BYTES
from testbed.run.launch.launcher import launch_ranks, start_frames
from testbed.run.launch.options import LaunchOptions, LaunchRefused
from testbed.run.launch.result import INTERRUPTED, TIMED_OUT, UNDONE, LaunchResult, RankLine
from testbed.run.launch.traffic import TrafficWatch
from testbed.run.launch.transports import KernelTcp

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(os.geteuid() != 0, reason="the shim makes namespaces, which needs root"),
]

ENDS_WITHIN_S = 5.0
"""The promise of the issue: after whatever is killed, all is gone in this time."""
WAITS = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(600)"


@pytest.fixture(autouse=True)
def _no_namespaces_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "read_congestion_controls", lambda lab, hosts: dict.fromkeys(hosts, "cubic"))


class Launched:
    """A launch in a thread of its own, and what it has told so far."""

    def __init__(self, lab: FakeLaunchLab, command: Sequence[str], **options: Any) -> None:
        self.lab = lab
        self.mark = uuid.uuid4().hex
        self.lines: list[RankLine] = []
        self.interrupt = Interrupt()
        self._result: LaunchResult | BaseException | None = None
        env = {"MARK": self.mark, **options.pop("env", {})}
        self._thread = threading.Thread(target=self._run, args=(command, LaunchOptions(env=env, **options)))
        self._thread.start()

    def _run(self, command: Sequence[str], options: LaunchOptions) -> None:
        try:
            self._result = launch_ranks(
                self.lab,  # type: ignore[arg-type]
                command,
                options,
                on_line=self.lines.append,
                interrupt=self.interrupt,
            )
        except BaseException as error:
            self._result = error

    def wait_up(self, ranks: int = 4) -> None:
        until(lambda: sum(line.text == "up" for line in self.lines) == ranks, "all ranks are up", 20)

    def pids(self) -> dict[int, int]:
        """The process of each rank, by its number; those of what they have started are not among them."""
        return {int(env["RANK"]): pid for pid, env in marked(self.mark).items()}

    def ended(self, timeout_s: float = 30.0) -> LaunchResult:
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), "the launch has not ended"
        if isinstance(self._result, BaseException):
            raise self._result
        assert self._result is not None
        return self._result


@pytest.fixture(
    params=[
        pytest.param(False, id="in a host"),
        pytest.param(True, id="as in a container", marks=pytest.mark.thorough),  # test_docker_launch.py has real ones
    ]
)
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> FakeLaunchLab:
    return FakeLaunchLab(tmp_path, confined=request.param)


def run(lab: FakeLaunchLab, command: Sequence[str], **options: Any) -> tuple[LaunchResult, list[RankLine]]:
    launched = Launched(lab, command, **options)
    return launched.ended(), launched.lines


def of_rank(lines: Sequence[RankLine], rank: int, *, is_error: bool = False) -> list[str]:
    return [line.text for line in lines if line.rank == rank and line.is_error is is_error]


def test_ranks_print_and_end(lab: FakeLaunchLab) -> None:
    code = "import os, sys; print(os.environ['RANK'], os.environ['LAB_HOST']); print('no', file=sys.stderr)"
    result, lines = run(lab, python(code), per_gpu=True)
    assert (result.exit_code, result.failure) == (0, "")
    assert [end.status for end in result.ranks] == [0] * 8
    for place in result.places:
        assert of_rank(lines, place.rank) == [f"{place.rank} {place.host}"]
        assert of_rank(lines, place.rank, is_error=True) == ["no"]
    assert all(result.started_s <= end.started_s <= end.ended_s <= result.ended_s for end in result.ranks)
    document = result.to_json()
    assert json.loads(json.dumps(document))["ranks"][7]["host"] == "p1-s2-h2"


def test_all_have_started_once_and_before_one_has_ended(tmp_path: Path) -> None:
    started: list[int] = []
    launch_ranks(
        FakeLaunchLab(tmp_path),  # type: ignore[arg-type]
        python("pass"),
        LaunchOptions(),
        on_started=lambda places: started.append(len(places)),
    )
    assert started == [4]


def test_variables_that_are_asked_for_win(tmp_path: Path) -> None:
    env = {"RANK": "seven", "NEW": "a=b"}
    _, lines = run(FakeLaunchLab(tmp_path), python("import os; print(os.environ['RANK'], os.environ['NEW'])"), env=env)
    assert of_rank(lines, 0) == ["seven a=b"]


def test_ranks_are_in_our_directory_and_have_no_input(tmp_path: Path) -> None:
    _, lines = run(
        FakeLaunchLab(tmp_path), python("import os, sys; print(os.getcwd(), sys.stdin.read())"), directory=tmp_path
    )
    assert of_rank(lines, 0) == [f"{tmp_path} "]


def test_lines_come_whole_in_order_and_the_last_without_its_end(lab: FakeLaunchLab) -> None:
    code = "import sys\nfor i in range(40000): print(i, 40 * 'x')\nsys.stdout.write('rest')"
    result, lines = run(lab, python(code))
    assert result.exit_code == 0
    for rank in range(4):
        texts = of_rank(lines, rank)
        assert [text.split()[0] for text in texts] == [*map(str, range(40000)), "rest"]


def test_a_line_without_an_end_is_handed_on_in_parts(tmp_path: Path) -> None:
    _, lines = run(FakeLaunchLab(tmp_path), python("print('x' * 300000, end='')"), hosts=("p1-s1-h1",))
    assert "".join(of_rank(lines, 0)) == "x" * 300000 and len(lines) == 5


def test_what_ports_sent_is_in_the_result(tmp_path: Path) -> None:
    lab = FakeLaunchLab(tmp_path)

    def traffic(places: Sequence[Any]) -> None:
        lab.sent = {
            **{(place.host, "rail1"): 1000 * (place.rank + 1) for place in places},
            ("p1-s1-rail1", "uplink1"): 3000,
            ("p1-s1-rail1", "uplink2"): 1000,
        }

    result = launch_ranks(lab, python("pass"), LaunchOptions(), on_started=traffic)  # type: ignore[arg-type]
    assert result.rail_bytes == 10_000
    shares = {(port.node, port.interface): port.tx_share for port in result.uplinks}
    assert (shares["p1-s1-rail1", "uplink1"], shares["p1-s1-rail1", "uplink2"]) == (1.5, 0.5)
    assert shares["p1-s2-rail1", "uplink1"] == 0.0
    assert {port.peer.partition(":")[0] for port in result.uplinks} == {"p1-spine1", "p1-spine2"}
    assert result.sent_again is None, "nobody can be asked"


def test_what_nobody_can_tell_of_a_transport_is_not_told_of_tcp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab: Any = FakeLaunchLab(tmp_path)
    monkeypatch.setattr(TrafficWatch, "sent_again", lambda watch: 7)
    monkeypatch.setattr(launcher, "find_transport", lambda name: lambda lab, nics: _served({}))
    assert launch_ranks(lab, python("pass"), LaunchOptions()).sent_again == 7
    assert launch_ranks(lab, python("pass"), LaunchOptions(transport="uet")).sent_again is None


def test_the_first_that_fails_ends_all_and_says_who(lab: FakeLaunchLab) -> None:
    code = "import os, sys, time\nif os.environ['RANK'] == '2': sys.exit(3)\ntime.sleep(600)"
    begin = time.monotonic()
    launched = Launched(lab, python(code))
    result = launched.ended()
    assert time.monotonic() - begin < ENDS_WITHIN_S
    assert (result.exit_code, result.failure) == (3, "rank 2 on p1-s2-h1 ended with 3")
    assert result.ranks[2].reason == "" and {end.reason for end in result.ranks} == {"", "ended with the others"}
    assert {end.status for end in result.ranks if end.rank != 2} == {-signal.SIGTERM}
    assert not marked(launched.mark)


def test_who_does_not_heed_sigterm_is_killed(lab: FakeLaunchLab, tmp_path: Path) -> None:
    go = tmp_path / "go"
    fails = f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\n    sys.exit(4)"
    launched = Launched(lab, python(f"import os, sys, time\nif os.environ['RANK'] == '1':\n    {fails}\n{WAITS}"))
    launched.wait_up(3)
    go.touch()
    begin = time.monotonic()
    result = launched.ended()
    assert result.exit_code == 4 and time.monotonic() - begin < ENDS_WITHIN_S
    assert {end.status for end in result.ranks if end.rank != 1} == {-signal.SIGKILL}
    assert not marked(launched.mark)


def test_a_rank_that_is_killed_is_named_with_its_signal(lab: FakeLaunchLab) -> None:
    launched = Launched(lab, python(WAITS))
    launched.wait_up()
    begin = time.monotonic()
    os.kill(launched.pids()[3], signal.SIGKILL)
    result = launched.ended()
    assert time.monotonic() - begin < ENDS_WITHIN_S
    assert (result.exit_code, result.failure) == (137, "rank 3 on p1-s2-h2 was killed by signal 9")
    assert not marked(launched.mark)


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (["no-such-program", "x"], 127, "no-such-program: command not found"),
        (["/etc/passwd"], 126, "/etc/passwd: Permission denied"),
    ],
)
def test_a_program_that_is_not_there_is_named(tmp_path: Path, command: list[str], code: int, says: str) -> None:
    result, lines = run(FakeLaunchLab(tmp_path), command)
    assert result.exit_code == code
    assert result.failure.startswith("rank ") and result.failure.endswith(says) and lines == []


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    result, _ = run(FakeLaunchLab(tmp_path), python("pass"), directory=tmp_path / "gone")
    assert result.exit_code == 127 and result.failure.endswith(f"{tmp_path / 'gone'}: No such file or directory")


def test_time_is_limited(lab: FakeLaunchLab) -> None:
    launched = Launched(lab, python("import os, time\nif os.environ['RANK'] != '0': time.sleep(600)"), timeout_s=1.0)
    result = launched.ended()
    assert (result.exit_code, result.failure) == (TIMED_OUT, "ranks 1, 2, 3 had not ended after 1 s")
    assert result.seconds < 1 + ENDS_WITHIN_S and not marked(launched.mark)


def test_an_interrupt_ends_all(lab: FakeLaunchLab) -> None:
    launched = Launched(lab, python(WAITS))
    launched.wait_up()
    begin = time.monotonic()
    launched.interrupt.request()
    result = launched.ended()
    assert time.monotonic() - begin < ENDS_WITHIN_S
    assert (result.exit_code, result.failure) == (INTERRUPTED, "interrupted")
    assert not marked(launched.mark)


def test_whoever_listens_may_fail_and_nothing_is_left(lab: FakeLaunchLab) -> None:
    mark = uuid.uuid4().hex

    def fail(line: RankLine) -> None:
        raise ZeroDivisionError(line.text)

    with pytest.raises(ZeroDivisionError):
        launch_ranks(lab, python(WAITS), LaunchOptions(env={"MARK": mark}), on_line=fail)  # type: ignore[arg-type]
    assert not marked(mark)
    assert len(lab.shims) == 4 and all(shim.returncode is not None for shim in lab.shims), "each is reaped"


def test_no_command_and_no_such_transport_start_nothing(tmp_path: Path) -> None:
    lab: Any = FakeLaunchLab(tmp_path)
    with pytest.raises(LaunchRefused, match="no command"):
        launch_ranks(lab, [], LaunchOptions())
    with pytest.raises(LaunchRefused, match=r"'ute'.*\n.*did you mean uet"):
        launch_ranks(lab, ["true"], LaunchOptions(transport="ute"))
    assert lab.shims == []


def test_a_daemon_that_a_rank_leaves_ends_with_the_launch(lab: FakeLaunchLab) -> None:
    code = f"{DAEMON}\nif os.environ['RANK'] == '0': time.sleep(1)"
    launched = Launched(lab, python(code))
    until(lambda: len(marked(launched.mark)) >= 4, "daemons are there", 20)
    result = launched.ended()
    assert result.exit_code == 0 and result.seconds < ENDS_WITHIN_S
    assert not marked(launched.mark)


@pytest.mark.parametrize("of_launch", [True, False], ids=["that the launch started", "that ranks are children of"])
def test_ranks_end_with_their_shim(tmp_path: Path, of_launch: bool) -> None:
    """In a host the shim is two processes: one waits for the other, which is the first of a PID namespace."""
    lab = FakeLaunchLab(tmp_path)
    launched = Launched(lab, python(f"{DAEMON}\n{WAITS}"))
    launched.wait_up()
    assert len(marked(launched.mark)) == 8, "each rank has a daemon"
    begin = time.monotonic()
    os.kill(lab.shims[1].pid if of_launch else parent_of(_rank(launched, 1)), signal.SIGKILL)
    result = launched.ended()
    assert time.monotonic() - begin < ENDS_WITHIN_S
    assert result.exit_code == UNDONE
    assert result.failure == "p1-s1-h2: what starts ranks there was killed by signal 9, and with it rank 1"
    assert not marked(launched.mark), "daemons neither"


def _rank(launched: Launched, rank: int) -> int:
    """The process of a rank, and not the daemon, whose parent is the first process as well."""
    pids = [pid for pid, env in marked(launched.mark).items() if env["RANK"] == str(rank)]
    return min(pids)


def test_ranks_end_with_their_shim_where_it_may_make_no_namespace(tmp_path: Path) -> None:
    lab = FakeLaunchLab(tmp_path, confined=True)
    launched = Launched(lab, python(WAITS))
    launched.wait_up()
    begin = time.monotonic()
    os.kill(lab.shims[1].pid, signal.SIGKILL)
    result = launched.ended()
    assert result.exit_code == UNDONE and time.monotonic() - begin < ENDS_WITHIN_S
    assert not marked(launched.mark)


LAUNCHER = """
import sys
from pathlib import Path
sys.path[:0] = {path!r}
from launch_lab import FakeLaunchLab
import testbed.run.launch.launcher as launcher
from testbed.run.launch.options import LaunchOptions
launcher.read_congestion_controls = lambda lab, hosts: {{}}
lab = FakeLaunchLab(Path(sys.argv[1]), confined=sys.argv[2] == "True")
options = LaunchOptions(env={{"MARK": sys.argv[3]}})
launcher.launch_ranks(lab, sys.argv[4:], options, on_line=lambda line: print(line.text, flush=True))
"""


@pytest.mark.parametrize("confined", [False, True])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_ranks_end_with_the_launch(tmp_path: Path, confined: bool, number: signal.Signals) -> None:
    mark = uuid.uuid4().hex
    words = [str(tmp_path), str(confined), mark, *python(f"{DAEMON}\n{WAITS}")]
    code = LAUNCHER.format(path=[path for path in sys.path if path])
    with subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE) as process:
        assert [process.stdout.readline() for _ in range(4)] == [b"up\n"] * 4
        assert len(marked(mark)) == 8
        process.send_signal(number)
        until(lambda: not marked(mark), "ranks and their daemons are gone", ENDS_WITHIN_S)


@contextmanager
def _served(watched: Mapping[str, int]) -> Iterator[KernelTcp]:
    found = KernelTcp()
    found.watched = watched
    yield found


def test_ranks_end_with_what_carries_their_bytes(lab: FakeLaunchLab, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "600"]) as carrier, contextlib.ExitStack() as opened:
        descriptor = os.pidfd_open(carrier.pid)
        opened.callback(os.close, descriptor)
        served = {"the carrier on CPU 0": descriptor}
        monkeypatch.setattr(launcher, "find_transport", lambda name: lambda lab, nics: _served(served))
        launched = Launched(lab, python(WAITS), transport="uet")
        launched.wait_up()
        begin = time.monotonic()
        carrier.kill()
        result = launched.ended()
    assert time.monotonic() - begin < ENDS_WITHIN_S
    assert result.exit_code == UNDONE
    assert result.failure == "the carrier on CPU 0 has ended, without which ranks reach nobody"
    assert not marked(launched.mark)


CLIENT = """
import os, socket, sys, time
rank, size = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
pmi = socket.socket(fileno=int(os.environ["PMI_FD"])).makefile("rw")
def ask(text):
    pmi.write(text + chr(10)); pmi.flush()
    return pmi.readline().strip()
ask("cmd=init pmi_version=1 pmi_subversion=1")
ask(f"cmd=put kvsname=lab key=r{rank} value={rank * 11}")
ask("cmd=barrier_in")
print(*(ask(f"cmd=get kvsname=lab key=r{each}").rpartition("=")[2] for each in range(size)), flush=True)
"""


def test_ranks_find_each_other_by_pmi(lab: FakeLaunchLab) -> None:
    result, lines = run(lab, python(f"{CLIENT}\nask('cmd=finalize')"), pmi=True)
    assert (result.exit_code, result.failure) == (0, "")
    assert {text for line in lines for text in [line.text]} == {"0 11 22 33"} and len(lines) == 4


@pytest.mark.parametrize(
    ("code", "exit_code", "says"),
    [
        ("if rank == 2: pmi.write('cmd=abort exitcode=9 error_msg=no\\n'); pmi.flush()", 9, "called MPI_Abort: 9 (no)"),
        ("if rank == 2: sys.exit(0)", 1, "ended without MPI_Finalize, and others may wait for it"),
        ("if rank == 2: ask('GET / HTTP/1.1')", 1, "does not speak PMI-1: no request: 'GET / HTTP/1.1'"),
    ],
)
def test_a_rank_that_breaks_off_ends_the_others(lab: FakeLaunchLab, code: str, exit_code: int, says: str) -> None:
    result, _ = run(lab, python(f"{CLIENT}\n{code}\ntime.sleep(600)"), pmi=True)
    assert (result.exit_code, result.failure) == (exit_code, f"rank 2 on p1-s2-h1 {says}")


@pytest.mark.parametrize("late", [False, True], ids=["before the others wait", "while they wait"])
def test_a_rank_that_ends_without_mpi_init_ends_those_that_wait_for_it(lab: FakeLaunchLab, late: bool) -> None:
    early = "import os, sys, time\nif os.environ['PMI_RANK'] == '2':\n"
    early += f"    time.sleep({1.0 if late else 0.0})\n    sys.exit(0)\n"
    launched = Launched(lab, python(f"{early}{CLIENT}"), pmi=True)
    result = launched.ended()
    assert result.exit_code == 1
    assert re.fullmatch(
        r"rank 2 ended without MPI_Init, and ranks? [013, ]+ would wait at a barrier for ever", result.failure
    )
    assert not marked(launched.mark)


def test_a_rank_that_never_calls_mpi_init_is_not_waited_for_for_ever(
    lab: FakeLaunchLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "PMI_PATIENCE_S", 1.0)
    never = f"import os, time\nif os.environ['PMI_RANK'] == '2': time.sleep(600)\n{CLIENT}"
    launched = Launched(lab, python(never), pmi=True)
    result = launched.ended()
    assert result.exit_code == 1 and not marked(launched.mark)
    assert re.fullmatch(r"ranks? [013, ]+ waited at a barrier for rank 2 to call MPI_Init for 1 s", result.failure)


def test_a_time_limit_says_what_ranks_waited_for(lab: FakeLaunchLab) -> None:
    never = f"import os, time\nif os.environ['PMI_RANK'] == '2': time.sleep(600)\n{CLIENT}"
    result = Launched(lab, python(never), pmi=True, timeout_s=2.0).ended()
    assert result.exit_code == TIMED_OUT
    assert result.failure.endswith("waited at a barrier for rank 2 to call MPI_Init")


def test_many_ranks_are_started_by_several_frames(lab: FakeLaunchLab, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = [{"rank": rank, "env": {"PEERS": "x" * 16_000}} for rank in range(1_500)]
    contents = list(start_frames(orders, {"a": "b"}))
    assert max(map(len, contents)) < MAX_FRAME_BYTES // 2
    assert [order for content in contents for order in json.loads(content)["ranks"]] == orders
    assert all(json.loads(content)["restore"] == {"a": "b"} for content in contents)
    monkeypatch.setattr(launcher, "MOST_START_BYTES", 10)
    result, lines = run(lab, python("print('up')"))
    assert (result.exit_code, len(lines)) == (0, 4)


def test_a_rank_that_reads_no_answers_is_cut_off_and_holds_up_nobody(lab: FakeLaunchLab) -> None:
    greedy = (
        "if rank == 1:\n"
        "    fd = int(os.environ['PMI_FD'])\n"
        "    try:\n"
        "        while True: os.write(fd, b'cmd=get kvsname=lab key=r0\\n' * 100)\n"
        "    except OSError: sys.exit(5)\n"
    )
    result, _ = run(lab, python(f"{CLIENT}\n{greedy}\ntime.sleep(600)"), pmi=True)
    assert (result.exit_code, result.failure) == (5, "rank 1 on p1-s1-h2 ended with 5")


def test_a_launch_holds_its_lab_as_it_is(tmp_path: Path) -> None:
    from testbed.lab.core.deploy.records.usage import LabInUse, unused

    launched = Launched(FakeLaunchLab(tmp_path), python(WAITS))
    launched.wait_up()
    with pytest.raises(LabInUse), unused(tmp_path, "fake"):
        pass
    launched.interrupt.request()
    launched.ended()
    with unused(tmp_path, "fake"):
        pass
