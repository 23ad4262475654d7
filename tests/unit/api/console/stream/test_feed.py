"""One sequence of messages for all who listen: resumed, bounded, and the same bytes for everybody."""

import asyncio
from collections.abc import Iterator
from itertools import count

from testbed.api.console.stream.feed import MOST_BEHIND, MOST_BYTES, MOST_MESSAGES, Feed


def feed() -> Feed:
    made: Iterator[int] = count(1)

    def snapshot() -> bytes:
        return f'"state {next(made)}"'.encode()

    return Feed(snapshot)


def contents(source: Feed, place: int) -> list[str]:
    return [sent.content.decode() for sent in source.after(place)]


def test_a_newcomer_gets_a_snapshot_and_then_what_follows() -> None:
    told = feed()
    told.publish("tick", b"1")
    (first,) = told.after(-1)
    assert first.content.endswith(b'-1\nevent: snapshot\ndata: "state 1"\n\n')
    told.publish("tick", b"2")
    (second,) = told.after(first.number)
    assert second.content.endswith(b"-2\nevent: tick\ndata: 2\n\n")
    assert list(told.after(second.number)) == []


def test_who_comes_back_gets_what_it_missed() -> None:
    told = feed()
    for number in range(5):
        told.publish("tick", b"%d" % number)
    (event_id,) = [line[4:] for line in contents(told, 1)[0].splitlines() if line.startswith("id: ")]
    assert told.place_of(event_id) == 2
    assert [text.splitlines()[2] for text in contents(told, 2)] == ["data: 2", "data: 3", "data: 4"]


def test_the_id_of_another_feed_or_of_the_future_means_nothing() -> None:
    one, other = feed(), feed()
    for each in (one, other):
        each.publish("tick", b"1")
    (sent,) = other.after(0)
    foreign = sent.content.split(b"\n")[0].removeprefix(b"id: ").decode()
    for strange in (foreign, foreign.replace("-1", "-99"), "", "-", "x-1", "1" * 40, "-1"):
        assert one.place_of(strange) == -1


def test_who_falls_behind_gets_a_snapshot_instead() -> None:
    told = feed()
    for number in range(MOST_BEHIND + 1):
        told.publish("tick", b"%d" % number)
    assert "event: snapshot" in contents(told, 0)[0]
    assert len(contents(told, 1)) == MOST_BEHIND
    for number in range(MOST_MESSAGES):
        told.publish("tick", b"%d" % number)
    assert "event: snapshot" in contents(told, 3)[0]


def test_what_is_kept_is_bounded_in_messages_and_bytes() -> None:
    told = feed()
    for _ in range(MOST_MESSAGES * 2):
        told.publish("tick", b"x")
    assert told.kept_bytes < MOST_MESSAGES * 100
    for _ in range(64):
        told.publish("tick", b"x" * (MOST_BYTES // 16))
    assert told.kept_bytes <= MOST_BYTES
    told.publish("tick", b"x" * (MOST_BYTES * 2))  # one that is larger is kept alone
    assert len(contents(told, told.last - 1)) == 1


def test_a_snapshot_is_made_once_for_all_who_come_at_the_same_moment() -> None:
    told = feed()
    told.publish("tick", b"1")
    assert told.snapshot() is told.snapshot()
    before = told.snapshot()
    told.publish("tick", b"2")
    assert told.snapshot().content != before.content


def test_what_ends_all_that_was_known_brings_a_snapshot_along() -> None:
    told = feed()
    told.publish("tick", b"1")
    told.publish_anew("shape", b'"r2"')
    (text,) = contents(told, 1)
    assert text.index("event: shape") < text.index("event: snapshot")
    assert contents(told, 0)[0].startswith("id: ")  # who was further behind gets the snapshot alone
    told.publish("tick", b"3")
    assert "data: 3" in contents(told, 2)[0]


def test_listeners_wake_with_a_message_and_with_the_end() -> None:
    async def story() -> None:
        told = feed()
        waiting = [asyncio.ensure_future(told.wait(0, 60)) for _ in range(200)]
        await asyncio.sleep(0)
        told.publish("tick", b"1")
        assert await asyncio.gather(*waiting) == [True] * 200
        assert await told.wait(1, 0.001) is False
        last = asyncio.ensure_future(told.wait(1, 60))
        await asyncio.sleep(0)
        told.close()
        assert await last is True
        told.publish("tick", b"2")
        assert told.last == 1

    asyncio.run(story())
