"""Datagrams of an sFlow agent, decoded as the specification has them, and the ring that samples come from."""

from ipaddress import IPv4Address

import numpy as np
import pytest
from sflow_decoder import DecodedDatagram, decode_datagram

from testbed.base.datapath.abi import CLASSES, SAMPLE_BYTES, SampleFate
from testbed.base.datapath.maps import SAMPLE, RingMemory
from testbed.daemons.sflow.agent import REASONS, SflowAgent
from testbed.daemons.sflow.datagram import INTERNAL, MAX_DATAGRAM_BYTES, InterfaceCounters
from testbed.daemons.sflow.samples import SampledPacket, SampleRing
from testbed.daemons.sflow.taps import sampling_filter

ADDRESS = IPv4Address("192.168.0.7")
HEADER = bytes(range(61))
"""No multiple of four, so that it is filled up."""


class Agent(SflowAgent):
    """One that keeps what it sends."""

    def __init__(self, sampling: int = 400) -> None:
        self.sent_bytes: list[bytes] = []
        super().__init__(ADDRESS, sampling, self.sent_bytes.append)

    @property
    def datagrams(self) -> list[DecodedDatagram]:
        return [decode_datagram(content) for content in self.sent_bytes]


def packet(fate: SampleFate = SampleFate.SENT, **changes: int) -> SampledPacket:
    values = {"port": 3, "queue": 5, "came_in": 2, "depth_bytes": 12_345, "length": 4_514, **changes}
    return SampledPacket(fate=fate, header=HEADER, **values)


def test_a_packet_that_was_sent_is_a_flow_sample_with_its_queue() -> None:
    agent = Agent()
    agent.sent(packet(), egress=1025, ingress=4097, pool=123_456, drops=7, now_ms=1_500)
    assert not agent.sent_bytes, "it waits for others"
    agent.flush(1_600)
    (datagram,) = agent.datagrams
    assert (datagram.agent, datagram.sub_agent, datagram.sequence, datagram.uptime_ms) == (ADDRESS, 0, 1, 1_600)
    (sample,) = datagram.samples
    assert sample.kind == "flow"
    assert sample.fields == {
        "sequence": 1, "source": 1025, "rate": 400, "pool": 123_456, "drops": 7, "input": 4097, "output": 1025,
    }  # fmt: skip
    assert sample.records["header"] == {"protocol": 1, "length": 4_518, "stripped": 4, "bytes": HEADER}
    assert (sample.records["egress_queue"], sample.records["queue_depth"]) == (5, 12_345)


@pytest.mark.parametrize(
    ("fate", "reason"),
    [
        (SampleFate.TAIL, 259),
        (SampleFate.BUFFER, 287),
        (SampleFate.WRED, 260),
        (SampleFate.HEADROOM, 287),
        (SampleFate.CAP, 261),
    ],
)
def test_a_dropped_packet_says_why(fate: SampleFate, reason: int) -> None:
    """The numbers are those of `enum drop_reason`: no_buffer_space, red, traffic_shaping, unknown_buffer."""
    agent = Agent()
    egress = 0 if fate is SampleFate.CAP else 1025
    agent.dropped(packet(fate), egress=egress, ingress=4097, untold=11, now_ms=1)
    agent.flush(1)
    (sample,) = agent.datagrams[0].samples
    assert sample.kind == "drop"
    assert sample.fields == {
        "sequence": 1, "source_type": 0, "source": egress or 4097, "drops": 11, "input": 4097, "output": egress,
        "reason": reason,
    }  # fmt: skip
    assert sample.records["function"] == fate.name.lower()
    assert sample.records["header"]["bytes"] == HEADER
    assert ("queue_depth" in sample.records) is (egress != 0)


def test_every_cause_of_a_drop_has_a_reason() -> None:
    assert set(REASONS) == set(SampleFate) - {SampleFate.SENT}


def test_counters_are_those_of_the_interface_and_carry_its_name() -> None:
    agent = Agent()
    counters = InterfaceCounters(
        ifindex=1025, name="uplink1", speed_bps=100_000_000, up=True, in_octets=1 << 40, in_packets=(1 << 32) + 5,
        in_discards=1, out_octets=2, out_packets=3, out_discards=4,
    )  # fmt: skip
    agent.counted(counters, 1)
    agent.flush(1)
    (sample,) = agent.datagrams[0].samples
    assert (sample.kind, sample.fields["source"]) == ("counters", 1025)
    assert sample.records["port_name"] == "uplink1"
    generic = sample.records["generic"]
    assert (generic["speed"], generic["status"], generic["direction"], generic["type"]) == (100_000_000, 3, 1, 6)
    assert (generic["in_octets"], generic["in_ucast"], generic["in_discards"]) == (1 << 40, 5, 1)
    assert (generic["out_octets"], generic["out_ucast"], generic["out_discards"]) == (2, 3, 4)


def test_numbers_go_on_and_datagrams_stay_below_their_limit() -> None:
    agent = Agent()
    for _ in range(40):
        agent.sent(packet(), egress=1025, ingress=INTERNAL, pool=1, drops=0, now_ms=1)
        agent.sent(packet(), egress=1026, ingress=4097, pool=1, drops=0, now_ms=1)
        agent.dropped(packet(SampleFate.TAIL), egress=1025, ingress=4097, untold=0, now_ms=1)
    agent.flush(2)
    datagrams = agent.datagrams
    assert all(len(content) <= MAX_DATAGRAM_BYTES for content in agent.sent_bytes)
    assert [one.sequence for one in datagrams] == list(range(1, len(datagrams) + 1))
    for kind, source in (("flow", 1025), ("flow", 1026), ("drop", 1025)):
        numbers = [s.fields["sequence"] for one in datagrams for s in one.of(kind) if s.fields["source"] == source]
        assert numbers == list(range(1, 41))


def test_nothing_is_sent_where_nothing_waits() -> None:
    agent = Agent()
    agent.flush(1)
    assert not agent.sent_bytes


class FakeRing:
    """The memory of a ring as the kernel lays it out, and the kernel's side of it."""

    def __init__(self, size: int = 1 << 12) -> None:
        self.once = np.zeros(size, "u1")
        self.consumed, self.produced = np.zeros(1, "<u8"), np.zeros(1, "<u8")

    @property
    def memory(self) -> RingMemory:
        """The kernel maps the data twice in a row."""
        return RingMemory(self.consumed, self.produced, np.concatenate([self.once, self.once]))

    def put(self, content: bytes, flags: int = 0) -> None:
        head = (len(content) | flags).to_bytes(4, "little") + bytes(4)
        record = head + content + bytes(-len(content) % 8)
        at = int(self.produced[0])
        places = (at + np.arange(len(record))) % len(self.once)
        self.once[places] = np.frombuffer(record, "u1")
        self.produced[0] = at + len(record)


def sample(number: int, fate: SampleFate = SampleFate.SENT) -> bytes:
    record = np.zeros(1, SAMPLE)
    record["queue"], record["ingress"] = 3 * CLASSES + 5, 2 * CLASSES + 1
    record["depth"], record["length"], record["captured"], record["fate"] = number, 100, 60, fate.value
    record["header"][0, :60] = 0xAB
    return record.tobytes()


def test_samples_are_taken_once_and_round_the_end_of_the_ring() -> None:
    ring, taken = FakeRing(), list[int]()
    for number in range(100):
        ring.put(sample(number))
        taken += [packet.depth_bytes for packet in SampleRing(ring.memory).take()]
    assert taken == list(range(100))
    assert ring.consumed[0] == ring.produced[0]


def test_what_a_sample_says_is_read() -> None:
    ring = FakeRing()
    ring.put(sample(7, SampleFate.WRED))
    (found,) = SampleRing(ring.memory).take()
    assert (found.port, found.queue, found.came_in) == (3, 5, 2)
    assert (found.depth_bytes, found.length, found.fate) == (7, 100, SampleFate.WRED)
    assert found.header == b"\xab" * 60


def test_records_that_are_being_written_or_were_given_up_are_none() -> None:
    ring = FakeRing()
    ring.put(sample(1), flags=1 << 30)
    ring.put(sample(2))
    ring.put(sample(3), flags=1 << 31)
    assert [found.depth_bytes for found in SampleRing(ring.memory).take()] == [2]
    assert ring.consumed[0] < ring.produced[0], "the one that is written comes later"


def run_filter(code: bytes, packet_type: int, number: int) -> int:
    """Carry a filter out as the kernel does, as far as ours go: loads of the two extensions, and jumps."""
    at, register = 0, 0
    while True:
        instruction = code[8 * at : 8 * at + 8]
        kind, when, otherwise = int.from_bytes(instruction[:2], "little"), instruction[2], instruction[3]
        value = int.from_bytes(instruction[4:], "little")
        at += 1
        match kind:
            case 0x20:
                register = {0xFFFF_F004: packet_type, 0xFFFF_F038: number}[value]
            case 0x15:
                at += when if register == value else otherwise
            case 0x25:
                at += when if register > value else otherwise
            case 0x06:
                return value


@pytest.mark.parametrize("sampling", [1, 2, 400, 1 << 24])
def test_the_filter_takes_its_share_of_what_a_port_sends(sampling: int) -> None:
    code = sampling_filter(sampling)
    below = (1 << 32) // sampling
    outgoing, incoming = 4, 0
    assert run_filter(code, outgoing, 0) == SAMPLE_BYTES
    assert run_filter(code, outgoing, min(below, (1 << 32) - 1)) == SAMPLE_BYTES
    if sampling > 1:
        assert run_filter(code, outgoing, below + 1) == 0
    assert run_filter(code, incoming, 0) == 0
