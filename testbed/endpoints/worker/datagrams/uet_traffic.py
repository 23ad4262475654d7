"""Transfers over UET: a fabric endpoint for each NIC's address, and a tagged send for each transfer.

The tag is the step's number. Receives are posted ahead, into the array where a transfer is copied, and into room of
their own where it is added. A transfer has ended at its source when its last packet is acknowledged.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from testbed.base.program_errors import TrafficError
from testbed.endpoints.worker.curves import MOST_CHANNELS, ChannelState, mean_state
from testbed.endpoints.worker.datagrams.datagram_traffic import DatagramTraffic, named
from testbed.endpoints.worker.datagrams.hosting import Hosting
from testbed.endpoints.worker.program import Channel, Program, Step
from testbed.endpoints.worker.traffic import ChannelEnd, Listener
from testbed.protocols.errors import UsageError
from testbed.protocols.uet.addressing import FepAddress
from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.delivery.pdc import Pdc
from testbed.protocols.uet.fep import Fep
from testbed.protocols.uet.packets.codes import RETURN_CODE_MEANINGS, Mode, ReturnCode
from testbed.protocols.uet.semantics.endpoint import Endpoint, TaggedMessage
from testbed.protocols.uet.semantics.operations import Operation

if TYPE_CHECKING:
    from testbed.endpoints.worker.buffers import CollectiveBuffers
    from testbed.endpoints.worker.transports.uet import UetSettings
    from testbed.protocols.uet.security.tss import SecureDomain

MOST_POSTED = 8192
"""Receives of an endpoint that are posted ahead; later ones follow as these end."""
RESOURCE_INDEX = 1
_SDI = 1


FepOpener = Callable[[str, UetConfig, "SecureDomain | None"], Fep]


@dataclass(slots=True)
class NicEndpoint:
    """A fabric endpoint, and the receives that are yet to be posted."""

    fep: Fep
    endpoint: Endpoint
    to_post: deque[Step]


class UetTraffic(DatagramTraffic):
    """Raises `TrafficError` where something cannot be set up. `Traffic` says what the methods do.

    `open_fep` opens a fabric endpoint at an address, on what `hosting` says. It may raise `OSError`, and `ValueError`,
    `TypeError` or `UsageError` for what cannot work.
    """

    header_bytes: ClassVar[int] = 56

    def __init__(
        self,
        program: Program,
        settings: UetSettings,
        hosting: Hosting,
        open_fep: FepOpener,
        buffers: CollectiveBuffers | None,
        listener: Listener,
    ) -> None:
        super().__init__(program, hosting, buffers, listener)
        self._settings = settings
        self._open_fep = open_fep
        self._nics: dict[str, NicEndpoint] = {}
        try:
            self._mode = Mode[self._settings.mode]
        except KeyError:
            raise TrafficError(f"UET has no mode {self._settings.mode!r}") from None

    @property
    def completions(self) -> Mapping[str, deque[Any]]:
        return {address: nic.endpoint.completions for address, nic in self._nics.items()}

    # --- setting up --------------------------------------------------------------------------------------

    def listen(self) -> None:
        ports = {self._addresses[channel.source]: channel.source_port for channel in self._outgoing}
        incoming: dict[str, deque[Step]] = {}
        for step in self._program.steps:
            if step.channel is not None and step.destination in self._program.own:
                assert step.destination is not None
                incoming.setdefault(self._addresses[step.destination], deque()).append(step)
        reached = {self._addresses[channel.destination] for channel in self._incoming}
        for address in sorted({self._addresses[rank] for rank in self._program.own}):
            if address not in ports and address not in reached:
                continue
            nic = self._nics[address] = self._open(address, ports.get(address, 0), incoming.get(address, deque()))
            for _ in range(min(MOST_POSTED, len(nic.to_post))):
                self._post(nic)

    def _open(self, address: str, source_port: int, to_post: deque[Step]) -> NicEndpoint:
        settings = self._settings
        own: dict[str, Any] = {"least_rtts_ns": settings.least_rtts_ns.get(address, {})}
        if source_port:
            own["entropies"] = (source_port,)
        try:
            config = UetConfig(**settings.config, **own)  # type: ignore[arg-type]
            fep = self._open_fep(address, config, self._security())
            endpoint = fep.endpoint(job_id=settings.job_id, resource_index=RESOURCE_INDEX)
        except (OSError, ValueError, TypeError, UsageError, ImportError) as error:
            raise TrafficError(f"cannot open a fabric endpoint at {address}: {error}") from error
        return NicEndpoint(fep, endpoint, to_post)

    def _security(self) -> SecureDomain | None:
        if not self._settings.security_key:
            return None
        from testbed.protocols.uet.security.key_derivation import load_key
        from testbed.protocols.uet.security.tss import SecureDomain, SecurityMode
        from testbed.protocols.uet.security.tss_header import Tsc

        key = load_key(self._settings.security_key)
        first_tsc = Tsc(counter=self._hosting.first_packet_counter())
        return SecureDomain(_SDI, key, first_tsc=first_tsc, mode=SecurityMode.CLUSTER)

    def connect(self) -> None:
        """Do nothing: a context is there with its first packet."""

    def _post(self, nic: NicEndpoint) -> None:
        step = nic.to_post.popleft()
        nic.endpoint.trecv(self._room_of(step), step.number, self._hosting.now(), context=step)

    def expect(self, transfer: Step) -> None:
        assert transfer.destination is not None
        nic = self._nics[self._addresses[transfer.destination]]
        nic.to_post.append(transfer)
        self._post(nic)
        self._hosting.touch(nic.fep)

    # --- moving ------------------------------------------------------------------------------------------

    def send(self, step: Step) -> None:
        assert step.channel is not None and step.destination is not None
        nic = self._nics[self._addresses[step.source]]
        data = self._data_of(step)
        to = FepAddress(self._addresses[step.destination], 0, RESOURCE_INDEX, self._settings.job_id)
        try:
            message = TaggedMessage(data, step.number)
            nic.endpoint.tsend(to, message, self._hosting.now(), mode=self._mode, context=step)
        except UsageError as error:
            raise TrafficError(f"{self._what(step)}: {error}") from error
        self._sent_bytes[step.channel] += step.size_bytes
        self._hosting.touch(nic.fep)

    def turn(self, now: int) -> None:
        for nic in self._nics.values():
            completions = nic.endpoint.completions
            if not completions:
                continue
            self._estimate_progress(nic.fep.address, nic.fep.payload_bytes)
            while completions:
                self._ended(nic, completions.popleft())

    def _ended(self, nic: NicEndpoint, operation: Operation) -> None:
        step = operation.context
        assert isinstance(step, Step)
        if not operation.ok:
            code = operation.status or ReturnCode.NULL
            reason = operation.error or RETURN_CODE_MEANINGS[code]
            self._listener.on_failed(f"{self._what(step)} failed with {code.name}: {reason}")
        elif step.source in self._program.own:
            self._listener.on_sent(step, operation.finished_ns)
        elif operation.length != step.size_bytes:
            self._listener.on_failed(f"{self._what(step)} has {operation.length} bytes, not {step.size_bytes}")
        else:
            self._deliver(step)
            if nic.to_post:
                self._post(nic)
                self._hosting.touch(nic.fep)
            self._listener.on_arrived(step, operation.finished_ns)

    # --- what is known -----------------------------------------------------------------------------------

    def sample(self) -> Iterable[tuple[int, ChannelState]]:
        for nic in self._nics.values():
            self._estimate_progress(nic.fep.address, nic.fep.payload_bytes)
        for channel in self._outgoing[:MOST_CHANNELS]:
            pdcs = self._pdcs(channel)
            if not pdcs:
                continue
            yield (
                channel.index,
                ChannelState(
                    acked_bytes=self._acked_bytes(channel, pdcs),
                    cwnd_bytes=round(sum(pdc.sender.congestion.cwnd_bytes for pdc in pdcs)),
                    rtt_us=max(pdc.sender.congestion.latest_rtt_ns for pdc in pdcs) / 1e3,
                    retransmits=sum(map(_resent, pdcs)),
                    control=mean_state(pdc.sender.congestion.state() for pdc in pdcs),
                ),
            )

    def _pdcs(self, channel: Channel) -> list[Pdc]:
        nic = self._nics[self._addresses[channel.source]]
        remote = self._addresses[channel.destination]
        return [pdc for pdc in nic.fep.pdcs if pdc.initiator and pdc.remote == remote]

    def _acked_bytes(self, channel: Channel, pdcs: Iterable[Pdc]) -> int:
        """By packets, as if all were full, and not more than was sent."""
        packets = sum((pdc.sender.window.cack_psn - pdc.start_psn + 1) & 0xFFFF_FFFF for pdc in pdcs)
        payload = self._nics[self._addresses[channel.source]].fep.payload_bytes
        return min(packets * payload, self._sent_bytes[channel.index])

    def ends(self) -> list[ChannelEnd]:
        found = []
        for channel in self._outgoing:
            pdcs = self._pdcs(channel)
            least = [ns for pdc in pdcs if (ns := pdc.sender.congestion.least_rtt_ns)]
            counters = self._counted(channel.source, channel.destination, initiator=True)
            found.append(
                ChannelEnd(
                    channel=channel.index,
                    sent_bytes=self._sent_bytes[channel.index],
                    retransmits=counters.pop("packets_again", 0),
                    packets=counters.pop("packets", 0),
                    min_rtt_us=min(least) / 1e3 if least else None,
                    counters={"contexts": len(pdcs), **counters},
                )
            )
        for channel in self._incoming:
            counters = self._counted(channel.destination, channel.source, initiator=False)
            counters.setdefault("out_of_order", 0)
            for of_the_return in ("packets", "packets_again"):
                counters.pop(of_the_return, None)
            found.append(ChannelEnd(channel=channel.index, counters=counters))
        return found

    def _counted(self, here: int, there: int, *, initiator: bool) -> dict[str, int]:
        """Return what the FEP of a rank has counted of another rank's, in a record's way of writing names."""
        peers = self._nics[self._addresses[here]].fep.peers
        return named(peers.of(self._addresses[there], initiator=initiator))

    def counters(self) -> Mapping[str, int]:
        """Return those of the FEPs by their names, and those of what they stand on."""
        total: Counter[str] = Counter()
        for nic in self._nics.values():
            nic.fep.peers.settle()
            total.update(named(nic.fep.counters))
            total.update(self._hosting.counters(nic.fep.address))
        return dict(total)


def _resent(pdc: Pdc) -> int:
    return max(0, pdc.sender.congestion.sends - ((pdc.sender.window.next_psn - pdc.start_psn) & 0xFFFF_FFFF))
