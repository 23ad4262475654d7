"""Rtnetlink messages of routes, rules and classes, and how batches are answered.

Links, addresses and rates are read back from the kernel by pyroute2 in `tests/contract/test_kernel_contract.py`.
"""

import errno
import socket
import struct
from typing import Any

import pytest

from testbed.base.datapath.abi import LINE_CLASS
from testbed.base.errors import DriverError
from testbed.base.linux import rtnetlink as nl
from testbed.base.linux import traffic_control as traffic
from testbed.base.linux.routes import Mismatch, WantedRoute, difference


def _decode(data: bytes, header: int) -> tuple[int, int, bytes, dict[int, bytes]]:
    """(type, flags, fixed header, attributes) of the one message in `data`."""
    length, kind, flags, sequence, port = struct.unpack_from("=IHHII", data)
    assert (length, sequence, port) == (len(data), 0, 0)
    body = data[16:]
    return kind, flags, body[:header], nl.fields(body, header)


def test_a_route_in_a_high_table_goes_by_attribute() -> None:
    data = nl.new_route(bytes([10, 1, 0, 0]), 16, bytes([10, 0, 0, 1]), 9, table=1001, source=bytes([10, 0, 0, 2]))
    kind, flags, header, fields = _decode(data, 12)
    assert (kind, flags) == (nl.RTM_NEWROUTE, nl.NLM_F_REQUEST | nl.NLM_F_CREATE | nl.NLM_F_EXCL)
    assert tuple(header[:8]) == (socket.AF_INET, 16, 0, 0, 0, nl.RTPROT_STATIC, nl.RT_SCOPE_UNIVERSE, nl.RTN_UNICAST)
    assert fields == {
        nl.RTA_TABLE: struct.pack("=I", 1001),
        nl.RTA_OIF: struct.pack("=I", 9),
        nl.RTA_DST: bytes([10, 1, 0, 0]),
        nl.RTA_GATEWAY: bytes([10, 0, 0, 1]),
        nl.RTA_PREFSRC: bytes([10, 0, 0, 2]),
    }


def test_a_default_route_has_no_destination_and_an_on_link_one_no_gateway() -> None:
    _, _, header, fields = _decode(nl.new_route(bytes(4), 0, bytes([10, 0, 0, 1]), 2, table=254, source=None), 12)
    assert header[4] == 254
    assert set(fields) == {nl.RTA_TABLE, nl.RTA_OIF, nl.RTA_GATEWAY}
    _, _, header, fields = _decode(nl.new_route(bytes([10, 0, 0, 0]), 8, None, 2, table=254, source=None), 12)
    assert header[6] == nl.RT_SCOPE_LINK
    assert nl.RTA_GATEWAY not in fields


def test_ipv6_has_its_family_and_an_address_that_nobody_is_asked_about() -> None:
    address, gateway = bytes.fromhex("fd00") + bytes(13) + b"\2", bytes.fromhex("fd00") + bytes(13) + b"\1"
    data = nl.new_address(5, address, 64)
    assert struct.unpack_from("=BBBBI", data, 16) == (socket.AF_INET6, 64, 0x02, 0, 5)  # IFA_F_NODAD
    _, _, header, fields = _decode(nl.new_route(bytes(16), 0, gateway, 2, table=254, source=address), 12)
    assert header[0] == socket.AF_INET6
    assert fields[nl.RTA_GATEWAY] == gateway
    _, _, header, fields = _decode(nl.new_source_rule(address, 101, 1001), 12)
    assert (header[0], header[2]) == (socket.AF_INET6, 128)


def test_a_source_rule() -> None:
    kind, _, header, fields = _decode(nl.new_source_rule(bytes([10, 0, 0, 2]), 101, 1001), 12)
    assert kind == nl.RTM_NEWRULE
    assert (header[0], header[2], header[4], header[7]) == (socket.AF_INET, 32, 101, nl.FR_ACT_TO_TBL)
    assert fields[nl.FRA_SRC] == bytes([10, 0, 0, 2])
    assert fields[nl.FRA_PRIORITY] == struct.pack("=I", 1001)


@pytest.mark.parametrize("rate_bps", [40_000_000, 40_000_000_000])
def test_a_shaped_port_has_its_rate_and_burst(rate_bps: int) -> None:
    kind, _, header, fields = _decode(traffic.new_htb_line_class(5, rate_bps, 20_000, 4500), 20)
    assert kind == nl.RTM_NEWTCLASS
    assert struct.unpack("=BxxxiIII", header) == (0, 5, LINE_CLASS, traffic.HTB_ROOT_HANDLE, 0)
    options = nl.fields(fields[nl.TCA_OPTIONS])
    parameters = options[traffic.TCA_HTB_PARMS]
    assert len(parameters) == 44  # struct tc_htb_opt
    rate = min(rate_bps // 8, 0xFFFFFFFF)
    assert int.from_bytes(parameters[8:12], "little") == int.from_bytes(parameters[20:24], "little") == rate
    buffer_ticks, cbuffer_ticks = struct.unpack_from("=II", parameters, 24)
    assert buffer_ticks == cbuffer_ticks == 20_000 * 10**9 // (rate_bps // 8) // 64
    if rate_bps // 8 > 0xFFFFFFFF:
        assert int.from_bytes(options[traffic.TCA_HTB_RATE64], "little") == rate_bps // 8


def test_attributes_are_padded_and_read_back() -> None:
    data = nl.text(1, "abc") + nl.text(2, "abcd") + nl.u32(3, 7)
    assert len(data) % 4 == 0
    assert nl.fields(data) == {1: b"abc\0", 2: b"abcd\0", 3: b"\7\0\0\0"}


@pytest.mark.parametrize("data", [b"", b"\0", bytes(4), b"\xff\xff\1\0abcd", b"\3\0\1\0"])
def test_malformed_attributes_and_messages_end_the_reading(data: bytes) -> None:
    assert list(nl.attributes(data)) == []
    assert list(nl.messages(data)) == []


class _Kernel:
    """Stands in for a netlink socket: notes what is sent and answers as a kernel that refuses some messages."""

    def __init__(self, refusals: dict[int, tuple[int, str]], *, split: bool = False) -> None:
        self.refusals = refusals
        self.received: list[bytes] = []
        self._answers: list[bytes] = []
        self._split = split

    def sendto(self, data: bytes, _: Any) -> int:
        answers = []
        for kind, flags, sequence, body in nl.messages(bytes(data)):
            refusal = self.refusals.get(len(self.received))
            self.received.append(bytes(body))
            if refusal or flags & nl.NLM_F_ACK:
                code, text = refusal or (0, "")
                answer = struct.pack("=i", -code) + struct.pack("=IHHII", 16, kind, flags, sequence, 0)
                answer += nl.text(1, text) if text else b""
                tlvs = 0x200 if text else 0
                answers.append(struct.pack("=IHHII", 16 + len(answer), nl.NLMSG_ERROR, tlvs, sequence, 0) + answer)
        stray = struct.pack("=IHHII", 20, nl.NLMSG_ERROR, 0, 99_999, 0) + struct.pack("=i", -errno.EIO)
        self._answers += [stray, *answers] if self._split else [stray + b"".join(answers)]
        return len(data)

    def recv(self, _: int) -> bytes:
        return self._answers.pop(0)

    def close(self) -> None:
        assert self._answers == []


def _socket(kernel: _Kernel) -> nl.RouteSocket:
    made = nl.RouteSocket.__new__(nl.RouteSocket)
    made._socket = kernel  # type: ignore[assignment]
    made._sequence = 1
    return made


@pytest.mark.parametrize("split", [False, True])
def test_one_acknowledgement_closes_a_batch_and_failures_are_found_by_number(split: bool) -> None:
    kernel = _Kernel({1: (errno.EEXIST, ""), 3: (errno.EINVAL, "no such thing")}, split=split)
    route = _socket(kernel)
    batch = [nl.set_link_state(index, True) for index in range(1, 6)]
    assert route.submit(batch) == [nl.Failure(1, errno.EEXIST, ""), nl.Failure(3, errno.EINVAL, "no such thing")]
    assert [int.from_bytes(body[4:8], "little") for body in kernel.received] == [1, 2, 3, 4, 5]
    assert route.submit([]) == []
    route.close()


def test_a_large_batch_goes_in_several_chunks_and_numbers_run_on() -> None:
    kernel = _Kernel({0: (errno.EPERM, ""), 19_999: (errno.EPERM, "")})
    route = _socket(kernel)
    failures = route.submit([nl.set_link_state(index, True) for index in range(20_000)])
    assert [failure.index for failure in failures] == [0, 19_999]
    assert len(kernel.received) == 20_000


def test_the_first_refusal_is_the_error() -> None:
    route = _socket(_Kernel({1: (errno.EEXIST, "taken"), 2: (errno.EPERM, "")}))
    with pytest.raises(DriverError, match=r"second: File exists: taken \(and 1 more\)") as caught:
        route.expect([nl.set_link_state(1, True)] * 3, ["first", "second", "third"])
    assert (caught.value.operation, caught.value.errno) == ("second", errno.EEXIST)


def test_a_route_is_as_planned_when_width_and_interfaces_are() -> None:
    wanted = {
        (1, 32): WantedRoute(interfaces=frozenset({10, 11, 12}), next_hops=2),
        (2, 32): WantedRoute(interfaces=frozenset({10}), next_hops=1),
        (3, 24): WantedRoute(interfaces=frozenset(), next_hops=0),
    }
    assert difference(wanted, {(1, 32): (10, 12), (2, 32): (10,), (3, 24): (), (9, 9): (1,)}) == {}
    missing = difference(wanted, {(1, 32): (10,), (2, 32): (13,)})
    assert missing == {
        (1, 32): Mismatch(found=1, next_hops=2),
        (2, 32): Mismatch(found=1, next_hops=1),
        (3, 24): Mismatch(found=None, next_hops=0),
    }
    assert [str(item) for item in missing.values()] == [
        "has 1 of 2 next hops",
        "has 1 next hops over other interfaces than planned",
        "is missing",
    ]


def test_a_route_is_as_planned_when_its_weights_are() -> None:
    """Of two that are alike before a bandwidth is told, the one that is to be uneven is not there yet."""
    uneven = WantedRoute(interfaces=frozenset({10, 11}), next_hops=2, weights={10: 66, 11: 33})
    wanted = {(1, 32): uneven, (2, 32): WantedRoute(interfaces=frozenset({10, 11}), next_hops=2)}
    actual = {(1, 32): (10, 11), (2, 32): (10, 11)}
    alike = {(1, 32): {11: 1, 10: 1}, (2, 32): {10: 1, 11: 1}, (9, 9): {1: 7}}
    missing = difference(wanted, actual, alike)
    assert missing == {(1, 32): Mismatch(found=2, next_hops=2, weights=((1, 1), (33, 66)))}
    assert str(missing[1, 32]) == "has weights 1/1, and 33/66 were planned"
    planned = {(1, 32): {10: 66, 11: 33}}
    assert difference(wanted, actual, alike | planned) == {}
    assert difference(wanted, actual, planned | {(2, 32): {10: 33, 11: 33}}) == {}, "all alike"
    (left,) = difference(wanted, actual, planned | {(2, 32): {10: 66, 11: 33}}).values()
    assert str(left) == "has weights 66/33, and 1/1 were planned"
