"""Measuring Ultra Ethernet Transport: its options, and an endpoint of a job of two."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import randbelow
from typing import Any

from testbed.endpoints.agent import Agent
from testbed.endpoints.perftest.arguments import in_range
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
from testbed.protocols.errors import UsageError
from testbed.protocols.uet.addressing import JOB_LIMIT, FepAddress
from testbed.protocols.uet.atomics import Amo
from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.congestion.registry import CONTROLLERS, DEFAULT_CONTROLLER
from testbed.protocols.uet.fep import Fep
from testbed.protocols.uet.memory import Access, RemoteBuffer
from testbed.protocols.uet.packets.codes import AmoOpcode, AmoType, Mode
from testbed.protocols.uet.paths import DEFAULT_PATHS, PathKind
from testbed.protocols.uet.security.key_derivation import DomainKey, load_key
from testbed.protocols.uet.security.tss import SecureDomain, SecurityMode, first_counter
from testbed.protocols.uet.security.tss_header import Tsc
from testbed.protocols.uet.semantics.operations import Operation, OpKind

_SDI = 1
_RESOURCE_INDEX = 1
_REMOTE = Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
_MODES = {"rud": Mode.RUD, "rod": Mode.ROD, "rudi": Mode.RUDI}
_RUDI_VERBS = (Verb.WRITE, Verb.READ)
_ONE = (1).to_bytes(8, "little")


@dataclass(frozen=True, slots=True, kw_only=True)
class UetOptions(TransportOptions):
    """The options that only UET has."""

    mode: Mode
    config: UetConfig
    tss: DomainKey | None

    @property
    def connection_type(self) -> str:
        return self.mode.name

    @property
    def details(self) -> tuple[tuple[str, str], tuple[str, str], tuple[str, str]]:
        return (
            ("Path selection", self.config.paths),
            ("Security", self._security),
            ("Trimming", "ON" if self.config.trimming else "OFF"),
        )

    @property
    def _security(self) -> str:
        return "OFF" if self.tss is None else "TSS"

    def compared(self) -> dict[str, Any]:
        return {"--mode": self.mode.name.lower(), "--tss": "" if self.tss is None else self.tss.fingerprint()[:4].hex()}

    def test_info(self) -> dict[str, Any]:
        return {"Path_selection": self.config.paths, "Security": self._security, "Trimming": self.config.trimming}


def read_key(path: str) -> DomainKey:
    """The key in a file, as `load_key` has it. Raises `argparse.ArgumentTypeError`."""
    try:
        return load_key(Path(path).read_text(encoding="ascii"))
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise argparse.ArgumentTypeError(f"{path}: a domain key is written in hexadecimal digits") from None
    except UsageError as error:
        raise argparse.ArgumentTypeError(f"{path}: {error}") from None


class _Transport(MeasuredTransport):
    __slots__ = ()

    def add_options(self, add: Any, tool: Tool) -> None:
        add("--mode", choices=_MODES, default="rud", help="delivery mode (%(default)s)")
        path_kinds = [kind.value for kind in PathKind]
        add("--paths", choices=path_kinds, default=DEFAULT_PATHS, help="path selection (%(default)s)")
        key_help = "encrypt, with the key (64 hexadecimal digits) in this file"
        add("--tss", type=read_key, metavar="KEYFILE", help=key_help)
        add("-m", "--mtu", type=in_range(64, 16_383), default=4096, metavar="BYTES", help="payload of a full packet")
        add("--trimming", action="store_true", help="the switches trim")

    def read_options(self, given: argparse.Namespace, tool: Tool, parser: argparse.ArgumentParser) -> UetOptions:
        mode = _MODES[given.mode]
        if mode is Mode.RUDI and tool.verb not in _RUDI_VERBS:
            parser.error(f"--mode rudi is for idempotent operations, and {tool.verb} is none")
        if mode is Mode.RUDI and given.qp != 1:
            parser.error("--mode rudi has no packet delivery contexts: -q does not apply")
        try:
            config = UetConfig(
                link_rate_bps=given.rate,
                base_rtt_ns=given.base_rtt,
                payload_bytes=given.mtu,
                trimming=given.trimming,
                cc=given.cc,
                paths=given.paths,
                pdcs_per_peer=given.qp,
            )
        except UsageError as error:
            parser.error(str(error))
        return UetOptions(mode=mode, config=config, tss=given.tss)

    def open(
        self,
        options: Options,
        agent: MeasuringAgent,
        address: str,
        memory: ToolMemory,
        theirs: Mapping[str, Any] | None,
    ) -> UetEndpoint:
        assert isinstance(agent, Agent)
        given = options.of(UetOptions)
        security = None
        if given.tss is not None:
            first_tsc = Tsc(counter=first_counter(time.time_ns()))
            security = SecureDomain(_SDI, given.tss, first_tsc=first_tsc, mode=SecurityMode.CLUSTER)
        try:
            fep = agent.open(address, given.config, security=security)
        except (OSError, ValueError, ImportError) as error:
            raise PerftestError(f"cannot open the fabric endpoint {address}: {error}") from None
        job_id = 1 + randbelow(JOB_LIMIT - 1) if theirs is None else told(theirs, "job", int)
        try:
            return UetEndpoint(options, fep, job_id, memory)
        except UsageError as error:
            raise MismatchError(str(error)) from None


class UetEndpoint(MeasuredEndpoint):
    """An endpoint of a fabric endpoint. The client chooses the job."""

    def __init__(self, options: Options, fep: Fep, job_id: int, memory: ToolMemory) -> None:
        super().__init__(options, fep.address)
        self._fep = fep
        self._mode = mode = options.of(UetOptions).mode
        verb = self._verb
        self._memory = memory
        self._job_id = job_id
        self._endpoint = fep.endpoint(job_id=job_id, resource_index=_RESOURCE_INDEX)
        self._region = fep.register(memory.remote, _REMOTE, job_id)
        self._peer = FepAddress("0.0.0.0", 0, _RESOURCE_INDEX, job_id)
        self._peer_buffer = RemoteBuffer(0)
        self._one_sided = verb in (Verb.READ, Verb.ATOMIC) or (verb is Verb.WRITE and mode is Mode.RUDI)
        self._header_data = 1 if options.tool.latency and not self._one_sided else None
        """A WRITE tells of its arrival by header data, which RUDI has not: there the response tells."""
        self._to_post = 0

    @property
    def introduction(self) -> dict[str, Any]:
        return {"job": self._job_id, "key": f"{self._region.key:016x}"}

    def connect(self, peer: str, introduction: Mapping[str, Any]) -> None:
        if told(introduction, "job", int) != self._job_id:
            raise MismatchError("the other side is of another job")
        try:
            self._peer_buffer = RemoteBuffer(int(told(introduction, "key", str), 16))
        except ValueError:
            raise MismatchError("the other side's key is no number") from None
        self._peer = FepAddress(peer, 0, _RESOURCE_INDEX, self._job_id)

    @property
    def ends(self) -> tuple[Sequence[str], Sequence[str]]:
        return (f"{self.address} job {self._job_id}",), (f"{self._peer.ip} job {self._job_id}",)

    @property
    def one_sided(self) -> bool:
        return self._one_sided

    def prepare(self) -> None:
        if self._verb is Verb.SEND:
            self._to_post = RECEIVES if self._options.tool.latency else 2 * self._options.tx_depth
            self.replenish()

    def post(self, data: memoryview, now: int) -> None:
        endpoint = self._endpoint
        mode = self._mode
        match self._verb:
            case Verb.SEND:
                endpoint.send(self._peer, data, now, mode=mode)
            case Verb.READ:
                endpoint.read(self._peer, data, self._peer_buffer, now, mode=mode)
            case Verb.ATOMIC:
                amo = Amo(AmoOpcode.SUM, AmoType.UINT64, _ONE)
                endpoint.atomic(self._peer, amo, self._peer_buffer, now, fetch=data, mode=mode)
            case Verb.WRITE:
                endpoint.write(self._peer, data, self._peer_buffer, now, mode=mode, header_data=self._header_data)

    def take(self, finished_ns: list[int]) -> int:
        completions = self._endpoint.completions
        arrived = 0
        while completions:
            operation = completions.popleft()
            check(operation)
            if operation.kind is OpKind.RECV:
                self._to_post += 1
                arrived += 1
            elif operation.kind is OpKind.REMOTE_WRITE:
                arrived += 1
            else:
                finished_ns.append(operation.finished_ns)
        return arrived

    def replenish(self, at_least: int = 1) -> None:
        """All receives share their memory."""
        if self._to_post >= at_least:
            now = time.monotonic_ns()
            for _ in range(self._to_post):
                self._endpoint.recv(self._memory.remote, now)
            self._to_post = 0

    def begin_closing(self, now: int) -> None:
        self._fep.close(now)

    @property
    def closed(self) -> bool:
        return not any(pdc.initiator for pdc in self._fep.pdcs)


def check(operation: Operation) -> None:
    """Raises `PerftestError` for an operation that failed."""
    if not operation.ok:
        status = "" if operation.status is None else f" with {operation.status.name}"
        raise PerftestError(f"a {operation.kind} failed{status}: {operation.error}".removesuffix(": "))


TRANSPORT = _Transport(
    prefix="uet",
    name="Ultra Ethernet Transport",
    short_name="UET",
    queues=("PDCS", "packet delivery contexts"),
    controllers=(DEFAULT_CONTROLLER, *(name for name in CONTROLLERS if name != DEFAULT_CONTROLLER)),
)
