"""PMI-1 as MPICH's ranks speak it, without I/O: the lines that they send, and what they are answered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.run.launch.pmi import MAX_LINE_BYTES, PmiAbort, PmiAnswer, PmiError, PmiServer

MAPPING = "(vector,(0,2,1))"


def server(size: int = 2) -> PmiServer:
    return PmiServer(size=size, mapping=MAPPING)


def asked(pmi: PmiServer, rank: int, text: str) -> list[tuple[int, str]]:
    found = []
    for item in pmi.receive(rank, text.encode()):
        assert isinstance(item, PmiAnswer)
        found.append((item.rank, item.line.decode()))
    return found


def test_a_whole_dialogue_of_two_ranks() -> None:
    """The requests are those of MPICH 5.0.2 in their order, with shorter values."""
    pmi = server()
    for rank in (0, 1):
        assert asked(pmi, rank, "cmd=init pmi_version=1 pmi_subversion=1\n") == [
            (rank, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n")
        ]
        assert asked(pmi, rank, "cmd=get_maxes\n") == [
            (rank, "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=4096\n")
        ]
        assert asked(pmi, rank, "cmd=get_appnum\n") == [(rank, "cmd=appnum rc=0 appnum=0\n")]
        assert asked(pmi, rank, "cmd=get_my_kvsname\n") == [(rank, "cmd=my_kvsname rc=0 kvsname=lab\n")]
        assert asked(pmi, rank, "cmd=get kvsname=lab key=PMI_process_mapping\n") == [
            (rank, f"cmd=get_result rc=0 msg=success value={MAPPING}\n")
        ]
        assert asked(pmi, rank, f"cmd=put kvsname=lab key=-allgather-0-{rank} value=addr={rank}#a b=c\n") == [
            (rank, "cmd=put_result rc=0 msg=success\n")
        ]
    assert asked(pmi, 1, "cmd=barrier_in\n") == [], "one waits for the other"
    assert asked(pmi, 0, "cmd=barrier_in\n") == [(0, "cmd=barrier_out rc=0\n"), (1, "cmd=barrier_out rc=0\n")]
    assert asked(pmi, 0, "cmd=get kvsname=lab key=-allgather-0-1\n") == [
        (0, "cmd=get_result rc=0 msg=success value=addr=1#a b=c\n")
    ]
    assert asked(pmi, 0, "cmd=get_universe_size\n") == [(0, "cmd=universe_size rc=0 size=2\n")]
    assert pmi.is_connected(0) and pmi.is_connected(1)
    assert asked(pmi, 0, "cmd=finalize\n") == [(0, "cmd=finalize_ack rc=0\n")]
    assert not pmi.is_connected(0) and pmi.is_connected(1)
    assert pmi.messages == 17


def test_a_barrier_may_be_met_again_and_again() -> None:
    pmi = server()
    for rank in (0, 1):
        asked(pmi, rank, "cmd=init pmi_version=1 pmi_subversion=1\n")
    for _ in range(3):
        assert asked(pmi, 0, "cmd=barrier_in\n") == []
        assert len(asked(pmi, 1, "cmd=barrier_in\n")) == 2


@given(cuts=st.lists(st.integers(1, 40), max_size=12))
def test_lines_may_come_in_any_parts(cuts: list[int]) -> None:
    text = b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=put kvsname=lab key=k value=v\ncmd=get kvsname=lab key=k\n"
    whole = list(server().receive(0, text))
    pmi, parts, rest = server(), [], text
    for cut in cuts:
        parts += list(pmi.receive(0, rest[:cut]))
        rest = rest[cut:]
    assert parts + list(pmi.receive(0, rest)) == whole
    assert len(whole) == 3


def test_what_is_not_there_or_too_long_is_said_to_be_so() -> None:
    pmi = server()
    asked(pmi, 0, "cmd=init pmi_version=1 pmi_subversion=1\n")
    ((_, line),) = asked(pmi, 0, "cmd=get kvsname=lab key=nobody\n")
    assert "rc=-1" in line and "value=unknown" in line
    for request in (f"key={'k' * 64} value=v", f"key=k value={'v' * 4096}", "value=v"):
        ((_, line),) = asked(pmi, 0, f"cmd=put kvsname=lab {request}\n")
        assert line.startswith("cmd=put_result rc=-1")
    ((_, line),) = asked(pmi, 0, "cmd=publish_name service=s port=p\n")
    assert line == "cmd=publish_name rc=-1 msg=not_served\n"


def test_ranks_are_not_spawned_by_ranks() -> None:
    pmi = server()
    asked(pmi, 0, "cmd=init pmi_version=1 pmi_subversion=1\n")
    spawn = "mcmd=spawn\nnprocs=1\nexecname=/bin/true\ncmd=not_a_request\nargcnt=0\n"
    assert asked(pmi, 0, spawn) == []
    ((rank, line),) = asked(pmi, 0, "endcmd\n")
    assert rank == 0 and line.startswith("cmd=spawn_result rc=-1 ")
    assert asked(pmi, 0, "cmd=get_appnum\n"), "and all goes on"


def test_an_abort_is_everybodys() -> None:
    pmi = server()
    asked(pmi, 1, "cmd=init pmi_version=1 pmi_subversion=1\n")
    assert list(pmi.receive(1, b"cmd=abort exitcode=7 error_msg=why\n")) == [PmiAbort(1, 7, "why")]
    assert list(pmi.receive(1, b"cmd=abort exitcode=x\n")) == [PmiAbort(1, 1, "")]
    assert list(pmi.receive(1, b"cmd=abort exitcode=--5\n")) == [PmiAbort(1, 1, "")]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"cmd=barrier_in\n", "before init"),
        (b"GET / HTTP/1.1\n", "no request"),
        (b"\xff\xfe\x00\n", "no request"),
        (b"cmd=\n", "no request"),
        (b"x" * (MAX_LINE_BYTES + 1), "more than"),
        (b"cmd=init " + b"x" * MAX_LINE_BYTES + b"\n", "more than"),
    ],
)
def test_whoever_speaks_something_else_is_told_apart(data: bytes, says: str) -> None:
    with pytest.raises(PmiError, match=says):
        list(server().receive(0, data))


@given(st.binary(max_size=300))
def test_nothing_else_comes_of_any_bytes(data: bytes) -> None:
    pmi = server()
    list(pmi.receive(0, b"cmd=init pmi_version=1 pmi_subversion=1\n"))
    try:
        for item in pmi.receive(0, data + b"\n"):
            assert isinstance(item, PmiAbort) or item.line.endswith(b"\n")
    except PmiError:
        pass


def test_a_barrier_that_a_rank_cannot_come_to_any_more_is_known() -> None:
    pmi = server(3)
    for rank in (0, 1):
        asked(pmi, rank, "cmd=init pmi_version=1 pmi_subversion=1\n")
    assert (pmi.waiting, pmi.lost, pmi.not_begun, pmi.waits_for_start) == ([], [], [], False)
    asked(pmi, 0, "cmd=barrier_in\n")
    assert (pmi.waiting, pmi.lost, pmi.not_begun, pmi.waits_for_start) == ([0], [], [2], True)
    pmi.on_end(2)
    assert (pmi.waiting, pmi.lost, pmi.not_begun) == ([0], [2], [2])


def test_nobody_is_lost_who_ends_after_the_last_barrier() -> None:
    pmi = server(2)
    for rank in (0, 1):
        asked(pmi, rank, "cmd=init pmi_version=1 pmi_subversion=1\n")
    for rank in (0, 1):
        asked(pmi, rank, "cmd=barrier_in\n")
    asked(pmi, 0, "cmd=finalize\n")
    pmi.on_end(0)
    assert (pmi.lost, pmi.not_begun) == ([], [])
