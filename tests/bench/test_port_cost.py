"""What the full port set costs: CPU time of a forwarded packet over plain and shaped veths, and time at bring-up."""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path

import pytest
from figures import Figure, judge
from port_lab import PIPES
from test_bring_up import deploy_and_destroy

from testbed.base.datapath import pins
from testbed.base.linux import syscalls
from testbed.lab.core.drivers.netlink.port_programs import PortInstaller
from testbed.lab.core.drivers.nodes.netns import NetnsKernel
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.operations import (
    AddAddress,
    AddRoute,
    CreateNode,
    CreateVeth,
    InstallPort,
    Operation,
    SetSysctl,
    SetUp,
    ShapePort,
    VethEnd,
)
from testbed.lab.core.schema.load import load_topology_text

pytestmark = [pytest.mark.bench, pytest.mark.netns, pytest.mark.frr, pytest.mark.timeout(900)]

PUMP = Path(__file__).with_name("tcp_pump.py")
HOP_TIMER = Path(__file__).with_name("hop_timer.py")
HOPS = 4
WARM_UP_S = 0.5
MEASURE_S = 1.5
ROUNDS = 7
SENDS = 2000
PACED_US = 500.0
QOS = """
name: cost
scale: {time: 1}
fabric: {mtu: 1500}
qos:
  classes:
    rdma: {dscp: [26], lossless: true, weight: 60, ecn: {kmin: 100kB, kmax: 400kB, pmax: 1.0}}
    control: {dscp: [48], strict: true}
    bulk: {default: true, weight: 40}
topology:
  nodes:
    s1: {kind: switch, role: rail}
    h1: {kind: host}
    h2: {kind: host}
  links:
    - {endpoints: ["h1:eth1", "s1:eth1"], rate: 10G}
    - {endpoints: ["h2:eth1", "s1:eth2"], rate: 10G}
"""


@contextmanager
def chain(name: str, cpu: int, *, ports: bool, shaped: bool = False, qos_text: str = QOS) -> Iterator[NetnsKernel]:
    """h - s1 - ... - z with static routes, all of it received on one CPU; `ports`: with the full port set.

    `shaped` ports have HTB at the same rate, and nothing else. `qos_text` is the topology whose QoS full ports have.
    """
    nodes = ["h", *(f"s{number}" for number in range(1, HOPS + 1)), "z"]
    kernel = NetnsKernel(name)
    run = Path(f"/run/testbed-bench-{name}-{os.getpid()}")
    identities = {}
    try:
        identities = dict(kernel.create_nodes([CreateNode(node=node, cpu_slot=cpu) for node in nodes]))
        kernel.publish()
        operations, installs = _chain_operations(nodes, qos_text)
        if ports:
            qos = plan_lab(load_topology_text(qos_text, file="cost"), k=1).qos
            assert qos is not None
            kernel.use_data_path(PortInstaller.load(pins.lab_directory(run), qos, installs))
        kernel.apply([one for item in operations if (one := _realised(item, ports=ports, shaped=shaped)) is not None])
        yield kernel
    finally:
        kernel.remove(identities)
        kernel.close()
        pins.unmount(pins.lab_directory(run))
        if run.exists():
            pins.lab_directory(run).rmdir()
            run.rmdir()


def _realised(item: Operation, *, ports: bool, shaped: bool) -> Operation | None:
    """What stands for an operation in this chain: a full port, a shaped one, or none."""
    if ports or not isinstance(item, InstallPort):
        return item
    if not shaped:
        return None
    return ShapePort(
        node=item.node, name=item.name, ifindex=item.ifindex, rate_bps=item.rate_bps, burst_bytes=item.burst_bytes
    )


def _chain_operations(nodes: list[str], qos_text: str) -> tuple[list[Operation], list[InstallPort]]:
    operations: list[Operation] = [SetSysctl(node=node, key="net/ipv4/ip_forward", value="1") for node in nodes[1:-1]]
    operations += [
        SetSysctl(node=node, key="net/ipv4/fib_multipath_hash_policy", value="1", optional=True) for node in nodes[1:-1]
    ]
    qos = plan_lab(load_topology_text(qos_text, file="cost"), k=1).qos
    assert qos is not None
    switch = next(index for index, item in enumerate(qos.profiles) if item.switch)
    host = next(index for index, item in enumerate(qos.profiles) if not item.switch)
    installs: list[InstallPort] = []
    local: list[Operation] = []
    for number, (left, right) in enumerate(itertools.pairwise(nodes)):
        ends = []
        for side, node in enumerate((left, right)):
            ifindex, port = 3 - side, 2 * number + side + 1
            mac = f"02:00:00:00:{number:02x}:{side:02x}"
            ends.append(VethEnd(node=node, name=f"e{ifindex}", ifindex=ifindex, mac=mac))
            is_switch = node.startswith("s")
            installs.append(
                InstallPort(
                    node=node,
                    name=f"e{ifindex}",
                    ifindex=ifindex,
                    port=port,
                    peer=port + 1 - 2 * side,
                    rate_bps=10_000_000_000,
                    burst_bytes=625_000,
                    mtu_bytes=1500,
                    profile=switch if is_switch else host,
                    buffer=1 if is_switch else 0,
                    switch=is_switch,
                    seed=number,
                )
            )
            address = IPv4Interface(f"10.9.{number}.{side + 1}/30")
            local += [
                installs[-1],
                SetUp(node=node, name=f"e{ifindex}", ifindex=ifindex),
                AddAddress(node=node, name=f"e{ifindex}", ifindex=ifindex, address=address),
            ]
        operations.append(CreateVeth(a=ends[0], b=ends[1], mtu_bytes=1500, queue_packets=100_000))
    everywhere = IPv4Network("0.0.0.0/0")
    for number, node in enumerate(nodes[:-1]):
        gateway = IPv4Address(f"10.9.{number}.2")
        local.append(AddRoute(node=node, destination=everywhere, gateway=gateway, ifindex=3, table=254))
    back = IPv4Network("10.9.0.0/30")
    for number, node in enumerate(nodes[2:], 1):
        gateway = IPv4Address(f"10.9.{number}.1")
        local.append(AddRoute(node=node, destination=back, gateway=gateway, ifindex=2, table=254))
    return [*operations, *local], installs


def cpu_per_packet_us(kernel: NetnsKernel, name: str, cpu: int) -> float:
    """CPU time of a packet and hop of a TCP flow that has all of one CPU and nothing else, in us.

    Sender, switches and receiver share the CPU, and TCP sends as much as it carries: so all of its time is in the
    packets.
    """
    address = f"10.9.{HOPS}.2"
    with ExitStack() as stack:

        def start(node: str, verb: str) -> subprocess.Popen[bytes]:
            argv = ["taskset", "-c", str(cpu), "ip", "netns", "exec", f"{name}-{node}", sys.executable, str(PUMP)]
            process = subprocess.Popen([*argv, verb, address, "9000"], **PIPES)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        receiver = start("z", "receive")
        assert receiver.stdout is not None and receiver.stdout.readline() == b"ready\n"
        start("h", "send")
        time.sleep(WARM_UP_S)
        before, started = packet_hops(kernel), time.monotonic()
        time.sleep(MEASURE_S)
        packets, elapsed = packet_hops(kernel) - before, time.monotonic() - started
    return elapsed / packets * 1e6


def send_us(name: str, cpu: int, gap_us: float) -> float:
    """What sending a datagram through the whole chain takes, in us and as the median: one every `gap_us`, or in bulk.

    The ports of all nodes receive on the sender's CPU, so the kernel forwards the datagram to its end before the
    sender's system call returns. Data is of the lossless class, and may be marked.
    """
    argv = ["taskset", "-c", str(cpu), "ip", "netns", "exec", f"{name}-h", sys.executable, str(HOP_TIMER)]
    words = [f"10.9.{HOPS}.2", "9001", str(26 << 2 | 2), str(gap_us), str(SENDS)]
    done = subprocess.run([*argv, *words], check=True, capture_output=True, text=True, timeout=60)
    return float(done.stdout)


@contextmanager
def draining(name: str) -> Iterator[None]:
    """A socket at the end of the chain that takes what arrives."""
    argv = ["ip", "netns", "exec", f"{name}-z", sys.executable, str(PUMP.with_name("udp_flow.py")), "sink", "9001"]
    process = subprocess.Popen(argv, **PIPES)
    try:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.kill()
        process.wait()


def packet_hops(kernel: NetnsKernel) -> int:
    """Packets that the switches of a chain have received, in both directions."""

    def count() -> int:
        total = 0
        for number in range(1, HOPS + 1):
            syscalls.setns(kernel.namespace(f"s{number}").fd, syscalls.CLONE_NEWNET)
            for line in Path("/proc/thread-self/net/dev").read_text().splitlines()[2:]:
                interface, _, fields = line.partition(":")
                if interface.strip() != "lo":
                    total += int(fields.split()[1])
        return total

    return syscalls.in_thread(count)


def test_cost_of_a_forwarded_packet() -> None:
    *_, cpu = sorted(os.sched_getaffinity(0))
    slot = sorted(os.sched_getaffinity(0)).index(cpu)
    plain, full = [], []
    with chain("costplain", slot, ports=False) as without_ports, chain("costports", slot, ports=True) as with_ports:
        for _ in range(ROUNDS):
            plain.append(cpu_per_packet_us(without_ports, "costplain", cpu))
            full.append(cpu_per_packet_us(with_ports, "costports", cpu))
    print("us a packet and hop, plain:", plain, "with ports:", full)
    without, extra = statistics.median(plain), statistics.median(full) - statistics.median(plain)
    judge(
        Figure("TCP over plain veths, a packet and hop", without, at_most=10, unit="us"),
        Figure("the full port set on top, a packet and hop", extra, at_most=1.5, unit="us"),
    )


def test_cost_of_a_port_over_a_bare_shaped_hop() -> None:
    """What classes, gates, eBPF and accounts add to HTB alone: in bulk, and where every packet finds caches cold."""
    *_, cpu = sorted(os.sched_getaffinity(0))
    slot = sorted(os.sched_getaffinity(0)).index(cpu)
    uncounted = QOS.replace("qos:\n", "qos:\n  marks_account: false\n")
    names = ("costshaped", "costports", "costnoacct")
    took: dict[tuple[str, float], list[float]] = {(name, gap): [] for name in names for gap in (0.0, PACED_US)}
    with ExitStack() as stack:
        stack.enter_context(chain(names[0], slot, ports=False, shaped=True))
        stack.enter_context(chain(names[1], slot, ports=True))
        stack.enter_context(chain(names[2], slot, ports=True, qos_text=uncounted))
        for name in names:
            stack.enter_context(draining(name))
        for _, (name, gap) in itertools.product(range(ROUNDS), took):
            took[name, gap].append(send_us(name, cpu, gap) / HOPS)
    print("us a packet and hop:", took)

    def over(name: str, other: str, gap: float) -> float:
        return statistics.median(a - b for a, b in zip(took[name, gap], took[other, gap], strict=True))

    judge(
        Figure("a port over a bare shaped hop, bulk", over(*names[1::-1], 0.0), at_most=1.5, unit="us"),
        Figure("a port over a bare shaped hop, paced", over(*names[1::-1], PACED_US), at_most=4, unit="us"),
        Figure("of it the account of marks, paced", over(*names[1:], PACED_US), at_most=0.5, unit="us"),
    )


@pytest.mark.thorough  # an absolute figure: a slow host shows through
def test_bring_up_with_the_full_port_set(tmp_path: Path) -> None:
    topology = "topologies/rail-optimized-1024.yml"
    off = "fabric.routing.bfd=off"
    eight = ", ".join(_traffic_class(number) for number in range(8))
    without, _, _ = deploy_and_destroy(topology, "benchnoqos", tmp_path, off)
    three, _, _ = deploy_and_destroy(topology, "benchqos3", tmp_path, off, "qos={preset: uec}")
    many, destroy, _ = deploy_and_destroy(topology, "benchqos8", tmp_path, off, f"qos={{classes: {{{eight}}}}}")
    judge(
        Figure("1,024 NICs, 2,560 ports with 3 classes: adds", three - without, at_most=3, unit="s"),
        Figure("1,024 NICs, 2,560 ports with 8 classes: adds", many - without, at_most=6, unit="s"),
        Figure("1,024 NICs, 2,560 ports with 8 classes: destroy", destroy, at_most=4, unit="s"),
    )


def _traffic_class(number: int) -> str:
    """One of eight, two of them lossless; the weights are 100 in all."""
    weight = 12 if number % 2 else 13
    kind = "default: true" if number == 0 else f"lossless: {str(number in (3, 4)).lower()}"
    return f"c{number}: {{dscp: [{number * 8}], pcp: {number}, weight: {weight}, {kind}}}"
