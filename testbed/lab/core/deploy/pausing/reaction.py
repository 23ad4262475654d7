"""The time that pausing takes on this machine, measured once a boot: the headroom of lossless queues follows from it.

A host sends ten times what the port behind a switch carries, so that its class is paused some hundred times, while
processes keep all CPUs busy. What counts is the time from the crossing of XOFF to the closed gate.

What it takes is journalled like a lab's, so that the next measurement or `destroy` removes what a killed one left.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, closing, suppress
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path

import msgspec

from testbed.base.cleanup import end_at_once
from testbed.base.datapath import pins
from testbed.base.datapath.abi import BalancingMode
from testbed.base.datapath.traffic_class import ClassPlan
from testbed.base.errors import DriverError
from testbed.base.linux import syscalls
from testbed.base.linux.namespaces import NETNS_DIRECTORY
from testbed.base.linux.rtnetlink import RouteSocket
from testbed.base.names import namespace_name
from testbed.daemons.portd.attachment import LabAttachment, PortAttachment
from testbed.daemons.portd.client import PauseAgent
from testbed.lab.core.deploy.records.files import write_state
from testbed.lab.core.deploy.records.journal import Journal, boot_id
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.drivers.netlink import netem as wire
from testbed.lab.core.drivers.netlink.port_programs import PortInstaller
from testbed.lab.core.drivers.nodes.netns import NetnsKernel
from testbed.lab.core.model import Lab
from testbed.lab.core.model.qos import HashEngine
from testbed.lab.core.plan.operations import (
    AddAddress,
    AddRoute,
    CreateNode,
    CreateVeth,
    InstallPort,
    Operation,
    SetSysctl,
    SetUp,
    VethEnd,
)
from testbed.lab.core.plan.qos.planner import QUEUE_PACKETS
from testbed.lab.core.plan.qos.qos_plan import BufferPlan, PortProfile, QosTables
from testbed.lab.core.plan.qos.shaping import burst_bytes
from testbed.lab.core.plan.stable import DEFAULT_REACTION_NS

MEASURE_S = 0.5
TRIES = 3
"""The middle one counts: a job of somebody else may hold one of them up."""
SAFETY = 3
"""The headroom is for three times the longest reaction seen: hundreds are measured, a run has thousands."""
CALMER = 0.5
"""A measurement beside others is made again once the machine has at most this share of the load."""
LEAST_NS = 4_000_000
"""A kernel that is busy with packets lets nobody run for some ms at a time, which a second of measuring may miss."""
FASTEST_BPS, SLOWEST_BPS = 200_000_000, 20_000_000
SLOWER_BPS = 2_000_000
"""Behind the switch where this machine cannot send `SLOWEST_BPS`: one that is itself emulated."""
MTU_BYTES = 1500
XOFF_BYTES, XON_BYTES, HEADROOM_BYTES = 20_000, 12_000, 1_000_000
PRIORITY = 3
_RECORD = "measuring"
"""Directory of the journal in the state directory; it is there while something of a measurement is."""
_RUN_PREFIX = "testbed-"
_SINK = ("10.0.1.1", 9)
_PORTS = (("a", 2, "10.0.0.1"), ("s", 2, "10.0.0.2"), ("s", 3, "10.0.1.2"), ("b", 2, "10.0.1.1"))
"""Node, ifindex and address of ports 1 to 4; 1 and 2 are a link, 3 and 4 another."""


def has_lossless(lab: Lab) -> bool:
    """Tell whether any class of a lab is lossless: without one nothing pauses."""
    profiles = [profile for policy in lab.policies for profile in policy.profiles]
    return any(item.lossless for profile in profiles for item in profile.classes)


def planned_reaction_ns(lab: Lab, state: StateDirectory, *, measure: bool = True) -> int:
    """The reaction that the headrooms of `lab` are planned for, in ns of lab time.

    Not `measure`: what is known, and a usual figure where it was not measured since boot.
    """
    if not has_lossless(lab):
        return DEFAULT_REACTION_NS
    kept = _read_kept(state)
    if not measure:
        return DEFAULT_REACTION_NS if kept is None else kept.planned_ns
    if kept is None or kept.is_doubtful(_load()):
        state.prepare(run=False)
        with state.lock_measurement():
            kept = _read_kept(state)  # another command may have measured while we waited for it
            load = _load()
            if kept is None or kept.is_doubtful(load):
                longest = _measure(state)
                if kept is not None:
                    longest = min(longest, kept.longest_ns)
                kept = _Kept(key=_key(), longest_ns=longest, load=load)
                write_state(_kept_path(state), msgspec.json.encode(kept).decode())
    return kept.planned_ns


class _Kept(msgspec.Struct, kw_only=True, frozen=True):
    """A measurement, what it holds for, and the load of the minute before, in tasks (proc_loadavg(5))."""

    key: str
    longest_ns: int
    load: float

    @property
    def planned_ns(self) -> int:
        return max(LEAST_NS, SAFETY * self.longest_ns)

    def is_doubtful(self, load: float) -> bool:
        """Tell whether others may have made it long who are there no more: XOFF and headrooms would depend on them."""
        return self.planned_ns > LEAST_NS and load <= CALMER * self.load


def _load() -> float:
    return os.getloadavg()[0]


def _kept_path(state: StateDirectory) -> Path:
    return state.state / "pause-reaction.json"


def _key() -> str:
    """Return what a measurement holds for."""
    return f"{boot_id()} {platform.release()} {len(os.sched_getaffinity(0))}"


def _read_kept(state: StateDirectory) -> _Kept | None:
    """The longest reaction as measured since boot; None where it was not, or by another version."""
    try:
        kept = msgspec.json.decode(_kept_path(state).read_bytes(), type=_Kept)
    except (OSError, msgspec.DecodeError):
        return None
    return kept if kept.key == _key() else None


def undo_killed_measurement(state: StateDirectory) -> None:
    """Remove what a measurement left that was killed. One that is under way stays."""
    with ExitStack() as held:
        try:
            held.enter_context(state.lock_measurement(wait=False))
        except BlockingIOError:
            return
        _undo(state)


def _undo(state: StateDirectory) -> None:
    """Remove what the journal knows, then the journal. Call with the measurement locked."""
    record = state.state / _RECORD
    if not record.is_dir():
        return
    content = Journal(record).read()
    for run in content.paths:
        PauseAgent(run).stop()
        NetnsKernel(run.name.removeprefix(_RUN_PREFIX)).remove(content.identities)
        pins.unmount(pins.lab_directory(run))
        shutil.rmtree(run, ignore_errors=True)
    shutil.rmtree(record)


def _measure(state: StateDirectory) -> int:
    """The longest of some hundred reactions with all CPUs busy, in ns. Takes two seconds."""
    _undo(state)
    lab = f"reaction-{os.getpid()}"
    run = Path("/run", _RUN_PREFIX + lab)
    journal = Journal(state.state / _RECORD)
    kernel = NetnsKernel(lab)
    try:
        journal.path(run)
        run.mkdir()
        journal.nodes(kernel.create_nodes([CreateNode(node=node, cpu_slot=slot) for slot, node in enumerate("asb")]))
        kernel.publish()
        installs = [_install(number) for number in range(1, len(_PORTS) + 1)]
        kernel.use_data_path(PortInstaller.load(pins.lab_directory(run), _qos(), installs))
        kernel.apply(_operations(installs))
        agent = PauseAgent(run)
        agent.attach(_attachment(lab, run, installs))
        longest = _longest_ns(agent, lab, kernel)
        if longest is None:
            _slow_down(kernel)
            longest = _longest_ns(agent, lab, kernel)
    finally:
        kernel.close()
        _undo(state)
    if longest is None:
        raise DriverError("no pause frame was answered while the pause reaction was measured", operation="calibrate")
    return longest


def _longest_ns(agent: PauseAgent, lab: str, kernel: NetnsKernel) -> int | None:
    """The middle one of some tries; None where one had nothing to pause."""
    longest = []
    for _ in range(TRIES):
        agent.reset()
        _overload(kernel)
        reaction = agent.status().labs[lab].reaction
        if not reaction.count:
            return None
        longest.append(int(reaction.max_ns))
    return sorted(longest)[TRIES // 2]


def _slow_down(kernel: NetnsKernel) -> None:
    """Take the port behind the switch down to `SLOWER_BPS`."""
    ifindex = _PORTS[2][1]

    def change() -> None:
        syscalls.setns(kernel.namespace("s").fd, syscalls.CLONE_NEWNET)
        with closing(RouteSocket()) as route:
            classes = wire.read_classes(route, ifindex)
            batch = wire.change_rate(ifindex, classes, SLOWER_BPS, SLOWEST_BPS)
            route.expect(batch, ["rate while the pause reaction is measured"] * len(batch))

    syscalls.in_thread(change)


def _qos() -> QosTables:
    lossless = ClassPlan(
        priority=PRIORITY,
        name="lossless",
        strict=False,
        weight=100,
        quantum_bytes=MTU_BYTES + 14,
        lossless=True,
        limit_bytes=1 << 26,
        reserved_bytes=0,
        alpha=0,
        xoff_bytes=XOFF_BYTES,
        xon_bytes=XON_BYTES,
        headroom_bytes=HEADROOM_BYTES,
    )
    profile = PortProfile(
        profile=0,
        switch=True,
        rate_bps=SLOWEST_BPS,
        mtu_bytes=MTU_BYTES,
        bdp_bytes=0,
        classes=(lossless,),
        class_of_dscp=(PRIORITY,) * 64,
        control_class=PRIORITY,
        trimmed_class=PRIORITY,
        trimming=False,
    )
    buffer = BufferPlan(
        node="",
        shared_bytes=0,
        headroom_bytes=0,
        mode=BalancingMode.FLOW,
        hash=HashEngine.EBPF,
        gap_ns=0,
        seed=1,
    )
    return QosTables(profiles=(profile,), buffers=(buffer,))


def _install(number: int) -> InstallPort:
    node, ifindex, _ = _PORTS[number - 1]
    rate_bps = SLOWEST_BPS if number == 3 else FASTEST_BPS
    return InstallPort(
        node=node,
        name=f"e{ifindex}",
        ifindex=ifindex,
        port=number,
        peer=number + 1 if number % 2 else number - 1,
        rate_bps=rate_bps,
        burst_bytes=burst_bytes(rate_bps),
        mtu_bytes=MTU_BYTES,
        profile=0,
        buffer=0,
        switch=node == "s",
        seed=1,
    )


def _mac(number: int) -> str:
    return f"02:00:00:00:00:{number:02x}"


def _operations(installs: list[InstallPort]) -> list[Operation]:
    ends = [
        VethEnd(node=node, name=f"e{ifindex}", ifindex=ifindex, mac=_mac(number))
        for number, (node, ifindex, _) in enumerate(_PORTS, 1)
    ]
    operations: list[Operation] = [SetSysctl(node="s", key="net/ipv4/ip_forward", value="1")]
    for a, b in ((ends[0], ends[1]), (ends[2], ends[3])):
        operations.append(CreateVeth(a=a, b=b, mtu_bytes=MTU_BYTES, queue_packets=QUEUE_PACKETS))
    for install, (node, ifindex, address) in zip(installs, _PORTS, strict=True):
        name = f"e{ifindex}"
        operations += [
            install,
            SetUp(node=node, name=name, ifindex=ifindex),
            AddAddress(node=node, name=name, ifindex=ifindex, address=IPv4Interface(f"{address}/30")),
        ]
    everything = IPv4Network("0.0.0.0/0")
    for node, gateway in (("a", "10.0.0.2"), ("b", "10.0.1.2")):
        operations.append(
            AddRoute(node=node, destination=everything, gateway=IPv4Address(gateway), ifindex=2, table=254)
        )
    return operations


def _attachment(lab: str, run: Path, installs: list[InstallPort]) -> LabAttachment:
    return LabAttachment(
        lab=lab,
        pin_directory=pins.lab_directory(run),
        events_file=run / "events.jsonl",
        ports=tuple(
            PortAttachment(
                number=item.port,
                peer=item.peer,
                node=item.node,
                interface=item.name,
                namespace=str(NETNS_DIRECTORY / namespace_name(lab, item.node)),
                ifindex=item.ifindex,
                mac=_mac(item.port),
                rate_bps=item.rate_bps,
                mtu_bytes=item.mtu_bytes,
                lossless=(PRIORITY,),
            )
            for item in installs
        ),
    )


def _overload(kernel: NetnsKernel) -> None:
    """Send as fast as the port lets us, with every CPU busy."""
    with ExitStack() as stack:
        for _ in os.sched_getaffinity(0):
            stack.callback(end_at_once, _spinner())
        sink = stack.enter_context(kernel.open_socket("b", socket.SOCK_DGRAM))
        sink.bind(_SINK)
        sender = stack.enter_context(kernel.open_socket("a", socket.SOCK_DGRAM))
        sender.connect(_SINK)
        ended = threading.Event()
        thread = threading.Thread(target=_pump, args=(sender, ended), daemon=True)
        thread.start()
        thread.join(MEASURE_S)
        ended.set()
        thread.join()


def _spinner() -> subprocess.Popen[bytes]:
    """Keeps a CPU busy until it is ended, or its parent has."""
    return subprocess.Popen(
        [sys.executable, "-S", "-c", f"import os\nwhile os.getppid() == {os.getpid()}: pass"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _pump(sender: socket.socket, ended: threading.Event) -> None:
    sender.settimeout(0.2)
    data = bytes(MTU_BYTES - 28)
    while not ended.is_set():
        with suppress(OSError):  # the gate is closed
            sender.send(data)
