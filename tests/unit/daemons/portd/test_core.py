"""The pause machine: what goes in, what comes out, and when."""

from collections.abc import Sequence
from typing import Any

import pytest
from attached_ports import attached_port
from driven_core import CloseGate, DrivenCore, OpenGate, SendPause
from memory_maps import maps_in_memory
from pfc_frames import MAX_QUANTA, pause_ns

from testbed.base.datapath.abi import CLASSES
from testbed.daemons.portd.attachment import PortAttachment
from testbed.daemons.portd.core import Report, ReportKind

MS = 1_000_000
RATE = 50_000_000
FULL_NS = pause_ns(MAX_QUANTA, RATE)
"""671 ms."""
SENDER, RECEIVER = 1, 2
"""Two ends of a link: the receiver's ingress account fills, the sender's queue is paused."""


def port(number: int, peer: int, **changes: Any) -> PortAttachment:
    fields = {"lossless": (3, 4), "watchdog_detect_ns": 0, "watchdog_restore_ns": 0}
    return attached_port(number, peer, **(fields | changes))


class Bench:
    """A core with its maps and a clock; `flush` confirms what was done as the wire does."""

    def __init__(self, *ports: PortAttachment) -> None:
        self.maps = maps_in_memory(8)
        self.ports = ports or (port(SENDER, RECEIVER), port(RECEIVER, SENDER))
        self.core = DrivenCore(self.ports, self.maps)
        self.now = 1000 * MS

    def again(self) -> DrivenCore:
        """Another agent over the same maps."""
        self.core = DrivenCore(self.ports, self.maps)
        self.core.take_over(self.now)
        return self.core

    def over(self, at: int, priority: int, yes: bool = True) -> None:
        self.maps.ingress[at * CLASSES + priority]["xoff"] = int(yes)

    def xoff(self, at: int = RECEIVER, priority: int = 3) -> None:
        self.over(at, priority)
        self.core.on_xoff(at, priority, self.now)

    def xon(self, at: int = RECEIVER, priority: int = 3) -> None:
        self.over(at, priority, False)
        self.core.on_xon(at, priority)

    def pfc(self, times: dict[int, int], at: int = SENDER) -> None:
        quanta = [times.get(priority, 0) for priority in range(8)]
        self.core.on_pfc(at, sum(1 << priority for priority in times), quanta, self.now, self.now)

    def flush(self, *, latency: int = 0) -> list[object]:
        actions = self.core.flush(self.now)
        self.now += latency
        for action in actions:
            match action:
                case SendPause() | CloseGate() | OpenGate():
                    self.core.confirm(action, self.now)
                case Report():
                    continue
        return list(actions)

    def until(self, now: int) -> list[object]:
        """Let the time pass, as the loop does: every timer at its time."""
        done: list[object] = []
        while (due := self.core.next_timer()) is not None and due <= now:
            self.now = max(self.now, due)
            self.core.on_timer(self.now)
            done += self.flush()
        self.now = now
        return done

    def wait(self, ns: int) -> list[object]:
        return self.until(self.now + ns)

    def pauses(self, at: int, priority: int = 3) -> dict[str, int]:
        record = self.maps.pauses[at * CLASSES + priority]
        return {name: int(record[name]) for name in record.dtype.names or ()}


def frame(at: int, **times: int) -> SendPause:
    quanta = tuple(times.get(f"p{priority}", 0) for priority in range(8))
    return SendPause(at, sum(1 << int(name[1:]) for name in times), quanta)


def kinds(actions: Sequence[object]) -> list[str]:
    return [action.kind.value if isinstance(action, Report) else type(action).__name__ for action in actions]


def test_crossing_xoff_sends_the_longest_pause_and_xon_ends_it() -> None:
    bench = Bench()
    bench.xoff()
    assert bench.flush() == [frame(RECEIVER, p3=MAX_QUANTA)]
    assert bench.flush() == [], "once"
    bench.now += 5 * MS
    bench.xon()
    assert bench.flush() == [frame(RECEIVER, p3=0)]
    pauses = bench.pauses(RECEIVER)
    assert (pauses["xoff_sent"], pauses["xon_sent"]) == (1, 1)
    assert (pauses["asked_ns"], pauses["asked_since"]) == (5 * MS, 0)
    assert bench.wait(10 * FULL_NS) == [], "nothing to refresh any more"


def test_all_that_is_read_in_one_go_is_one_frame_for_each_port() -> None:
    bench = Bench(*(port(number, number ^ 1) for number in range(2, 6)))
    bench.xoff(2, 3)
    bench.xoff(2, 4)
    bench.xoff(5, 4)
    assert bench.flush() == [frame(2, p3=MAX_QUANTA, p4=MAX_QUANTA), frame(5, p4=MAX_QUANTA)]
    bench.xon(2, 3)
    bench.xon(2, 4)
    bench.xoff(3, 3)
    assert bench.flush() == [frame(3, p3=MAX_QUANTA), frame(2, p3=0, p4=0)], "what pauses goes first"


def test_one_priority_pauses_while_another_resumes() -> None:
    bench = Bench()
    bench.xoff(priority=3)
    bench.flush()
    bench.xon(priority=3)
    bench.xoff(priority=4)
    assert bench.flush() == [frame(RECEIVER, p3=0, p4=MAX_QUANTA)]


def test_xoff_and_xon_in_one_go_are_nothing() -> None:
    bench = Bench()
    bench.xoff()
    bench.xon()
    assert bench.flush() == []


def test_events_in_the_wrong_order_leave_no_pause() -> None:
    """Another CPU may write its XON before the XOFF that it answers."""
    bench = Bench()
    bench.core.on_xon(RECEIVER, 3)
    bench.core.on_xoff(RECEIVER, 3, bench.now)
    assert bench.flush() == []


def test_pause_is_refreshed_at_half_its_time_while_the_account_is_over() -> None:
    bench = Bench()
    bench.xoff()
    bench.flush()
    assert bench.wait(FULL_NS // 2 - 1) == []
    assert bench.wait(1) == [frame(RECEIVER, p3=MAX_QUANTA)]
    assert bench.wait(FULL_NS // 2) == [frame(RECEIVER, p3=MAX_QUANTA)]
    assert bench.pauses(RECEIVER)["xoff_sent"] == 3
    assert bench.pauses(RECEIVER)["asked_since"] == 1000 * MS, "one interval"


def test_lost_xon_event_is_found_at_the_refresh() -> None:
    bench = Bench()
    bench.xoff()
    bench.flush()
    bench.over(RECEIVER, 3, False)
    assert bench.wait(FULL_NS // 2) == [frame(RECEIVER, p3=0)]


def test_refresh_is_in_time_for_the_faster_end() -> None:
    """A rate changed at one end alone: the peer counts its quanta at its own."""
    bench = Bench(port(SENDER, RECEIVER, rate_bps=10 * RATE), port(RECEIVER, SENDER))
    bench.xoff()
    bench.flush()
    assert bench.wait(pause_ns(MAX_QUANTA, 10 * RATE) // 2) == [frame(RECEIVER, p3=MAX_QUANTA)]


def test_lost_xoff_event_is_found_by_comparing_twice() -> None:
    bench = Bench()
    bench.over(RECEIVER, 3)
    bench.core.compare()
    assert bench.flush() == [], "its event may be on its way"
    bench.core.compare()
    assert bench.flush() == [frame(RECEIVER, p3=MAX_QUANTA)]
    assert bench.core.strays.healed == 1


def test_events_of_nothing_we_know_are_counted_and_harmless() -> None:
    bench = Bench()
    bench.core.on_xoff(7, 3, bench.now)
    bench.core.on_xon(0, 3)
    bench.core.on_xoff(RECEIVER, 200, bench.now)
    bench.core.on_pfc(99, 0xFF, [1] * 8, bench.now, bench.now)
    assert bench.flush() == []
    assert bench.core.strays.unknown == 4


def test_frame_closes_the_gate_and_a_zero_opens_it() -> None:
    bench = Bench()
    bench.pfc({3: MAX_QUANTA})
    assert bench.flush() == [CloseGate(SENDER, 1 << 3)]
    assert bench.pauses(SENDER)["closed"] == 1
    bench.now += 7 * MS
    bench.pfc({3: 0})
    assert bench.flush() == [OpenGate(SENDER, 1 << 3)]
    pauses = bench.pauses(SENDER)
    assert (pauses["closed"], pauses["paused_since"], pauses["paused_ns"]) == (0, 0, 7 * MS)
    assert (pauses["xoff_received"], pauses["xon_received"]) == (1, 1)


def test_several_priorities_at_once() -> None:
    bench = Bench()
    bench.pfc({3: 100, 4: MAX_QUANTA})
    assert bench.flush() == [CloseGate(SENDER, 0b11000)]
    assert bench.wait(pause_ns(100, RATE)) == [OpenGate(SENDER, 1 << 3)], "each for its own time"
    assert bench.wait(FULL_NS) == [OpenGate(SENDER, 1 << 4)]


def test_pause_ends_by_itself_when_no_frame_follows() -> None:
    bench = Bench()
    bench.pfc({3: MAX_QUANTA})
    bench.flush()
    assert bench.wait(FULL_NS - 1) == []
    assert bench.wait(1) == [OpenGate(SENDER, 1 << 3)]


def test_every_frame_sets_the_time_anew() -> None:
    bench = Bench()
    bench.pfc({3: MAX_QUANTA})
    bench.flush()
    bench.now += FULL_NS // 2
    bench.pfc({3: MAX_QUANTA})
    assert bench.flush() == [], "it is closed"
    assert bench.wait(FULL_NS - 1) == []
    assert bench.wait(1) == [OpenGate(SENDER, 1 << 3)]
    bench.pfc({3: MAX_QUANTA})
    bench.flush()
    bench.pfc({3: 10})
    assert bench.flush() == []
    assert bench.wait(pause_ns(10, RATE)) == [OpenGate(SENDER, 1 << 3)], "a shorter time counts as well"


def test_frame_that_was_read_after_its_time_pauses_nothing() -> None:
    bench = Bench()
    bench.core.on_pfc(SENDER, 1 << 3, [0, 0, 0, 10, 0, 0, 0, 0], bench.now - FULL_NS, bench.now)
    assert bench.flush() == []


def test_lossy_priorities_do_not_pause() -> None:
    bench = Bench()
    bench.pfc({0: MAX_QUANTA, 7: MAX_QUANTA})
    assert bench.flush() == []
    assert bench.core.strays.lossy == 1
    bench.pfc({0: MAX_QUANTA, 3: MAX_QUANTA})
    assert bench.flush() == [CloseGate(SENDER, 1 << 3)]


def test_pause_and_resume_in_one_go_are_nothing() -> None:
    bench = Bench()
    bench.pfc({3: MAX_QUANTA})
    bench.pfc({3: 0})
    assert bench.flush() == []


def test_the_most_urgent_comes_first() -> None:
    """What stops packets before what lets them go, whatever came in first."""
    bench = Bench(*(port(number, number ^ 1) for number in range(2, 6)))
    bench.pfc({3: MAX_QUANTA}, at=2)
    bench.xoff(3, 4)
    bench.flush()
    bench.pfc({3: 0}, at=2)
    bench.xon(3, 4)
    bench.xoff(4, 3)
    bench.pfc({4: MAX_QUANTA}, at=5)
    assert bench.flush() == [CloseGate(5, 1 << 4), frame(4, p3=MAX_QUANTA), frame(3, p4=0), OpenGate(2, 1 << 3)]


def test_gate_that_is_closed_again_before_it_has_opened_stays_closed_in_the_map() -> None:
    bench = Bench()
    bench.pfc({3: MAX_QUANTA})
    bench.flush()
    bench.pfc({3: 0})
    opening = bench.core.flush(bench.now)
    bench.pfc({3: MAX_QUANTA})
    closing = bench.core.flush(bench.now)
    assert (opening, closing) == ([OpenGate(SENDER, 1 << 3)], [CloseGate(SENDER, 1 << 3)])
    bench.core.confirm(OpenGate(SENDER, 1 << 3), bench.now)
    assert bench.pauses(SENDER)["closed"] == 1, "the guard must know of it"


GUARDED = (
    port(SENDER, RECEIVER, watchdog_detect_ns=200 * MS, watchdog_restore_ns=300 * MS),
    port(RECEIVER, SENDER, watchdog_detect_ns=200 * MS, watchdog_restore_ns=300 * MS),
)


def test_watchdog_frees_a_stuck_queue_and_guards_it_again_when_it_was_unpaused_for_long() -> None:
    bench = Bench(*GUARDED)
    bench.pfc({3: MAX_QUANTA})
    bench.flush()
    assert bench.wait(199 * MS) == []
    freed = bench.wait(1 * MS)
    assert kinds(freed) == ["OpenGate", "pfc-watchdog-freed"]
    assert (bench.pauses(SENDER)["ignored"], bench.pauses(SENDER)["watchdog_events"]) == (1, 1)
    bench.pfc({3: MAX_QUANTA})
    assert bench.flush() == [], "ignored"
    assert bench.wait(FULL_NS) == [], "the storm is over now"
    assert bench.wait(299 * MS) == []
    assert kinds(bench.wait(1 * MS)) == ["pfc-watchdog-restored"]
    assert bench.pauses(SENDER)["ignored"] == 0
    bench.pfc({3: MAX_QUANTA})
    assert kinds(bench.flush()) == ["CloseGate"]


def test_watchdog_does_not_restore_under_a_storm() -> None:
    bench = Bench(*GUARDED)
    bench.pfc({3: MAX_QUANTA})
    bench.flush()
    events = kinds(bench.wait(200 * MS))
    for _ in range(10):
        events += kinds(bench.wait(FULL_NS // 2))
        bench.pfc({3: MAX_QUANTA})
        events += kinds(bench.flush())
    assert events == ["OpenGate", "pfc-watchdog-freed"]


def test_watchdog_counts_the_unpaused_time_anew_after_each_pause() -> None:
    bench = Bench(*GUARDED)
    bench.pfc({3: MAX_QUANTA})
    bench.flush()
    bench.wait(200 * MS)
    for _ in range(3):
        bench.pfc({3: 0})
        assert bench.wait(290 * MS) == []
        bench.pfc({3: MAX_QUANTA})
        assert bench.wait(290 * MS) == [], "paused: no time of restoring"
    bench.pfc({3: 0})
    assert kinds(bench.wait(300 * MS)) == ["pfc-watchdog-restored"]


def test_watchdog_starts_anew_with_every_pause() -> None:
    bench = Bench(*GUARDED)
    for _ in range(5):
        bench.pfc({3: MAX_QUANTA})
        assert kinds(bench.flush()) == ["CloseGate"]
        assert bench.wait(150 * MS) == []
        bench.pfc({3: 0})
        assert kinds(bench.flush()) == ["OpenGate"]
        assert bench.wait(10 * MS) == []


def test_watchdog_of_one_priority_leaves_the_other_alone() -> None:
    bench = Bench(*GUARDED)
    bench.pfc({3: MAX_QUANTA})
    bench.flush()
    bench.wait(200 * MS)
    bench.pfc({3: MAX_QUANTA, 4: MAX_QUANTA})
    assert bench.flush() == [CloseGate(SENDER, 1 << 4)]


def test_storm_asks_for_pause_until_it_ends() -> None:
    bench = Bench()
    bench.core.storm(RECEIVER, 3, 2 * FULL_NS, bench.now)
    assert kinds(bench.flush()) == ["SendPause", "pfc-storm-began"]
    assert bench.pauses(RECEIVER)["storm"] == 1
    during = bench.wait(2 * FULL_NS - 10)
    assert during == [frame(RECEIVER, p3=MAX_QUANTA)] * 3, "refreshed though the account is empty"
    after = bench.wait(10)
    assert frame(RECEIVER, p3=0) in after
    assert kinds(after)[-1] == "pfc-storm-ended"
    assert bench.pauses(RECEIVER)["storm"] == 0


def test_storm_that_ends_over_a_full_account_leaves_the_pause() -> None:
    bench = Bench()
    bench.core.storm(RECEIVER, 3, 50 * MS, bench.now)
    bench.flush()
    bench.xoff()
    assert kinds(bench.wait(50 * MS)) == ["pfc-storm-ended"]
    bench.xon()
    assert bench.flush() == [frame(RECEIVER, p3=0)]


@pytest.mark.parametrize(("at", "priority"), [(9, 3), (RECEIVER, 0), (RECEIVER, 8), (RECEIVER, -1)])
def test_storm_that_nobody_would_obey_is_refused(at: int, priority: int) -> None:
    with pytest.raises(LookupError):
        Bench().core.storm(at, priority, MS, 0)


def test_stop_resumes_the_peers_and_opens_all_gates() -> None:
    bench = Bench()
    bench.xoff()
    bench.pfc({3: MAX_QUANTA, 4: MAX_QUANTA})
    bench.core.storm(RECEIVER, 4, 1000 * MS, bench.now)
    bench.flush()
    bench.core.stop()
    assert bench.flush() == [
        frame(RECEIVER, p3=0, p4=0),
        OpenGate(SENDER, 0b11000),
        Report(ReportKind.STORM_ENDED, RECEIVER, 4),
    ]
    assert bench.core.next_timer() is None
    bench.xoff()
    bench.pfc({3: MAX_QUANTA})
    assert bench.flush() == [], "what comes in later has no effect"


def test_next_agent_opens_what_was_closed_and_settles_what_was_asked() -> None:
    bench = Bench()
    bench.xoff(priority=3)
    bench.xoff(priority=4)
    bench.pfc({3: MAX_QUANTA})
    bench.flush()
    bench.core.storm(RECEIVER, 4, 1000 * MS, bench.now)
    bench.over(RECEIVER, 4, False)
    bench.now += 40 * MS
    bench.again()
    assert bench.flush() == [frame(RECEIVER, p3=MAX_QUANTA, p4=0), OpenGate(SENDER, 1 << 3)]
    assert bench.pauses(SENDER)["paused_ns"] == 40 * MS
    assert bench.pauses(RECEIVER, 4)["storm"] == 0
    assert bench.flush() == []


def test_next_agent_pauses_for_what_filled_while_there_was_none() -> None:
    bench = Bench()
    bench.over(RECEIVER, 4)
    bench.again()
    assert bench.flush() == [frame(RECEIVER, p4=MAX_QUANTA)]


def test_next_agent_forgets_a_port_that_is_gone() -> None:
    bench = Bench(port(SENDER, RECEIVER), port(RECEIVER, SENDER), port(5, 6), port(6, 5))
    bench.pfc({3: 9}, at=5)
    bench.flush()
    bench.ports = bench.ports[:2]
    bench.again()
    assert bench.flush() == []
    assert bench.pauses(5)["closed"] == 0


def test_ports_beyond_the_maps_are_refused() -> None:
    with pytest.raises(ValueError, match="port 9"):
        DrivenCore([port(9, 0)], maps_in_memory(8))


def test_reaction_is_from_the_crossing_to_the_closed_gate() -> None:
    bench = Bench()
    bench.xoff()
    bench.now += 1000
    bench.flush(latency=500)
    bench.now += 2000
    bench.pfc({3: MAX_QUANTA})
    bench.now += 100
    bench.flush(latency=40)
    core = bench.core
    assert core.reactions[SENDER * CLASSES + 3].max_ns == 1000 + 500 + 2000 + 100 + 40
    assert core.event_to_frame.max_ns == 1500
    assert core.frame_to_gate.max_ns == 140
    core.reset()
    assert (core.reactions, core.frame_to_gate.count) == ({}, 0)


def test_forged_and_refreshing_frames_are_no_reaction() -> None:
    bench = Bench()
    bench.pfc({3: MAX_QUANTA})
    bench.flush(latency=7)
    assert bench.core.reactions == {}
    assert bench.core.frame_to_gate.max_ns == 7
    bench.pfc({3: MAX_QUANTA})
    bench.flush()
    assert bench.core.frame_to_gate.count == 1


def test_frame_from_before_the_crossing_does_not_answer_it() -> None:
    bench = Bench()
    bench.pfc({3: MAX_QUANTA})
    bench.now += 100
    bench.xoff()
    bench.flush(latency=7)
    assert bench.core.reactions == {}
