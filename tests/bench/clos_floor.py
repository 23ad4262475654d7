"""The floor of bringing a fabric up: `ip -batch` and bare FRR daemons, no model, no checks on the way.

    python clos_floor.py PODS RAILS SPINES SUPER_SPINES HOSTS

Each pod has RAILS rail switches and SPINES spines; every host has a NIC on each rail of its pod, each on a
subnet of its own. RFC 7938 AS numbers, no BFD. Prints the seconds until every switch has every subnet, as
the last line; leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PREFIX = "floor-"
FRR = next(path for path in (Path("/usr/lib/frr"), Path("/usr/libexec/frr")) if (path / "bgpd").exists())
TIMEOUT_S = 180.0


class Floor:
    """Names, links and numbers of the fabric."""

    def __init__(self, pods: int, rails: int, spines: int, super_spines: int, hosts: int) -> None:
        self.links: list[tuple[str, str, str, str]] = []
        self.asn: dict[str, int] = {}
        self.hosts: list[str] = []
        self.crash_directories: list[str] = []
        """FRR's, named after the processes that were started, not after the daemons that these leave behind."""
        self._ports: dict[str, int] = {}
        cores = [f"ss{index}" for index in range(super_spines)]
        self.asn |= dict.fromkeys(cores, 64600)
        for pod in range(pods):
            pod_spines = [f"p{pod}s{index}" for index in range(spines)]
            pod_rails = [f"p{pod}r{index}" for index in range(rails)]
            self.asn |= dict.fromkeys(pod_spines, 64601 + pod)
            self.asn |= {name: 65000 + pod * rails + index for index, name in enumerate(pod_rails)}
            for spine in pod_spines:
                for lower in pod_rails:
                    self._link(lower, spine)
                for core in cores:
                    self._link(spine, core)
            for index in range(hosts):
                host = f"p{pod}h{index}"
                self.hosts.append(host)
                for rail in pod_rails:
                    self._link(host, rail)

    def _link(self, a: str, b: str) -> None:
        ends = []
        for node in (a, b):
            index = self._ports.setdefault(node, 0)
            self._ports[node] += 1
            ends.append((node, f"e{index}"))
        self.links.append((*ends[0], *ends[1]))

    @property
    def nodes(self) -> list[str]:
        return [*self.asn, *self.hosts]


def batch(lines: list[str], namespace: str | None = None) -> None:
    where = ["-n", PREFIX + namespace] if namespace else []
    subprocess.run(["ip", *where, "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True)


def build(floor: Floor) -> None:
    """Namespaces, links, addresses."""
    batch([f"netns add {PREFIX}{node}" for node in floor.nodes])
    batch(
        [
            f"link add {ia} mtu 9000 netns {PREFIX}{a} type veth peer name {ib} mtu 9000 netns {PREFIX}{b}"
            for a, ia, b, ib in floor.links
        ]
    )
    commands: dict[str, list[str]] = {node: ["link set lo up"] for node in floor.nodes}
    subnet = 0
    for a, ia, b, ib in floor.links:
        commands[a].append(f"link set {ia} up")
        commands[b].append(f"link set {ib} up")
        if a not in floor.asn:
            subnet += 1
            commands[b].append(f"addr add 10.{subnet >> 8}.{subnet & 255}.1/24 dev {ib}")
            commands[a].append(f"addr add 10.{subnet >> 8}.{subnet & 255}.2/24 dev {ia}")
    for node, lines in commands.items():
        batch(lines, node)


def start_routing(floor: Floor, directory: Path) -> None:
    """FRR on every switch: the daemons fork into the background, zebra first."""
    user = pwd.getpwnam("frr")
    peers: dict[str, list[str]] = {node: [] for node in floor.asn}
    for a, ia, b, ib in floor.links:
        if a in floor.asn:
            peers[a].append(ia)
            peers[b].append(ib)
    for number, (node, asn) in enumerate(floor.asn.items()):
        own = directory / node
        own.mkdir()
        neighbors = "".join(
            f" neighbor {port} interface remote-as external\n neighbor {port} timers connect 1\n"
            for port in peers[node]
        )
        activated = "".join(f"  neighbor {port} activate\n" for port in peers[node])
        (own / "bgpd.conf").write_text(
            f"router bgp {asn}\n bgp router-id 9.9.{number >> 8}.{number & 255}\n no bgp ebgp-requires-policy\n"
            f" no bgp default ipv4-unicast\n bgp bestpath as-path multipath-relax\n{neighbors}"
            f" address-family ipv4 unicast\n  redistribute connected\n  maximum-paths 64\n{activated}"
        )
        (own / "zebra.conf").write_text(
            "".join(
                f"interface {port}\n ipv6 nd ra-interval msec 700\n no ipv6 nd suppress-ra\n" for port in peers[node]
            )
        )
        for path in (own, own / "bgpd.conf", own / "zebra.conf"):
            os.chown(path, user.pw_uid, user.pw_gid)
        settings = ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"]
        subprocess.run(["ip", "netns", "exec", PREFIX + node, "sysctl", "-qw", *settings], check=True)
    for daemon in ("zebra", "bgpd"):
        started = [
            subprocess.Popen(
                [
                    "ip",
                    "netns",
                    "exec",
                    PREFIX + node,
                    str(FRR / daemon),
                    "-d",
                    "-f",
                    f"{directory}/{node}/{daemon}.conf",
                    "-i",
                    f"{directory}/{node}/{daemon}.pid",
                    "-z",
                    f"{directory}/{node}/zserv",
                    "--vty_socket",
                    f"{directory}/{node}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for node in floor.asn
        ]
        floor.crash_directories += [f"/var/tmp/frr/{daemon}.{process.pid}" for process in started]
        for process in started:
            process.wait()


def wait_converged(floor: Floor) -> None:
    """Until every switch has a route to every subnet."""
    subnets = sum(a not in floor.asn for a, *_ in floor.links)
    deadline = time.monotonic() + TIMEOUT_S
    waiting = list(floor.asn)
    while waiting:
        if time.monotonic() > deadline:
            raise SystemExit(f"not converged within {TIMEOUT_S:g} s: {waiting[:5]}")
        waiting = [node for node in waiting if count_routes(node) < subnets]


def count_routes(node: str) -> int:
    out = subprocess.run(["ip", "-n", PREFIX + node, "-j", "route"], capture_output=True, check=True).stdout
    return sum(route["dst"].startswith("10.") for route in json.loads(out))


def remove(floor: Floor, directory: Path) -> None:
    for pid_file in directory.glob("*/*.pid"):
        subprocess.run(["kill", "-9", pid_file.read_text().strip()], check=False)
    for path in floor.crash_directories:
        shutil.rmtree(path, ignore_errors=True)
    batch([f"netns del {PREFIX}{node}" for node in floor.nodes])


def main() -> None:
    floor = Floor(*(int(argument) for argument in sys.argv[1:6]))
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        directory = Path(name)
        directory.chmod(0o755)
        started = time.monotonic()
        try:
            build(floor)
            start_routing(floor, directory)
            wait_converged(floor)
            print(f"{time.monotonic() - started:.2f}")
        finally:
            remove(floor, directory)


if __name__ == "__main__":
    main()
