"""The lab VM on the wall clock: starting it, finding it again, ending it.

Its directory, `/run/testbed-vm/NAME`, has its console, `machine.json`, and key pairs (of whoever starts it, and of the
machine itself) that are made at each start and kept nowhere else. It runs without us. Its disk is
the image's, and what it writes goes to a file that has no name: `down` forgets it, and so does a kill.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from testbed.base.cleanup import closed_at_end, end_at_once
from testbed.base.descriptors import wait_readable
from testbed.base.files import cache_directory, write_atomically
from testbed.lab.core.deploy.records.files import locked
from testbed.vm.emulator import Emulator, environment
from testbed.vm.errors import MachineError
from testbed.vm.image.build import VmImage
from testbed.vm.remote.ssh import Login, SshSession, wait_for_login

DEFAULT_NAME = "vm"
LOOPBACK = "127.0.0.1"
BOOT_TIMEOUT_S = 180.0
END_TIMEOUT_S = 10.0
DYING_S = 2.0
"""A process that was killed gives its memory back first, and is there until it has."""
_RECORD, _CONSOLE, _COMPLAINTS, _SOCKET = "machine.json", "console.log", "qemu.log", "qmp.sock"
CLIENT_KEY, HOST_KEY, AUTHORIZED = "client-key", "host-key", "authorized-keys"
QMP_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRecord:
    """A machine that was started: `pid` and `ticks` (since boot, of its start) are its process, whatever runs later."""

    name: str
    pid: int
    ticks: int
    port: int
    accelerator: str
    cpus: int
    memory_mib: int
    kernel: str
    started: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineStatus:
    """A machine's state: `state` is running, paused, ended or absent; `detail` says why where that is not plain."""

    state: str
    detail: str = ""
    record: MachineRecord | None = None


class Machine:
    """A lab VM by its name."""

    def __init__(self, name: str = DEFAULT_NAME) -> None:
        self.name = name
        self.directory = _run_directory() / name

    @property
    def record(self) -> MachineRecord | None:
        """Return what was written when it was started."""
        try:
            return MachineRecord(**json.loads((self.directory / _RECORD).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def status(self) -> MachineStatus:
        """Return how it is now."""
        record = self.record
        if record is None:
            return MachineStatus(state="absent")
        if not _runs(record):
            return self._ended(record)
        try:
            answer = ask_qemu(self.directory / _SOCKET, "query-status")
        except (OSError, ValueError) as error:
            if _ends_within(record, DYING_S):
                return self._ended(record)
            return MachineStatus(state="running", detail=f"QEMU does not answer: {error}", record=record)
        if answer["status"] == "io-error":
            return MachineStatus(state="paused", detail=f"the disk of {cache_directory()} is full", record=record)
        return MachineStatus(state="running" if answer["running"] else "paused", detail=answer["status"], record=record)

    def _ended(self, record: MachineRecord) -> MachineStatus:
        return MachineStatus(state="ended", detail=self.last_words() or "its process was killed", record=record)

    def login(self) -> Login:
        """Return where to log in. Raises `MachineError` where it does not run."""
        status = self.status()
        match status.state:
            case "absent":
                raise MachineError("the lab VM is not up", hint="testbed vm up")
            case "ended":
                raise MachineError("the lab VM has ended", console=status.detail, hint="testbed vm up starts a new one")
            case "paused":
                raise MachineError(f"the lab VM is paused: {status.detail}", hint="make room, or testbed vm down")
        assert status.record is not None
        keys = keys_in(self.directory)
        return Login(host=LOOPBACK, port=status.record.port, user="root", key=keys.client, host_key=keys.host)

    def connect(self) -> SshSession:
        """Open an SSH session as root."""
        return SshSession(self.login())

    def up(
        self,
        emulator: Emulator,
        image: VmImage,
        *,
        kvm: bool,
        cpus: int,
        memory_mib: int,
        port: int | None = None,
        timeout_s: float = BOOT_TIMEOUT_S,
    ) -> SshSession:
        """Start it, and log in when it answers. What is left of one that ended is removed first.

        Raises `MachineError` if it runs already, if the port is taken, or if it does not come up; then it is ended.
        """
        with self._alone():
            if self.status().state in ("running", "paused"):
                raise MachineError(f"the lab VM {self.name} is up already", hint="testbed vm down ends it")
            self._end()
            self._forget()
            self.directory.mkdir(parents=True)
            self.directory.chmod(0o700)
            try:
                return self._start(
                    emulator, image, kvm=kvm, cpus=cpus, memory_mib=memory_mib, port=port, timeout_s=timeout_s
                )
            except BaseException:
                self._end()
                self._forget()
                raise

    def down(self) -> bool:
        """End it and remove what belongs to it; whether there was one. Its changes are gone."""
        with self._alone():
            existed = self.directory.exists()
            self._end()
            self._forget()
            return existed

    def last_words(self) -> str:
        """The end of what QEMU and the console said."""
        words = []
        for name in (_COMPLAINTS, _CONSOLE):
            with contextlib.suppress(OSError):
                words += (self.directory / name).read_text(errors="replace").splitlines()[-8:]
        return "\n".join(words)

    def _start(
        self,
        emulator: Emulator,
        image: VmImage,
        *,
        kvm: bool,
        cpus: int,
        memory_mib: int,
        port: int | None,
        timeout_s: float,
    ) -> SshSession:
        keys = make_keys(self.directory)
        port = _free_port(port)
        options = [
            *("-name", f"testbed-{self.name}", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
            *("-machine", "q35", "-smp", str(cpus), "-m", str(memory_mib)),
            *(("-accel", "kvm", "-cpu", "host") if kvm else ("-accel", "tcg,thread=multi", "-cpu", "max")),
            *("-serial", f"file:{self.directory / _CONSOLE}"),
            *("-qmp", f"unix:{self.directory / _SOCKET},server=on,wait=off"),
            *("-kernel", str(image.kernel), "-initrd", str(image.initramfs)),
            *("-append", kernel_line("/dev/vda", "/usr/lib/testbed/lab-init") + ("" if kvm else EMULATED_CLOCK)),
            *("-drive", f"file={image.disk},format=raw,if=virtio,snapshot=on,cache=unsafe,werror=enospc"),
            *("-netdev", f"user,id=net,hostfwd=tcp:{LOOPBACK}:{port}-:22", "-device", "virtio-net-pci,netdev=net"),
            *("-fw_cfg", f"name=opt/testbed/host-key,file={keys.host}"),
            *("-fw_cfg", f"name=opt/testbed/authorized-keys,file={keys.authorized}"),
        ]
        with (self.directory / _COMPLAINTS).open("wb") as complaints:
            process = subprocess.Popen(
                [*emulator.program, *options],
                env={**environment(), "TMPDIR": str(cache_directory())},
                stdin=subprocess.DEVNULL,
                stdout=complaints,
                stderr=complaints,
                start_new_session=True,  # an interrupt at the keyboard is not for it
            )
        try:
            record = MachineRecord(
                name=self.name,
                pid=process.pid,
                ticks=_ticks(process.pid) or 0,
                port=port,
                accelerator="kvm" if kvm else "emulation",
                cpus=cpus,
                memory_mib=memory_mib,
                kernel=image.kernel_version,
                started=time.time(),
            )
            write_atomically(self.directory / _RECORD, json.dumps(asdict(record)) + "\n", durable=False)
            login = Login(host=LOOPBACK, port=port, user="root", key=keys.client, host_key=keys.host)
            return wait_for_login(login, timeout_s=timeout_s, alive=lambda: process.poll() is None)
        except BaseException as error:
            ended = process.poll() is not None
            end_at_once(process)
            if not isinstance(error, Exception):
                raise
            words = self.last_words()
            if "Could not set up host forwarding rule" in words:
                raise _port_in_use(port) from error
            if ended:
                raise MachineError("the lab VM ended while it started", console=words) from error
            raise MachineError(f"the lab VM did not answer within {timeout_s:.0f} s", console=words) from error

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else starts or ends it meanwhile. Of one that is gone nothing stays."""
        lock = self.directory.with_name(f"{self.name}.lock")
        lock.parent.mkdir(parents=True, exist_ok=True)
        with locked(lock, wait=True):
            try:
                yield
            finally:
                if not self.directory.exists():
                    lock.unlink(missing_ok=True)

    def _end(self) -> None:
        record = self.record
        if record is None:
            with contextlib.suppress(OSError, ValueError):  # whoever started it was killed before saying so
                ask_qemu(self.directory / _SOCKET, "quit")
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not _runs(record):
                return
            with contextlib.suppress(ProcessLookupError), closed_at_end(os.pidfd_open(record.pid)) as descriptor:
                if _runs(record):
                    signal.pidfd_send_signal(descriptor, number)
                    wait_readable(descriptor, END_TIMEOUT_S)

    def _forget(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.directory)


def machines() -> list[str]:
    """Names of all machines that were started and not ended by `down`."""
    directory = _run_directory()
    return sorted(path.name for path in directory.iterdir() if path.is_dir()) if directory.is_dir() else []


EMULATED_CLOCK = " tsc=reliable"
"""Beside other work an emulated CPU stands still for seconds. Linux then takes its cycle counter, which goes on, for
unstable, and the HPET for a clock, which wraps at 43 s: minutes were lost, and what waits for RCU never woke."""


def kernel_line(disk: str, init: str) -> str:
    """The kernel's command line: a guest that dies says so and ends QEMU (-no-reboot)."""
    return (
        "console=ttyS0 quiet loglevel=4 panic=-1 oops=panic mitigations=off random.trust_cpu=on net.ifnames=0"
        f" testbed.root={disk} testbed.init={init}"
    )


def _run_directory() -> Path:
    if given := os.environ.get("TESTBED_VM_DIR"):
        return Path(given)
    if os.geteuid() == 0:
        return Path("/run/testbed-vm")
    return Path(os.environ.get("XDG_RUNTIME_DIR", f"/tmp/testbed-{os.geteuid()}")) / "testbed-vm"


def _free_port(wanted: int | None) -> int:
    """A port of the loopback that nobody listens on. Raises `MachineError` if `wanted` is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, wanted or 0))
        except OSError as error:
            raise _port_in_use(wanted or 0) from error
        return int(probe.getsockname()[1])


def _port_in_use(port: int) -> MachineError:
    return MachineError(f"port {port} of {LOOPBACK} is in use", hint="another with --port, or none: one is found then")


def _runs(record: MachineRecord) -> bool:
    return record.ticks == _ticks(record.pid)


def _ticks(pid: int) -> int | None:
    """Return when a process was started, in ticks since boot (proc_pid_stat(5), field 22); None if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _ends_within(record: MachineRecord, seconds: float) -> bool:
    """Tell whether its process, which may just be dying, has ended after so long at most."""
    with contextlib.suppress(ProcessLookupError), closed_at_end(os.pidfd_open(record.pid)) as descriptor:
        if _runs(record):
            wait_readable(descriptor, seconds)
    return not _runs(record)


# --- keys ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Files of a start's keys. `authorized` is the client's public key in the form of authorized_keys."""

    client: Path
    host: Path
    authorized: Path


def keys_in(directory: Path) -> Keys:
    """The keys that `make_keys` put into a directory."""
    return Keys(client=directory / CLIENT_KEY, host=directory / HOST_KEY, authorized=directory / AUTHORIZED)


def make_keys(directory: Path) -> Keys:
    """Make both key pairs (Ed25519, RFC 8032) in files that nobody else may read."""
    keys = keys_in(directory)
    client = Ed25519PrivateKey.generate()
    _write(keys.client, _private(client))
    _write(keys.host, _private(Ed25519PrivateKey.generate()))
    public = client.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    _write(keys.authorized, public + b" testbed\n")
    return keys


def _private(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes) -> None:
    write_atomically(path, content, mode=0o600, durable=False)


# --- QEMU ----------------------------------------------------------------------------------------------


def ask_qemu(path: Path, command: str) -> Any:
    """Return what the machine behind a socket of QEMU's machine protocol (QEMU, qmp-spec.rst) answers.

    Raises `OSError` where nobody does, `ValueError` if it refuses.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(QMP_TIMEOUT_S)
        connection.connect(str(path))
        with connection.makefile("rw") as stream:
            stream.readline()  # its greeting
            for name in ("qmp_capabilities", command):
                stream.write(json.dumps({"execute": name}) + "\n")
                stream.flush()
                answer = _answer(stream)
            return answer


def _answer(stream: Any) -> Any:
    while line := stream.readline():
        said = json.loads(line)
        if "return" in said:
            return said["return"]
        if "error" in said:
            raise ValueError(said["error"].get("desc", "refused"))
    raise OSError("the machine ended")
