"""The agent of a host: its endpoints in user space (UET, RoCE), their sockets, and the loop that drives them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from types import TracebackType
from typing import Self

from testbed.endpoints.loop import Endpoint, Loop
from testbed.endpoints.pacing import Pacer
from testbed.endpoints.sockets import SocketConfig, SocketGroup
from testbed.endpoints.wire_delay import DelayLine
from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.packets.opcodes import UDP_PORT as ROCE_PORT
from testbed.protocols.roce.rnic import Rnic
from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.delivery.start_psn import SECRET_BYTES
from testbed.protocols.uet.fep import Fep
from testbed.protocols.uet.security.tss import SecureDomain
from testbed.protocols.uet.trace import Trace

CLOSE_PATIENCE_NS = 2_000_000_000
"""The time that peers may take to acknowledge the end."""
RNIC_RECEIVES = 32
"""Datagrams that an RNIC takes at a time: each is read for its ICRC and again when it is placed, from the CPU's cache
where they are few (a receiver spent 4.1 us on a packet of 4 KiB, and 5.3 with 128)."""


class Agent:
    """Several endpoints in one process and thread. A context manager: leaving it closes everything, in order.

    `seed`: of the random numbers of its endpoints (Start_PSNs, paths, keys); by default the machine's own. `loop`: one
    that drives other things too, and that its owner closes.
    """

    def __init__(self, *, seed: int | None = None, spin_ns: int = 0, loop: Loop | None = None) -> None:
        self.loop = Loop(spin_ns=spin_ns) if loop is None else loop
        self._owns_loop = loop is None
        self._random = Random(int.from_bytes(os.urandom(16), "big") if seed is None else seed)
        self._endpoints: dict[str, tuple[Endpoint, SocketGroup, DelayLine | None]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(patience_ns=CLOSE_PATIENCE_NS if kind is None else 0)

    def open(
        self,
        address: str,
        config: UetConfig,
        *,
        sockets: SocketConfig | None = None,
        delay_ns: int | Mapping[str, int] = 0,
        paced: bool = False,
        security: SecureDomain | None = None,
        trace: Trace | None = None,
    ) -> Fep:
        """Open a fabric endpoint on an address of this host.

        `delay_ns`: what the kernel does not delay of the path to here, by source prefix or for all. `paced`: it keeps
        to the link rate of `config`, which its NIC has, and chooses paths no earlier than that NIC needs them. Whether
        switches trim is told by `config`; without the right to see trimmed packets (CAP_NET_RAW) losses are inferred
        instead.

        Raises `OSError` if the address is not ours or its port is taken, `ValueError` if it is none, or a delay wrong.
        """
        group, delay = _open_sockets(address, sockets or SocketConfig(), delay_ns, config.packet_bytes if paced else 0)
        if config.trimming and not group.sees_trimmed:
            config = replace(config, trimming=False)
        random = Random(self._random.getrandbits(64))
        # The secret is the machine's own even where `seed` is given: no two lives of an endpoint may have the same.
        secret = os.urandom(SECRET_BYTES)
        now = time.monotonic_ns()
        fep = Fep(group.address, config, random, now, trace=trace, security=security, secret=secret)
        self._endpoints[fep.address] = (fep, group, delay)
        pacer = Pacer(config.link_rate_bps, config.packet_bytes, self.loop.tick_ns) if paced else None
        self.loop.add(fep, group, delay, pacer)
        return fep

    def open_rnic(
        self,
        address: str,
        config: RoceConfig,
        *,
        sockets: SocketConfig | None = None,
        delay_ns: int | Mapping[str, int] = 0,
        paced: bool = False,
        foreign_peers: bool = False,
    ) -> Rnic:
        """Open an RNIC on an address of this host: the arguments and errors are those of `open`.

        `foreign_peers`: its peers are other implementations, or opened so themselves. Their ICRC covers an IPv4
        identification that is not 0, so that each packet is received with its IP header, which takes longer and needs
        CAP_NET_RAW (`PermissionError` without); over IPv6 they may send no UDP checksum.
        """
        given = sockets or SocketConfig()
        sockets = replace(
            given,
            port=ROCE_PORT,
            trimmed=False,
            foreign_peers=foreign_peers,
            receive_datagrams=min(given.receive_datagrams, RNIC_RECEIVES),
        )
        group, delay = _open_sockets(address, sockets, delay_ns, config.packet_bytes if paced else 0)
        rnic = Rnic(group.address, config, Random(self._random.getrandbits(64)), time.monotonic_ns())
        self._endpoints[rnic.address] = (rnic, group, delay)
        if paced:
            rnic.unlimited_bps = float(config.link_rate_bps)
        pacer = Pacer(config.link_rate_bps, config.packet_bytes, self.loop.tick_ns) if paced else None
        self.loop.add(rnic, group, delay, pacer, rnic.on_room)
        return rnic

    @property
    def feps(self) -> dict[str, Fep]:
        """The fabric endpoints by their address."""
        return {address: item for address, (item, _, _) in self._endpoints.items() if isinstance(item, Fep)}

    def sockets(self, address: str) -> SocketGroup:
        return self._endpoints[address][1]

    def received(self, address: str) -> int:
        """The datagrams that have arrived at the endpoint of an address."""
        return self.sockets(address).counters.received

    def delay(self, address: str) -> DelayLine | None:
        """Return what holds the datagrams of an endpoint for the path's delay; None where nothing does."""
        return self._endpoints[address][2]

    def drive(self, until: Callable[[], bool], timeout_ns: int) -> bool:
        """Run until the condition holds, which is asked after every turn. False: it does not within the time.

        It is asked between receiving and sending, so that what it submits leaves with the same turn's ACKs.
        """
        loop = self.loop
        end = time.monotonic_ns() + timeout_ns
        loop.touch()
        while not until():
            if time.monotonic_ns() >= end:
                return False
            loop.serve()
            loop.take_events(end)
        loop.serve()
        return True

    def forget(self, address: str) -> None:
        """Close the sockets of an endpoint as it stands. To be called when it is closed, or is to fall silent."""
        endpoint, group, _ = self._endpoints.pop(address)
        self.loop.remove(endpoint)
        group.close()

    def close(self, patience_ns: int = CLOSE_PATIENCE_NS) -> None:
        """Close PDCs as the protocol has it, as far as that is possible in the time, then the sockets.

        A second time does nothing.
        """
        feps = self.feps
        if patience_ns and feps:
            now = time.monotonic_ns()
            for fep in feps.values():
                begin_closing(fep, now)
            self.drive(lambda: not any(fep.pdcs for fep in self.feps.values()), patience_ns)
        for address in list(self._endpoints):
            self.forget(address)
        if self._owns_loop:
            self.loop.close()


def _open_sockets(
    address: str, sockets: SocketConfig, delay_ns: int | Mapping[str, int], paced_bytes: int
) -> tuple[SocketGroup, DelayLine | None]:
    """Open the sockets of an endpoint; `paced_bytes` is the size of its full packets if it is paced, else 0."""
    delay = DelayLine(delay_ns) if delay_ns else None
    sockets = replace(sockets, stamps=delay is not None)
    if paced_bytes:  # no run is long, so that none is worth a socket of its own
        sockets = replace(sockets, gso_segments=1, raw_buffer_bytes=Pacer.buffer_bytes(paced_bytes))
    return SocketGroup(address, sockets), delay


def begin_closing(fep: Fep, now: int) -> None:
    """Close the PDCs that are ours, and ask the peers to close theirs, rather than have them find out by time-outs."""
    fep.close(now)
    for pdc in fep.pdcs:
        pdc.ask_to_close(now)
