"""The cost of forwarding a packet on this machine: measured once, because the time scale is chosen by it.

Two rows of a host, two switches and a host, ports shaped as a lab's are, offloads off. TCP fills them for a
moment while the CPU time of the whole machine is read. Shaped, because a packet that waits for its port's
timer costs several times one that does not.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from itertools import pairwise
from pathlib import Path

from testbed.lab.core.drivers.nodes.netns import NetnsKernel
from testbed.lab.core.plan.operations import (
    AddAddress,
    AddRoute,
    CreateNode,
    CreateVeth,
    Operation,
    SetSysctl,
    SetUp,
    ShapePort,
    VethEnd,
)
from testbed.lab.core.plan.qos.shaping import burst_bytes
from testbed.lab.core.plan.scale import MEASURED_MTU_BYTES

ROWS = 2
HOPS = 2
"""Switches on the way through a row."""
RATE_BPS = 300_000_000
WARM_UP_S = 0.1
BACKGROUND_S = 0.2
MEASURE_S = 0.4
QUIET_SHARE = 0.25
"""The share of the CPUs that others may take before the measurement without being its rivals."""
TRIES = 3
"""The smallest counts: a job of somebody else that ends meanwhile flatters a try, and too large a k harms nothing."""
_ROLES = ("a", "s", "t", "b")
_CHUNK_BYTES = 1 << 18


def measure_forwarding() -> float:
    """Measure the bit/s over one switch hop at full CPU, in packets of `MEASURED_MTU_BYTES`. Takes two seconds.

    A small load that was there before is taken off; a machine that others use looks smaller than it is. 0 where they
    left it no time to forward anything, which says nothing of the machine.
    """
    with contextlib.closing(NetnsKernel("calibration")) as kernel:
        nodes = [f"{role}{row}" for row in range(ROWS) for role in _ROLES]
        kernel.create_nodes([CreateNode(node=node, cpu_slot=slot) for slot, node in enumerate(nodes)])
        kernel.apply([operation for row in range(ROWS) for operation in _row(row)])
        tries = [_measure(kernel) for _ in range(TRIES)]
    return least_bits_per_cpu_s(tries) * HOPS * len(os.sched_getaffinity(0))


def least_bits_per_cpu_s(tries: Iterable[tuple[int, float]]) -> float:
    """Return the bits that a CPU second carries, of tries that each tell bits and CPU seconds: the least of those in
    which anything was carried, 0 without any."""
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    return min((bits / max(cpu_s, tick_s) for bits, cpu_s in tries if bits), default=0.0)


def _row(row: int) -> list[Operation]:
    """A chain a - s - t - b: 10.0.0.0/30, 10.0.1.0/30, 10.0.2.0/30, the same addresses in every row."""
    nodes = [f"{role}{row}" for role in _ROLES]
    operations: list[Operation] = [SetSysctl(node=node, key="net/ipv4/ip_forward", value="1") for node in nodes[1:3]]
    ports: list[tuple[str, int, str]] = []
    for number, (left, right) in enumerate(pairwise(nodes)):
        ends = []
        for side, node in enumerate((left, right)):
            ifindex = 3 if side == 0 and number else 2
            mac = f"02:00:00:{row:02x}:{number:02x}:{side:02x}"
            ends.append(VethEnd(node=node, name=f"e{ifindex}", ifindex=ifindex, mac=mac))
            ports.append((node, ifindex, f"10.0.{number}.{side + 1}/30"))
        operations.append(CreateVeth(a=ends[0], b=ends[1], mtu_bytes=MEASURED_MTU_BYTES))
    for node, ifindex, address in ports:
        name = f"e{ifindex}"
        operations += [
            ShapePort(node=node, name=name, ifindex=ifindex, rate_bps=RATE_BPS, burst_bytes=burst_bytes(RATE_BPS)),
            SetUp(node=node, name=name, ifindex=ifindex),
            AddAddress(node=node, name=name, ifindex=ifindex, address=IPv4Interface(address)),
        ]
    everything = IPv4Network("0.0.0.0/0")
    gateways = ("10.0.0.2", "10.0.1.2", "10.0.1.1", "10.0.2.1")
    for node, gateway, ifindex in zip(nodes, gateways, (2, 3, 2, 2), strict=True):
        operations.append(
            AddRoute(node=node, destination=everything, gateway=IPv4Address(gateway), ifindex=ifindex, table=254)
        )
    return operations


def _measure(kernel: NetnsKernel) -> tuple[int, float]:
    """(bits carried, CPU seconds of the machine) in the measured time."""
    counts = [0] * ROWS
    threads: list[threading.Thread] = []
    background = _background_load()
    with ExitStack() as stack:
        pairs = [_connect(kernel, row, stack) for row in range(ROWS)]
        for row, (sender, receiver) in enumerate(pairs):
            threads.append(threading.Thread(target=_pump, args=(sender,), daemon=True))
            threads.append(threading.Thread(target=_drain, args=(receiver, counts, row), daemon=True))
        for thread in threads:
            thread.start()
        threads[0].join(WARM_UP_S)
        before, cpu_before, started = sum(counts), _busy_s(), time.monotonic()
        threads[0].join(MEASURE_S)
        carried, elapsed = sum(counts) - before, time.monotonic() - started
        cpu_s = own_cpu_s(_busy_s() - cpu_before, background, elapsed, len(os.sched_getaffinity(0)))
        if elapsed < MEASURE_S:
            raise OSError("the calibration's connection broke")
        for pair in pairs:
            for item in pair:
                with suppress(OSError):
                    item.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
    return carried * 8, cpu_s


def own_cpu_s(busy_s: float, background: float, elapsed_s: float, cpus: int) -> float:
    """Return the CPU seconds that the measurement itself took, out of `busy_s` of the machine in `elapsed_s`.

    `background` is how many CPUs were busy before it began. So much is taken off only where it leaves most of the
    machine free: others that had every CPU before get less beside the measurement, and what they lost would count as
    not used at all.
    """
    return busy_s - background * elapsed_s if background < QUIET_SHARE * cpus else busy_s


def _background_load() -> float:
    """CPU seconds a second that the machine is busy without us."""
    before, started = _busy_s(), time.monotonic()
    threading.Event().wait(BACKGROUND_S)
    return (_busy_s() - before) / (time.monotonic() - started)


def _connect(kernel: NetnsKernel, row: int, stack: ExitStack) -> tuple[socket.socket, socket.socket]:
    listener = stack.enter_context(kernel.open_socket(f"b{row}", socket.SOCK_STREAM))
    listener.bind(("10.0.2.2", 0))
    listener.listen(1)
    sender = stack.enter_context(kernel.open_socket(f"a{row}", socket.SOCK_STREAM))
    sender.connect(listener.getsockname())
    return sender, stack.enter_context(listener.accept()[0])


def _busy_s() -> float:
    """CPU time that was not idle, of all CPUs (proc_stat(5): user, nice, system, irq, softirq)."""
    fields = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return (sum(fields[:3]) + sum(fields[5:7])) / os.sysconf("SC_CLK_TCK")


def _pump(sender: socket.socket) -> None:
    data = bytes(_CHUNK_BYTES)
    with suppress(OSError):
        while True:
            sender.sendall(data)


def _drain(receiver: socket.socket, counts: list[int], row: int) -> None:
    buffer = bytearray(_CHUNK_BYTES)
    with suppress(OSError):
        while size := receiver.recv_into(buffer):
            counts[row] += size
