"""A controller's life: Connect, properties, features, log pages, keep-alive, events, abort, shutdown; and discovery."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from nvme_pair import (
    BLOCK,
    HOST,
    NAMESPACE,
    NQN,
    NvmePair,
    S,
    capsule,
    connect_capsule,
    discovery_pair,
    ic_request,
    live_pair,
    some_target,
    split_pdus,
)

from testbed.protocols.nvme.codes import (
    DISCOVERY_NQN,
    DO_NOT_RETRY,
    EVERY_NSID,
    AdminOpcode,
    Cns,
    Csts,
    Feature,
    LogPage,
    Property,
    Status,
)
from testbed.protocols.nvme.commands import (
    Cqe,
    Sqe,
    abort_command,
    async_event_command,
    connect_command,
    decode_cqe,
    disconnect_command,
    flush_command,
    get_features_command,
    get_log_page_command,
    identify_command,
    keep_alive_command,
    property_get_command,
    property_set_command,
    read_command,
    set_features_command,
)
from testbed.protocols.nvme.config import ControllerConfig
from testbed.protocols.nvme.controller_queue import ControllerQueue
from testbed.protocols.nvme.data_structures import (
    IDENTIFY_BYTES,
    decode_controller,
    decode_namespace,
    decode_namespace_list,
    decode_nguid,
)
from testbed.protocols.nvme.host_controller import HostState
from testbed.protocols.nvme.subsystem import Subsystem, Target

ENABLE = 0x460001


class Raw:
    """A connection on which the test itself is the host: sends capsules, gets completions."""

    def __init__(self, target: Target) -> None:
        self.queue: ControllerQueue = target.accept(0)
        self.queue.receive(ic_request(), 0)
        self.queue.take_to_send()

    def send(self, stream: bytes) -> Cqe:
        self.queue.receive(stream, 0)
        *_, last = split_pdus(self.queue.take_to_send())
        return decode_cqe(memoryview(last), 8)


def status_of(cqe: Cqe) -> Status:
    """Of one that is not to be tried again."""
    assert cqe.status & DO_NOT_RETRY
    return Status(cqe.status & 0x7FF)


def test_controller_is_ready_when_it_is_enabled() -> None:
    """Connect, then CC.EN, then CSTS.RDY; administration commands only from then on."""
    raw = Raw(some_target())
    assert status_of(raw.send(capsule(keep_alive_command(), 1))) is Status.COMMAND_SEQUENCE_ERROR
    cntlid = raw.send(connect_capsule()).result
    assert cntlid == 1
    assert raw.send(capsule(property_get_command(Property.CSTS), 2)).result == 0
    assert status_of(raw.send(capsule(keep_alive_command(), 3))) is Status.COMMAND_SEQUENCE_ERROR
    assert raw.send(capsule(property_set_command(Property.CC, ENABLE), 4)).good
    assert raw.send(capsule(property_get_command(Property.CSTS), 5)).result == Csts.RDY
    assert raw.send(capsule(keep_alive_command(), 6)).good
    assert raw.send(capsule(property_get_command(Property.VS), 7)).result == 0x10400
    capabilities = raw.send(capsule(property_get_command(Property.CAP), 8)).result
    assert (capabilities & 0xFFFF, capabilities >> 16 & 1, capabilities >> 37 & 1) == (127, 1, 1)


@pytest.mark.parametrize(
    ("stream", "status", "result"),
    [
        # IATTR and IPO: where in the command (bit 16 clear) or its data (set) the reason is.
        (connect_capsule(subnqn="nqn.other"), Status.CONNECT_INVALID_PARAMETERS, 1 << 16 | 256),
        (connect_capsule(hostnqn="nqn.stranger"), Status.CONNECT_INVALID_HOST, 1 << 16 | 512),
        (connect_capsule(cntlid=1), Status.CONNECT_INVALID_PARAMETERS, 1 << 16 | 16),
        (connect_capsule(1, cntlid=77), Status.CONNECT_INVALID_PARAMETERS, 1 << 16 | 16),
        (connect_capsule(entries=1), Status.CONNECT_INVALID_PARAMETERS, 44),
        (connect_capsule(entries=129), Status.CONNECT_INVALID_PARAMETERS, 44),
        (
            capsule(replace(connect_command(0, 32, 0, flow_control=False), cdw10=1), 0, bytes(1024)),
            Status.CONNECT_INCOMPATIBLE_FORMAT,
            40,
        ),
        (capsule(connect_command(0, 32, 0, flow_control=False), 0, bytes(512)), Status.DATA_SGL_LENGTH_INVALID, 0),
        (
            capsule(replace(connect_command(0, 32, 0, flow_control=False), sgl_type=0x5B), 0, length=0),
            Status.DATA_SGL_LENGTH_INVALID,
            0,
        ),
    ],
)
def test_connect_that_is_refused(stream: bytes, status: Status, result: int) -> None:
    subsystem = Subsystem(NQN, "serial", [NAMESPACE], frozenset({HOST.hostnqn}))
    target = some_target(None, subsystem)
    raw = Raw(target)
    cqe = raw.send(stream)
    assert (status_of(cqe), cqe.result) == (status, result)
    assert not subsystem.controllers
    assert raw.send(connect_capsule()).good


def test_there_are_not_more_controllers_than_allowed() -> None:
    target = some_target(ControllerConfig(most_controllers=2))
    assert Raw(target).send(connect_capsule()).result == 1
    second = Raw(target)
    assert second.send(connect_capsule()).result == 2
    assert status_of(Raw(target).send(connect_capsule())) is Status.CONNECT_CONTROLLER_BUSY
    second.queue.close("gone")
    assert Raw(target).send(connect_capsule()).result == 3


def test_io_queue_joins_a_controller_of_its_own_host_only() -> None:
    target = some_target()
    admin = Raw(target)
    cntlid = admin.send(connect_capsule()).result
    assert status_of(Raw(target).send(connect_capsule(1, cntlid=cntlid))) is Status.COMMAND_SEQUENCE_ERROR
    admin.send(capsule(property_set_command(Property.CC, ENABLE), 1))
    assert status_of(Raw(target).send(connect_capsule(1, cntlid=cntlid))) is Status.CONNECT_INVALID_PARAMETERS
    admin.send(capsule(set_features_command(Feature.NUMBER_OF_QUEUES, 0), 2))
    foreign = Raw(target).send(connect_capsule(1, cntlid=cntlid, hostnqn="nqn.other"))
    assert status_of(foreign) is Status.CONNECT_INVALID_PARAMETERS
    assert Raw(target).send(connect_capsule(1, cntlid=cntlid)).good
    assert status_of(Raw(target).send(connect_capsule(1, cntlid=cntlid))) is Status.CONNECT_INVALID_PARAMETERS
    assert status_of(Raw(target).send(connect_capsule(2, cntlid=cntlid))) is Status.CONNECT_INVALID_PARAMETERS


def test_entries_of_another_size_fail_the_controller() -> None:
    raw = Raw(some_target())
    raw.send(connect_capsule())
    raw.send(capsule(property_set_command(Property.CC, 0x450001), 1))
    assert raw.send(capsule(property_get_command(Property.CSTS), 2)).result == Csts.CFS


def test_identify() -> None:
    pair = live_pair()
    _, data = pair.admin(identify_command(Cns.CONTROLLER), IDENTIFY_BYTES)
    found = decode_controller(data)
    assert (found.cntlid, found.subnqn, found.serial, found.discovery) == (1, NQN, "serial", False)
    assert (found.most_transfer, found.in_capsule, found.most_commands) == (4 << 20, 8192, 128)
    # What Linux looks at: KAS, SQES, CQES, SGLS, IOCCSZ, IORCSZ, MSDBD.
    assert (data[320], data[512], data[513], data[1803]) == (1, 0x66, 0x44, 1)
    assert int.from_bytes(data[1792:1796], "little") == 4 + 8192 // 16
    assert int.from_bytes(data[536:540], "little") == 1 | 1 << 20
    _, data = pair.admin(identify_command(Cns.NAMESPACE, 1), IDENTIFY_BYTES)
    assert decode_namespace(1, data) == NAMESPACE
    _, data = pair.admin(identify_command(Cns.ACTIVE_NAMESPACES, 0), IDENTIFY_BYTES)
    assert decode_namespace_list(data) == [1]
    _, data = pair.admin(identify_command(Cns.NAMESPACE_DESCRIPTORS, 1), IDENTIFY_BYTES)
    assert decode_nguid(data) == NAMESPACE.nguid


@pytest.mark.parametrize(
    ("sqe", "length", "status"),
    [
        (Sqe(opcode=AdminOpcode.IDENTIFY, cdw10=0x1C), IDENTIFY_BYTES, Status.INVALID_FIELD_IN_COMMAND),
        (identify_command(Cns.NAMESPACE, 7), IDENTIFY_BYTES, Status.INVALID_NAMESPACE_OR_FORMAT),
        (identify_command(Cns.ACTIVE_NAMESPACES, EVERY_NSID), IDENTIFY_BYTES, Status.INVALID_NAMESPACE_OR_FORMAT),
        (identify_command(Cns.CONTROLLER), 512, Status.DATA_SGL_LENGTH_INVALID),
        (get_log_page_command(LogPage.DISCOVERY, 1024), 1024, Status.INVALID_LOG_PAGE),
        (get_log_page_command(LogPage.SMART, 512, offset=1 << 40), 512, Status.INVALID_FIELD_IN_COMMAND),
        (get_log_page_command(LogPage.SMART, 1 << 33), 512, Status.INVALID_FIELD_IN_COMMAND),
        (Sqe(opcode=AdminOpcode.SET_FEATURES, cdw10=0x7E), 0, Status.INVALID_FIELD_IN_COMMAND),
        (Sqe(opcode=AdminOpcode.SET_FEATURES, cdw10=0x0F | 1 << 31), 0, Status.INVALID_FIELD_IN_COMMAND),
        (set_features_command(Feature.NUMBER_OF_QUEUES, 0xFFFF), 0, Status.INVALID_FIELD_IN_COMMAND),
        (set_features_command(Feature.NUMBER_OF_QUEUES, 3), 0, Status.COMMAND_SEQUENCE_ERROR),
        (Sqe(opcode=0xC0), 0, Status.INVALID_COMMAND_OPCODE),
        (property_set_command(Property.VS, 1), 0, Status.INVALID_FIELD_IN_COMMAND),
        (property_get_command(Property.NSSR), 0, Status.INVALID_FIELD_IN_COMMAND),
        (disconnect_command(), 0, Status.INVALID_QUEUE_TYPE),
    ],
)
def test_administration_that_cannot_be(sqe: Sqe, length: int, status: Status) -> None:
    pair = live_pair()
    request, _ = pair.admin(sqe, length)
    assert Status(request.status & 0x7FF) is status
    assert pair.admin(keep_alive_command())[0].good


def test_features_are_as_set() -> None:
    pair = live_pair(replace(HOST, io_queues=3))
    assert pair.admin(get_features_command(Feature.NUMBER_OF_QUEUES))[0].result == 2 | 2 << 16
    pair.admin(set_features_command(Feature.KEEP_ALIVE_TIMER, 12_345))
    assert pair.admin(get_features_command(Feature.KEEP_ALIVE_TIMER))[0].result == 12_400  # units of KAS


def test_logs_tell_what_was_done() -> None:
    pair = live_pair()
    pair.submit(read_command(1, 0, 250), place=bytearray(250 * BLOCK))
    pair.submit(read_command(9, 5, 1), place=bytearray(BLOCK))
    _, data = pair.admin(get_log_page_command(LogPage.SMART, 512), 512)
    assert [int.from_bytes(data[at : at + 16], "little") for at in (32, 64, 176)] == [2, 1, 1]
    _, data = pair.admin(get_log_page_command(LogPage.ERROR, 64), 64)
    assert int.from_bytes(data[:8], "little") == 1
    assert int.from_bytes(data[12:14], "little") >> 1 == Status.INVALID_NAMESPACE_OR_FORMAT | DO_NOT_RETRY
    assert (int.from_bytes(data[16:24], "little"), int.from_bytes(data[24:28], "little")) == (5, 9)


def test_host_hears_of_a_namespace_that_changes() -> None:
    pair = live_pair()
    subsystem = pair.target.subsystems[NQN]
    subsystem.change_namespace(2, replace(NAMESPACE, nsid=2, nguid=b"n" * 16))
    pair.deliver()
    assert sorted(pair.host.namespaces) == [1, 2]
    subsystem.change_namespace(1, None)
    pair.deliver()
    assert sorted(pair.host.namespaces) == [2]


def test_event_requests_beyond_the_limit_are_refused() -> None:
    pair = live_pair()
    requests = [pair.admin(async_event_command())[0] for _ in range(4)]
    assert requests[-1].status == Status.ASYNC_EVENT_REQUEST_LIMIT_EXCEEDED | DO_NOT_RETRY


def test_abort_ends_what_has_not_begun() -> None:
    pair = live_pair()
    pair.hold = True
    first = pair.submit(read_command(1, 0, 1), place=bytearray(BLOCK))
    second = pair.submit(flush_command(1))
    pair.held[0].started = True
    assert pair.admin(abort_command(1, first.cid))[0].result == 1
    assert pair.admin(abort_command(1, second.cid))[0].result == 0
    assert second.status == Status.COMMAND_ABORT_REQUESTED
    assert pair.admin(abort_command(1, 99))[0].result == 1
    pair.step(pair.held[1])  # The I/O layer may not know yet.
    pair.step(pair.held[0])
    pair.deliver()
    assert first.good


def test_abort_of_an_event_request() -> None:
    pair = live_pair()
    request, _ = pair.admin(async_event_command())
    assert pair.admin(abort_command(0, request.cid))[0].result == 0
    assert request.status == Status.COMMAND_ABORT_REQUESTED


def test_keep_alive_holds_an_association_that_does_nothing() -> None:
    pair = live_pair(replace(HOST, kato_ms=1000))
    pair.pass_time(10, steps=100)
    assert pair.host.state is HostState.LIVE


def test_controller_ends_with_a_host_that_is_not_heard_of() -> None:
    pair = live_pair(replace(HOST, kato_ms=1000))
    assert pair.target.next_timer() == S
    pair.target.on_timer(S - 1)
    assert list(pair.target.controllers())
    pair.target.on_timer(S)
    assert not list(pair.target.controllers())
    assert all(far.closed for _, far in pair.links)
    assert pair.target.counts["keep-alive time-outs"] == 1


def test_host_gives_up_a_controller_that_does_not_answer() -> None:
    pair = live_pair(replace(HOST, kato_ms=1000))
    times = []
    while pair.host.state is HostState.LIVE:
        timer = pair.host.next_timer()
        assert timer is not None
        times.append(timer / S)
        pair.host.advance(timer)
    assert times == [0.5, 1.5]
    assert pair.host.reason == "Keep Alive was not answered"
    assert all(near.closed for near, _ in pair.links)


def test_commands_are_signs_of_life() -> None:
    """CTRATT.TBKAS."""
    pair = live_pair(replace(HOST, kato_ms=1000))
    for _ in range(5):
        pair.now += 900_000_000
        pair.submit(flush_command(1))
        pair.target.on_timer(pair.now)
    assert list(pair.target.controllers())


@pytest.mark.parametrize("what", ["nothing", "ICReq"])
def test_connection_without_connect_ends(what: str) -> None:
    target = some_target(ControllerConfig(handshake_ns=3 * S))
    queue = target.accept(0)
    queue.receive(ic_request() if what == "ICReq" else b"", 0)
    assert target.next_timer() == 3 * S
    target.on_timer(3 * S)
    assert queue.closed
    target.forget(queue)
    assert not target.queues and target.next_timer() is None


def test_shutdown_is_complete_before_the_host_leaves() -> None:
    pair = live_pair()
    controller = next(iter(pair.target.controllers()))
    pair.host.shut_down(pair.now)
    pair.deliver()
    assert controller.csts & 0xC == Csts.SHST_COMPLETE
    assert pair.host.state is HostState.FAILED and pair.host.reason == "shut down"


def reset(pair: NvmePair) -> None:
    pair.admin(property_set_command(Property.CC, 0x460000))


def disconnect(pair: NvmePair) -> None:
    pair.submit(disconnect_command())


def cut_admin(pair: NvmePair) -> None:
    pair.links[0][1].close("cut")
    pair.deliver()


@pytest.mark.parametrize(("end", "controllers"), [(reset, 1), (disconnect, 1), (cut_admin, 0)])
def test_io_queues_end(end: Callable[[NvmePair], None], controllers: int) -> None:
    pair = live_pair()
    end(pair)
    assert pair.links[1][1].closed
    assert pair.host.state is HostState.FAILED
    pair.links[0][1].close("the host has gone")
    assert len(list(pair.target.controllers())) == 0 or controllers


def test_association_that_is_not_up_in_time_fails() -> None:
    pair = NvmePair(some_target())
    pair.host.open_queue(0, 0)
    pair.host.advance(HOST.connect_ns - 1)
    assert pair.host.state is HostState.CONNECTING
    assert pair.host.next_timer() == HOST.connect_ns
    pair.host.advance(HOST.connect_ns)
    assert pair.host.state is HostState.FAILED


def test_host_sees_what_it_may_have() -> None:
    target = some_target(
        None,
        Subsystem("nqn.everybodys", "1", [NAMESPACE]),
        Subsystem("nqn.mine", "2", [NAMESPACE], frozenset({"nqn.me"})),
        Subsystem("nqn.others", "3", [NAMESPACE], frozenset({"nqn.other"})),
    )
    target.addresses = [("10.5.0.1", 4420), ("2001:db8::1", 4421)]
    found = discovery_pair(target, "nqn.me").host.discovered
    assert [(item.subnqn, item.address, item.port) for item in found] == [
        ("nqn.everybodys", "10.5.0.1", 4420),
        ("nqn.everybodys", "2001:db8::1", 4421),
        ("nqn.mine", "10.5.0.1", 4420),
        ("nqn.mine", "2001:db8::1", 4421),
    ]
    refused = NvmePair(target, replace(HOST, hostnqn="nqn.me"), "nqn.others")
    refused.deliver()
    assert refused.host.state is HostState.FAILED
    assert refused.host.reason == "queue 0: Connect: Connect Invalid Host, do not retry"
    assert target.counts["hosts refused"] == 1


def test_discovery_controller_has_no_namespaces() -> None:
    pair = discovery_pair(some_target(), "nqn.me")
    assert pair.host.state is HostState.LIVE
    _, data = pair.admin(identify_command(Cns.CONTROLLER), IDENTIFY_BYTES)
    assert decode_controller(data).discovery
    assert pair.admin(identify_command(Cns.NAMESPACE, 1), IDENTIFY_BYTES)[0].status & 0x7FF
    assert pair.admin(get_log_page_command(LogPage.SMART, 512), 512)[0].status & 0x7FF == Status.INVALID_LOG_PAGE
    assert pair.admin(set_features_command(Feature.NUMBER_OF_QUEUES, 0))[0].status & 0x7FF
    assert pair.host.subnqn == DISCOVERY_NQN


def test_a_command_that_is_not_answered_ends_the_association() -> None:
    """Keep Alive is answered all the time; the time-out is of the oldest command, and what ends in time has none."""
    pair = live_pair(replace(HOST, io_timeout_ns=8 * S))
    assert pair.submit(flush_command(1)).good
    pair.hold = True
    pair.pass_time(5)
    first = pair.submit(flush_command(1))
    timer = pair.host.next_timer()
    pair.pass_time(5)
    second = pair.submit(flush_command(1))
    assert timer is not None and pair.host.state.value == "live" and not (first.lost or second.lost)
    pair.pass_time(2.9, steps=29)
    assert pair.host.state.value == "live"
    pair.pass_time(0.2)
    assert pair.host.state.value == "failed" and pair.host.reason == "a command was not answered for 8 s"
    assert all(request.lost and request.timed_out for request in (first, second))


def test_without_a_timeout_a_command_may_take_for_ever() -> None:
    pair = live_pair(replace(HOST, io_timeout_ns=0))
    pair.hold = True
    request = pair.submit(flush_command(1))
    pair.pass_time(100, steps=100)
    assert pair.host.state.value == "live" and not request.lost
