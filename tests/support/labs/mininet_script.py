"""A script as people write them for Mininet, run by test_mininet.py: TOPOLOGY pypi|debian. Prints JSON."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
from pathlib import Path

from testbed.lab.core.drivers.probing.mininet import load_mininet


def hide_installed() -> None:
    """Have Debian's package used where that of PyPI is installed."""
    find_spec = importlib.util.find_spec
    importlib.util.find_spec = lambda name, package=None: None if name == "mininet" else find_spec(name, package)


def main(topology: str, source: str) -> dict[str, object]:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has what runs in the background ignore it
    if source == "debian":
        hide_installed()
    version = load_mininet()
    import mininet

    from testbed.mininet import build

    limits = {path: path.read_text() for path in Path("/proc/sys/net/ipv4/neigh/default").glob("gc_*")}
    net = build(topology)
    limits_kept = all(path.read_text() == text for path, text in limits.items() if "interval" in path.name)
    host, switch = net.hosts[0], net["p1-s1-rail1"]
    try:
        net.start()
        found: dict[str, object] = {
            "package": str(Path(mininet.__file__).parent),
            "version": version,
            "limits_kept": limits_kept,
            "loss": net.pingAll(),
            "hosts": [item.name for item in net.hosts],
            "switches": [item.name for item in net.switches],
            "links": len(net.links),
            "ip": host.IP(),
            "address": host.cmd("ip -o -4 address show dev rail1").split()[3],
            "mac": host.MAC(),
            "link": host.cmd("cat /sys/class/net/rail1/address").strip(),
            "pexec": host.pexec(["cat", "/sys/class/net/rail1/address"])[0].strip(),
            "up": host.intf("rail1").isUp(),
            "to a switch": host.cmd(f"ping -c1 -W2 {switch.IP()}"),
            "environment": host.cmd("echo $COLOUR").strip(),
        }
        host.sendCmd("cat", printPid=True)
        while not host.lastPid:
            host.monitor(1000)
        name = Path(f"/proc/{host.lastPid}/comm")
        while name.read_text() == "sh\n":  # it has said its number, and becomes the command next
            os.sched_yield()
        found["command"] = name.read_text().strip()
        host.sendInt()
        host.waitOutput()
        return found
    finally:
        net.stop()


if __name__ == "__main__":
    print("\n" + json.dumps(main(*sys.argv[1:])))
