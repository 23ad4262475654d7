"""A Docker engine of the tests' own: its programs are Debian's, its data, socket and processes are ours.

No bridge and no packet filter: containers of labs have no network of Docker's, so that of the machine stays. What was
built is kept in `TESTBED_TEST_CACHE` for later runs; two runs on one machine wait for each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.base.linux import syscalls
from testbed.base.linux.inotify import IN_CREATE, DirectoryWatch
from testbed.lab.features.containers.engine import ContainerEngine

CACHE = Path(os.environ.get("TESTBED_TEST_CACHE", "/var/cache/testbed-tests")) / "docker"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
CGROUP_PARENT = "testbed-tests-docker"


class TestEngine:
    """The engine while it runs. `url` is what $DOCKER_HOST should say.

    It ends when this process does, and holds `lock` until it has ended, which a killed run does not wait for.
    """

    __test__ = False

    def __init__(self, run: Path, lock: int) -> None:
        self.run = run
        self._lock = lock
        self.socket = run / "docker.sock"
        self.url = f"unix://{self.socket}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        watch = DirectoryWatch()
        watch.add(self.run, IN_CREATE)
        with (self.run / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *("setpriv", "--pdeathsig", "TERM"),
                    *("dockerd", "--host", self.url, "--data-root", str(CACHE / "data")),
                    *("--exec-root", str(self.run / "exec"), "--pidfile", str(self.run / "pid")),
                    *("--bridge", "none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"),
                    *("--ip-masq=false", "--cgroup-parent", f"/{CGROUP_PARENT}", "--log-level", "warn"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(self._lock,),
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        try:
            while not self._answers():
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"dockerd did not start: {(self.run / 'log').read_text()[-2000:]}")
                watch.wait(0.5)
                list(watch.read())
        finally:
            watch.close()

    def _answers(self) -> bool:
        if not self.socket.exists():
            return False
        try:
            ContainerEngine.connect(self.url).close()
        except Exception:
            return False
        return True

    def stop(self) -> None:
        """End it, its containers and its containerd."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(STOP_TIMEOUT_S)
        self._process = None

    @contextmanager
    def absent(self) -> Iterator[None]:
        """As if it did not run: nobody finds its socket."""
        away = self.socket.with_suffix(".away")
        self.socket.rename(away)
        try:
            yield
        finally:
            away.rename(self.socket)


def _unmount_below(directory: Path) -> None:
    """The engine leaves the name that it gave to its own network namespace."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in reversed(points):
        if point.startswith(f"{directory}/"):
            syscalls.umount(point)


@contextmanager
def running_engine() -> Iterator[TestEngine]:
    """One engine for whoever is first; containers that a killed run left are removed."""
    CACHE.mkdir(parents=True, exist_ok=True)
    run = Path(f"/run/testbed-tests-docker-{os.getpid()}")
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run.mkdir()
        engine = TestEngine(run, lock.fileno())
        try:
            engine.start()
            client = ContainerEngine.connect(engine.url)
            for container in client.client.containers.list(all=True, ignore_removed=True):
                container.remove(force=True)
            client.client.images.prune({"dangling": True})  # those that a newer build has replaced
            client.close()
            yield engine
        finally:
            engine.stop()
            _unmount_below(run)
            for group in [*Path("/sys/fs/cgroup").glob(f"*/{CGROUP_PARENT}"), Path("/sys/fs/cgroup") / CGROUP_PARENT]:
                with contextlib.suppress(OSError):
                    group.rmdir()
            shutil.rmtree(run)
