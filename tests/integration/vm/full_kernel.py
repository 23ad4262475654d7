"""Debian's own kernel, whole, in a virtual machine: for what this machine's kernel lacks (netem, RED, VRF, ...).

The machine's disk is a foreign root, mounted over 9p and read-only under an overlay in memory, so that it boots into
the same Debian, checkout and Python environment that `ForeignRoot` enters. Its kernel is that of the suite's
backports, kept in the root. It runs under the emulation of the root's QEMU (a dozen times slower than the machine
itself) and has no network. `FullKernel.run` hands commands to `guest_agent.py` in there, over a serial port of its
own. Leave the context and the machine is gone, however the test ends.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from foreign_root import CHECKOUT, COMMAND_TIMEOUT_S, ForeignRoot

from testbed.drivers.debian_mirror import mirror

PACKAGES = ("busybox-static", "kmod", "qemu-system-x86")
"""What a root needs beyond its own purpose to be the disk of a machine, and to run it.

Its own QEMU: one before 8.1 loses races with a kernel that rewrites its code (jump labels) when cores are emulated by
threads, and the kernel then dies of a stale breakpoint. Debian 12 has 7.2.
"""
INITRAMFS = "boot/testbed-initramfs.cpio"
BOOT_TIMEOUT_S = 120.0
CORES = 2
MEMORY_MIB = 3072
INSTALL_TIMEOUT_S = 600.0
_HERE = Path(__file__).parent
_GUEST = f"{CHECKOUT}/{_HERE.relative_to(_HERE.parents[2])}"

# Prints the kernel's version. What was installed stays: a root is built anew before its kernel is renewed.
_INSTALL = """
mirror=$1 suite=$2
if version=$(cat /boot/testbed-kernel 2>/dev/null); then echo "$version"; exit 0; fi
mkdir -p /tmp/apt/lists/partial /tmp/apt/cache/archives/partial /tmp/initramfs/bin /tmp/initramfs/modules
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite-backports main" >/tmp/apt/sources
cd /tmp/apt
apt() {
    command=$1 && shift
    "$command" -q -o Dir::Etc::sourcelist=/tmp/apt/sources -o Dir::Etc::sourceparts=/dev/null \\
        -o Dir::State::lists=/tmp/apt/lists -o Dir::Cache=/tmp/apt/cache \\
        -o Acquire::Languages=none -o Acquire::Retries=3 -o APT::Sandbox::User=root "$@" </dev/null
}
apt apt-get update >&2
version=$(apt apt-cache show linux-image-amd64 | sed -n 's/^Depends:.* linux-image-\\([^ ,]*\\).*/\\1/p' | head -n 1)
apt apt-get download "linux-base-$version" "linux-binary-$version" "linux-modules-$version" >&2
for package in *.deb; do dpkg-deb -x "$package" /; done
depmod "$version"
cd /tmp/initramfs
cp /usr/bin/busybox bin/
for module in 9pnet_virtio 9p overlay; do
    modprobe -S "$version" --show-depends "$module" >>/tmp/needed
done
awk '$1 == "insmod" && !seen[$2]++ { print $2 }' /tmp/needed >/tmp/order
while read -r path; do
    name=$(basename "$path" .xz)
    case $path in
        *.xz) busybox xzcat "$path" >"modules/$name" ;;
        *) cp "$path" modules/ ;;
    esac
    echo "$name" >>modules/order
done </tmp/order
echo "$version" >/boot/testbed-kernel.new
find modules bin | busybox cpio -o -H newc >/boot/testbed-modules.cpio
mv /boot/testbed-kernel.new /boot/testbed-kernel
echo "$version"
"""

_INIT = f"""#!/bin/busybox sh
busybox mkdir -p /proc /disk /upper /root
busybox mount -t proc proc /proc
while read -r module; do busybox insmod "/modules/$module"; done </modules/order
busybox mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose disk /disk
busybox mount -t tmpfs -o mode=755 upper /upper
busybox mkdir /upper/files /upper/work
busybox mount -t overlay -o lowerdir=/disk,upperdir=/upper/files,workdir=/upper/work root /root
busybox umount /proc
exec busybox switch_root /root /bin/sh {_GUEST}/guest_init.sh
"""


# Without what is mounted in the root: its disk is to be as bare as any. QEMU ends with nsenter, its parent out here.
_BOOT = """
mount --bind / /mnt
exec setpriv --pdeathsig KILL -- qemu-system-x86_64 "$@"
"""


def install_kernel(machine: ForeignRoot, suite: str) -> str:
    """Put the kernel of `suite`'s backports into the root, with all its modules, unless one is there. Its version."""
    script = ("sh", "-e", "-c", _INSTALL, "sh", mirror(), suite)
    return machine.check(*script, timeout_s=INSTALL_TIMEOUT_S).split("\n")[-2]


def pack_initramfs(root: Path) -> None:
    """Put our /init behind the modules that were packed with the kernel: archives may follow each other."""
    modules = (root / "boot/testbed-modules.cpio").read_bytes()
    (root / INITRAMFS).write_bytes(modules + bytes(-len(modules) % 512) + _cpio("init", _INIT.encode()))


class FullKernel:
    """A machine that has `disk` as its disk, with what it says in files of `work`. Leave the context and it is gone.

    It boots in about 15 s where this machine has nothing else to do.
    """

    def __init__(self, disk: ForeignRoot, version: str, work: Path) -> None:
        self._disk = disk
        self._version = version
        self._console = work / "console.log"
        self._complaints = work / "qemu.log"

    def __enter__(self) -> Self:
        pack_initramfs(self._disk.root)
        ours, theirs = socket.socketpair()
        with theirs, self._console.open("wb") as console, self._complaints.open("wb") as complaints:
            self._process = subprocess.Popen(
                self._disk.command("sh", "-e", "-c", _BOOT, "sh", *self._arguments(theirs.fileno())),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=complaints,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # an interrupt at the keyboard is for us, who then end it
            )
        self._port = ours
        self._words = ours.makefile("rb")
        try:
            self._hear(BOOT_TIMEOUT_S)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def run(self, *argv: str, timeout_s: float = COMMAND_TIMEOUT_S) -> subprocess.CompletedProcess[str]:
        """Run a command in the checkout in there, as root who has just logged in."""
        self._port.sendall(json.dumps({"argv": argv, "timeout_s": timeout_s}).encode() + b"\n")
        answer = self._hear(timeout_s + 30)
        return subprocess.CompletedProcess(list(argv), answer["status"], answer["output"], answer["errors"])

    def check(self, *argv: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """What a command that must succeed prints."""
        done = self.run(*argv, timeout_s=timeout_s)
        assert done.returncode == 0, f"{shlex.join(argv)}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _arguments(self, port: int) -> list[str]:
        # panic=-1 with -no-reboot: a machine that dies ends QEMU, and with it the waiting for an answer.
        line = "console=ttyS0 quiet loglevel=4 panic=-1 oops=panic random.trust_cpu=on mitigations=off"
        disk = "local,id=disk,path=/mnt,mount_tag=disk,security_model=passthrough,readonly=on,multidevs=remap"
        return [
            *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
            *("-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(CORES)),
            *("-m", str(MEMORY_MIB), "-nic", "none"),
            *("-chardev", "file,id=console,path=/proc/self/fd/1", "-serial", "chardev:console"),
            *("-kernel", f"/usr/lib/modules/{self._version}/vmlinuz", "-initrd", f"/{INITRAMFS}", "-append", line),
            *("-virtfs", disk, "-device", "virtio-serial-pci"),
            *("-chardev", f"socket,id=agent,fd={port}", "-device", "virtserialport,chardev=agent,nr=1"),
        ]

    def _hear(self, timeout_s: float) -> dict[str, Any]:
        self._port.settimeout(timeout_s)
        try:
            line = self._words.readline()
        except TimeoutError:
            line = b""
        if not line.endswith(b"\n"):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(2)  # it may be about to end
            raise AssertionError(f"the virtual machine does not answer: {self._last_words()}")
        heard: dict[str, Any] = json.loads(line)
        return heard

    def _last_words(self) -> str:
        said = [path.read_text(errors="replace")[-3000:] for path in (self._complaints, self._console)]
        return f"QEMU {'runs' if self._process.poll() is None else 'has ended'}\n" + "\n".join(said)

    def _end(self) -> None:
        """Switch it off: nothing in there is worth keeping. QEMU dies with the process that we started."""
        self._process.kill()
        self._process.wait()
        self._words.close()
        self._port.close()


def _cpio(name: str, content: bytes) -> bytes:
    """An archive of one executable file in the "newc" format. Source: Linux, early-userspace/buffer-format.rst."""
    archive = b""
    for entry, mode, data in ((name, 0o100755, content), ("TRAILER!!!", 0, b"")):
        fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(entry) + 1, 0)
        archive += b"070701" + "".join(f"{field:08x}" for field in fields).encode() + entry.encode() + b"\0"
        archive += bytes(-len(archive) % 4) + data
        archive += bytes(-len(archive) % 4)
    return archive
