"""The look for leftovers after a test run: daemons of its own are named, and what others start meanwhile is not."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]
CONFTEST = f"""
import importlib.util
spec = importlib.util.spec_from_file_location("shared", {str(CHECKOUT / "tests" / "conftest.py")!r})
shared = importlib.util.module_from_spec(spec)
spec.loader.exec_module(shared)
globals().update((name, hook) for name, hook in vars(shared).items() if name.startswith("pytest_"))
"""
TESTS = """
import os, pathlib, subprocess, pytest
here = pathlib.Path(__file__).parent

def meet():
    (here / "begun").write_text(str(os.getpid()))
    (here / "go").read_text()  # until the others have started theirs

@pytest.mark.netns
def test_that_is_clean():
    meet()

@pytest.mark.netns
@pytest.mark.parametrize("where", ["in_a_node", "here"])
def test_that_leaves_a_daemon(where):
    # a session of its own, nobody's child, without environment
    argv = ["setsid", "--fork", "env", "-i", "PATH=" + os.environ["PATH"]]
    argv += ["unshare", "--net"] if where == "in_a_node" else []
    os.mkfifo(here / "pid")
    argv += ["sh", "-c", f"echo $$ > {here}/pid; exec sleep 300"]
    subprocess.run(argv, check=True, stdin=-3, stdout=-3, stderr=-3)
    (here / "daemon").write_text((here / "pid").read_text())
    meet()

@pytest.mark.netns
def test_that_leaves_a_namespace():
    subprocess.run(["ip", "netns", "add", f"tb{os.getpid()}x1a-h1"], check=True)
    meet()
"""

pytestmark = [pytest.mark.netns, pytest.mark.timeout(120)]
runs = pytest.mark.parametrize(
    "arguments", [(), pytest.param(("-n", "1"), marks=pytest.mark.thorough)], ids=["alone", "xdist"]
)


@contextmanager
def somebody_else(lab: str) -> Iterator[list[str]]:
    """Another user of this machine: a node with a daemon, and one without any. Words that must not be blamed."""
    names = [f"{lab}-s1", f"{lab}-h1"]
    with ExitStack() as stack:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
            stack.callback(subprocess.run, ["ip", "netns", "del", name], check=True)
        argv = ["ip", "netns", "exec", names[0], "sleep", "300"]
        daemon = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        stack.callback(daemon.wait)
        stack.callback(daemon.kill)
        yield [*names, f"process {daemon.pid} "]


def run_beside_others(directory: Path, test: str, arguments: tuple[str, ...]) -> tuple[int, str]:
    """Run one of `TESTS` while somebody else brings labs up: the exit code, and what was said of leftovers.

    One lab is of a test run like this one, the other has a name of its own.
    """
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "test_it.py").write_text(TESTS)
    os.mkfifo(directory / "go")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "CI"))}
    environment |= {"PYTHONPATH": str(CHECKOUT), "TESTBED_TEST_ALONE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(CHECKOUT / "pyproject.toml")]
    command += [
        "--rootdir",
        str(directory),
        "-p",
        "no:cacheprovider",
        *arguments,
        f"{directory}/test_it.py::test_that_{test}",
    ]
    with (directory / "out").open("wb") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=out, cwd=directory)
    with ExitStack() as stack:
        stack.callback(process.wait)
        stack.callback(process.kill)  # where it hangs
        go = (directory / "go").open("w")  # opens when the test has come there
        others = stack.enter_context(somebody_else(f"others{os.getpid()}"))
        others += stack.enter_context(somebody_else(f"tb{os.getpid()}x999"))
        go.close()
        code = process.wait(60)
    said = (directory / "out").read_text()
    assert "1 passed" in said, said
    assert not [word for word in others if word in said], said
    return code, said


@runs
def test_what_others_start_meanwhile_is_not_blamed(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code, said = run_beside_others(tmp_path, "is_clean", arguments)
    assert code == 0, said
    assert "left behind" not in said and "appeared meanwhile" not in said


@runs
@pytest.mark.parametrize("where", ["in_a_node", pytest.param("here", marks=pytest.mark.thorough)])
def test_a_daemon_of_a_test_is_blamed(tmp_path: Path, arguments: tuple[str, ...], where: str) -> None:
    """It has left its parents, its session and its environment."""
    try:
        code, said = run_beside_others(tmp_path, f"leaves_a_daemon[{where}]", arguments)
        pid = int((tmp_path / "daemon").read_text())
        assert code == pytest.ExitCode.INTERNAL_ERROR, said
        assert "the tests left behind" in said and f"process {pid} (sleep)" in said
    finally:
        os.kill(int((tmp_path / "daemon").read_text()), signal.SIGKILL)


@runs
def test_a_namespace_of_a_test_is_blamed(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    try:
        code, said = run_beside_others(tmp_path, "leaves_a_namespace", arguments)
        assert code == pytest.ExitCode.INTERNAL_ERROR, said
        assert f"/run/netns/tb{(tmp_path / 'begun').read_text()}x1a-h1" in said
    finally:
        name = f"tb{(tmp_path / 'begun').read_text()}x1a-h1"
        subprocess.run(["ip", "netns", "del", name], check=True)
