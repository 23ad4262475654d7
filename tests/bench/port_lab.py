"""Labs for the port benchmarks: a topology from text, deployed for real, with senders, sinks and counters at hand."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from testbed.api import Lab
from testbed.base.datapath.abi import CLASSES
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory

FLOW = Path(__file__).with_name("udp_flow.py")
PAYLOAD = 1472
FRAME = PAYLOAD + 42
SINK_PORT = 9000


class PortLab:
    """A running lab with `qos:`."""

    def __init__(self, running: RunningLab) -> None:
        self.running = running
        self.maps = running.maps()
        self.queues = self.maps.by_port("queues")
        self.ingress = self.maps.by_port("ingress")
        self.pauses = self.maps.by_port("pauses")
        self._numbers = running.plan.port_numbers

    def number(self, node: str, interface: str) -> int:
        return self._numbers[f"{node}:{interface}"]

    def ports(self, node: str) -> dict[str, int]:
        return {port.name: self.number(node, port.name) for port in self.running.plan.ports if port.node == node}

    def address(self, node: str, interface: str = "eth1") -> str:
        port = self.running.port(node, interface)
        return str(port.address.ip)

    def lossless_drops(self, priority: int) -> int:
        """Of a priority in all ports: by every cause there is."""
        columns = ("tail_packets", "buffer_packets", "wred_packets", "headroom_packets", "purged_packets")
        return int(sum(self.queues[column][:, priority].sum() for column in columns))

    def overshoot(self, priority: int) -> float:
        """The most that an ingress account of a priority went above XOFF, as a share of its headroom."""
        accounts = self.ingress[:, priority]
        guarded = accounts[accounts["xoff_bytes"] > 0]
        above = guarded["max_bytes"].astype("f8") - guarded["xoff_bytes"]
        return float((above / (guarded["limit_bytes"] - guarded["xoff_bytes"])).max())

    @contextmanager
    def sink(self, *nodes: str, port: int = SINK_PORT) -> Iterator[None]:
        with ExitStack() as stack:
            for node in nodes:
                process = self.running.spawn(node, [sys.executable, str(FLOW), "sink", str(port)], **PIPES)
                stack.callback(_end, process)
                assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            yield

    def send(
        self,
        node: str,
        destination: str,
        *,
        dscp: int,
        rate_bps: float,
        seconds: float,
        ecn: int = 0,
        flows: int = 1,
        first_port: int = 0,
    ) -> subprocess.Popen[bytes]:
        words = [destination, SINK_PORT, dscp << 2 | ecn, rate_bps, seconds, PAYLOAD, flows, first_port]
        return self.running.spawn(node, [sys.executable, str(FLOW), "send", *map(str, words)], **PIPES)

    def rates_bps(self, number: int, seconds: float) -> list[float]:
        """What each class of an egress port sends, measured over a time."""
        before = self.queues["out_bytes"][number].copy()
        started = time.monotonic()
        time.sleep(seconds)
        after = self.queues["out_bytes"][number].copy()
        elapsed = time.monotonic() - started
        return [float(after[item] - before[item]) * 8 / elapsed for item in range(CLASSES)]


PIPES: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(10)
    if process.stdout is not None:
        process.stdout.close()


def finish(senders: Sequence[subprocess.Popen[bytes]], timeout_s: float = 60) -> list[int]:
    """Packets that each sender sent."""
    counts = []
    for process in senders:
        out, _ = process.communicate(timeout=timeout_s)
        assert process.returncode == 0
        counts.append(int(out))
    return counts


@contextmanager
def deployed(text: str, directory: Path) -> Iterator[PortLab]:
    """The lab of a topology text, destroyed at the end whatever happens."""
    with Lab.deploy(text, directory=directory) as lab:
        port_lab = PortLab(RunningLab.open(lab.name, StateDirectory()))
        try:
            yield port_lab
        finally:
            port_lab.maps.close()


@contextmanager
def busy_cores(count: int) -> Iterator[None]:
    """Processes that use all of so many CPUs."""
    with ExitStack() as stack:
        for _ in range(count):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"], stdin=subprocess.DEVNULL)
            stack.callback(_end, process)
        yield
