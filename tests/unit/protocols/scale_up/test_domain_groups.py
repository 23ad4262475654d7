"""What the switch of a scale-up domain does with the memory of a group of GPUs: copies to all, and sums."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import replace

import pytest
from encoded_frames import encode_frame
from virtual_domain import KEY, Closing, VirtualDomain, share_of

from testbed.protocols.scale_up.domain import binding
from testbed.protocols.scale_up.domain.endpoint import Element, Kind
from testbed.protocols.scale_up.domain.errors import Outcome
from testbed.protocols.scale_up.domain.link import FlowControl, LinkErrors, LinkSettings
from testbed.protocols.scale_up.frames import DataFrame
from testbed.protocols.scale_up.headers import UaRequest, UaResponse
from testbed.protocols.scale_up.retry import RetryConfig

MS = 1_000_000
GPUS = 4
LINK = LinkSettings(rate_bps=1_000_000_000, delay_ns=20_000, flow_control=FlowControl.CREDITS, capacity=(80, 80))
OFFSET = 8192


def group_operation(
    domain: VirtualDomain, gpu: int, kind: Kind, data: ctypes.Array[ctypes.c_char], operand: int
) -> tuple[int, int]:
    size = domain.planes * domain.link.coarse * 256 if kind is Kind.JOIN else len(data)
    remote = 0 if kind is Kind.JOIN else KEY << 35 | OFFSET
    domain._kept.append(data)
    handle = domain.native.endpoint_begin(
        *(domain.endpoints[gpu], kind, gpu, remote, ctypes.addressof(data), size, 0),
        (ctypes.c_uint64 * 2)(3, operand),
        binding.VC_OF_REQUESTS,
        domain.now,
    )
    assert handle
    return gpu, handle


def buffer(data: bytes) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(data, len(data))


def joined(closing: Closing, domain: VirtualDomain, members: int = GPUS) -> VirtualDomain:
    closing(domain)
    for endpoint in domain.endpoints:
        assert domain.native.endpoint_authorise(endpoint, 0, binding.SWITCH_ID, True) == 0
    handles = [group_operation(domain, gpu, Kind.JOIN, buffer(b"-"), members) for gpu in range(members)]
    domain.run(domain.now + 100 * MS, *handles)
    assert [domain.ended[handle].outcome for handle in handles] == [0] * members
    return domain


@pytest.mark.parametrize("voq", [False, True])
@pytest.mark.parametrize("flow_control", list(FlowControl))
def test_a_store_reaches_all_members_and_nobody_else(closing: Closing, voq: bool, flow_control: FlowControl) -> None:
    link = replace(LINK, flow_control=flow_control)
    domain = joined(closing, VirtualDomain(link=link, gpus=GPUS + 1, planes=2, voq=voq), GPUS)
    data = bytes(range(256)) * 300
    handle = group_operation(domain, 1, Kind.MULTICAST, buffer(data), 0)
    domain.run(domain.now + 1000 * MS, handle)
    assert domain.ended[handle].outcome == 0
    for gpu in range(GPUS):
        assert domain.memory[gpu].raw[OFFSET : OFFSET + len(data)] == data
    assert not any(domain.memory[GPUS].raw)
    assert all(domain.core.held(port, 0) == 0 for port in range(2 * GPUS))


def test_a_store_takes_the_senders_link_once(closing: Closing) -> None:
    domain = joined(closing, VirtualDomain(link=LINK, gpus=GPUS))
    handle = group_operation(domain, 0, Kind.MULTICAST, buffer(bytes(1 << 20)), 0)
    domain.run(domain.now + 1000 * MS, handle)
    assert share_of(LINK, 1 << 20, domain.took_ns(handle)) > 0.95


@pytest.mark.parametrize("element", list(Element))
def test_a_load_has_the_sums_of_all(closing: Closing, element: Element) -> None:
    domain = joined(closing, VirtualDomain(link=LINK, gpus=GPUS, planes=2))
    count, form = 5001, "i" if element is Element.INT32 else "f"
    for gpu, memory in enumerate(domain.memory):
        memory[OFFSET : OFFSET + 4 * count] = struct.pack(f"{count}{form}", *((gpu + 1) * n for n in range(count)))
    found = buffer(bytes(4 * count))
    handle = group_operation(domain, 2, Kind.REDUCE, found, element)
    domain.run(domain.now + 1000 * MS, handle)
    assert domain.ended[handle].outcome == 0
    assert struct.unpack(f"{count}{form}", found.raw) == tuple(10 * n for n in range(count))


def test_sums_of_all_owners_use_the_links_as_the_formula_says(closing: Closing) -> None:
    """Each of g GPUs loads the sums of a g-th: all send S, and receive S / g."""
    domain = joined(closing, VirtualDomain(link=LINK, gpus=GPUS))
    begun, size = domain.now, 1 << 19
    handles = [group_operation(domain, gpu, Kind.REDUCE, buffer(bytes(size)), 2) for gpu in range(GPUS)]
    domain.run(begun + 1000 * MS, *handles)
    took = max(domain.ended[handle].ended_ns for handle in handles) - begun
    assert 0.85 < share_of(LINK, GPUS * size, took) <= 1


def test_reads_that_wait_for_answers_to_those_before_are_not_late(closing: Closing) -> None:
    domain = joined(closing, VirtualDomain(link=LINK, gpus=GPUS))
    handles = [group_operation(domain, gpu, Kind.REDUCE, buffer(bytes(1 << 18)), 2) for gpu in range(GPUS)]
    domain.run(domain.now + 1000 * MS, *handles)
    lateness = domain.core.times()["lateness"]
    assert lateness["count"] > GPUS * (1 << 18) // 4096 and lateness["max_ns"] < 1_000


def test_links_that_lose_frames_lose_nothing_of_sums_and_copies(closing: Closing) -> None:
    """Copies, answers of members and those of the switch are sent again by links as all frames are."""
    retry = RetryConfig(outstanding_frames_max=32, replay_timer_ns=2 * MS, replay_count_max=255)
    domain = joined(closing, VirtualDomain(link=replace(LINK, retry=retry), gpus=GPUS))
    for gpu in range(GPUS):
        domain.set_errors(gpu, 0, LinkErrors(loss=0.02))
    data = struct.pack("20000i", *range(20000))
    store = group_operation(domain, 0, Kind.MULTICAST, buffer(data), 0)
    domain.run(domain.now + 3000 * MS, store)
    found = buffer(bytes(len(data)))
    load = group_operation(domain, 1, Kind.REDUCE, found, Element.INT32)
    domain.run(domain.now + 3000 * MS, load)
    assert domain.ended[store].outcome == domain.ended[load].outcome == 0
    assert struct.unpack("20000i", found.raw) == tuple(GPUS * n for n in range(20000))
    assert sum(port["wire_lost_tx"] for port in domain.core.counters()) > 0


def test_a_member_that_is_down_is_said(closing: Closing) -> None:
    domain = joined(closing, VirtualDomain(link=LINK, gpus=GPUS))
    domain.set_errors(3, 0, LinkErrors(down=True))
    domain.run(domain.now + 100 * MS)
    handle = group_operation(domain, 0, Kind.REDUCE, buffer(bytes(4096)), 2)
    domain.run(domain.now + 1000 * MS, handle)
    assert domain.ended[handle].outcome == Outcome.LINK_DOWN


def test_only_members_may(closing: Closing) -> None:
    domain = joined(closing, VirtualDomain(link=LINK, gpus=GPUS + 1), GPUS)
    handle = group_operation(domain, GPUS, Kind.MULTICAST, buffer(bytes(4096)), 0)
    domain.run(domain.now + 1000 * MS, handle)
    assert domain.ended[handle].outcome == Outcome.REFUSED


def test_frames_of_an_enemy_change_nothing(closing: Closing) -> None:
    """A member sends answers that nobody asked for, and requests that make no sense; then all goes on as before."""
    domain = joined(closing, VirtualDomain(link=replace(LINK, flow_control=FlowControl.NONE), gpus=GPUS))
    zeros = bytes(6)
    for tag in range(0, 2048, 3):
        answer = UaResponse(1, tag, 0, 0, 0, 0, 0, 1, 1, binding.SWITCH_ID)
        domain.core.receive(1, encode_frame(DataFrame(zeros, zeros, 1, answer, bytes(64))), domain.now)
        domain.run(domain.now + MS)
    for command in (0x08, 0x2C, 0x2D):
        for destination in (3, 15, 16, 1023):
            for attributes in (0, 0x10, 0xFF):
                ask = UaRequest(command, 0, 0, 7, 0, attributes, 63, 255, 4096, 1, destination)
                domain.core.receive(1, encode_frame(DataFrame(zeros, zeros, 0, ask, bytes(64))), domain.now)
                domain.run(domain.now + MS)
    domain.run(domain.now + 5000 * MS)
    handles = [group_operation(domain, gpu, Kind.JOIN, buffer(b"-"), GPUS) for gpu in range(GPUS)]
    domain.run(domain.now + 100 * MS, *handles)
    found = buffer(bytes(4096))
    for memory in domain.memory:
        memory[OFFSET : OFFSET + 4096] = struct.pack("1024i", *range(1024))
    handle = group_operation(domain, 1, Kind.REDUCE, found, Element.INT32)
    domain.run(domain.now + 1000 * MS, handle)
    assert domain.ended[handle].outcome == 0
    assert struct.unpack("1024i", found.raw) == tuple(GPUS * n for n in range(1024))
