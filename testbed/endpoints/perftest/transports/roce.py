"""Measuring RoCEv2 in user space: perftest's options as far as they mean something here, and queue pairs.

Numbers of queue pairs, their first PSNs, the rkey and the address of the memory go over the TCP connection of the
exchange, as perftest's do. A bandwidth tool posts to each queue pair as many operations as the tx depth allows; a
WRITE of a latency tool tells of its arrival by immediate data.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from secrets import randbelow
from typing import Any, Final

from testbed.endpoints.agent import Agent
from testbed.endpoints.perftest.arguments import Refused, in_range, parse_scale
from testbed.endpoints.perftest.errors import MismatchError, PerftestError
from testbed.endpoints.perftest.exchange import told
from testbed.endpoints.perftest.options import Options
from testbed.endpoints.perftest.tool import Tool, Verb
from testbed.endpoints.perftest.transport import (
    RECEIVES,
    MeasuredEndpoint,
    MeasuredTransport,
    MeasuringAgent,
    ToolMemory,
    TransportOptions,
)
from testbed.endpoints.sockets import Marking, SocketConfig
from testbed.protocols.congestion.registry import CONTROLLERS, DEFAULT_CONTROLLER
from testbed.protocols.errors import UsageError
from testbed.protocols.roce.config import LONGEST_TIMEOUT, MTUS, RoceConfig
from testbed.protocols.roce.memory import ADDRESS_LIMIT, ALL_ACCESS, RKEY_LIMIT
from testbed.protocols.roce.packets.headers import BTH_BYTES, IMMEDIATE_BYTES, PSN_MASK, RETH_BYTES
from testbed.protocols.roce.packets.icrc import ICRC_BYTES
from testbed.protocols.roce.packets.opcodes import Operation, Service
from testbed.protocols.roce.qp import QueuePair
from testbed.protocols.roce.recovery import DEFAULT_RECOVERY, RECOVERIES
from testbed.protocols.roce.rnic import LEAST_QPN, QPN_LIMIT, Rnic
from testbed.protocols.roce.work import CompletionQueue, ReceiveRequest, RemoteBuffer, WorkRequest

_UDP_BYTES: Final = 8
_DEFAULT_TCLASS: Final = 26 << 2
_NOTHING: Final = memoryview(bytearray())
"""The receive of a WRITE with immediate data, whose data lands elsewhere."""
_REFUSED: Final = {
    ("-d", "--ib-dev"): "an RNIC is an address of this host: -i",
    ("-R", "--rdma_cm"): "queue pairs are connected over the tool's own TCP connection",
    ("-S", "--sl"): "nothing here tells packets apart by a service level: --tclass chooses their class",
    ("-T", "--tos"): "it is for rdma_cm: --tclass chooses the class of packets",
}
"""Options of perftest that mean nothing here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoceOptions(TransportOptions):
    """The options that only RoCE has."""

    config: RoceConfig
    dscp: int
    """The DSCP of data and acknowledgements."""
    notification_dscp: int
    """The DSCP of CNPs."""

    @property
    def connection_type(self) -> str:
        return Service.RC.name

    @property
    def details(self) -> tuple[tuple[str, str], tuple[str, str], tuple[str, str]]:
        return (
            ("Parameters", self.parameters or "none"),
            ("Loss recovery", self.config.recovery),
            ("Out of order", "ON" if self.config.ooo else "OFF"),
        )

    @property
    def parameters(self) -> str:
        """The set of parameters that the congestion control has; "": it has none."""
        return self.config.parameters or next(iter(CONTROLLERS[self.config.cc].parameter_sets), "")

    def compared(self) -> dict[str, Any]:
        return {
            "--parameters": self.parameters,
            "--recovery": self.config.recovery,
            "--ooo": self.config.ooo,
            "--time-scale": self.config.time_scale,
        }

    def test_info(self) -> dict[str, Any]:
        return {
            "Parameters": self.parameters,
            "Loss_recovery": self.config.recovery,
            "Out_of_order": self.config.ooo,
            "QP_timeout": self.config.timeout,
            "Outstand_reads": self.config.most_reads,
            "Traffic_class": self.dscp << 2,
        }


class _Transport(MeasuredTransport):
    __slots__ = ()

    def add_options(self, add: Any, tool: Tool) -> None:
        add("-c", "--connection", choices=(Service.RC.name,), default=Service.RC.name, help="RC is all there is")
        mtu_help = "path MTU: payload of a full packet (%(default)s)"
        add("-m", "--mtu", type=int, choices=MTUS, default=MTUS[-1], help=mtu_help)
        timeout_help = "the peer has 4.096 us * 2^N to answer, 0: for ever (%(default)s)"
        timeout = in_range(0, LONGEST_TIMEOUT)
        add("-u", "--qp-timeout", type=timeout, default=RoceConfig().timeout, metavar="N", help=timeout_help)
        outs_help = "READs and atomic operations of a queue pair under way (%(default)s)"
        if tool.verb in (Verb.READ, Verb.ATOMIC):
            add("-o", "--outs", type=in_range(1, 128), default=16, metavar="NUM", help=outs_help)
        sets = list(dict.fromkeys(name for one in CONTROLLERS.values() for name in one.parameter_sets))
        add("--parameters", choices=sets, default="", help="set of parameters of the congestion control")
        add("--recovery", choices=tuple(RECOVERIES), default=DEFAULT_RECOVERY, help="of losses (%(default)s)")
        add("--ooo", action="store_true", help="WRITEs are placed as they come: no packet out of order is a loss")
        tclass_help = "traffic class of data and acknowledgements; its ECN bits are the NIC's (%(default)s)"
        add("--tclass", type=in_range(0, 255), default=_DEFAULT_TCLASS, metavar="BYTE", help=tclass_help)
        add("--cnp-dscp", type=in_range(0, 63), default=48, metavar="DSCP", help="of CNPs (%(default)s)")
        scale_help = "how much slower the lab is than its model: times of the hardware are so much longer (1)"
        add("--time-scale", type=parse_scale, default=1.0, metavar="K", help=scale_help)
        add("-x", "--gid-index", metavar="INDEX", help="accepted for perftest's sake: the address is the GID")
        for names, reason in _REFUSED.items():
            add(*names, action=Refused, reason=reason)

    def read_options(self, given: argparse.Namespace, tool: Tool, parser: argparse.ArgumentParser) -> RoceOptions:
        if tool.latency and given.qp != 1:
            parser.error("-q: a latency tool has one queue pair")
        usual = RoceConfig()
        try:
            config = RoceConfig(
                link_rate_bps=given.rate,
                base_rtt_ns=given.base_rtt,
                time_scale=given.time_scale,
                mtu=given.mtu,
                recovery=given.recovery,
                ooo=given.ooo,
                cc=given.cc,
                parameters=given.parameters,
                timeout=given.qp_timeout,
                most_reads=getattr(given, "outs", usual.most_reads),
                most_posted=max(usual.most_posted, 2 * getattr(given, "tx_depth", 1)),
            )
        except UsageError as error:
            parser.error(str(error))
        return RoceOptions(config=config, dscp=given.tclass >> 2, notification_dscp=given.cnp_dscp)

    def check_link(self, options: Options, link_mtu: int, ip_bytes: int) -> None:
        tells = options.tool.latency and options.tool.verb is Verb.WRITE
        headers = ip_bytes + _UDP_BYTES + BTH_BYTES + RETH_BYTES + (IMMEDIATE_BYTES if tells else 0) + ICRC_BYTES
        if options.payload_bytes + headers > link_mtu:
            fitting = [mtu for mtu in MTUS if mtu + headers <= link_mtu]
            hint = f": -m {fitting[-1]} fits" if fitting else ""
            raise PerftestError(
                f"a path MTU of {options.payload_bytes} bytes needs a link MTU of {options.payload_bytes + headers},"
                f" and that to the other side is {link_mtu}{hint}"
            )

    def open(
        self,
        options: Options,
        agent: MeasuringAgent,
        address: str,
        memory: ToolMemory,
        theirs: Mapping[str, Any] | None,
    ) -> RoceEndpoint:
        assert isinstance(agent, Agent)
        given = options.of(RoceOptions)
        marking = Marking(
            data=given.dscp, retransmission=given.dscp, control=given.dscp, notification=given.notification_dscp
        )
        try:
            rnic = agent.open_rnic(address, given.config, sockets=SocketConfig(marking=marking))
        except (OSError, ValueError) as error:
            raise PerftestError(f"cannot open an RNIC at {address}: {error}") from None
        return RoceEndpoint(options, rnic, memory)


class RoceEndpoint(MeasuredEndpoint):
    """The queue pairs of one side, all with one completion queue, and its memory."""

    def __init__(self, options: Options, rnic: Rnic, memory: ToolMemory) -> None:
        super().__init__(options, rnic.address)
        self._rnic = rnic
        self._memory = memory
        self._tells = options.tool.latency and options.tool.verb is Verb.WRITE
        self._region = rnic.register(memory.remote, ALL_ACCESS)
        self._completions: CompletionQueue = deque()
        first = randbelow(QPN_LIMIT - LEAST_QPN - options.queues)
        self._qps = [
            rnic.create_qp(Service.RC, completions=self._completions, number=LEAST_QPN + first + index)
            for index in range(options.queues)
        ]
        self._first_psns = [randbelow(PSN_MASK + 1) for _ in self._qps]
        self._ends: tuple[list[str], list[str]] = ([], [])
        self._peer_buffer = RemoteBuffer(0, 0)
        self._free: deque[QueuePair] = deque()
        """A queue pair stands here once for each operation more that it may have under way."""
        self._spent: list[QueuePair] = []
        """Queue pairs whose receives have met a message, once for each."""

    @property
    def introduction(self) -> dict[str, Any]:
        return {
            "qps": [[qp.number, psn] for qp, psn in zip(self._qps, self._first_psns, strict=True)],
            "rkey": self._region.rkey,
            "address": self._region.base,
        }

    def connect(self, peer: str, introduction: Mapping[str, Any]) -> None:
        theirs = told(introduction, "qps", list)
        rkey, virtual_address = told(introduction, "rkey", int), told(introduction, "address", int)
        if not (0 <= rkey < RKEY_LIMIT and 0 <= virtual_address < ADDRESS_LIMIT and len(theirs) == len(self._qps)):
            raise MismatchError("the other side's memory or queue pairs are none that can be")
        self._peer_buffer = RemoteBuffer(virtual_address, rkey)
        memory = f"RKey {rkey:#010x} VAddr {virtual_address:#018x}"
        own_memory = f"RKey {self._region.rkey:#010x} VAddr {self._region.base:#018x}"
        for qp, own_psn, end in zip(self._qps, self._first_psns, theirs, strict=True):
            number, psn = _numbers(end)
            try:
                qp.connect(peer, number, send_psn=own_psn, receive_psn=psn)
            except UsageError as error:
                raise MismatchError(str(error)) from None
            self._ends[0].append(f"{self.address} QPN {qp.number:#08x} PSN {own_psn:#08x} {own_memory}")
            self._ends[1].append(f"{peer} QPN {number:#08x} PSN {psn:#08x} {memory}")
        self._free.extend(self._qps * self._options.tx_depth)

    @property
    def ends(self) -> tuple[Sequence[str], Sequence[str]]:
        return self._ends

    @property
    def depth(self) -> int:
        return self._options.tx_depth * len(self._qps)

    @property
    def one_sided(self) -> bool:
        return self._verb in (Verb.READ, Verb.ATOMIC)

    def prepare(self) -> None:
        if self._verb is Verb.SEND or self._tells:
            self._spent.extend(self._qps * (RECEIVES if self._options.tool.latency else 2 * self._options.tx_depth))
            self.replenish()

    def post(self, data: memoryview, now: int) -> None:
        qp = self._free.popleft() if self._free else self._qps[0]
        match self._verb:
            case Verb.SEND:
                qp.send(data, now, context=qp)
            case Verb.READ:
                qp.read(data, self._peer_buffer, now, context=qp)
            case Verb.ATOMIC:
                qp.fetch_add(data, self._peer_buffer, 1, now, context=qp)
            case Verb.WRITE:
                qp.write(data, self._peer_buffer, now, immediate=1 if self._tells else None, context=qp)

    def take(self, finished_ns: list[int]) -> int:
        completions = self._completions
        arrived = 0
        while completions:
            request = completions.popleft()
            qp = request.context
            assert isinstance(qp, QueuePair)
            if not request.ok:
                raise PerftestError(_failure(request, qp))
            if isinstance(request, WorkRequest):
                finished_ns.append(request.finished_ns)
                self._free.append(qp)
            else:
                self._spent.append(qp)
                arrived += 1
        return arrived

    def replenish(self, at_least: int = 1) -> None:
        """All receives share their memory."""
        spent = self._spent
        if len(spent) >= at_least:
            now = time.monotonic_ns()
            buffer = _NOTHING if self._tells else self._memory.remote
            for qp in spent:
                qp.receive(buffer, now, context=qp)
            spent.clear()

    @property
    def closed(self) -> bool:
        """Tell whether nothing is under way: queue pairs know no other end."""
        return self._rnic.idle


def _failure(request: WorkRequest | ReceiveRequest, qp: QueuePair) -> str:
    assert request.status is not None
    what = "receive" if isinstance(request, ReceiveRequest) else Operation(request.operation).name
    reason = request.error or qp.error
    return f"a {what} of QPN {qp.number:#08x} failed with {request.status.name}" + (f": {reason}" if reason else "")


def _numbers(end: object) -> tuple[int, int]:
    """The number and the first PSN of a queue pair that the other side has named. Raises `MismatchError`."""
    match end:
        case [int(number), int(psn)] if 0 < number < QPN_LIMIT and 0 <= psn <= PSN_MASK:
            return number, psn
        case _:
            raise MismatchError("the other side's queue pairs are none that can be")


TRANSPORT = _Transport(
    prefix="roce",
    name="RoCEv2",
    short_name="RoCE",
    queues=("QPS", "queue pairs"),
    controllers=(DEFAULT_CONTROLLER, *(name for name in CONTROLLERS if name != DEFAULT_CONTROLLER)),
)
