"""Two sides for the measuring tools: hosts that run programs, in namespaces joined by one link, or in a lab."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from testbed.api import Lab

PATIENCE_S = 60
LINK_MTU = 4500
TOOL = (sys.executable, "-m", "testbed.endpoints.perftest")
Spawn = Callable[[Sequence[str]], subprocess.Popen[bytes]]


class Side(NamedTuple):
    """A host and its address."""

    spawn: Spawn
    address: str


def finish(process: subprocess.Popen[bytes]) -> str:
    out, problem = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, f"{out.decode()}\n{problem.decode()}"
    return out.decode()


def measure(near: Side, far: Side, path: Path, *words: str) -> dict[str, Any]:
    """The JSON document of a run between two sides; both must succeed and print the same table."""
    with ExitStack() as cleanup:
        server = far.spawn([*TOOL, *words, "-i", far.address])
        cleanup.callback(server.communicate)
        cleanup.callback(server.kill)
        client = near.spawn([*TOOL, *words, "--out_json_file", str(path), far.address])
        cleanup.callback(client.communicate)
        cleanup.callback(client.kill)
        ours, theirs = finish(client), finish(server)
    assert ours.splitlines()[-2:] == theirs.splitlines()[-2:]
    document: dict[str, Any] = json.loads(path.read_text())
    return document


@contextmanager
def joined_namespaces(family: str, prefix: str) -> Iterator[tuple[Side, Side]]:
    """Two namespaces joined by a veth of MTU `LINK_MTU`; `family` is "ipv4" or "ipv6"."""

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def spawner(name: str) -> Spawn:
        def spawn(argv: Sequence[str]) -> subprocess.Popen[bytes]:
            words = ["ip", "netns", "exec", name, *argv]
            return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

        return spawn

    addresses = ("10.78.0.1", "10.78.0.2") if family == "ipv4" else ("fd78::1", "fd78::2")
    names = tuple(f"{prefix}{os.getpid()}{side}{family[-1]}" for side in "ab")
    with ExitStack() as cleanup:
        for name in names:
            ip("netns", "add", name)
            cleanup.callback(ip, "netns", "del", name)
        mtu = str(LINK_MTU)
        peer = ("peer", "name", "eth0", "mtu", mtu, "netns", names[1])
        ip("-n", names[0], "link", "add", "eth0", "mtu", mtu, "type", "veth", *peer)
        for name, address in zip(names, addresses, strict=True):
            whole = (f"{address}/24",) if family == "ipv4" else (f"{address}/64", "nodad")
            ip("-n", name, "addr", "add", whole[0], "dev", "eth0", *whole[1:])
            ip("-n", name, "link", "set", "eth0", "up")
        yield Side(spawner(names[0]), addresses[0]), Side(spawner(names[1]), addresses[1])


@contextmanager
def lab_hosts(box: Any, topology: str) -> Iterator[tuple[Side, Side]]:
    """The first hosts of the two segments of a rail-optimised lab: leaf, spine and leaf are between them."""
    with Lab.deploy(topology, name=box.name(), state=box.state, directory=box.work / "lab") as lab:
        box.note_daemons()

        def side(name: str) -> Side:
            def spawn(argv: Sequence[str]) -> subprocess.Popen[bytes]:
                pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
                return lab.node(name).spawn(argv, **pipes)

            return Side(spawn, lab.node(name).address("rail1"))

        yield side("p1-s1-h1"), side("p1-s2-h1")


@contextmanager
def captured(side: Side, interface: str, path: Path, *words: str) -> Iterator[None]:
    """Write to `path` the packets at a side's interface that tcpdump's filter passes, while the context lasts."""
    options = ("--immediate-mode", "-U", "-n", "-i", interface, "-w", str(path))
    tcpdump = side.spawn(["tcpdump", *options, *words])
    with ExitStack() as cleanup:
        cleanup.callback(tcpdump.communicate)
        cleanup.callback(tcpdump.kill)
        while b"listening on" not in (line := tcpdump.stderr.readline()):
            assert line, "tcpdump has ended"
        yield
        tcpdump.send_signal(signal.SIGINT)
        tcpdump.wait(PATIENCE_S)


def output_of(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
