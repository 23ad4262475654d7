"""Whatever comes in, in whatever order: pausing ends, gates and maps agree, and nothing outlives a stop."""

import numpy as np
from attached_ports import attached_port
from driven_core import CloseGate, DrivenCore, OpenGate, SendPause
from hypothesis import given
from hypothesis import strategies as st
from memory_maps import maps_in_memory
from pause_timers import Timers
from pfc_frames import MAX_QUANTA, decode_pfc, encode_pfc, pause_ns, priorities_of
from recorded_times import RecordedTimes

from testbed.base.datapath.abi import CLASSES

MS = 1_000_000
RATE = 100_000_000
LOSSLESS = (1, 3)
PORTS = 4
DETECT_NS = 150 * MS

ports = st.integers(0, PORTS + 1)
priorities = st.integers(0, 8)
steps = st.one_of(
    st.tuples(st.just("over"), ports, priorities, st.booleans()),
    st.tuples(st.just("silent"), ports, priorities, st.booleans()),
    st.tuples(st.just("pfc"), ports, st.integers(0, 255), st.lists(st.integers(0, MAX_QUANTA), min_size=8, max_size=8)),
    st.tuples(st.just("storm"), ports, priorities, st.integers(1, 500 * MS)),
    st.tuples(st.just("wait"), st.integers(0, 400 * MS)),
    st.tuples(st.just("flush")),
    st.tuples(st.just("compare")),
    st.tuples(st.just("restart")),
)


class Link:
    """A core whose frames reach the peer at once, and the gates as the kernel has them."""

    def __init__(self, watchdog: bool) -> None:
        self.maps = maps_in_memory(PORTS)
        watched = {"watchdog_detect_ns": DETECT_NS if watchdog else 0, "watchdog_restore_ns": 50 * MS}
        self.ports = [
            attached_port(number, ((number - 1) ^ 1) + 1, rate_bps=RATE, lossless=LOSSLESS, **watched)
            for number in range(1, PORTS + 1)
        ]
        self.core = DrivenCore(self.ports, self.maps)
        self.now = MS
        self.closed_since: dict[int, int] = {}
        self.longest_ns = 0

    def marked(self, field: str) -> list[int]:
        found: list[int] = np.flatnonzero(self.maps.pauses[field]).tolist()
        return found

    def step(self, step: tuple[object, ...]) -> None:
        match step:
            case ("over" | "silent" as kind, int(port), int(priority), bool(over)):
                if 1 <= port <= PORTS and priority in LOSSLESS:
                    self.maps.ingress[port * CLASSES + priority]["xoff"] = int(over)
                if kind == "over" and over:
                    self.core.on_xoff(port, priority, self.now)
                elif kind == "over":
                    self.core.on_xon(port, priority)
            case ("pfc", int(port), int(vector), list(quanta)):
                self.core.on_pfc(port, vector, quanta, self.now, self.now)
            case ("storm", int(port), int(priority), int(ns)):
                try:
                    self.core.storm(port, priority, ns, self.now)
                except LookupError:
                    assert not (1 <= port <= PORTS and priority in LOSSLESS)
            case ("wait", int(ns)):
                self.wait(ns)
            case ("compare",):
                self.core.compare()
            case ("restart",):
                self.core = DrivenCore(self.ports, self.maps)
                self.core.take_over(self.now)
            case _:
                self.flush()

    def wait(self, ns: int) -> None:
        end = self.now + ns
        self.flush()
        while (due := self.core.next_timer()) is not None and due <= end:
            self.now = max(self.now, due)
            self.core.on_timer(self.now)
            self.flush()
        self.now = end

    def flush(self) -> None:
        while actions := self.core.flush(self.now):
            for action in actions:
                match action:
                    case SendPause():
                        self._deliver(action)
                    case CloseGate():
                        for priority in priorities_of(action.vector):
                            index = action.port * CLASSES + priority
                            assert index not in self.closed_since, "closed twice"
                            self.closed_since[index] = self.now
                        self.core.confirm(action, self.now)
                    case OpenGate():
                        for priority in priorities_of(action.vector):
                            since = self.closed_since.pop(action.port * CLASSES + priority)
                            self.longest_ns = max(self.longest_ns, self.now - since)
                        self.core.confirm(action, self.now)
                    case _:
                        continue
        assert self.marked("closed") == sorted(self.closed_since), "gates and maps disagree"

    def _deliver(self, action: SendPause) -> None:
        assert action.vector, "a frame that says nothing"
        assert not set(priorities_of(action.vector)) - set(LOSSLESS)
        frame = decode_pfc(encode_pfc(bytes(6), action.vector, action.quanta))
        self.core.confirm(action, self.now)
        peer = ((action.port - 1) ^ 1) + 1
        self.core.on_pfc(peer, frame.vector, frame.quanta, self.now, self.now)

    def drain(self) -> None:
        for port in range(1, PORTS + 1):
            for priority in LOSSLESS:
                self.step(("over", port, priority, False))


@given(st.lists(steps, max_size=60), st.booleans())
def test_pausing_always_ends(history: list[tuple[object, ...]], watchdog: bool) -> None:
    """Once no account is over and no storm rages, every gate is open after the longest pause at the latest."""
    link = Link(watchdog)
    for step in history:
        link.step(step)
    link.drain()
    link.wait(500 * MS + pause_ns(MAX_QUANTA, RATE))
    assert link.closed_since == {}
    assert link.marked("asked_since") == []


@given(st.lists(steps.filter(lambda step: step[0] != "restart"), max_size=60))
def test_watchdog_keeps_no_gate_closed_for_longer_than_it_waits(history: list[tuple[object, ...]]) -> None:
    link = Link(watchdog=True)
    for step in history:
        link.step(step)
        link.flush()
    link.wait(DETECT_NS)
    assert link.longest_ns <= DETECT_NS


@given(st.lists(steps, max_size=60), st.booleans())
def test_stop_leaves_nothing(history: list[tuple[object, ...]], watchdog: bool) -> None:
    link = Link(watchdog)
    for step in history:
        link.step(step)
    link.core.stop()
    link.flush()
    assert link.closed_since == {}
    assert link.marked("asked_since") == []
    assert not link.maps.pauses["storm"].any()
    assert not link.maps.pauses["ignored"].any()
    assert link.core.next_timer() is None


@given(st.lists(st.integers(0, 10**10), min_size=1), st.floats(0.01, 1.0))
def test_quantiles_are_within_a_step(values: list[int], share: float) -> None:
    histogram = RecordedTimes()
    for value in values:
        histogram.record(value)
    exact = next(value for rank, value in enumerate(sorted(values), start=1) if rank >= share * len(values))
    assert exact <= histogram.quantile(share) <= exact + exact / 31


@given(st.lists(st.tuples(st.sampled_from(["set", "cancel", "expire"]), st.integers(0, 3), st.integers(0, 100))))
def test_timers_are_a_dictionary_of_times(history: list[tuple[str, int, int]]) -> None:
    timers, model = Timers(4), dict[int, int]()
    for verb, key, time in history:
        if verb == "set":
            timers.set(key, time)
            model[key] = time
        elif verb == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            expired = {key for key, due in model.items() if due <= time}
            assert set(timers.expired(time)) == expired
            for key_ in expired:
                del model[key_]
        nearest = timers.next_ns()
        assert nearest == min(model.values(), default=None)
        assert len(timers) == len(model)
