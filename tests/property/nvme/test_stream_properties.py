"""However TCP cuts the stream, the same happens; whatever bytes come, an end closes or goes on, and raises nothing."""

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from nvme_pair import BLOCK, BLOCKS, HOST, NvmePair, capsule, connect_capsule, ic_request, some_target

from testbed.protocols.nvme.codes import IoOpcode
from testbed.protocols.nvme.commands import Sqe, read_command, write_command
from testbed.protocols.nvme.config import ControllerConfig, HostConfig
from testbed.protocols.nvme.connection import Connection
from testbed.protocols.nvme.host_queue import HostRequest

CONFIGS = st.builds(
    ControllerConfig,
    r2t_bytes=st.sampled_from([4096, 20_000, 1 << 20]),
    max_h2c_data=st.sampled_from([4096, 12_288, 1 << 20]),
    c2h_data_bytes=st.sampled_from([4096, 30_000, 1 << 20]),
    cpda=st.sampled_from([0, 3, 31]),
)
HOSTS = st.builds(
    lambda **fields: replace(HOST, **fields),
    header_digest=st.booleans(),
    data_digest=st.booleans(),
    hpda=st.sampled_from([0, 1, 31]),
    maxr2t=st.integers(1, 4),
    flow_control=st.booleans(),
)


class Fragmenting(NvmePair):
    """A pair whose streams arrive in pieces of any size, at least one byte, drawn from a seed."""

    def __init__(self, host: HostConfig, controller: ControllerConfig, seed: int) -> None:
        self.source = Random(seed)
        super().__init__(some_target(controller), host)

    def _carry(self, source: Connection, sink: Connection) -> bool:  # type: ignore[override]
        buffers = source.buffers_to_send()
        length = sum(map(len, buffers))
        if not length:
            return False
        count = self.source.choice([1, self.source.randrange(1, 30), self.source.randrange(1, length + 1), length])
        data = b"".join(buffers)[: min(count, length)]
        source.on_sent(len(data))
        sink.receive(data, self.now)
        return True


@settings(max_examples=40, deadline=None)
@given(host=HOSTS, controller=CONFIGS, seed=st.integers(0, 1 << 32), blocks=st.lists(st.integers(1, 20), max_size=4))
def test_fragments_change_nothing(host: HostConfig, controller: ControllerConfig, seed: int, blocks: list[int]) -> None:
    pair = Fragmenting(host, controller, seed)
    pair.deliver()
    assert pair.host.state.value == "live", pair.host.reason
    source = Random(seed)
    written = []
    for index, count in enumerate(blocks):  # All at once: their PDUs are mixed.
        data = source.randbytes(count * BLOCK)
        request = HostRequest(write_command(1, index * 20, count), data=data)
        pair.queue.submit(request)
        written.append((request, data))
    pair.deliver()
    places = []
    for index, (request, data) in enumerate(written):
        assert request.good
        place = bytearray(len(data))
        places.append(place)
        pair.queue.submit(HostRequest(read_command(1, index * 20, len(data) // BLOCK), place=place))
    pair.deliver()
    assert [bytes(place) for place in places] == [data for _, data in written]
    assert not any(near.error or far.error for near, far in pair.links)


SQES = st.builds(
    Sqe,
    opcode=st.one_of(st.sampled_from([0x7F, *IoOpcode, 6, 9, 0x18, 0x0C, 8]), st.integers(0, 255)),
    nsid=st.sampled_from([0, 1, 2, 4, 8, 0xFFFF_FFFF]),
    cdw10=st.integers(0, 0xFFFF_FFFF) | st.integers(0, 16),
    cdw11=st.integers(0, 0xFFFF_FFFF) | st.integers(0, 32),
    cdw12=st.integers(0, 0xFFFF_FFFF) | st.integers(0, 8),
)
PDUS = st.one_of(
    st.binary(max_size=200),
    st.builds(capsule, SQES, st.integers(0, 40), st.sampled_from([b"", bytes(16), bytes(4096), bytes(8192)])),
    st.builds(capsule, SQES, st.integers(0, 40), length=st.integers(0, 1 << 20)),
    st.just(ic_request()),
    st.builds(connect_capsule, st.integers(0, 2), cntlid=st.sampled_from([1, 2, 0xFFFF])),
    st.builds(
        lambda kind, flags, hlen, pdo, plen, rest: bytes([kind, flags, hlen, pdo]) + plen.to_bytes(4, "little") + rest,
        st.integers(0, 10),
        st.integers(0, 15),
        st.sampled_from([24, 72, 128, 0]),
        st.sampled_from([0, 24, 72, 28]),
        st.integers(0, 300),
        st.binary(max_size=100),
    ),
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(stream=st.lists(PDUS, max_size=8), begun=st.integers(0, 2))
def test_controller_survives_any_stream(stream: list[bytes], begun: int) -> None:
    target = some_target(ControllerConfig(most_transfer=1 << 20))
    queue = target.accept(0)
    store = memoryview(bytearray(BLOCKS * BLOCK))
    for data in [ic_request(), connect_capsule()][:begun] + stream:
        queue.receive(data, 0)
        while queue.events:
            command = queue.events.popleft().command
            if command.opcode is IoOpcode.WRITE and not command.started:
                queue.receive_data(command, store[command.offset : command.offset + command.length])
            else:
                queue.complete(command, 0)
        assert queue.unsent_bytes < 1 << 22
        queue.take_to_send()
    target.on_timer(1 << 62)
    target.forget(queue)
    assert not list(target.controllers()) and not target.queues


@settings(max_examples=200, deadline=None)
@given(stream=st.lists(PDUS, max_size=8), live=st.booleans())
def test_host_survives_any_stream(stream: list[bytes], live: bool) -> None:
    pair = NvmePair(some_target())
    if live:
        pair.deliver()
        pair.queue.submit(HostRequest(write_command(1, 0, 16), data=bytes(16 * BLOCK)))
        pair.queue.submit(HostRequest(read_command(1, 0, 16), place=bytearray(16 * BLOCK)))
    else:
        pair.host.open_queue(0, 0)
    queue = pair.host.queues[1 if live else 0]
    for data in stream:
        queue.receive(data, 0)
        pair.host.advance(0)
        queue.take_to_send()
    pair.host.fail("the end")
    assert queue.closed and not queue.outstanding
