"""Two namespaces joined by a veth, a program on each side with a CPU of its own, and figures of sides that take turns.

Other work on the machine takes more from one round than from another. Hence a ratio is the median of those of each
round, in which both sides of it have their turn one after the other.
"""

from __future__ import annotations

import os
import statistics
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

PATIENCE_S = 60
CPUS = sorted(os.sched_getaffinity(0))[:2]
NEEDS_TWO_CPUS = pytest.mark.skipif(len(CPUS) < 2, reason="two sides need two CPUs")
PIPES: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


@dataclass(frozen=True, slots=True)
class Pair:
    """The names of the two namespaces, each with an `eth0`."""

    near: str
    far: str

    def start(self, namespace: str, *argv: str) -> subprocess.Popen[str]:
        """Each side has a CPU of its own: on the same one, a wake-up costs a quarter, and polling is pointless."""
        cpu = CPUS[namespace == self.far]
        return subprocess.Popen(["taskset", "-c", str(cpu), "ip", "netns", "exec", namespace, *argv], **PIPES)

    @contextmanager
    def serving(self, *argv: str, until: str) -> Iterator[subprocess.Popen[str]]:
        """A server on the far side, from when it has printed a line with `until`."""
        process = self.start(self.far, *argv)
        try:
            assert process.stdout is not None and process.stderr is not None
            for line in process.stdout:
                if until in line:
                    break
            else:
                pytest.fail(process.stderr.read())
            yield process
        finally:
            process.kill()
            process.communicate()

    def client(self, *argv: str) -> str:
        """What a program on the near side prints."""
        return finished(self.start(self.near, *argv))


def finished(process: subprocess.Popen[str]) -> str:
    """What it prints, if it ends well."""
    out, problem = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, f"{out}\n{problem}"
    return out


@contextmanager
def joined(prefix: str, near: str, far: str, mtu: int) -> Iterator[Pair]:
    """Both sides with their addresses, up, and removed at the end; `prefix` is of their names."""

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    pair = Pair(f"{prefix}{os.getpid()}a", f"{prefix}{os.getpid()}b")
    with ExitStack() as cleanup:
        for name in (pair.near, pair.far):
            ip("netns", "add", name)
            cleanup.callback(ip, "netns", "del", name)
        peer = ("peer", "name", "eth0", "mtu", str(mtu), "netns", pair.far)
        ip("-n", pair.near, "link", "add", "eth0", "mtu", str(mtu), "type", "veth", *peer)
        for name, address in ((pair.near, near), (pair.far, far)):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
        yield pair


def in_turns(rounds: int, first: Callable[[], float], second: Callable[[], float]) -> tuple[list[float], list[float]]:
    """The figures of both, one after the other in each round; who begins changes, since machines tire in a round."""
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        for place in (0, 1) if number % 2 else (1, 0):
            found[place].append((first, second)[place]())
    return found


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Of each round's two figures."""
    return statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))
