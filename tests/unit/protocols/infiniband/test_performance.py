"""The performance agent: what it answers, what it begins anew, and whom it does not answer."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.protocols.infiniband.data_path import PathNode
from testbed.protocols.infiniband.performance import (
    ALL_PORTS,
    CLASS_PORT_INFO,
    GET,
    INVALID_FIELD,
    MAD_BYTES,
    PORT_COUNTERS,
    PORT_COUNTERS_EXTENDED,
    PORT_VL_DATA,
    SET,
    UNKNOWN_METHOD,
    PerformanceAgent,
)

SWITCH, HCA = 2, 1
NODES = (
    PathNode(name="h1:rail1", ports=1, lid=HCA, is_switch=False),
    PathNode(name="leaf", ports=3, lid=SWITCH, is_switch=True),
)
DATA = 64
"""Where the attribute begins in a datagram."""


class Ports:
    """The counters of all ports, which tests change."""

    def __init__(self) -> None:
        self.values = {"xmit_data": 100, "rcv_data": 7, "xmit_pkts": 3, "xmit_discards": 2, "link_downed": 1}
        self.values |= {"xmit_wait": 50, "buffer_overruns": 4, "vl_data_3": 9}

    def read(self, node: str, port: int) -> Mapping[str, int]:
        return self.values


@pytest.fixture
def ports() -> Ports:
    return Ports()


@pytest.fixture
def agent(ports: Ports) -> PerformanceAgent:
    return PerformanceAgent(NODES, ports.read)


def mad(attribute: int, port: int = 1, *, method: int = GET, select: int = 0, more: bytes = b"") -> bytes:
    head = bytes((1, 4, 1, method, 0, 0, 0, 0)) + b"transact" + attribute.to_bytes(2, "big") + bytes(6)
    data = bytes((0, port)) + select.to_bytes(2, "big") + more
    return head.ljust(DATA, b"\0") + data.ljust(MAD_BYTES - DATA, b"\0")


def asked(agent: PerformanceAgent, lid: int, question: bytes) -> bytes:
    found = agent.answer(lid, question)
    assert len(found) == MAD_BYTES
    assert (found[1], found[3], found[8:16]) == (4, 0x81, b"transact")
    return found


def status(answer: bytes) -> int:
    return int.from_bytes(answer[4:6], "big")


def field(answer: bytes, at: int, size: int) -> int:
    return int.from_bytes(answer[DATA + at : DATA + at + size], "big")


def test_counters_are_where_the_tools_look_for_them(agent: PerformanceAgent) -> None:
    answer = asked(agent, HCA, mad(PORT_COUNTERS))
    assert status(answer) == 0
    assert (field(answer, 24, 4), field(answer, 28, 4), field(answer, 32, 4)) == (100, 7, 3)
    assert (field(answer, 14, 2), field(answer, 7, 1), field(answer, 40, 4)) == (2, 1, 50)
    assert field(answer, 19, 1) == 4, "the low half: overruns of buffers"
    wide = asked(agent, HCA, mad(PORT_COUNTERS_EXTENDED))
    assert (field(wide, 8, 8), field(wide, 24, 8), field(wide, 40, 8), field(wide, 56, 8)) == (100, 3, 3, 0)
    assert field(wide, 72 + 8 * 12, 8) == 50, "PortXmitWait"
    assert field(asked(agent, HCA, mad(PORT_VL_DATA)), 4 + 4 * 3, 4) == 9


def test_narrow_counters_stop_at_their_largest_value(agent: PerformanceAgent, ports: Ports) -> None:
    ports.values |= {"xmit_data": 1 << 40, "link_downed": 300, "buffer_overruns": 99}
    answer = asked(agent, HCA, mad(PORT_COUNTERS))
    assert (field(answer, 24, 4), field(answer, 7, 1), field(answer, 19, 1)) == (0xFFFFFFFF, 255, 15)
    assert field(asked(agent, HCA, mad(PORT_COUNTERS_EXTENDED)), 8, 8) == 1 << 40


def test_what_is_begun_anew_is_what_the_mask_names_at_that_port(agent: PerformanceAgent, ports: Ports) -> None:
    asked(agent, SWITCH, mad(PORT_COUNTERS, 2, method=SET, select=1 << 12))  # PortXmitData
    ports.values["xmit_data"] += 11
    ports.values["xmit_discards"] += 1
    answer = asked(agent, SWITCH, mad(PORT_COUNTERS, 2))
    assert (field(answer, 24, 4), field(answer, 14, 2)) == (11, 3)
    assert field(asked(agent, SWITCH, mad(PORT_COUNTERS, 1)), 24, 4) == 111
    asked(agent, SWITCH, mad(PORT_COUNTERS, ALL_PORTS, method=SET, select=0xFFFF, more=bytes(14) + b"\1"))
    answer = asked(agent, SWITCH, mad(PORT_COUNTERS, ALL_PORTS))
    assert field(answer, 24, 4) == field(answer, 40, 4) == 0


def test_all_ports_of_a_switch_are_added_up(agent: PerformanceAgent) -> None:
    assert field(asked(agent, SWITCH, mad(PORT_COUNTERS, ALL_PORTS)), 24, 4) == 300
    capabilities = field(asked(agent, SWITCH, mad(CLASS_PORT_INFO)), 2, 2)
    assert capabilities & 1 << 8, "AllPortSelect"


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (mad(PORT_COUNTERS, 4), INVALID_FIELD),
        (mad(PORT_COUNTERS, 0), INVALID_FIELD),
        (mad(0x0036), UNKNOWN_METHOD),
        (mad(CLASS_PORT_INFO, method=SET), UNKNOWN_METHOD),
    ],
)
def test_what_there_is_not_is_said(agent: PerformanceAgent, question: bytes, expected: int) -> None:
    assert status(asked(agent, SWITCH, question)) == expected


def test_nobody_answers_for_others_and_no_answer_is_answered(agent: PerformanceAgent) -> None:
    assert agent.answer(99, mad(PORT_COUNTERS)) is None
    assert agent.answer(0, mad(PORT_COUNTERS)) is None
    assert agent.answer(HCA, mad(PORT_COUNTERS, method=0x81)) is None
    assert agent.answer(HCA, mad(PORT_COUNTERS)[:-1]) is None


@given(lid=st.integers(0, 3), question=st.binary(min_size=MAD_BYTES, max_size=MAD_BYTES))
def test_whatever_is_asked_it_answers_or_is_silent(lid: int, question: bytes) -> None:
    found = PerformanceAgent(NODES, Ports().read).answer(lid, bytes((1, 4)) + question[2:])
    assert found is None or len(found) == MAD_BYTES
