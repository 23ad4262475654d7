"""In the lab VM: the kernel's NVMe/TCP against ours, one direction for each call, between two namespaces.

    guest_interop.py kernel-host [--digests]        Linux's initiator on our target
    guest_interop.py kernel-target [--digests]      our initiator on Linux's target (nvmet)
    guest_interop.py kernel-paths                   our initiator on two controllers of Linux's target, and cuts

It prints one JSON document; a step that fails ends it with a message. All that was made is removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from storage_sides import NQN, run_tool, target

from testbed.endpoints import namespace
from testbed.endpoints.storage.kernel_target import KernelTarget, KernelTargetConfig
from testbed.endpoints.storage.media import MediaConfig
from testbed.endpoints.storage.nvme_host import Initiator
from testbed.endpoints.storage.pattern import Pattern
from testbed.endpoints.storage.volume import Operation, VolumeRequest
from testbed.protocols.nvme.commands import Sqe, abort_command
from testbed.protocols.nvme.config import HostConfig
from testbed.protocols.nvme.host_queue import HostRequest

HOST, TARGET = "nvi-h", "nvi-t"
ADDRESS, OWN = "10.86.0.1", "10.86.0.2"
TWO = (ADDRESS, "10.87.0.1")
KATO_MS = 2000
MIB = 1 << 20
SIZE = 64 * MIB
NVMET = Path("/sys/kernel/config/nvmet")
BACKING = Path("/tmp/nvi.img")


def do(*argv: str, data: bytes | None = None) -> bytes:
    done = subprocess.run(argv, input=data, capture_output=True, timeout=120, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)}: {done.stderr.decode(errors='replace')}")
    return done.stdout


def in_host(*argv: str, data: bytes | None = None) -> bytes:
    """nsenter, as `ip netns exec` would hide /sys/kernel/config and the devices of the machine's own."""
    return do("nsenter", f"--net=/run/netns/{HOST}", *argv, data=data)


@contextmanager
def namespaces() -> Iterator[None]:
    with ExitStack() as cleanup:
        for name in (HOST, TARGET):
            do("ip", "netns", "add", name)
            cleanup.callback(do, "ip", "netns", "del", name)
        peer = ("peer", "name", "eth0", "mtu", "9000", "netns", TARGET)
        do("ip", "-n", HOST, "link", "add", "eth0", "mtu", "9000", "type", "veth", *peer)
        for name, address in ((HOST, OWN), (TARGET, ADDRESS)):
            do("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            do("ip", "-n", name, "link", "set", "eth0", "up")
        yield


def wait_for(found: Callable[[], Any]) -> Any:
    until = time.monotonic() + 60
    while not (value := found()):
        if time.monotonic() > until:
            raise SystemExit(f"waited in vain: {do('dmesg').decode()[-2000:]}")
        time.sleep(0.05)
    return value


def device_of(nqn: str) -> str:
    """The block device of a subsystem's first namespace; "" until it is there."""
    for path in Path("/sys/class/nvme-subsystem").glob("nvme-subsys*"):
        if (path / "subsysnqn").read_text().strip() == nqn:
            for item in sorted(path.glob("nvme*n*")):
                if Path("/dev", item.name).exists():
                    return f"/dev/{item.name}"
    return ""


def controller_of(device: str) -> str:
    """The controller whose namespace a device is: nvme0 of /dev/nvme0n1."""
    return device.removeprefix("/dev/").rpartition("n")[0]


def kernel_host(digests: bool) -> dict[str, Any]:
    controller = {"r2t_bytes": 65536, "max_h2c_data": 32768} if digests else {}
    config = {
        "listen": [{"address": ADDRESS}],
        "subsystems": [{"nqn": NQN, "namespaces": [{"size": SIZE}]}],
        "controller": controller,
    }
    found: dict[str, Any] = {}
    where = ("-t", "tcp", "-a", ADDRESS, "-s", "4420")
    with target(TARGET, config) as running:
        found["discovered"] = NQN in in_host("nvme", "discover", *where).decode()
        words = ("--hdr-digest", "--data-digest") if digests else ()
        in_host("nvme", "connect", *where, "-n", NQN, "--keep-alive-tmo=1", *words)
        try:
            device = wait_for(lambda: device_of(NQN))
            found["bytes"] = int(do("blockdev", "--getsize64", device))
            contents = os.urandom(8 * MIB)
            for block, offset in (("4k", 0), ("1M", 16)):
                place = ("bs=" + block, f"count={8 * MIB // (4096 if block == '4k' else MIB)}")
                seek = offset * MIB // (4096 if block == "4k" else MIB)
                do("dd", f"of={device}", *place, f"seek={seek}", "oflag=direct", "iflag=fullblock", data=contents)
                back = do("dd", f"if={device}", *place, f"skip={seek}", "iflag=direct")
                found[f"read back in {block}"] = hashlib.sha256(back).digest() == hashlib.sha256(contents).digest()
            do("nvme", "flush", device, "-n", "1")
            do("blkdiscard", "-o", "0", "-l", str(MIB), device)
            do("blkdiscard", "-z", "-o", str(MIB), "-l", str(MIB), device)
            zero = do("dd", f"if={device}", "bs=1M", "count=3", "iflag=direct")
            found["zeroes"] = not any(zero[: 2 * MIB]) and zero[2 * MIB :] == contents[2 * MIB : 3 * MIB]
            smart = json.loads(do("nvme", "smart-log", device, "-o", "json"))
            found["written units"] = int(smart["data_units_written"]) > 0
            abort = ("--opcode=8", f"--cdw10={99 << 16 | 1}")  # of what is not there: it goes on, which is not 0
            argv = ("nvme", "admin-passthru", f"/dev/{controller_of(device)}", *abort)
            said = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120)
            found["abort"] = (said.stdout + said.stderr).strip().rpartition(" ")[2]
            found["model"] = json.loads(do("nvme", "id-ctrl", device, "-o", "json"))["mn"].strip()
            time.sleep(2.5)  # What is waited for is that nothing happens: Keep Alive at half a second, twice over.
            found["still there"] = bool(do("dd", f"if={device}", "bs=4k", "count=1", "iflag=direct"))
        finally:
            in_host("nvme", "disconnect", "-n", NQN)
        found["counts"] = running.stop()
    return found


@contextmanager
def nvmet() -> Iterator[None]:
    """A subsystem of the kernel's, in a file of zeroes, that listens in the target's namespace."""
    BACKING.write_bytes(b"")
    os.truncate(BACKING, SIZE)
    subsystem, port = NVMET / "subsystems" / NQN, NVMET / "ports/1"
    namespace = subsystem / "namespaces/1"
    link = port / "subsystems" / NQN
    with ExitStack() as cleanup:
        cleanup.callback(BACKING.unlink)
        for path in (subsystem, namespace, port):
            path.mkdir()
            cleanup.callback(path.rmdir)
        (subsystem / "attr_allow_any_host").write_text("1")
        (namespace / "device_path").write_text(str(BACKING))
        (namespace / "enable").write_text("1")
        cleanup.callback((namespace / "enable").write_text, "0")
        written = {"addr_trtype": "tcp", "addr_adrfam": "ipv4", "addr_traddr": ADDRESS, "addr_trsvcid": "4420"}
        for name, value in written.items():
            (port / name).write_text(value)
        do("nsenter", f"--net=/run/netns/{TARGET}", "ln", "-s", str(subsystem), str(link))
        cleanup.callback(link.unlink)
        yield


def kernel_target(digests: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    words = ["--path", ADDRESS, "--nqn", NQN, "--kato", "1000"]
    words += ["--hdgst", "--ddgst", "--queues", "2"] if digests else []
    with nvmet():
        found["discovered"] = run_tool(HOST, "discover", "--path", ADDRESS)[1]
        for step, size in (("write", "4M"), ("verify", "4M"), ("write", "4K"), ("verify", "64K")):
            span = ["--size", "32M" if size != "4K" else "2M", "--bs", size, "--seed", "3"]
            status, document = run_tool(HOST, step, *words, *span)
            found[f"{step} of {size}"] = [status, document if status else document["bytes"]]
    return found


class Writer:
    """Our initiator in the host's namespace, which writes on and on over all paths that are live."""

    def __init__(self) -> None:
        config = HostConfig(hostnqn="nqn.2026-01.lab:h1", hostid=bytes(16), queue_entries=17, kato_ms=KATO_MS)
        paths = [(address, 4420) for address in TWO]
        self.initiator = Initiator(paths, NQN, config, give_up_ns=60_000_000_000)
        self.volume = self.initiator.open_volume()
        self.pattern = Pattern(7)
        self.written = 0
        """The bytes from the begin of the namespace that are said to be safe."""

    @property
    def live(self) -> list[bool]:
        return [path.live for path in self.initiator.paths]

    def write(self, until: Callable[[], bool]) -> None:
        """Write until something has happened, and then what is under way."""
        end = time.monotonic() + 60
        waiting: list[VolumeRequest] = []
        while not until() or waiting:
            if time.monotonic() > end:
                raise SystemExit(f"waited in vain: {self.live}, {[path.last_error for path in self.initiator.paths]}")
            while len(waiting) < 4 and not until():
                view = memoryview(bytearray(65536))
                offset = (self.written + 65536 * len(waiting)) % SIZE
                self.pattern.fill(view, offset)
                waiting.append(self.initiator.submit(self.volume, Operation.WRITE, offset, view))
            self.initiator.poll(0.1)
            while waiting and waiting[0].done:
                request = waiting.pop(0)
                if request.error:
                    raise SystemExit(request.error)
                self.written += len(request.view)
        self.volume.done.clear()

    def wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.initiator.poll(left)

    def admin(self, sqe: Sqe) -> HostRequest:
        controller = self.initiator.paths[0].controller
        request = HostRequest(sqe)
        controller.queues[0].submit(request)
        self.wait(0.5)
        return request


def link(name: str, state: str) -> None:
    do("ip", "-n", TARGET, "link", "set", name, state)


def kernel_paths(_: bool) -> dict[str, Any]:
    peer = ("peer", "name", "eth1", "netns", TARGET)
    do("ip", "-n", HOST, "link", "add", "eth1", "type", "veth", *peer)
    for name, address in ((HOST, "10.87.0.2"), (TARGET, TWO[1])):
        do("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth1")
        do("ip", "-n", name, "link", "set", "eth1", "up")
    config = KernelTargetConfig(
        nqn=NQN,
        addresses=tuple((address, 4420) for address in TWO),
        size=SIZE,
        block=512,
        nguid=bytes(range(1, 17)),
        media=MediaConfig(),
    )
    own = os.open(f"/run/netns/{TARGET}", os.O_RDONLY)
    namespace.enter(own)
    served = KernelTarget(config)
    try:
        namespace.enter(os.open(f"/run/netns/{HOST}", os.O_RDONLY))
        writer = Writer()
        paths = writer.initiator.paths
        writer.write(lambda: all(writer.live) and writer.written >= MIB)
        found: dict[str, Any] = {
            "controllers": len({path.controller.queues[0].cntlid for path in paths if path.controller is not None}),
            "abort": [(answer := writer.admin(abort_command(1, 99))).status, answer.result],
        }
        writer.wait(2.5 * KATO_MS / 1000)
        found["kept alive"] = writer.live
        link("eth1", "down")
        writer.write(lambda: not writer.live[1])
        begun = writer.written
        writer.write(lambda: writer.written >= begun + MIB)
        found["one path left"] = writer.live
        link("eth0", "down")
        restored: list[float] = []

        def all_back() -> bool:
            if not restored and not any(writer.live):
                restored.append(time.monotonic())
                link("eth0", "up")
                link("eth1", "up")
            return bool(restored) and all(writer.live)

        writer.write(all_back)
        found["resent"] = writer.volume.resent > 0
        found["wrong"] = served.wrong_bytes(writer.pattern, 0, min(writer.written, SIZE))
        found["came back"] = [path.associations >= 2 for path in paths]
        writer.initiator.close()
    finally:
        served.close()
    return found


def main() -> None:
    direction, digests = sys.argv[1], "--digests" in sys.argv
    do("modprobe", "-a", "nvme-tcp", "nvmet-tcp")
    do("modprobe", "null_blk", "nr_devices=0")
    if not NVMET.is_dir():
        do("mount", "-t", "configfs", "none", "/sys/kernel/config")
    directions = {"kernel-host": kernel_host, "kernel-target": kernel_target, "kernel-paths": kernel_paths}
    with namespaces():
        found = directions[direction](digests)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
