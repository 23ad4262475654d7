"""What machines hear of each other: links that are down, machines that are lost, and what nobody of them has said."""

from testbed.daemons.wires.beats import BEAT_S, LOST_S, Beats, Hearing

KEY, OTHER_KEY = b"k" * 32, b"o" * 32


def pair() -> tuple[Beats, Beats]:
    return Beats("a", KEY, ["b"], life=1), Beats("b", KEY, ["a"], life=1)


def test_a_link_has_no_carrier_before_its_machine_was_heard() -> None:
    here, there = pair()
    assert here.look(0.0) == [] and not here.carries("b", 3)
    assert here.hear(there.beat([]), 0.0)
    assert here.look(0.0) == [("b", Hearing.HEARD)] and here.carries("b", 3)


def test_a_port_that_is_down_there_takes_its_link_down_here_and_no_other() -> None:
    here, there = pair()
    here.hear(there.beat([3]), 0.0)
    here.look(0.0)
    assert not here.carries("b", 3) and here.carries("b", 4)
    assert here.hear(there.beat([]), 0.1), "news"
    assert here.carries("b", 3)
    assert not here.hear(there.beat([]), 0.2), "nothing new"


def test_a_machine_that_is_silent_is_lost_once_and_found_again() -> None:
    here, there = pair()
    here.hear(there.beat([]), 0.0)
    assert here.look(LOST_S - BEAT_S) == [("b", Hearing.HEARD)]
    assert here.look(LOST_S) == [("b", Hearing.LOST)] and not here.carries("b", 3)
    assert here.look(LOST_S + 1) == [], "it is told once"
    here.hear(there.beat([]), 2.0)
    assert here.look(2.0) == [("b", Hearing.HEARD)] and here.heard == ["b"]


def test_what_was_said_before_is_not_heard_again() -> None:
    """An attacker who repeats the message of a moment when a link was down would take it down."""
    here, there = pair()
    down, up = there.beat([3]), there.beat([])
    here.hear(down, 0.0)
    here.hear(up, 0.1)
    here.look(0.1)
    assert not here.hear(down, 0.2) and here.carries("b", 3)
    assert here.look(0.1 + LOST_S) == [("b", Hearing.LOST)], "nor does it keep a machine alive"


def test_a_process_that_starts_again_is_heard_though_its_numbers_begin_anew() -> None:
    here, there = pair()
    for _ in range(5):
        here.hear(there.beat([3]), 0.0)
    again = Beats("b", KEY, ["a"], life=2)
    assert here.hear(again.beat([]), 0.1)
    assert not here.hear(there.beat([3]), 0.2), "the life before is over"


def test_strangers_are_not_heard() -> None:
    here, there = pair()
    forged = Beats("b", OTHER_KEY, ["a"], life=9).beat([3])
    unknown = Beats("c", KEY, [], life=9).beat([3])
    own = Beats("a", KEY, [], life=9).beat([3])
    good = there.beat([])
    for message in (forged, unknown, own, b"", b"x" * 15, good[:-1], good + b"x", bytes([good[0] ^ 1]) + good[1:]):
        assert not here.hear(message, 0.0)
    assert here.look(0.0) == []


def test_signed_nonsense_is_passed_over() -> None:
    here, there = pair()
    for content in (
        b"5",
        b"[]",
        b'[["b"],1,2,[]]',
        b'["b",1,2,3]',
        b'["b",1.5,2,[]]',
        b'["b",true,2,[]]',
        b'["b",1,2,[-1]]',
        b"[" * 50_000,
    ):
        assert not here.hear(content + there._hash(content), 0.0)
    assert here.look(0.0) == []
