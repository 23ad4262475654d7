"""In the lab VM: where the kernel's NVMe/RDMA target can listen. It prints one JSON document.

Each end of a veth pair has a soft RDMA device: one in a network namespace, one in the machine's own. The first link of
a port to a subsystem has the target listen at the port's address (Linux, drivers/nvme/target/rdma.c).
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

SPACE, NQN, PORT = "guest-rdma", "nqn.2026-01.lab:rdma", "7701"
INSIDE, OUTSIDE = "10.97.0.1", "10.97.0.2"


def run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, text=True)


def listening(configfs: Path, address: str, entered: Sequence[str] = ()) -> str:
    """Have the target listen at an address, from a namespace; "" if it does, else what the kernel says."""
    subsystem, port = configfs / "nvmet/subsystems" / NQN, configfs / "nvmet/ports" / PORT
    subsystem.mkdir()
    port.mkdir()
    try:
        for name, value in (("trtype", "rdma"), ("adrfam", "ipv4"), ("traddr", address), ("trsvcid", "4420")):
            (port / f"addr_{name}").write_text(value)
        link = port / "subsystems" / NQN
        done = subprocess.run(
            [*entered, "ln", "-s", str(subsystem), str(link)], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            link.unlink()
        return done.stderr.strip().rpartition(": ")[2]
    finally:
        port.rmdir()
        subsystem.rmdir()


def main() -> None:
    run("modprobe", "-a", "nvmet-rdma", "rdma_rxe")
    run("ip", "netns", "add", SPACE)
    with tempfile.TemporaryDirectory() as directory:
        run("mount", "-t", "configfs", "configfs", directory)
        try:
            run("ip", "link", "add", "rdma-out", "type", "veth", "peer", "name", "rdma-in", "netns", SPACE)
            inside = ("ip", "netns", "exec", SPACE)
            for prefix, device, address in (((), "rdma-out", OUTSIDE), (inside, "rdma-in", INSIDE)):
                run(*prefix, "ip", "addr", "add", f"{address}/24", "dev", device)
                run(*prefix, "ip", "link", "set", device, "up")
                run(*prefix, "rdma", "link", "add", f"rxe-{device[5:]}", "type", "rxe", "netdev", device)
            found = {
                "in the machine's namespace": listening(Path(directory), OUTSIDE),
                "in a node's": listening(Path(directory), INSIDE, ("nsenter", f"--net=/run/netns/{SPACE}")),
            }
        finally:
            run("umount", directory)
            run("ip", "netns", "del", SPACE)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
