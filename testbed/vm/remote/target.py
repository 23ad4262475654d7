"""Labs on another machine: `--on vm` and `--on ssh://user@host`.

Words of a verb there have the names of its files as they are here. Lab directories (`testbed-<lab>/`) that it brought
here go with their labs; such a copy says in a file of its own which machine it is from, so that nothing else of that
name is ever removed.
"""

from __future__ import annotations

import gzip
import json
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from testbed.base.errors import TestbedError
from testbed.base.version import __version__
from testbed.vm.errors import ConnectionLost
from testbed.vm.image import checkout
from testbed.vm.image.checkout import GUEST_CHECKOUT
from testbed.vm.remote import workplace
from testbed.vm.remote.recorded_command import with_what_was_asked
from testbed.vm.remote.ssh import Login, SshSession, writer

_SYNCHRONISED = f"{GUEST_CHECKOUT}/.synchronised"
FORGOTTEN_DAYS = 7
"""After which the files of a verb are removed whose connection broke, and which nobody could fetch."""
_MAKE_WORK = "mkdir -p .testbed-work && cd .testbed-work && pwd -P"
"""The directory in which verbs have their files: in the home directory, unless that is a link. `find` follows none."""
_INTERACTIVE = frozenset({"shell"})
_READING = frozenset({"exec", "shell"})
"""Verbs whose standard input is for what they run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteTarget:
    """The machine where verbs run.

    `machine` is the lab VM's name, or None for `login`; `path` is the project's directory there.
    """

    machine: str | None = None
    login: Login | None = None
    path: str = GUEST_CHECKOUT

    @property
    def errand_path(self) -> str:
        """The program there that runs commands for us, and ends them with the connection."""
        return f"{self.path}/testbed/vm/remote/tethered_command.py"

    def __str__(self) -> str:
        """Return what is written after `--on`, but for the directory there."""
        return f"ssh://{self.login}" if self.machine is None else f"vm:{self.machine}"


def parse_target(text: str) -> RemoteTarget:
    """`vm`, `vm:NAME` or `ssh://[user@]host[:port][/directory of the project]`."""
    if text == "vm" or text.startswith("vm:"):
        from testbed.vm.machine import DEFAULT_NAME

        return RemoteTarget(machine=text.partition(":")[2] or DEFAULT_NAME)
    parts = urlsplit(text)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme != "ssh" or not parts.hostname or (port is None and parts.netloc.rpartition("@")[2].count(":")):
        raise TestbedError(f"--on {text}: expected vm, vm:NAME or ssh://user@host[:port][/directory]")
    login = Login(host=parts.hostname, port=port or 22, user=parts.username)
    return RemoteTarget(login=login, path=parts.path.rstrip("/") or GUEST_CHECKOUT)


def run_there(target: RemoteTarget, arguments: Sequence[str], directory: Path | None = None) -> int:
    """Run the verb there; its exit code. Raises `ConnectionLost` where the connection breaks on the way."""
    directory = Path.cwd() if directory is None else directory
    with open_session(target) as session:
        return _run(session, target, arguments, directory, prepare_there(session, target))


def open_session(target: RemoteTarget) -> SshSession:
    """Connect to the machine. Raises `NotConnected`."""
    if target.machine is None:
        return SshSession(_login(target))
    from testbed.vm.machine import Machine  # with all that makes one

    return Machine(target.machine).connect()


def prepare_there(session: SshSession, target: RemoteTarget) -> tuple[str, ...]:
    """Bring the checkout of the lab VM up to date, or look at the version of another machine's.

    Returns the words before a command that make it root's.
    """
    prefix = root_words_there(session, target)
    check_version(session, target)
    return prefix


def root_words_there(session: SshSession, target: RemoteTarget) -> tuple[str, ...]:
    """Return the words before a command that make it root's there. The lab VM's checkout is brought up to date."""
    if target.machine is not None:
        synchronise(session)
        return ()
    return () if session.check(["id", "-u"]).strip() == b"0" else ("sudo", "-n")


def synchronise(session: SshSession) -> bool:
    """Bring the checkout of the lab VM to the state of ours, if it is not; whether it was not."""
    ours = checkout.fingerprint()
    if session.check(["sh", "-c", 'cat "$1" 2>/dev/null || true', "sh", _SYNCHRONISED]).decode() == ours:
        return False
    archive = gzip.compress(checkout.archive(prefix="checkout/"), compresslevel=6)
    session.check(["sh", "-c", "gunzip | python3 /usr/lib/testbed/unpack-job - /run"], stdin=archive)
    session.check(["tee", _SYNCHRONISED], stdin=ours.encode())
    return True


def program_of(target: RemoteTarget) -> str:
    """Return the path of the command there."""
    return f"{target.path}/.venv/bin/testbed"


def _run(
    session: SshSession, target: RemoteTarget, arguments: Sequence[str], directory: Path, prefix: tuple[str, ...]
) -> int:
    from testbed.lab.core.deploy.records.labdir import REMOVED_VARIABLE

    program = program_of(target)
    if arguments[:1] and arguments[0] in _INTERACTIVE and sys.stdin.isatty():
        return session.interact([*prefix, program, *arguments])
    work = PurePosixPath(session.check(["sh", "-c", _MAKE_WORK]).decode().strip())
    name = secrets.token_hex(4)
    base = str(work / name)
    sent, marker, removed = workplace.files_to_send(arguments, directory), f"{base}.sent", f"{base}.removed"
    archive = workplace.pack(sent, directory, workplace.directories_of(arguments))
    removal = [*prefix, *_removal(work, name)]
    reading = "-" in arguments or (arguments[:1] and arguments[0] in _READING and not sys.stdin.isatty())
    try:
        session.send_tree(archive, base)
        session.check(["touch", marker, removed])
        out, err = (Renamed({base: ""}, writer(stream.buffer)) for stream in (sys.stdout, sys.stderr))
        status = session.run(
            [
                *("env", f"{REMOVED_VARIABLE}={removed}"),
                *with_what_was_asked([program, *workplace.far_arguments(arguments, base)]),
            ],
            errand_path=target.errand_path,
            directory=base + str(directory),
            prefix=prefix,
            stdin=sys.stdin.buffer if reading else None,
            stdout=out,
            stderr=err,
        )
        out.flush()
        err.flush()
        newer = f"--newer-mtime={marker}"
        back = session.check([*prefix, "tar", "-c", "-f", "-", "--warning=no-file-unchanged", newer, "-C", base, "."])
        mark_copies(workplace.unpack(back), str(target))
        remove_copies(session.check([*prefix, "cat", removed]).decode(), work, str(target))
    except ConnectionLost:
        raise
    except BaseException:
        session.check(removal)
        raise
    session.check(removal)
    return status


def _removal(work: PurePosixPath, name: str) -> list[str]:
    """Removes the files of this verb, and all that are forgotten. Another verb may be removing its own meanwhile."""
    found = ["-name", name, "-o", "-name", f"{name}.*", "-o", "-mtime", f"+{FORGOTTEN_DAYS}"]
    within = ["-ignore_readdir_race", "-mindepth", "1", "-maxdepth", "1"]
    return ["find", str(work), *within, "(", *found, ")", "-exec", "rm", "-rf", "{}", "+"]


def _login(target: RemoteTarget) -> Login:
    assert target.login is not None
    return target.login


def check_version(session: SshSession, target: RemoteTarget) -> None:
    """Warn of another version there than here. Raises `TestbedError` where there is no testbed."""
    if target.machine is not None:
        return
    try:
        said = session.check([f"{target.path}/.venv/bin/testbed", "--version"]).decode().strip()
    except ConnectionLost:
        raise
    except TestbedError as error:
        raise TestbedError(
            f"{session.login} has no testbed in {target.path}",
            hint=f"put a checkout there and run ./lab --version in it once, or name another: "
            f"--on ssh://{session.login}/directory",
        ) from error
    if said != f"testbed {__version__}":
        print(f"warning: {session.login} has {said}, this is testbed {__version__}", file=sys.stderr)


class Renamed:
    """A sink of bytes that hands them to `write` with names of there replaced by those of here, as `names` has them.

    A name that begins another one comes after it in `names`.
    """

    def __init__(self, names: Mapping[str, str], write: Callable[[bytes], object]) -> None:
        self._names = {there.encode(): here.encode() for there, here in names.items()}
        self._write = write
        self._kept = b""

    def __call__(self, content: bytes) -> None:
        """The end of `content` is kept where it may be the beginning of a name."""
        content = self._kept + content
        end = len(content) - max((_begun(content, there) for there in self._names), default=0)
        self._kept = content[end:]
        self._hand_over(content[:end])

    def flush(self) -> None:
        """Hand over what was kept: nothing comes any more."""
        self._hand_over(self._kept)
        self._kept = b""

    def _hand_over(self, content: bytes) -> None:
        for there, here in self._names.items():
            content = content.replace(there, here)
        if content:
            self._write(content)


def _begun(content: bytes, name: bytes) -> int:
    """Return how many bytes at the end of `content` are the first ones of `name`."""
    return next((size for size in range(len(name) - 1, 0, -1) if content.endswith(name[:size])), 0)


def mark_copies(written: Iterable[Path], origin: str) -> None:
    """Note in the lab directories among the files that came back that they are from `origin`."""
    from testbed.lab.core.deploy.records.labdir import ORIGIN_FILE

    for path in written:
        if path.name == "topology-data.json" and path.parent.name.startswith("testbed-"):
            (path.parent / ORIGIN_FILE).write_text(f"{origin}\n")


def remove_copies(removed: str, work: PurePosixPath, origin: str) -> None:
    """Remove what is here of the paths that labs of `origin` had there, which are in the lines of `removed`.

    A verb there has a directory in `work` that stands for our root, and the one that deployed had one of another name.
    Directories go once they are empty, and what a user put there stays.
    """
    from testbed.lab.core.deploy.records.labdir import ORIGIN_FILE, remove_paths

    by_directory: dict[Path, list[Path]] = {}
    for line in removed.splitlines():
        path = PurePosixPath(json.loads(line))
        if path.is_relative_to(work) and ".." not in path.parts:
            here = Path("/", *path.relative_to(work).parts[1:])
            directory = next((above for above in (here, *here.parents) if above.name.startswith("testbed-")), None)
            if directory is not None:
                by_directory.setdefault(directory, []).append(here)
    for directory, paths in by_directory.items():
        with suppress(OSError):
            if (directory / ORIGIN_FILE).read_text().rstrip("\n") == origin:
                remove_paths([directory, *paths, directory / ORIGIN_FILE])
