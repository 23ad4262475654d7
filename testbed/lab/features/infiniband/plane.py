"""The management plane of a subnet: its directory, and how programs are started that are to ask or manage it.

A lab's plane has a network namespace of its own, since the sockets of ibsim are names that a namespace has once. One
without a lab (`offline`) has socket names of its own instead. Programs run as nobody, where we are root.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.base.cleanup import end_at_once, on_failure
from testbed.base.datapath.build import compiled, source_texts
from testbed.base.errors import CapabilityError, DriverError
from testbed.base.files import write_atomically
from testbed.base.installation.packages import KnownProgram, installation_of, missing_programs
from testbed.base.linux.namespaces import in_namespace

NOBODY = 65534
PROGRAMS = ("ibsim", "opensm", "ibnetdiscover", "umad2sim")
TOOLS = (
    *("ibnetdiscover", "iblinkinfo", "ibtracert", "ibroute", "perfquery", "saquery", "smpquery", "ibqueryerrors"),
    *("ibhosts", "ibswitches", "ibnodes", "sminfo", "dump_lfts", "dump_mfts", "ibstat", "ibaddr"),
)
"""The tools that hosts have. Some are scripts that call others of them."""
SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
UNPRIVILEGED = (
    *("setpriv", "--no-new-privs", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
    *("--inh-caps=-all", "--bounding-set=-all", "--"),
)
"""The beginning of the command of a program that is to run as nobody, where we are root."""
ENDING = ("setpriv", "--pdeathsig", "KILL", "--")
"""The beginning of the command of a program that is to end with the thread that starts it, even by SIGKILL."""
_LIBRARY_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-shared", "-fPIC")
LIBRARIES = "/usr/lib/*/umad2sim/libumad2sim.so*"


def preload_library() -> str:
    """Return the path of umad2sim's library, which leads programs to ibsim that would open a device."""
    return next((str(path) for path in sorted(Path("/").glob(LIBRARIES.lstrip("/")))), "")


def require_programs() -> None:
    """Raise `CapabilityError` with the packages that this machine lacks, and the line that installs them."""
    missing: Sequence[KnownProgram] = missing_programs(PROGRAMS, SEARCH)
    if missing:
        packages = ", ".join(dict.fromkeys(program.package for program in missing))
        raise CapabilityError(
            f"link_layer: infiniband needs {packages}, which this machine lacks",
            missing=missing[0].name,
            hint=installation_of(missing),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """A subnet's management plane. `namespace` is the published one of a lab; `socket` the first part of the names of
    ibsim's sockets, "" for ibsim's own."""

    directory: Path
    namespace: str = ""
    socket: str = ""

    @property
    def work(self) -> Path:
        """The directory that programs start in as nobody: umad2sim keeps files there while one runs."""
        return self.directory / "work"

    def make(self) -> None:
        """Make the directories. Raises `OSError`."""
        self.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.own(self.work)

    def write_library(self, source: str, what: str) -> Path:
        """Compile a library of `native/` that programs load, and write it to where nobody may read it; its path.

        Raises `OSError`, and `CapabilityError` where there is no compiler, which `what` is told by.
        """
        texts = {f"{source}.c": source_texts("testbed.lab.features.infiniband", "native")[f"{source}.c"]}
        made = compiled(source.replace("_", "-"), ".so", texts, _LIBRARY_FLAGS, what=what)
        target = self.directory / f"{source}.so"
        write_atomically(target, made.read_bytes(), durable=False)
        target.chmod(0o755)
        return target

    def own(self, path: Path) -> None:
        """Make a directory that the programs may write to. Raises `OSError`."""
        path.mkdir(mode=0o755, exist_ok=True)
        if os.geteuid() == 0:
            os.chown(path, NOBODY, NOBODY)

    def command(
        self, argv: Sequence[str], identifier: str = "", *, unprivileged: bool = True, before: Path | None = None
    ) -> list[str]:
        """Return the command that runs `argv` without privileges, at the HCA that ibsim calls so; "": at none.

        What is loaded before a program attaches it to ibsim, so that it is loaded by none of those that start it;
        `before` is a library that its datagrams pass first. A plane of a lab lives as long as the lab; programs of
        another one end with us.
        """
        name, *arguments = argv
        command = [shutil.which(name, path=SEARCH) or name, *arguments]
        if identifier:
            libraries = ":".join(filter(None, (str(before or ""), preload_library())))
            command = ["env", f"LD_PRELOAD={libraries}", f"SIM_HOST={identifier}", *command]
        if not self.namespace:
            command = [*ENDING, *command]
        if not unprivileged or os.geteuid() != 0:
            return command
        return [*UNPRIVILEGED, *command]

    def start(
        self,
        argv: Sequence[str],
        identifier: str = "",
        *,
        unprivileged: bool = True,
        before: Path | None = None,
        **options: Any,
    ) -> subprocess.Popen[bytes]:
        """Start a program of the plane; `options` are those of `subprocess.Popen`.

        Raises `OSError`, and `DriverError` where the namespace is gone.
        """
        environment = {"PATH": SEARCH, "LANG": "C.UTF-8", "HOME": str(self.work)}
        if self.socket:
            environment["IBSIM_SOCKNAME"] = self.socket
        environment |= options.pop("env", {})

        command = self.command(argv, identifier, unprivileged=unprivileged, before=before)
        # Where nobody may write, links could lead elsewhere what umad2sim writes as root.
        directory = self.work if unprivileged else self.directory

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(command, env=environment, cwd=directory, **options)

        return in_namespace(self.namespace, start) if self.namespace else start()

    def run(
        self,
        argv: Sequence[str],
        identifier: str,
        *,
        given: bytes = b"",
        timeout_s: float = 120.0,
        unprivileged: bool = True,
    ) -> bytes:
        """Run a program at an HCA to its end and return what it prints.

        Raises `subprocess.CalledProcessError`, `subprocess.TimeoutExpired`, `OSError`.
        """
        process = self.start(
            argv,
            identifier,
            unprivileged=unprivileged,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with on_failure(end_at_once, process):
            out, error = process.communicate(given, timeout_s)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, list(argv), out, error)
        return out


def ask_tables(plane: Plane, identifier: str, questions: Sequence[Sequence[Any]]) -> list[bytes | None]:
    """Ask for tables at an HCA (`testbed.lab.features.infiniband.asking`); None for each that nobody answers.

    The program that asks is ours, and runs as we do: nobody else may be able to read it. Raises `DriverError`.
    """
    from testbed.lab.features.infiniband import asking

    program = [sys.executable, "-I", "-S", str(Path(asking.__file__))]
    try:
        said = plane.run(program, identifier, given=json.dumps(questions).encode(), unprivileged=False)
        answers = json.loads(said)
    except subprocess.CalledProcessError as error:
        why = error.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise DriverError(f"no table can be asked for: {why}", operation="ask") from error
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise DriverError(f"no table can be asked for: {error}", operation="ask") from error
    return [None if answer is None else bytes.fromhex(answer) for answer in answers]
