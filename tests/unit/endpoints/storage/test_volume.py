"""Requests over several paths: cut into commands, spread, sent again when a path dies, never said to be done early."""

from collections.abc import Sequence
from typing import cast

import pytest
from nvme_pair import BLOCK, HOST, NvmePair, live_pair

from testbed.endpoints.storage.path import Path
from testbed.endpoints.storage.volume import MOST_RETRIES, MOST_TIMEOUTS, Operation, Volume, VolumeRequest
from testbed.protocols.errors import UsageError
from testbed.protocols.nvme.codes import Status
from testbed.protocols.nvme.config import ControllerConfig
from testbed.protocols.nvme.host_controller import HostController
from testbed.protocols.nvme.host_queue import HostQueue

MIB = 1 << 20


class PairPath:
    """A path whose target is in memory; `hold` keeps its commands from being executed."""

    def __init__(self, store: memoryview) -> None:
        self.pair: NvmePair = live_pair(HOST, ControllerConfig(most_transfer=MIB))
        self.pair.store = store
        self.pair.hold = True

    @property
    def controller(self) -> HostController:
        return self.pair.host

    @property
    def live(self) -> bool:
        return self.pair.host.state.value == "live"

    def queues(self) -> list[HostQueue]:
        return self.pair.host.io_queues if self.live else []


class Paths:
    """Two paths to one namespace, and a volume on them."""

    def __init__(self) -> None:
        self.store = memoryview(bytearray(4 * MIB))
        self.paths = [PairPath(self.store), PairPath(self.store)]
        namespace = self.paths[0].pair.host.namespaces[1]
        self.volume = Volume(cast(Sequence[Path], self.paths), namespace)

    def execute(self, path: PairPath) -> None:
        """Let a path do all that it was asked for."""
        path.pair.hold = False
        path.pair.deliver()
        for command in path.pair.held:
            path.pair.step(command)
        path.pair.held.clear()
        path.pair.deliver()
        self.collect(path)

    def kill(self, path: PairPath) -> None:
        for _, far in path.pair.links:
            far.close("killed")
        path.pair.host.fail("killed")
        self.collect(path)

    def collect(self, path: PairPath) -> None:
        ended = path.pair.queue.ended
        while ended:
            request = ended.popleft()
            self.volume.on_ended(request, request.tag[1], now=7)
        self.volume.pump(7)

    def write(self, offset: int, data: bytes) -> VolumeRequest:
        return self.volume.submit(Operation.WRITE, offset, data, 1)


@pytest.fixture
def both() -> Paths:
    return Paths()


def test_request_is_done_with_its_last_command(both: Paths) -> None:
    request = both.write(0, b"w" * (3 * MIB))
    assert [path.pair.queue.outstanding for path in both.paths] == [2, 1]
    both.execute(both.paths[0])
    assert not request.done
    both.execute(both.paths[1])
    assert request.good and (request.begun, request.ended) == (1, 7)
    assert both.store[: 3 * MIB] == b"w" * (3 * MIB)
    assert list(both.volume.done) == [request]


def test_command_of_a_dead_path_is_sent_on_the_other(both: Paths) -> None:
    request = both.write(0, b"w" * (4 * MIB))
    both.kill(both.paths[0])
    assert not request.done and both.volume.resent == 2
    both.execute(both.paths[1])
    both.execute(both.paths[1])
    assert request.good
    assert bytes(both.store) == b"w" * (4 * MIB)


def test_request_waits_while_no_path_is_live(both: Paths) -> None:
    request = both.write(BLOCK, b"w" * BLOCK)
    for path in both.paths:
        both.kill(path)
    assert not request.done and both.volume.unfinished == 1
    both.volume.give_up("no path is live", 9)
    assert request.done and request.error == "no path is live"
    assert not any(both.store)


def test_refusal_for_good_fails_the_request_once_all_its_commands_ended(both: Paths) -> None:
    request = both.write(0, b"w" * (2 * MIB))
    path = both.paths[0]
    path.pair.deliver()
    command = path.pair.held.pop()
    command.queue.complete(command, Status.WRITE_FAULT)
    path.pair.deliver()
    both.collect(path)
    assert request.error and not request.done  # The other command still uses its memory.
    both.execute(both.paths[1])
    assert request.done and request.error == "Write Fault"


def test_refusal_that_may_pass_is_tried_again(both: Paths) -> None:
    both.kill(both.paths[1])
    path = both.paths[0]
    request = both.write(0, b"w" * BLOCK)
    for _ in range(MOST_RETRIES + 1):
        assert not request.done
        path.pair.deliver()
        command = path.pair.held.pop()
        command.queue.complete(command, Status.NAMESPACE_NOT_READY, retry=True)
        path.pair.deliver()
        both.collect(path)
    assert request.done and request.error == "Namespace Not Ready"


def test_path_with_another_namespace_is_not_used(both: Paths) -> None:
    other = both.paths[1].pair.host
    other.namespaces = {nsid: item.__class__(nsid=nsid, nguid=b"o" * 16, blocks=item.blocks)
                        for nsid, item in other.namespaces.items()}  # fmt: skip
    both.write(0, b"w" * (3 * MIB))
    assert [path.pair.queue.outstanding for path in both.paths] == [3, 0]


@pytest.mark.parametrize(
    ("operation", "offset", "buffer"),
    [
        (Operation.WRITE, 1, bytes(BLOCK)),
        (Operation.WRITE, 0, bytes(100)),
        (Operation.WRITE, 0, b""),
        (Operation.WRITE, 4 * MIB, bytes(BLOCK)),
        (Operation.WRITE, -BLOCK, bytes(BLOCK)),
        (Operation.READ, 0, bytes(BLOCK)),  # memory that cannot be written
    ],
)
def test_request_that_cannot_be(both: Paths, operation: Operation, offset: int, buffer: bytes) -> None:
    with pytest.raises(UsageError):
        both.volume.submit(operation, offset, buffer, 0)
    assert not both.volume.unfinished


def test_what_is_not_answered_in_time_is_sent_again_and_then_fails(both: Paths) -> None:
    """The path that answers has the command in the end; without one it fails, and is not safe."""
    request = both.write(0, bytes(BLOCK))
    [silent] = [path for path in both.paths if path.pair.queue.outstanding]
    silent.pair.queue.note_timeout()
    both.kill(silent)
    assert not request.done and (both.volume.timed_out, both.volume.resent) == (1, 1)
    [other] = [path for path in both.paths if path is not silent]
    later = both.write(BLOCK, bytes(BLOCK))
    other.pair.queue.note_timeout()
    both.kill(other)
    assert request.done and request.error == f"not answered in time, {MOST_TIMEOUTS} times"
    assert not later.done and both.volume.unfinished == 1
