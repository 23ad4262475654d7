"""The cost to this machine of a data packet of a transport in user space, measured on a small lab of its own.

Eight hosts on one switch send to each other at a pace at which every packet finds all its processes asleep, as it is in
labs, over links that have a delay. Counted is the CPU time of the workers, so that what else the machine does does not
count; it includes both ends, acknowledgements, and waiting for what is due. What switches take is counted by
the hop (`lab.core.drivers.probing.calibration`); those of InfiniBand are one process, whose time is counted in.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base.errors import DriverError, TestbedError
from testbed.base.units import Duration, Rate
from testbed.lab.core.deploy.packet_costs import PacketCost, PacketCosts
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.drivers.probing.machine_probe import clock
from testbed.lab.core.model import Delay, End, Lab, Link, LinkKind, Node, NodeKind, Role, Scale
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.placed.lab import LiveLab, go_over_subnet, lab_of_transports
from testbed.run.schema.model import Transport
from testbed.run.transports.registry import transport_class
from testbed.workload.steps import Transfer, Workload

if TYPE_CHECKING:
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.run.emulated.workload_runner import WorkloadRunner

HOSTS = 8
LINK_RATE = Rate.parse("400G")
LINK_DELAY = Duration.parse("3us")
"""Both ways through one switch these are 12 us, the base RTT of a pod: that decides how many turns are taken."""
MTU_BYTES = 4500
K = 20_000.0
"""A NIC then sends 20 Mbit/s: a full packet every 1.7 ms, and all together 4,800 of them a second."""
MESSAGE_BYTES = 1_440_000
"""A host sends so much: 353 packets, in 0.6 s. With fewer, setting up and closing down would count for too much."""
TRIES = 2
"""The smallest counts: in the first one memory is new, and what else runs on the machine makes packets dearer."""
LIMIT_S = 10.0


def packet_cost(transport: Transport, state: StateDirectory, *, measure: bool = True) -> PacketCost | None:
    """Return the CPU time of a data packet of this transport, measured once for each machine and build.

    None where it is not known: in virtual time, where that took minutes, without root, without `measure` before it was
    ever measured, and where it cannot be measured.
    """
    if not transport_class(transport.kind).in_user_space or clock() == "virtual" or os.geteuid() != 0:
        return None
    costs = PacketCosts(state)
    variant = _variant(transport)
    name = variant.kind.value + ("+tss" if variant.options else "")
    kept = costs.find(name)
    if kept is not None or not measure:
        return kept
    try:
        us = measure_packet_us(variant, state)
    except TestbedError:
        return None
    return costs.keep(name, us)


def measure_packet_us(transport: Transport, state: StateDirectory) -> float:
    """Measure the CPU time of a data packet in us, on a lab that is there for three seconds.

    Raises `TestbedError` where it cannot be deployed, or its traffic does not end.
    """
    import tempfile

    from testbed.run.emulated.workers import SharedWorkers
    from testbed.run.emulated.workload_runner import WorkloadRunner

    model = _small_lab(f"cost-{os.getpid()}", transport)
    with (
        tempfile.TemporaryDirectory(prefix="testbed-cost-") as directory,
        _deployed(model, state, directory) as running,
    ):
        lab: LiveLab = running
        others: list[int] = []
        if model.infiniband is not None:
            from testbed.run.placed.subnet_lab import SubnetLab

            lab = subnet = SubnetLab(running)
            others.append(int(subnet.wires.status()["pid"]))
        nics = [nic for host in lab.plan.hosts for nic in host.nics]
        steps = tuple(
            Transfer(number=rank, source=rank, destination=(rank + 1) % HOSTS, size_bytes=MESSAGE_BYTES)
            for rank in range(HOSTS)
        )
        workload = Workload(name="packet cost", steps=steps, ranks=HOSTS)
        hosts = [host.node for host in lab.plan.hosts]
        with SharedWorkers() as shared, WorkloadRunner(lab, transport, hosts=hosts, shared=shared) as runner:
            return min(_measure(runner, workload, nics, others) for _ in range(TRIES))


def _measure(runner: WorkloadRunner, workload: Workload, nics: Sequence[PortPlan], others: Sequence[int]) -> float:
    """Run the workload once, and return the CPU time of its workers, and of `others`, by data packet in us. Raises
    `TestbedError`."""
    from testbed.run.emulated.workload_runner import WorkloadRunOptions

    spent: list[float] = []

    @contextlib.contextmanager
    def around() -> Iterator[None]:
        pids = {*others, *(pid for nic in nics if (pid := runner.pid(nic.node)) is not None)}
        before = sum(map(_cpu_s, pids))
        yield
        spent.append(sum(map(_cpu_s, pids)) - before)

    result = runner.run(workload, nics, WorkloadRunOptions(limit_s=LIMIT_S, around=around))
    if result.failure is not None:
        raise result.failure
    packets = sum(channel.packets or 0 for channel in result.channels)
    if not packets or not spent or result.interrupted:
        raise DriverError("no packet was counted", operation="measure the cost of a packet")
    return spent[0] / packets * 1e6


@contextlib.contextmanager
def _deployed(model: Lab, state: StateDirectory, directory: str) -> Iterator[RunningLab]:
    """A lab that is there for as long as it is needed."""
    from testbed.lab.core.deploy.lifecycle import DeployOptions, deploy_lab, destroy_lab

    options = DeployOptions(k=K, routing=False, wait=False, directory=Path(directory))
    outcome = deploy_lab(model, state, options)
    try:
        yield outcome.lab
    finally:
        destroy_lab(model.name, state)


def _small_lab(name: str, transport: Transport) -> Lab:
    hosts = [f"h{number}" for number in range(1, HOSTS + 1)]
    nodes = [Node(name="s1", kind=NodeKind.SWITCH, role=Role.RAIL)] + [
        Node(name=one, kind=NodeKind.HOST) for one in hosts
    ]
    links = [
        Link(
            a=End(node=one, interface="eth1"),
            b=End(node="s1", interface=f"eth{number}"),
            kind=LinkKind.ROUTED,
            rate=LINK_RATE,
            mtu_bytes=MTU_BYTES,
            delay=Delay(value=LINK_DELAY),
        )
        for number, one in enumerate(hosts, start=1)
    ]
    lab = Lab(name=name, nodes=tuple(nodes), links=tuple(links), scale=Scale(time=K))
    if not go_over_subnet([transport]):
        return lab
    return replace(lab_of_transports(lab, [transport]), nodes=tuple(lab.hosts), links=())


def _variant(transport: Transport) -> Transport:
    """Return the transport with what changes the cost of a packet alone: encryption."""
    secured = bool(transport.options.get("tss", False))
    return Transport(kind=transport.kind, options={"tss": True} if secured else {})


def _cpu_s(pid: int) -> float:
    """CPU time of all threads of a process (s). The kernel's account by the ns is taken rather than that by ticks."""
    try:
        return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9
    except (OSError, ValueError, IndexError) as error:
        raise DriverError(f"the CPU time of process {pid} cannot be read: {error}", operation="measure") from None
