"""Build and stop 8 spines x 32 leaves x 8 hosts in Debian's Mininet: 296 nodes, 512 links, no routing.

Run by the system's Python (where Debian puts Mininet). Prints "BUILD_S STOP_S". Mininet raises limits of the
machine and leaves them so (mininet.util.fixLimits): they are put back here.
"""

import sys
import time
from pathlib import Path

from mininet.log import setLogLevel
from mininet.net import Mininet

LIMITS = (
    "fs/file-max",
    "kernel/pty/max",
    "net/core/netdev_max_backlog",
    "net/core/rmem_max",
    "net/core/wmem_max",
    "net/ipv4/neigh/default/gc_thresh1",
    "net/ipv4/neigh/default/gc_thresh2",
    "net/ipv4/neigh/default/gc_thresh3",
    "net/ipv4/route/max_size",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
)


def read_limits() -> dict[Path, str]:
    paths = (Path("/proc/sys") / name for name in LIMITS)
    return {path: path.read_text() for path in paths if path.exists()}


def main() -> None:
    before = read_limits()
    try:
        measure()
    finally:
        for path, value in read_limits().items():
            if value != before[path]:
                path.write_text(before[path])


def measure() -> None:
    spines, leaves, hosts = (int(argument) for argument in sys.argv[1:4])
    setLogLevel("error")
    started = time.monotonic()
    net = Mininet(controller=None)
    upper = [net.addHost(f"s{index}", ip=None) for index in range(spines)]
    for leaf in range(leaves):
        switch = net.addHost(f"l{leaf}", ip=None)
        for spine in upper:
            net.addLink(switch, spine)
        for host in range(hosts):
            net.addLink(net.addHost(f"h{leaf}x{host}", ip=None), switch)
    net.build()
    built = time.monotonic()
    net.stop()
    print(f"{built - started:.2f} {time.monotonic() - built:.2f}")


if __name__ == "__main__":
    main()
