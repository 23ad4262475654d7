"""What a console has started ends with it, also where it is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

from testbed.api.console.tethered import tethered_words

pytestmark = pytest.mark.process
CONSOLE = """
import subprocess, sys, time
from testbed.api.console import tethered
words = tethered.tethered_words(["logs"])
at = words.index("testbed.api.console.tethered")
process = subprocess.Popen([*words[:at - 1], "-c", sys.argv[1]], stdin=subprocess.PIPE, process_group=0)
print(process.pid, flush=True)
time.sleep(600)
"""
COMMAND = """
import subprocess, sys, time
import testbed.cli
def run():
    child = subprocess.Popen(["sleep", "600"])
    print(child.pid, flush=True)
    child.wait()
testbed.cli.main = run
from testbed.api.console.tethered import main
main()
"""


STUBBORN = COMMAND.replace('["sleep", "600"]', '["sh", "-c", "trap : TERM; while :; do sleep 600; done"]').replace(
    "import main\n", "import main\nfrom testbed.api.console import tethered\ntethered.GRACE_S = 0.2\n"
)
"""Its child does not end by SIGTERM, and it does."""
PATIENT = COMMAND.replace(
    "import main\n", "import main\nfrom testbed.api.console import tethered\ntethered.GRACE_S = 600\n"
)


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def guards(command: int) -> list[int]:
    """The processes beside the group of a command that are copies of it."""
    words = Path(f"/proc/{command}/cmdline").read_bytes()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (path / "cmdline").read_bytes() == words and int(path.name) != command:
                found.append(int(path.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("source", [COMMAND, STUBBORN, PATIENT], ids=["plain", "stubborn", "patient"])
def test_a_command_ends_with_a_console_that_is_killed_and_takes_along_what_it_has_started(source: str) -> None:
    """Whatever of them ends first; and no longer than they take."""
    console = subprocess.Popen([sys.executable, "-c", CONSOLE, source], stdout=subprocess.PIPE, text=True)
    command, child = int(console.stdout.readline()), int(console.stdout.readline())
    try:
        assert is_there(command) and is_there(child)
        (beside,) = guards(command)
        console.kill()
        console.wait()
        until(lambda: not any(map(is_there, (command, child, beside))), "all have ended", 10)
    finally:
        console.stdout.close()
        for pid in (command, child):
            if is_there(pid):
                os.kill(pid, signal.SIGKILL)


def test_who_guards_a_command_ends_with_it() -> None:
    console = subprocess.Popen([sys.executable, "-c", CONSOLE, COMMAND], stdout=subprocess.PIPE, text=True)
    command, child = int(console.stdout.readline()), int(console.stdout.readline())
    try:
        (beside,) = guards(command)
        os.kill(child, signal.SIGTERM)
        until(lambda: not any(map(is_there, (command, beside))), "both have ended", 10)
        assert console.poll() is None
    finally:
        console.kill()
        console.wait()
        console.stdout.close()


def test_the_words_run_our_own_module_and_no_file_of_the_working_directory() -> None:
    assert tethered_words(["logs", "x"]) == [sys.executable, "-P", "-m", "testbed.api.console.tethered", "logs", "x"]
