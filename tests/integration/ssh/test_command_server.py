"""Commands of a test in the lab VM: a fork of the command server is to a test what a command of its own is."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_channel import LOADED, PYTHON, SERVER, CommandChannel
from ssh_server import SshServer

from testbed.vm.remote import tethered_command as errand
from testbed.vm.remote.ssh import SshSession

pytestmark = pytest.mark.process

ERRAND = str(errand.__file__)
ENDED_WITHIN_S = 20.0
STATE = """
import json, os, signal, sys
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "words": sys.argv, "name": __name__, "directory": os.getcwd(), "first place of modules": sys.path[0],
    "modules": "json" in sys.modules, "main": sys.modules["__main__"].__dict__ is globals(),
    "descriptors": sorted(os.listdir("/proc/self/fd"))[:-1], "input": sys.stdin.read(),
    "leads its session": os.getsid(0) == os.getpid() == os.getpgid(0), "buffered": not sys.stdout.line_buffering,
    "signals": [status[name].strip() for name in ("SigBlk", "SigIgn", "SigCgt")],
    "environment": {name: value for name, value in sorted(os.environ.items()) if name.startswith(("HOME", "TESTBED"))},
    "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
}))
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    (tmp_path / "keys").mkdir()
    with SshServer(tmp_path / "keys") as running:
        yield running


@pytest.fixture
def session(server: SshServer) -> Iterator[SshSession]:
    with SshSession(server.login) as connected:
        yield connected


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Where there is a Python, the server, and a script beside a module."""
    directory = tmp_path / "checkout"
    for parent in (Path(PYTHON).parent, Path(SERVER).parent):
        (directory / parent).mkdir(parents=True)
    (directory / PYTHON).write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (directory / PYTHON).chmod(0o755)
    (directory / SERVER).symlink_to(Path(__file__).parents[3] / SERVER)
    (directory / "scripts").mkdir()
    (directory / "scripts/beside.py").write_text("word = 'beside'\n")
    (directory / "scripts/script.py").write_text(
        "import beside, sys\nprint(beside.word, __file__, *sys.argv)\n" + STATE
    )
    return directory


@pytest.fixture
def commands(session: SshSession, checkout: Path) -> Iterator[CommandChannel]:
    channel = CommandChannel(session, str(checkout), modules=("json",))
    yield channel
    if not channel.closed:
        channel.close()


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["sh", "-c", "pwd; echo words >&2; cat; exit 7"], id="program"),
        pytest.param(["sh", "-c", "grep Sig[BIC] /proc/self/status; ls /proc/self/fd"], id="signals of a program"),
        pytest.param(["/no/such"], id="no program"),
        pytest.param([PYTHON, "-c", STATE, "some", "words"], id="code"),
        pytest.param([PYTHON, "scripts/script.py", "some", "words"], id="script"),
        pytest.param([PYTHON, "-c", "import sys; print('out'); sys.exit('words')"], id="exit with words"),
        pytest.param([PYTHON, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"], id="killed"),
        pytest.param([PYTHON, "-c", "import atexit; atexit.register(print, 'last'); print(1 / 1)"], id="end"),
        pytest.param(
            [PYTHON, "-c", "import sys; print('x' * 3_000_000); print('y' * 30_000, file=sys.stderr)"], id="much"
        ),
    ],
)
def test_it_is_as_for_a_command_of_its_own(
    session: SshSession, commands: CommandChannel, checkout: Path, command: list[str]
) -> None:
    output, errors = bytearray(), bytearray()
    status = session.run(
        command, errand_path=ERRAND, directory=str(checkout), stdout=output.extend, stderr=errors.extend
    )
    for _ in range(2):  # the second is served by the same process
        done = commands.run(command)
        assert (done.returncode, done.stdout, done.stderr) == (status, output.decode(), errors.decode())


def test_an_error_is_told(commands: CommandChannel) -> None:
    done = commands.run([PYTHON, "-c", "import os; os.stat('/no/such')"])
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        1,
        "FileNotFoundError: [Errno 2] No such file or directory: '/no/such'",
    )


def test_what_is_loaded_starts_no_thread_and_opens_nothing(
    session: SshSession, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process with a second thread cannot be forked safely, and what it has open every command would have."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    commands = CommandChannel(session, str(checkout))
    code = (
        "import os, sys; print({name in sys.modules for name in sys.argv[1:]}, 'OPENBLAS_NUM_THREADS' in os.environ,"
        " os.listdir(f'/proc/{os.getppid()}/task') == [str(os.getppid())], sorted(os.listdir('/proc/self/fd')))"
    )
    done = commands.run([PYTHON, "-c", code, *LOADED])
    commands.close()
    assert done.stdout == "{True} False True ['0', '1', '2', '3']\n", done.stderr


def test_what_goes_on_after_a_command_has_nothing_of_the_server(commands: CommandChannel) -> None:
    """A daemon that is started as ours are; the server goes on beside it and ends before it."""
    start = (
        "import subprocess; print(subprocess.Popen(['sleep', '600'], stdout=-3, stderr=-3, start_new_session=True).pid)"
    )
    pid = int(commands.run([PYTHON, "-c", start]).stdout)
    try:
        held = {str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()}
        assert held == {"/dev/null"}
        assert commands.run(["true"]).returncode == 0
        commands.close()
        assert Path(f"/proc/{pid}/comm").read_text() == "sleep\n"
    finally:
        os.kill(pid, signal.SIGKILL)


def waiting(directory: Path, kind: str) -> tuple[list[str], Path, Path]:
    """A command that waits until it is interrupted, and the files that tell that it runs and has undone its work."""
    running, undone = directory / "running", directory / "undone"
    if kind == "program":
        script = f"trap 'echo >{undone}; exit 1' INT; echo $$ >{running}; while :; do sleep 0.1; done"
        return ["sh", "-c", script], running, undone
    code = f"""
import os, signal
from pathlib import Path
Path({str(running)!r}).write_text(str(os.getpid()))
try:
    signal.pause()
except KeyboardInterrupt:
    Path({str(undone)!r}).touch()
"""
    return [PYTHON, "-c", code], running, undone


def appears(path: Path) -> bool:
    end = time.monotonic() + ENDED_WITHIN_S
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.02)
    return path.exists()


@pytest.mark.parametrize("kind", ["program", "python"])
def test_a_broken_connection_interrupts(server: SshServer, commands: CommandChannel, tmp_path: Path, kind: str) -> None:
    command, running, undone = waiting(tmp_path, kind)
    cutter = threading.Thread(target=lambda: (appears(running), server.drop()))
    cutter.start()
    with pytest.raises((AssertionError, OSError, EOFError)):
        commands.run(command)
    cutter.join()
    assert appears(undone)
    server.commands[-1].wait(ENDED_WITHIN_S)


@pytest.mark.parametrize("kind", ["program", "python"])
def test_a_test_that_is_broken_off_interrupts_and_waits(commands: CommandChannel, tmp_path: Path, kind: str) -> None:
    """As by its time limit, which raises in the middle of everything."""
    command, running, undone = waiting(tmp_path, kind)

    class TimeLimit(Exception):
        pass

    def limit(*_: object) -> None:
        raise TimeLimit

    before = signal.signal(signal.SIGUSR1, limit)
    me = threading.main_thread().ident
    assert me is not None
    breaker = threading.Thread(target=lambda: (appears(running), signal.pthread_kill(me, signal.SIGUSR1)))
    breaker.start()
    try:
        with pytest.raises(TimeLimit):
            commands.run(command)
    finally:
        breaker.join()
        signal.signal(signal.SIGUSR1, before)
    assert undone.exists()
    assert commands.closed
