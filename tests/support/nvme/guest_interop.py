"""In the lab VM: the kernel's NVMe/TCP against ours, one direction for each call, between two namespaces.

    guest_interop.py kernel-host [--digests]        Linux's initiator on our target
    guest_interop.py kernel-target [--digests]      our initiator on Linux's target (nvmet)

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

HOST, TARGET = "nvi-h", "nvi-t"
ADDRESS, OWN = "10.86.0.1", "10.86.0.2"
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


# --- Linux's initiator ------------------------------------------------------------------------------------


def device_of(nqn: str) -> str:
    """The block device of a subsystem's first namespace; "" until it is there."""
    for path in Path("/sys/class/nvme-subsystem").glob("nvme-subsys*"):
        if (path / "subsysnqn").read_text().strip() == nqn:
            for item in sorted(path.glob("nvme*n*")):
                if Path("/dev", item.name).exists():
                    return f"/dev/{item.name}"
    return ""


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
            found["model"] = json.loads(do("nvme", "id-ctrl", device, "-o", "json"))["mn"].strip()
            time.sleep(2.5)  # What is waited for is that nothing happens: Keep Alive at half a second, twice over.
            found["still there"] = bool(do("dd", f"if={device}", "bs=4k", "count=1", "iflag=direct"))
        finally:
            in_host("nvme", "disconnect", "-n", NQN)
        found["counts"] = running.stop()
    return found


# --- Linux's target ---------------------------------------------------------------------------------------


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


def main() -> None:
    direction, digests = sys.argv[1], "--digests" in sys.argv
    do("modprobe", "-a", "nvme-tcp", "nvmet-tcp")
    if not NVMET.is_dir():
        do("mount", "-t", "configfs", "none", "/sys/kernel/config")
    with namespaces():
        found = kernel_host(digests) if direction == "kernel-host" else kernel_target(digests)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
