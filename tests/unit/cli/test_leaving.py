"""How a command ends: at once, but for what is at work."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

ENDS = """
import atexit, sys, threading, time
from testbed.cli.signals import leave

class Taken:
    def __del__(self):
        print("taken apart")

kept = Taken()
atexit.register(print, "registered")
threading.Thread(target=lambda: (time.sleep(0.2), print("worked"))).start()
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
try:
    sys.exit(ENDING)
except SystemExit as ended:
    leave(ended)
"""


def ended(ending: str) -> subprocess.CompletedProcess[str]:
    code = ENDS.replace("ENDING", ending)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)


def test_threads_at_work_are_waited_for_and_nothing_is_taken_apart() -> None:
    done = ended("3")
    assert (done.returncode, done.stdout.split("\n")[:-1], done.stderr) == (3, ["worked", "registered"], "")


def test_what_is_no_exit_code_is_left_to_python() -> None:
    done = ended("'no code'")
    assert (done.returncode, done.stdout.split("\n")[:-1], done.stderr) == (
        1,
        ["worked", "registered", "taken apart"],
        "no code\n",
    )
