"""A station says what its machine is; it ends all that it has started, and leaves no file, however it ends."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from waiting import until

from testbed.api.pool.about import ABOUT, AboutMachine, about_this_machine, decode_about, differences

pytestmark = pytest.mark.process
security = pytest.importorskip("distributed.security", reason="Dask distributed: pip install 'testbed[pool]'")

ROOT = Path(__file__).parents[4]
END_S = 20.0


def started(kind: str, directory: Path) -> subprocess.Popen[bytes]:
    """A station that is asked for runs of a kind."""
    process = subprocess.Popen(
        [sys.executable, "-m", "testbed.api.pool.station"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(f"{kind}\n".encode())
    process.stdin.flush()
    return process


def said_by(process: subprocess.Popen[bytes]) -> AboutMachine:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith(ABOUT)
    return decode_about(line.removeprefix(ABOUT), "m")


class Started:
    """A station of one seat, whose scheduler never answers. Its worker and its seat are up."""

    def __init__(self, directory: Path, port: int) -> None:
        known = security.Security.temporary()
        order = {
            "name": "m",
            "port": port,
            "certificate": known.tls_ca_file,
            "key": known.tls_worker_key,
            "seats": {"simulation": 1},
        }
        self.process = started("simulation", directory)
        assert self.process.stdin is not None
        self.input = self.process.stdin
        assert said_by(self.process).engine, "it has Dask distributed"
        self.input.write(json.dumps(order).encode() + b"\n")
        self.input.flush()
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        until(lambda: len(children.read_text().split()) == 2, "a worker and a seat are there")
        self.children = [os.pidfd_open(int(pid)) for pid in children.read_text().split()]

    def children_end(self) -> bool:
        """Tell whether both end in good time."""
        for descriptor in self.children:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            if not poll.poll(END_S * 1000):
                return False
        return True

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.input.close()
        assert self.process.stdout is not None
        self.process.stdout.close()
        for descriptor in self.children:
            os.close(descriptor)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The directory of a station, with a parcel in it."""
    found = tmp_path / "work"
    (found / "parcels/some").mkdir(parents=True)
    (found / "parcels/some/file.yml").touch()
    return found


@pytest.fixture
def station(directory: Path) -> Iterator[Started]:
    with socket.create_server(("127.0.0.1", 0)) as silent, ExitStack() as stack:
        started = Started(directory, silent.getsockname()[1])
        stack.callback(started.close)
        yield started


def test_when_its_input_ends_all_end_and_no_file_is_left(station: Started, directory: Path) -> None:
    station.input.close()
    assert station.process.wait(END_S) == 0
    assert station.children_end()
    assert not directory.exists()


def test_when_it_is_killed_its_worker_and_its_seat_end(station: Started) -> None:
    station.process.kill()
    assert station.children_end()


def test_what_it_has_not_made_stays(station: Started, directory: Path) -> None:
    (directory / "mine").touch()
    station.input.close()
    assert station.process.wait(END_S) == 0
    assert [path.name for path in directory.iterdir()] == ["mine"]


@pytest.mark.parametrize("ends", ["input", "signal"])
def test_one_that_is_not_told_to_begin_has_said_what_it_is_and_leaves_nothing(ends: str, directory: Path) -> None:
    with started("simulation", directory) as process:
        assert differences(about_this_machine(probed=False), said_by(process)) == []
        assert process.poll() is None and process.stdin is not None
        if ends == "input":
            process.stdin.close()
        else:
            os.killpg(process.pid, signal.SIGINT)
        assert process.wait(END_S) == 0
    assert not directory.exists()


def test_one_that_is_asked_alone_says_what_labs_lack_and_ends(directory: Path) -> None:
    with started("", directory) as process:
        about = said_by(process)
        assert about.can_deploy or about.lacks or not about.root
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(END_S) == 0


def imported_by(module: str) -> set[str]:
    """The modules that Python has after it has imported this one alone."""
    code = f"import sys, {module}; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_machines_are_reached_before_anything_is_imported_of_scenarios_and_records() -> None:
    early = imported_by("testbed.api.pool.reached")
    assert "paramiko" in early
    assert not [name for name in early if name.startswith(("testbed.run", "testbed.record", "testbed.lab", "numpy"))]


def test_what_simulates_imports_nothing_of_live_labs() -> None:
    live = {
        "testbed.lab.core.deploy.lifecycle",
        "testbed.lab.features.infiniband.live",
        "testbed.lab.observe.dropped",
        "testbed.run.emulated.sweep",
    }
    assert not live & (imported_by("testbed.api.pool.pairs") | imported_by("testbed.run.simulated.sweep"))
