"""Commands and files over SSH: what comes back, and what happens when the connection does not hold."""

import dataclasses
import io
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ssh_server import SshServer

from testbed.base.errors import TestbedError
from testbed.lab.core.deploy.records.labdir import ORIGIN_FILE
from testbed.vm.errors import ConnectionLost
from testbed.vm.machine import make_keys
from testbed.vm.remote import tethered_command as errand
from testbed.vm.remote import workplace
from testbed.vm.remote.recorded_command import VARIABLE, asked_command
from testbed.vm.remote.ssh import SshSession
from testbed.vm.remote.target import RemoteTarget, run_there

pytestmark = pytest.mark.process

ERRAND = str(errand.__file__)
ENDED_WITHIN_S = 20.0
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="whoever is not root needs sudo on the machine a verb runs on"
)
LABS_THERE = """
import sys
from pathlib import Path
from testbed.lab.core.deploy.records.journal import Journal
from testbed.lab.core.deploy.records.labdir import remove_paths
state, verb, *names = sys.argv[1:]
if verb == "--version":
    from testbed.base.version import __version__
    print("testbed", __version__)
for name in names:
    journal = Journal(Path(state) / name)
    if verb == "deploy":
        paths = [Path.cwd() / f"testbed-{name}" / word for word in (".", "topology-data.json", "ssh_config")]
        paths[0].mkdir()
        for path in paths:
            journal.path(path)
        for path in paths[1:]:
            path.write_text("of a lab")
    else:
        remove_paths(journal.read().paths)
"""
"""Deploys and destroys labs that are nothing but their lab directories, by the functions that verbs do it with."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    directory = tmp_path / "keys"
    directory.mkdir()
    with SshServer(directory) as running:
        yield running


@pytest.fixture
def session(server: SshServer) -> Iterator[SshSession]:
    with SshSession(server.login) as connected:
        yield connected


def test_output_and_exit_code_come_back(session: SshSession, tmp_path: Path) -> None:
    output, errors = bytearray(), bytearray()
    status = session.run(
        ["sh", "-c", "pwd; echo words >&2; exit 7"],
        errand_path=ERRAND,
        directory=str(tmp_path),
        stdout=output.extend,
        stderr=errors.extend,
    )
    assert (status, output.decode(), errors.decode()) == (7, f"{tmp_path}\n", "words\n")


def test_input_reaches_the_command_and_ends(session: SshSession) -> None:
    output = bytearray()
    words = bytes(range(256)) * 1000
    status = session.run(["cat"], errand_path=ERRAND, stdin=io.BytesIO(words), stdout=output.extend)
    assert (status, bytes(output)) == (0, words)


def test_a_command_that_is_not_there(session: SshSession) -> None:
    errors = bytearray()
    assert session.run(["/no/such"], errand_path=ERRAND, stdout=bytes, stderr=errors.extend) == 127
    assert "/no/such" in errors.decode()


def test_files_go_and_come_back(session: SshSession, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub/file").write_text("content")
    session.put(source, f"{tmp_path}/far/copy")
    session.get(f"{tmp_path}/far/copy", tmp_path / "back")
    assert (tmp_path / "back/sub/file").read_text() == "content"
    session.get(f"{tmp_path}/far/copy/sub/file", tmp_path)
    assert (tmp_path / "file").read_text() == "content"


def test_another_host_key_is_refused(server: SshServer, tmp_path: Path) -> None:
    other = make_keys(tmp_path)
    with pytest.raises(ConnectionLost, match="host key differs"):
        SshSession(dataclasses.replace(server.login, host_key=other.host))


def test_an_unknown_host_is_refused(server: SshServer) -> None:
    with pytest.raises(ConnectionLost, match="known_hosts"):
        SshSession(dataclasses.replace(server.login, host_key=None))


def test_a_key_that_may_not_enter(server: SshServer, tmp_path: Path) -> None:
    other = make_keys(tmp_path)
    with pytest.raises(ConnectionLost, match="no SSH connection"):
        SshSession(dataclasses.replace(server.login, key=other.client))


def test_nobody_listens(server: SshServer) -> None:
    server.__exit__(None, None, None)
    with pytest.raises(ConnectionLost, match="no SSH connection"):
        SshSession(server.login)


def test_a_broken_connection_is_an_error_here_and_an_interrupt_there(
    server: SshServer, session: SshSession, tmp_path: Path
) -> None:
    """What runs there gets to undo its work: the trap of the shell stands for a lab that destroys itself."""
    done = tmp_path / "undone"
    script = f"trap 'echo undone >{done}; exit 1' INT; echo running; while :; do sleep 0.1; done"
    started = threading.Event()

    def heard(content: bytes) -> None:
        started.set()

    def cut() -> None:
        started.wait(ENDED_WITHIN_S)
        server.drop()

    cutter = threading.Thread(target=cut)
    cutter.start()
    with pytest.raises(ConnectionLost, match="broke"):
        session.run(["sh", "-c", script], errand_path=ERRAND, stdout=heard)
    cutter.join()
    server.commands[-1].wait(ENDED_WITHIN_S)
    assert done.read_text() == "undone\n"


def test_a_machine_that_is_not_prepared(server: SshServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TestbedError, match="no testbed in"):
        run_there(RemoteTarget(login=server.login, path=str(tmp_path)), ["list"], tmp_path)


def checkout_there(tmp_path: Path, program: str) -> Path:
    """A directory of the project whose `testbed` is this shell script."""
    far = tmp_path / "far"
    (far / ".venv/bin").mkdir(parents=True)
    path = far / ".venv/bin/testbed"
    path.write_text(f"#!/bin/sh\n{program}\n")
    path.chmod(0o755)
    (far / "testbed").symlink_to(Path(ERRAND).parents[2])
    return far


@needs_root
def test_a_verb_on_another_machine(
    server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its file goes along, its output streams, what it writes comes back, its exit code is ours."""
    asked = tmp_path / "asked"
    far = checkout_there(tmp_path, f'printf %s "${VARIABLE}" >"{asked}"\nexec "{sys.executable}" -m testbed "$@"')
    monkeypatch.chdir(tmp_path)  # the home of whoever logs in
    here = tmp_path / "here"
    here.mkdir()
    (here / "small.yml").write_text("name: small\nfabric: {design: single-switch, hosts: 2}\n")
    monkeypatch.setenv("PYTHONPATH", str(Path(ERRAND).parents[3]))
    target = RemoteTarget(login=server.login, path=str(far))
    for name, days in (("forgotten", 9), ("yesterday's", 1)):
        (tmp_path / ".testbed-work" / name).mkdir(parents=True)
        os.utime(tmp_path / ".testbed-work" / name, times=(0, time.time() - days * 86400))
    assert run_there(target, ["graph", "-t", "small.yml", "-k", "dot", "-o", "drawn.dot"], here) == 0
    assert "graph" in (here / "drawn.dot").read_text()
    assert json.loads(asked.read_text()) == asked_command()
    (here / "small.yml").write_text("name: small\nfabrik: {}\n")
    assert run_there(target, ["validate", "-t", "small.yml"], here) == 3
    assert "small.yml:2:1" in capfd.readouterr().err
    assert [path.name for path in (tmp_path / ".testbed-work").iterdir()] == ["yesterday's"]
    (tmp_path / ".testbed-work/forgotten").mkdir()
    os.utime(tmp_path / ".testbed-work/forgotten", times=(0, time.time() - 9 * 86400))

    def refuse(*_: object) -> None:
        raise OSError("no room here")

    monkeypatch.setattr(workplace, "unpack", refuse)
    with pytest.raises(OSError, match="no room here"):
        run_there(target, ["validate", "-t", "small.yml"], here)
    assert [path.name for path in (tmp_path / ".testbed-work").iterdir()] == ["yesterday's"]


@needs_root
def test_what_a_lab_on_another_machine_left_here_goes_with_it(
    server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From whatever directory it is destroyed; what is not of that machine, or not of that lab, stays."""
    program = tmp_path / "labs.py"
    program.write_text(LABS_THERE)
    far = checkout_there(tmp_path, f'exec "{sys.executable}" "{program}" "{tmp_path}/state" "$@"')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(ERRAND).parents[3]))
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    target = RemoteTarget(login=server.login, path=str(far))
    assert run_there(target, ["deploy", "a", "b", "c"], here) == 0
    copies = {name: here / f"testbed-{name}" for name in "abc"}
    for copy in copies.values():
        assert {path.name for path in copy.iterdir()} == {"topology-data.json", "ssh_config", ORIGIN_FILE}
    assert (copies["a"] / ORIGIN_FILE).read_text() == f"ssh://{server.login}\n"
    (copies["b"] / "notes").write_text("a user's")
    (copies["c"] / ORIGIN_FILE).unlink()  # a lab of that name was deployed here since
    assert run_there(target, ["destroy", "a", "b", "c"], elsewhere) == 0
    assert not copies["a"].exists()
    assert [path.name for path in copies["b"].iterdir()] == ["notes"]
    assert {path.name for path in copies["c"].iterdir()} == {"topology-data.json", "ssh_config"}
    assert list(elsewhere.iterdir()) == []
    assert list((tmp_path / ".testbed-work").iterdir()) == []
