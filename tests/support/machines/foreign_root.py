"""Another Debian, or Ubuntu, in a directory, entered as a machine of its own but for the kernel and the network.

`build_root` makes a minimal system with mmdebstrap and keeps it for later runs, under a name that depends on
what it was made from. `ForeignRoot` runs commands in it: with its own mount and process namespaces, which end
with the one process that holds them, so that neither a mount nor a daemon outlives the test, however it ends.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from testbed.lab.features.containers.images.debian_mirror import mirror

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
TOOLS = ("mmdebstrap", "unshare", "nsenter", "pivot_root")
CACHE = Path(os.environ.get("TESTBED_TEST_CACHE", "/var/cache/testbed-tests"))
LEFT_OUT = ("doc", "man", "locale", "info")
CHECKOUT = "/srv/testbed"
BUILD_TIMEOUT_S = 840
REACHED_WITHIN_S = 20.0
COMMAND_TIMEOUT_S = 300.0

# Host's process number, then the mounts. Private copies of /run, /tmp and the like make every start a fresh boot.
_SETUP = """
read -r pid _ </proc/self/stat
cd "$1" && shift
mount --bind . .
cd "$PWD"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=1777 tmpfs var/tmp
mkdir -p var/lib/testbed .machine
mount -t tmpfs -o mode=755 tmpfs var/lib/testbed
for path in "$@"; do
    if [ -d "$path" ]; then mkdir -p ".$path"; else mkdir -p ".${path%/*}"; : >>".$path"; fi
    mount --bind "$path" ".$path"
    mount -o remount,bind,ro ".$path"
done
pivot_root . .machine
cd /
umount -l /.machine
echo "$pid"
exec python3 -c 'import signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); sys.stdin.read()' 2>/dev/null
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """Where the packages of a distribution are, and the keys that sign them, which are in a package of their own."""

    mirror: str
    keyring: Path
    keyring_package: str
    components: str = "main"

    def lacks(self, suite: str) -> str:
        """Return why this machine cannot have a release of it; "" where it can."""
        missing = [tool for tool in TOOLS if shutil.which(tool) is None]
        if not self.keyring.exists():
            missing.append(self.keyring_package)
        if missing:
            return f"no {', '.join(missing)}"
        url = f"{self.mirror}/dists/{suite}/Release"
        try:
            with urllib.request.urlopen(url, timeout=REACHED_WITHIN_S):
                return ""
        except OSError as error:
            return f"{url} cannot be reached: {error}"


DEBIAN = Archive(mirror=mirror(), keyring=KEYRING, keyring_package="debian-archive-keyring")
UBUNTU = Archive(
    mirror="http://archive.ubuntu.com/ubuntu",
    keyring=Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg"),
    keyring_package="ubuntu-keyring",
    components="main,universe",
)


@contextmanager
def build_root(
    suite: str, packages: Sequence[str], cache: Path, *, archive: Archive = DEBIAN, name: str = ""
) -> Iterator[Path]:
    """The root of a minimal `suite` with `packages`, for this test alone while the context lasts.

    One that is incomplete or does not run any more is built anew; those of this name (default: the suite's) and other
    package lists are removed.
    """
    cache.mkdir(parents=True, exist_ok=True)
    name = name or suite
    key = hashlib.sha256("\n".join([suite, *packages]).encode()).hexdigest()[:12]
    root = cache / f"{name}-{key}"
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_whole(root, packages):
            for old in cache.glob(f"{name}-*"):
                shutil.rmtree(old)
            _build(suite, packages, root, archive)
        yield root


def _is_whole(root: Path, packages: Sequence[str]) -> bool:
    """Tell whether the root was finished, and dpkg in it finds no package half installed or with missing files."""
    if not (root / ".complete").exists():
        return False
    left_out = tuple(f"/usr/share/{name}/" for name in LEFT_OUT)
    for check in (["--audit"], ["--verify", *packages]):
        done = subprocess.run(
            ["chroot", str(root), "dpkg", *check],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        # --verify: "??5??????   /path" or "missing     c /path"; c is a configuration file, which may change.
        problems = [line.split() for line in done.stdout.splitlines()]
        if [words for words in problems if "c" not in words[1:2] and not words[-1].startswith(left_out)]:
            return False
        if done.returncode and not problems:
            return False
    return True


def _build(suite: str, packages: Sequence[str], root: Path, archive: Archive) -> None:
    unfinished = root.with_name(root.name + ".unfinished")
    options = ["--variant=apt", f"--include={','.join(packages)}", f"--keyring={archive.keyring}"]
    options.append(f"--components={archive.components}")
    options += ["--aptopt=Acquire::Languages none", "--aptopt=Acquire::Retries 3"]
    options += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in LEFT_OUT]
    try:
        subprocess.run(
            ["mmdebstrap", "--quiet", *options, suite, str(unfinished), archive.mirror],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise AssertionError(f"mmdebstrap could not build {suite}: {error.stderr[-2000:]}") from error
    (unfinished / ".complete").touch()
    unfinished.rename(root)


class ForeignRoot:
    """A root with a copy of a checkout in it. Leave the context and everything that runs or is mounted is gone."""

    def __init__(self, root: Path, checkout: Path) -> None:
        self.root = root
        self._environment, self._shared = _pip_settings()
        _copy_checkout(checkout, root / CHECKOUT.lstrip("/"))

    def __enter__(self) -> Self:
        paths = [path for path in (*map(Path, ("/etc/resolv.conf", "/etc/hosts")), *self._shared) if path.exists()]
        self._holder = subprocess.Popen(
            [
                *("unshare", "--mount", "--propagation=slave", "--pid", "--fork", "--kill-child", "--"),
                *("sh", "-e", "-c", _SETUP, "sh", str(self.root), *map(str, paths)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._pid = self._holder.stdout.readline().strip()
        if not self._pid:
            raise AssertionError(f"cannot enter {self.root}: {self._holder.communicate()[1]}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._holder.communicate(timeout=30)  # its input ends, it ends, and with it every process in there

    def run(self, *argv: str, timeout_s: float = COMMAND_TIMEOUT_S) -> subprocess.CompletedProcess[str]:
        """Run a command in the checkout, with the environment of somebody who has just logged in."""
        return subprocess.run(
            self.command(*argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def command(self, *argv: str) -> list[str]:
        """The command line out here of a command in there."""
        variables = [f"{key}={value}" for key, value in self._environment.items()]
        return [
            *("nsenter", f"--target={self._pid}", "--mount", "--pid", "--root", "--"),
            *("env", "-i", "-C", CHECKOUT, *variables, *argv),
        ]

    def check(self, *argv: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """Return what a command prints, which must succeed."""
        done = self.run(*argv, timeout_s=timeout_s)
        assert done.returncode == 0, f"{shlex.join(argv)}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def _pip_settings() -> tuple[Mapping[str, str], list[Path]]:
    """The environment of a command in there, and the host's files it speaks of.

    pip's settings on this machine (an index, a proxy, wheels) are those of the foreign root too.
    """
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    # To compile the transports takes minutes beside an emulated machine; a test of its own does it.
    environment |= {"LANG": "C.UTF-8", "TERM": "dumb", "TESTBED_PURE": "1"}
    environment |= {key: value for key, value in os.environ.items() if key.lower().endswith("_proxy")}
    shared = [CERTIFICATES]
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, timeout=60, check=True
    )
    for line in listed.stdout.splitlines():
        name, _, value = line.partition("=")
        value = value.strip("'\"").replace("\\n", " ")
        environment["PIP_" + name.rpartition(".")[2].upper().replace("-", "_")] = value
        for word in value.split():
            path = Path(word.removeprefix("file://"))
            if path.is_absolute() and path.exists():
                # An index may point to files beside it.
                shared.append(path.parent if word.startswith("file://") else path)
    return environment, list(dict.fromkeys(shared))


def _copy_checkout(source: Path, target: Path) -> None:
    """Replace what is in `target` by the checkout's files, but keep its `.venv`: ./lab knows whether it still fits."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in target.iterdir():
        if entry.name != ".venv":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def unwanted(directory: str, names: list[str]) -> set[str]:
        if Path(directory) != source:
            return {"__pycache__"}
        return {name for name in names if name.startswith((".", "testbed-", "testbed.")) or name == "results"}

    shutil.copytree(source, target, ignore=unwanted, dirs_exist_ok=True)
