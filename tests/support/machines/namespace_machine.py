"""Machines made of namespaces: each with mounts, processes, a network, a name and an SSH server of its own.

A machine has this one's files below it, and what it writes goes to memory: it starts in a tenth of a second. Several of
them, and the desk from which they are reached, are on one switch, in namespaces that nobody else is in. Leave the
context and all of it is gone: the processes of a machine end with the one that holds its namespaces.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from waiting import until

ROOT = Path(__file__).parents[3]
TOOLS = ("ip", "unshare", "nsenter", "sshd", "ssh-keygen", "pivot_root")
DESK_ADDRESS = "10.99.0.1"
MEASURED = ("capabilities.json", "calibration.json", "packet-costs.json")
COMMAND_TIMEOUT_S = 240.0

# Arguments: the machine's directory, its name, its address, and the directory of keys.
_SETUP = """
directory=$1 name=$2 address=$3 keys=$4
mount --make-rprivate /
mount -t tmpfs -o size=4g,mode=755 tmpfs "$directory/layer"
mkdir "$directory/layer/upper" "$directory/layer/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$directory/layer/upper,workdir=$directory/layer/work" "$directory/root"
cd "$directory/root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /sys/fs/cgroup sys/fs/cgroup
mount --rbind /dev dev
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs var/lib/testbed
mkdir -p run/sshd run/lock run/netns .machine
for file in $5; do cp -a "/var/lib/testbed/$file" var/lib/testbed/ 2>/dev/null || true; done
pivot_root . .machine
install -m 600 ".machine/$keys/host_key" /run/host_key
mkdir -p /root/.ssh
chmod 700 /root/.ssh
# A lock that a version manager takes at the start of a shell on this machine might be seen here for ever.
rm -f /root/.bashrc
install -m 600 ".machine/$keys/home/.ssh/id_ed25519.pub" /root/.ssh/authorized_keys
umount -l /.machine
hostname "$name"
ip link set lo up
until ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done
ip link set eth0 up
ip addr add "$address/24" dev eth0
/usr/sbin/sshd -f /dev/null -h /run/host_key -o PidFile=/run/sshd.pid -o ListenAddress="$address" -o UsePAM=no \
    -o PasswordAuthentication=no -o PermitRootLogin=prohibit-password -o MaxSessions=200 -o MaxStartups=200 \
    -o StrictModes=no -o AuthorizedKeysFile=/root/.ssh/authorized_keys -o "SetEnv=$6"
echo ready
exec python3 -c '
import os, signal, sys
def reap(*_):
    try:
        while os.waitpid(-1, os.WNOHANG)[0]: pass
    except ChildProcessError: pass
signal.signal(signal.SIGCHLD, reap)
sys.stdin.read()
' 2>/dev/null
"""


def machines_lack() -> str:
    """Return why this machine cannot have machines of namespaces; "" where it can."""
    if os.geteuid() != 0:
        return "needs root"
    if missing := [tool for tool in TOOLS if shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None]:
        return f"no {', '.join(missing)}"
    return "" if "overlay" in Path("/proc/filesystems").read_text() else "no overlayfs"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceMachine:
    """A machine that is up. `target` is how it is named on a command line at the desk."""

    name: str
    address: str
    pid: int
    holder: subprocess.Popen[str]

    @property
    def target(self) -> str:
        return f"ssh://root@{self.address}{ROOT}"

    def run(self, *argv: str, timeout_s: float = COMMAND_TIMEOUT_S) -> subprocess.CompletedProcess[str]:
        """Run a command in it."""
        into = ("nsenter", f"--target={self.pid}", "--mount", "--pid", "--net", "--uts", "--ipc", "--root", "--wd=/")
        return subprocess.run(
            [*into, "--", *argv],
            env={"PATH": os.environ["PATH"], "HOME": "/root"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def processes(self) -> list[str]:
        """Return the command lines of what runs in it, but for its SSH server and the process that holds it."""
        said = self.run("ps", "-eo", "pid=,args=").stdout.splitlines()
        found = [line.split(None, 1)[1] for line in said if len(line.split(None, 1)) > 1]
        own = ("sshd", "/usr/sbin/sshd", "ps -eo")
        return [command for command in found if not command.startswith(own) and "sys.stdin.read()" not in command]

    def kill(self, pattern: str) -> int:
        """Kill the oldest process in it whose command line has these words; returns its number there."""
        found = self.run("pgrep", "--full", "--oldest", "--", pattern).stdout.split()
        assert found, f"nothing on {self.name} is called {pattern}"
        self.run("kill", "-KILL", found[0])
        return int(found[0])

    def die(self) -> None:
        """End the machine at once, as a power cut does."""
        self.holder.kill()
        self.holder.wait()


class MachineRoom:
    """The switch that machines are on, and the desk, a namespace from which they are reached. A context.

    `mtu` is that of the network between them.
    """

    def __init__(self, directory: Path, *, mtu: int = 1500) -> None:
        self._directory = directory
        self._mtu = str(mtu)
        self._network, self.desk = (f"test-{os.getpid()}-{word}" for word in ("room", "desk"))
        self._stack = contextlib.ExitStack()
        self._count = 0

    def __enter__(self) -> MachineRoom:
        try:
            self._connect_desk()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _connect_desk(self) -> None:
        self._make_keys()
        for name in (self._network, self.desk):
            _ip("netns", "add", name)
            self._stack.callback(_ip, "netns", "del", name)
        _ip("-n", self._network, "link", "add", "br0", "mtu", self._mtu, "type", "bridge")
        _ip("-n", self._network, "link", "set", "br0", "up")
        self._plug("desk", self.desk)
        _ip("-n", self.desk, "link", "set", "lo", "up")
        _ip("-n", self.desk, "link", "set", "eth0", "up")
        _ip("-n", self.desk, "addr", "add", f"{DESK_ADDRESS}/24", "dev", "eth0")

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the environment of a user at the desk."""
        kept = {key: value for key, value in os.environ.items() if key.startswith(("PATH", "LANG", "TESTBED_PURE"))}
        cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))  # builds of the transports are there
        home = {"HOME": str(self._directory / "home"), "XDG_CACHE_HOME": cache}
        return kept | home | {"PYTHONPATH": str(ROOT), "COLUMNS": "160"}

    def at_desk(self, *argv: str) -> list[str]:
        """Return the command line of a command at the desk."""
        return ["nsenter", f"--net=/run/netns/{self.desk}", "--", *argv]

    def testbed(self, *arguments: str) -> list[str]:
        """Return the command line of `testbed` at the desk."""
        return self.at_desk(sys.executable, "-m", "testbed", *arguments)

    def run(
        self, *arguments: str, directory: Path, timeout_s: float = COMMAND_TIMEOUT_S
    ) -> subprocess.CompletedProcess[str]:
        """Run `testbed` at the desk."""
        return subprocess.run(
            self.testbed(*arguments),
            cwd=directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def start(self, name: str, *, cpus: Sequence[int] = (), ahead_s: int = 0) -> NamespaceMachine:
        """Start a machine, on some CPUs alone if they are given. Its CLOCK_MONOTONIC is so far ahead of this one's."""
        self._count += 1
        address = f"10.99.0.{10 + self._count}"
        directory = self._directory / name
        for part in ("layer", "root"):
            (directory / part).mkdir(parents=True)
        pinned = ["taskset", "--cpu-list", ",".join(map(str, cpus))] if cpus else []
        ahead = ["--time", "--monotonic", str(ahead_s)] if ahead_s else []
        pure = f"TESTBED_PURE={os.environ.get('TESTBED_PURE', '0')}"
        arguments = [str(directory), name, address, str(self._directory).lstrip("/"), " ".join(MEASURED), pure]
        with (directory / "log").open("wb") as log:
            holder = subprocess.Popen(
                [
                    *pinned,
                    *("unshare", "--mount", "--pid", "--net", "--uts", "--ipc", *ahead, "--fork", "--kill-child", "--"),
                    *("sh", "-e", "-c", _SETUP, "sh", *arguments),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._stack.callback(_ended, holder)
        pid = _child_of(holder)
        self._plug(name, str(pid))
        said = holder.stdout.readline()
        assert said == "ready\n", f"{name} does not start: {said}{(directory / 'log').read_text()}"
        self._know(address)
        return NamespaceMachine(name=name, address=address, pid=pid, holder=holder)

    @contextmanager
    def machines(self, *names: str) -> Iterator[list[NamespaceMachine]]:
        """Machines of these names, for as long as the context lasts."""
        yield [self.start(name) for name in names]

    def _plug(self, port: str, namespace: str) -> None:
        """Connect a namespace, by its name or a process in it, to a port of the switch."""
        end = ["mtu", self._mtu, "netns"]
        _ip("link", "add", "eth0", *end, namespace, "type", "veth", "peer", "name", port, *end, self._network)
        _ip("-n", self._network, "link", "set", port, "master", "br0", "up")

    def _make_keys(self) -> None:
        home = self._directory / "home" / ".ssh"
        home.mkdir(parents=True, mode=0o700)
        for path in (self._directory / "host_key", home / "id_ed25519"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)]
            subprocess.run(words, check=True, stdin=subprocess.DEVNULL)

    def _know(self, address: str) -> None:
        public = " ".join((self._directory / "host_key.pub").read_text().split()[:2])
        with (self._directory / "home" / ".ssh" / "known_hosts").open("a") as known:
            known.write(f"{address} {public}\n")


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {shlex.join(words)}: {done.stderr}"


def _child_of(holder: subprocess.Popen[str]) -> int:
    """The first process in the namespaces that a holder has made, by its number out here."""
    found: list[int] = []

    def there() -> bool:
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        found[:] = map(int, children)
        return bool(found)

    until(there, "the machine has its first process", timeout_s=20)
    return found[0]


def _ended(holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    for stream in (holder.stdin, holder.stdout):
        if stream is not None:
            stream.close()
