"""The agent of one switch: its samples in the order in which they come, put into datagrams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import IPv4Address

from testbed.base.datapath.abi import SampleFate
from testbed.daemons.sflow import datagram as wire
from testbed.daemons.sflow.datagram import DropReason, InterfaceCounters
from testbed.daemons.sflow.samples import SampledPacket

REASONS: Mapping[SampleFate, int] = {
    SampleFate.TAIL: DropReason.NO_BUFFER_SPACE,
    SampleFate.BUFFER: DropReason.UNKNOWN_BUFFER,
    SampleFate.WRED: DropReason.RED,
    SampleFate.HEADROOM: DropReason.UNKNOWN_BUFFER,
    SampleFate.CAP: DropReason.TRAFFIC_SHAPING,
}
"""sFlow's word for each cause. It has one for all that buffers refuse, so a drop names our cause as its function, too.
"""


class SflowAgent:
    """Numbers the samples of a switch, and hands whole datagrams to `send`. It reads no clock and opens no socket."""

    def __init__(self, address: IPv4Address, sampling: int, send: Callable[[bytes], None]) -> None:
        self._address = address
        self._sampling = sampling
        self._send = send
        self._waiting: list[bytes] = []
        self._bytes = wire.HEADER_BYTES
        self._datagrams = 0
        self._numbers: dict[tuple[str, int], int] = {}
        """The sequence number of each kind of sample of each interface."""

    def _number(self, kind: str, source: int) -> int:
        number = self._numbers.get((kind, source), 0) + 1
        self._numbers[kind, source] = number
        return number

    def sent(self, packet: SampledPacket, *, egress: int, ingress: int, pool: int, drops: int, now_ms: int) -> None:
        """Take a packet that a port sent: `egress` and `ingress` are interface indexes. `drops` are lost samples."""
        records = [
            wire.sampled_header(packet.header, packet.length),
            wire.egress_queue(packet.queue),
            wire.queue_depth(packet.depth_bytes),
        ]
        self._flow(egress, ingress, pool, drops, records, now_ms)

    def tapped(self, header: bytes, length: int, *, egress: int, pool: int, now_ms: int) -> None:
        """Take a packet that a port without queues of the data path sent: it is not known how it came in."""
        self._flow(egress, 0, pool, 0, [wire.sampled_header(header, length)], now_ms)

    def _flow(self, egress: int, ingress: int, pool: int, drops: int, records: list[bytes], now_ms: int) -> None:
        sample = wire.flow_sample(
            sequence=self._number("flow", egress),
            source=egress,
            rate=self._sampling,
            pool=pool,
            drops=drops,
            ingress=ingress,
            egress=egress,
            records=records,
        )
        self._add(sample, now_ms)

    def dropped(self, packet: SampledPacket, *, egress: int, ingress: int, untold: int, now_ms: int) -> None:
        """Take a packet that was dropped; `untold` are those that nobody was told of."""
        source = egress or ingress
        records = [wire.sampled_header(packet.header, packet.length), wire.function(packet.fate.name.lower())]
        if egress:
            records += [wire.egress_queue(packet.queue), wire.queue_depth(packet.depth_bytes)]
        sample = wire.discarded_packet(
            sequence=self._number("drop", source),
            source=source,
            drops=untold,
            ingress=ingress,
            egress=egress,
            reason=REASONS[packet.fate],
            records=records,
        )
        self._add(sample, now_ms)

    def counted(self, counters: InterfaceCounters, now_ms: int) -> None:
        """Take the counters of an interface."""
        number = self._number("counters", counters.ifindex)
        self._add(wire.counters_sample(sequence=number, counters=counters), now_ms)

    def _add(self, sample: bytes, now_ms: int) -> None:
        if self._waiting and self._bytes + len(sample) > wire.MAX_DATAGRAM_BYTES:
            self.flush(now_ms)
        self._waiting.append(sample)
        self._bytes += len(sample)

    def flush(self, now_ms: int) -> None:
        """Send what waits; `now_ms` is how long the agent has been there."""
        if not self._waiting:
            return
        self._datagrams += 1
        self._send(wire.datagram(self._address, self._datagrams, now_ms, self._waiting))
        self._waiting = []
        self._bytes = wire.HEADER_BYTES
