"""Faults: what could not be done or undone is named and makes the run invalid, and nothing else is given up for it."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.base.errors import DriverError, ScenarioError
from testbed.base.units import Duration
from testbed.lab.core.deploy.links.changes import LinkChange
from testbed.lab.core.schema.load import load_topology, load_topology_text
from testbed.run.faults import acts as acts_module
from testbed.run.faults import kills
from testbed.run.faults import timeline as timeline_module
from testbed.run.faults.outcome import FaultOutcome, LabLeftChanged
from testbed.run.faults.registry import FAULTS, by_kind, fault_findings, lab_fault
from testbed.run.faults.timeline import FaultTimeline
from testbed.run.schema.faults import FAULT_WORDS, FaultWords
from testbed.run.schema.file import load_scenario_text
from testbed.run.schema.model import AtStep, Fault, Scalar
from testbed.run.trust.traffic import check_faults

PATIENCE_S = 20.0
TOPOLOGIES = Path(__file__).parents[3] / "topologies"


class Links:
    """Stands for `LinkControl`; what `fails` names raises, `holds` is called before it is done."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []
        self.fails: dict[tuple[str, str], list[Exception]] = {}
        self.holds: dict[tuple[str, str], threading.Event] = {}
        self.awaited: tuple[str, str] | None = None
        self.seen = threading.Event()
        self.closed = False

    def is_beside(self, port: str) -> bool:
        return False

    def prepare(self, port: str) -> None:
        if port == "no:port":
            raise DriverError("no:port cannot be prepared")

    def set(self, port: str, change: LinkChange, *, both: bool = False) -> None:
        self._do(port, "up" if change.up else "down" if change.up is False else "set")

    def reset(self, port: str, *, both: bool = True) -> None:
        self._do(port, "reset")

    def close(self) -> None:
        self.closed = True

    def _do(self, port: str, what: str) -> None:
        if held := self.holds.get((port, what)):
            held.wait(PATIENCE_S)
        self.done.append((port, what))
        if self.awaited == (port, what):
            self.seen.set()
        if self.fails.get((port, what)):
            raise self.fails[port, what].pop(0)


class Stream:
    """Stands for `EventStream`: says `events` and then nothing until it is stopped, or breaks."""

    events: tuple[Any, ...] = ()
    error: BaseException | None = None
    ends = False

    def __init__(self, lab: object) -> None:
        self._stopped = threading.Event()

    def __iter__(self) -> Iterator[Any]:
        yield from self.events
        if self.error is not None:
            raise self.error
        if not self.ends:
            self._stopped.wait(PATIENCE_S)

    def stop(self) -> None:
        self._stopped.set()

    def close(self) -> None:
        pass


class Lab:
    """Has every port and node that is asked for, and no switches whose routing could be waited for."""

    name = "fake"

    def __init__(self, *switches: object) -> None:
        self.daemons = {"s": ("bgpd", "zebra")}
        self.plan = SimpleNamespace(switches=switches, ports=())

    def port(self, node: str, interface: str) -> None:
        pass

    def node(self, name: str) -> None:
        pass


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> Links:
    found = Links()
    monkeypatch.setattr(timeline_module, "LinkControl", lambda lab: found)
    monkeypatch.setattr(timeline_module, "EventStream", Stream)
    return found


def fault(
    kind: str, target: str, at: str | int, until: str | int | None = None, period: str | None = None, **settings: Scalar
) -> Fault:
    """A fault at a time, or at the step of a program of that number."""

    def moment(when: str | int) -> Duration | AtStep:
        return AtStep(step=when) if isinstance(when, int) else Duration.parse(when)

    return Fault(
        at=moment(at),
        kind=kind,
        target=target,
        until=None if until is None else moment(until),
        period=None if period is None else Duration.parse(period),
        settings=settings,
    )


def no_worker(host: str) -> None:
    raise ScenarioError(f"{host} has no worker: it takes no part in the workload")


def played(links: Links, *faults: Fault, until: tuple[str, str] | None = None, lab: Lab | None = None) -> FaultTimeline:
    """The timeline of a run that lasts until `until` is done to a link."""
    links.awaited = until
    with FaultTimeline(lab or Lab(), faults, kill_worker=no_worker) as timeline:  # type: ignore[arg-type]
        timeline.begin(time.monotonic_ns())
        assert until is None or links.seen.wait(PATIENCE_S), f"{until} never happened"
    return timeline


def kinds(timeline: FaultTimeline) -> list[tuple[str, str]]:
    return [(event.kind, event.target) for event in timeline.events()]


def test_a_kind_that_two_classes_have_is_refused() -> None:
    again = type("LinkDownAgain", (FAULTS["link-down"],), {})
    with pytest.raises(ValueError, match="link-down is registered twice: by LinkDown and LinkDownAgain"):
        by_kind([*FAULTS.values(), again])


def test_every_kind_has_words_and_a_class() -> None:
    kinds = [words.kind for words in FAULT_WORDS]
    assert sorted(kinds) == sorted(FAULTS)
    assert all(FAULTS[words.kind].place == words.place for words in FAULT_WORDS)


@pytest.mark.parametrize("words", FAULT_WORDS, ids=lambda words: words.kind)
def test_the_example_of_a_kind_is_of_that_kind(words: FaultWords) -> None:
    place = {"link": "a:b", "plane": "a:plane1"}.get(words.place, "a")
    entry = f"{{at: 1s, until: 2s, {words.place}: '{place}', {words.example}}}"
    text = f"name: x\ntopology: {{file: x.yml}}\nworkload: {{kind: permutation, bytes: 64bdp}}\nfaults: [{entry}]\n"
    (read,) = load_scenario_text(text, file="x.yml").scenario.faults
    made = lab_fault(read)
    assert type(made) is FAULTS[words.kind] and made.target == place


@pytest.mark.parametrize(
    ("entry", "links", "words"),
    [
        ("link: 'p1-s1-h1.gpu3:plane2', state: down", "p1-s1-h1.gpu3:plane2", []),
        ("link: 'p1-s1-h1:gpu3p2', set: {loss: 1e-3}", "p1-s1-h1:gpu3p2", []),
        ("plane: 3, down: true", "plane3", []),
        ("plane: 3, set: {silent: true}", "plane3", []),
        ("plane: 'p1-s1-h1:plane1-2', flap: {period: 10ms}", "p1-s1-h1:plane1-2", []),
        ("tray: p1-s1-h1, down: true", "p1-s1-h1:planes", []),
        ("domain: p1-s1-h1, kill: true", None, []),
        ("plane: 5, down: true", "plane5", ["plane5: scale-up-domain has no such planes"]),
        ("tray: p1-s1-h9, down: true", "p1-s1-h9:planes", ["no scale-up domain or host of one 'p1-s1-h9'"]),
        ("link: 'p1-s1-h1.gpu9:plane1', down: true", "p1-s1-h1.gpu9:plane1", ["p1-s1-h1 has no GPU 9"]),
        ("domain: p1, kill: true", None, ["no scale-up domain or host of one 'p1'"]),
    ],
)
def test_faults_of_scale_up_domains(entry: str, links: str | None, words: list[str]) -> None:
    """Each goes to the links that it names, needs no `qos:`, and explains nothing that is seen in the fabric."""
    head = "name: x\ntopology: {file: x.yml}\nworkload: {kind: permutation, bytes: 64bdp}\n"
    text = f"{head}faults: [{{at: 1s, until: 2s, {entry}}}]\n"
    (read,) = load_scenario_text(text, file="x.yml").scenario.faults
    lab = load_topology(TOPOLOGIES / "scale-up-domain.yml", overrides={})
    found = [finding.message for finding in fault_findings(read, lab)]
    assert [word in message for word, message in zip(words, found, strict=True)] == [True] * len(words)
    made = lab_fault(read)
    assert made.of_scale_up and not made.may_lose and made.keeps_order
    if links is not None:
        control = Links()
        site = SimpleNamespace(links=control, subnet=None)
        made.do(site)  # type: ignore[arg-type]
        made.undo(site)  # type: ignore[arg-type]
        assert [port for port, _ in control.done] == [links, links]
        assert [what for _, what in control.done] in (["down", "up"], ["set", "reset"])


def test_a_run_in_which_all_goes_wrong_as_planned(links: Links) -> None:
    timeline = played(
        links,
        fault("link-down", "a:b", "0ms", "20ms"),
        fault("link-set", "c:d", "5ms", rate="50%"),
        until=("a:b", "up"),
    )
    assert links.done == [("a:b", "down"), ("c:d", "set"), ("a:b", "up"), ("c:d", "reset")] and links.closed
    assert kinds(timeline) == [
        ("link-down", "a:b"), ("link-set", "c:d"), ("undone-link-down", "a:b"), ("undone-link-set", "c:d")
    ]  # fmt: skip
    outcome = timeline.outcome()
    assert (outcome.planned, outcome.acts, outcome.left_changed) == (2, 4, ())
    timeline.require_whole()


@pytest.mark.parametrize(
    ("error", "words"),
    [(OSError("no buffer space"), "no buffer space"), (KeyError("a bug"), "KeyError: 'a bug' (test_")],
)
def test_later_faults_happen_though_one_fails(links: Links, error: Exception, words: str) -> None:
    links.fails["a:b", "down"] = [error]
    timeline = played(links, fault("link-down", "a:b", "0ms"), fault("link-down", "c:d", "10ms"), until=("c:d", "down"))
    assert ("link-down", "a:b") not in kinds(timeline), "what did not happen is no event"
    (trouble,) = (one for one in timeline.outcome().troubles if "late" not in one and "took" not in one)
    assert trouble.startswith("link-down of a:b at 0 ns did not happen: ") and words in trouble
    assert ("a:b", "up") in links.done, "it may have happened half-way"
    assert ("undone-link-down", "a:b") not in kinds(timeline)


def test_every_fault_is_undone_though_one_undo_fails(links: Links) -> None:
    links.fails["a:b", "up"] = [OSError("no such device")]
    timeline = played(links, fault("link-down", "a:b", "0ms"), fault("link-down", "c:d", "1ms"), until=("c:d", "down"))
    assert ("c:d", "up") in links.done
    left = ("link-down of a:b was not undone: no such device",)
    assert timeline.outcome().left_changed == left and set(left) <= set(timeline.outcome().troubles)
    with pytest.raises(LabLeftChanged, match="link-down of a:b was not undone"):
        timeline.require_whole()


def test_an_undo_that_fails_in_time_is_tried_again_at_the_end(links: Links) -> None:
    links.fails["a:b", "up"] = [OSError("busy")]
    timeline = played(
        links, fault("link-down", "a:b", "0ms", "5ms"), fault("link-down", "c:d", "10ms"), until=("c:d", "down")
    )
    assert links.done.count(("a:b", "up")) == 2
    assert "link-down of a:b was not undone: busy" in timeline.outcome().troubles
    assert timeline.outcome().left_changed == ()


def test_a_fault_whose_time_the_traffic_did_not_see_is_named(links: Links) -> None:
    timeline = played(links, fault("link-down", "a:b", "0ms"), fault("link-down", "c:d", "1h"), until=("a:b", "down"))
    (trouble,) = (one for one in timeline.outcome().troubles if "late" not in one and "took" not in one)
    assert trouble.startswith("link-down of c:d at 3600 s never happened: the traffic ended after 0.")
    assert ("c:d", "down") not in links.done


def unforeseen(timeline: FaultTimeline) -> list[str]:
    """The troubles of a timeline, without those of a machine that is busy."""
    return [one for one in timeline.outcome().troubles if "late" not in one and "took" not in one]


def stepped(links: Links, *faults: Fault, steps: list[int], until: tuple[str, str]) -> FaultTimeline:
    """The timeline of a program that tells of these steps, and then runs until `until` is done to a link."""
    links.awaited = until
    with FaultTimeline(Lab(), faults, kill_worker=no_worker) as timeline:  # type: ignore[arg-type]
        timeline.begin(time.monotonic_ns())
        for step in steps:
            timeline.step_done(step, time.monotonic_ns())
        assert links.seen.wait(PATIENCE_S), f"{until} never happened"
    return timeline


def test_faults_wait_for_the_steps_of_a_program(links: Links) -> None:
    timeline = stepped(
        links,
        fault("link-down", "a:b", 6, 12),
        fault("link-set", "c:d", 8, rate="50%"),
        steps=[5, 6, 7, 8, 12],
        until=("a:b", "up"),
    )
    assert links.done == [("a:b", "down"), ("c:d", "set"), ("a:b", "up"), ("c:d", "reset")]
    assert (timeline.outcome().planned, timeline.outcome().acts, unforeseen(timeline)) == (2, 4, [])


def test_a_step_that_is_left_out_is_done_with_the_next_one(links: Links) -> None:
    """Programs that tell of every tenth step are no reason to wait for ever."""
    stepped(links, fault("link-down", "a:b", 6, 8), steps=[0, 10], until=("a:b", "up"))
    assert links.done == [("a:b", "down"), ("a:b", "up")]


def test_steps_and_times_do_not_wait_for_each_other(links: Links) -> None:
    links.awaited = ("c:d", "down")
    faults = [fault("link-down", "a:b", 6), fault("link-down", "c:d", "5ms")]
    with FaultTimeline(Lab(), faults, kill_worker=no_worker) as timeline:  # type: ignore[arg-type]
        timeline.begin(time.monotonic_ns())
        assert links.seen.wait(PATIENCE_S), "a fault by time waited for a step"
        links.seen.clear()
        links.awaited = ("a:b", "down")
        timeline.step_done(6, time.monotonic_ns())
        assert links.seen.wait(PATIENCE_S)
    assert unforeseen(timeline) == []


def test_a_fault_whose_step_never_came_is_named(links: Links) -> None:
    timeline = stepped(
        links, fault("link-down", "a:b", 1), fault("link-down", "c:d", 9), steps=[3], until=("a:b", "down")
    )
    (trouble,) = unforeseen(timeline)
    assert trouble.startswith("link-down of c:d at step 9 never happened: the traffic ended after 0.")
    assert trouble.endswith(", and the program came to step 3")
    assert ("c:d", "down") not in links.done


def test_a_fault_that_comes_long_after_its_step_is_late(links: Links) -> None:
    links.awaited = ("a:b", "down")
    with FaultTimeline(Lab(), [fault("link-down", "a:b", 1)], kill_worker=no_worker) as timeline:  # type: ignore[arg-type]
        timeline.begin(time.monotonic_ns() - 10**9)
        timeline.step_done(1, time.monotonic_ns() - 500_000_000)
        assert links.seen.wait(PATIENCE_S)
    (trouble,) = timeline.outcome().troubles
    assert "link-down of a:b was to begin at step 1 and began 5" in trouble and "ms late" in trouble


def test_of_a_flap_only_what_the_traffic_saw_is_asked_for(links: Links) -> None:
    timeline = played(links, fault("link-flap", "a:b", "0ms", "2h", "1h"), until=("a:b", "down"))
    assert [one for one in timeline.outcome().troubles if "late" not in one and "took" not in one] == []
    assert links.done == [("a:b", "down"), ("a:b", "up")]


def test_what_comes_late_is_named(links: Links, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acts_module, "LATEST_S", 0.0)
    timeline = played(links, fault("link-down", "a:b", "0ms"), until=("a:b", "down"))
    (trouble,) = timeline.outcome().troubles
    assert trouble.startswith("link-down of a:b was to begin at 0 ns and began ") and "(limit 0 ms)" in trouble
    assert timeline.outcome().latest_s > 0


def test_what_takes_long_is_named(links: Links, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acts_module, "LONGEST_S", 0.0)
    timeline = played(links, fault("link-down", "a:b", "0ms"), until=("a:b", "down"))
    assert any(
        one.startswith("link-down of a:b at 0 ns took ") and one.endswith(" ms to happen (limit 0 ms)")
        for one in timeline.outcome().troubles
    )


def test_what_stands_behind_another_is_named(links: Links) -> None:
    """The first fault holds up the second until the traffic has ended."""
    held = links.holds["a:b", "down"] = threading.Event()
    faults = [fault("link-down", "a:b", "0ms"), fault("link-down", "c:d", "1ms", "3ms")]
    with FaultTimeline(Lab(), faults, kill_worker=no_worker) as timeline:  # type: ignore[arg-type]
        timeline.begin(time.monotonic_ns() - 10_000_000)
        timeline.end()
        held.set()
    assert (
        "link-down of c:d at 1 ms never happened: what was due before it took too long" in timeline.outcome().troubles
    )
    assert ("c:d", "down") not in links.done


def test_nothing_is_done_once_the_traffic_has_ended(links: Links) -> None:
    with FaultTimeline(Lab(), [fault("link-down", "a:b", "1h")], kill_worker=no_worker) as timeline:  # type: ignore[arg-type]
        timeline.begin(time.monotonic_ns())
        timeline.end()
    assert links.done == [] and len(timeline.outcome().troubles) == 1


def test_a_host_without_a_worker_has_none_that_could_be_killed(links: Links) -> None:
    links.awaited = "a:b", "down"
    timeline = played(links, fault("agent-kill", "h1", "0ms"), fault("link-down", "a:b", "1ms"), until=("a:b", "down"))
    assert [kind for kind, _ in kinds(timeline)] == ["link-down", "undone-link-down"]
    assert any(
        one.startswith("agent-kill of h1 at 0 ns did not happen: h1 has no worker")
        for one in timeline.outcome().troubles
    )


def test_a_daemon_that_does_not_run_cannot_be_killed(links: Links, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kills, "running_daemons", lambda lab, node: [])
    monkeypatch.setattr(kills, "start_routing", lambda lab, node: None)
    timeline = played(
        links, fault("daemon-kill", "s", "0ms", daemon="bgpd"), fault("link-down", "a:b", "1ms"), until=("a:b", "down")
    )
    assert ("daemon-kill", "s") not in kinds(timeline)
    assert "daemon-kill of s at 0 ns did not happen: s runs no bgpd that could be killed" in timeline.outcome().troubles


def test_what_the_lab_does_not_have_is_refused_before_the_traffic(links: Links) -> None:
    with pytest.raises(ScenarioError, match="s has no daemon bfdd"):
        played(links, fault("daemon-kill", "s", "0ms", daemon="bfdd"))
    with pytest.raises(DriverError):
        played(links, fault("link-down", "no:port", "0ms"))
    assert links.closed


@pytest.mark.parametrize("error", [OSError("socket closed"), ZeroDivisionError("a bug")])
def test_a_lab_that_cannot_be_heard_is_named(links: Links, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(Stream, "error", error)
    timeline = played(links, fault("link-down", "a:b", "0ms"), until=("a:b", "down"))
    (trouble,) = (one for one in timeline.outcome().troubles if "late" not in one and "took" not in one)
    assert trouble.startswith("what the lab says of itself was not heard to the end: ") and str(error) in trouble


def test_a_lab_that_goes_away_is_named(links: Links, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stream, "ends", True)
    timeline = played(links, fault("link-down", "a:b", "0ms"), until=("a:b", "down"))
    assert any("the lab has gone" in one for one in timeline.outcome().troubles)


def test_a_bug_in_the_thread_is_named(links: Links, monkeypatch: pytest.MonkeyPatch) -> None:
    def buggy(self: object, *_: object) -> None:
        monkeypatch.undo()
        links.seen.set()
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr(FaultTimeline, "_note", buggy)
    timeline = played(links, fault("link-down", "a:b", "0ms"), until=("a:b", "down"))
    assert any("the thread that does the faults broke: RuntimeError" in one for one in timeline.outcome().troubles)


def test_routing_that_does_not_come_back_leaves_the_lab_changed(links: Links, monkeypatch: pytest.MonkeyPatch) -> None:
    class Watch:
        def __init__(self, plan: object, directory: object) -> None:
            raise OSError("vty refused")

    monkeypatch.setattr(timeline_module, "ConvergenceWatch", Watch)
    lab = Lab(SimpleNamespace(node="s"))
    monkeypatch.setattr(Lab, "processes_directory", "/run", raising=False)
    timeline = played(links, fault("link-down", "a:b", "0ms"), until=("a:b", "down"), lab=lab)
    assert timeline.outcome().left_changed == ("routing is not what it was before the faults: vty refused",)


def test_a_run_with_a_trouble_is_invalid() -> None:
    (fine,) = check_faults(FaultOutcome(planned=2, acts=4, latest_s=0.0012))
    assert fine.ok and "all 2 faults were done as planned, the latest act 1.2 ms late" in fine.message
    (broken,) = check_faults(FaultOutcome(planned=1, troubles=("link-down of a:b at 1 s did not happen: why",)))
    assert not broken.ok and broken.message == "link-down of a:b at 1 s did not happen: why"


@pytest.mark.parametrize(("kind", "settings", "found"), [("node-kill", {}, 0), ("daemon-kill", {"daemon": "bgpd"}, 1)])
def test_a_management_switch_may_lose_power_and_has_no_daemons(
    kind: str, settings: dict[str, Scalar], found: int
) -> None:
    text = "name: dc\nfabric: {design: single-switch, hosts: 2, gpus: 1}\nnetworks: {oob: {design: out-of-band}}\n"
    lab = load_topology_text(text, file="dc.yml")
    fault = Fault(at=Duration(0), kind=kind, target="mgmt-sw1", settings=settings)
    findings = list(fault_findings(fault, lab))
    assert len(findings) == found
    assert all(finding.message == "mgmt-sw1 is a bridge, not a switch" for finding in findings)


def test_a_storage_target_has_a_worker_that_may_be_killed_and_is_no_switch() -> None:
    text = (
        "name: dc\nfabric: {design: single-switch, hosts: 2, gpus: 1}\n"
        "networks: {storage: {design: single-switch, targets: {flash: {}}}}\n"
    )
    lab = load_topology_text(text, file="dc.yml")

    def findings(kind: str, target: str) -> list[tuple[str, str | None]]:
        fault = Fault(at=Duration(0), kind=kind, target=target, settings={})
        return [(finding.message, finding.hint) for finding in fault_findings(fault, lab)]

    assert findings("agent-kill", "flash") == []
    ((message, hint),) = findings("node-kill", "flash")
    assert message == "flash is a storage target, not a switch"
    assert hint is not None and "agent: flash, kill: true" in hint
    ((message, hint),) = findings("agent-kill", "flask")
    assert (message, hint) == ("dc has no host or storage target 'flask'", "did you mean flash?")
    ((message, _),) = findings("agent-kill", "st-leaf1")
    assert message == "st-leaf1 is a switch, not a host or storage target"
