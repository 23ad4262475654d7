"""Actions on links: several impairments in one line, and one step that brings back what was there before."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from testbed.api.console.action import ActionRequest, PageAction, Undo, answer_action, read_request
from testbed.api.console.answers import RefusedRequest
from testbed.api.console.views import lab_actions, link_actions, node_actions, pause_actions
from testbed.api.console.views.link_actions import restoring
from testbed.base.errors import TestbedError
from testbed.cli.nodes.link_changes import link_change
from testbed.lab.core.deploy.links.recorded import LinkState, WireChange, write_link_state
from testbed.lab.core.deploy.live import NoSuchNode
from testbed.lab.core.fabric import generate_fabric
from testbed.lab.core.fabric.params import FabricParams
from testbed.lab.core.plan.lab import plan_lab

NIC, DOWN = "p1-s1-h1:rail1", "p1-s1-rail1:down1"
ACTIONS = {
    action.name: action
    for module in (link_actions, node_actions, pause_actions, lab_actions)
    for action in module.ACTIONS
}


class FakeTasks:
    def __init__(self) -> None:
        self.started: list[list[list[str]]] = []

    def start_all(self, words: list[list[str]], *, title: str, lab: str) -> Any:
        self.started.append(words)
        return SimpleNamespace(id="1")


class FakeConsole:
    def __init__(self, directory: Path, *, write: bool = True) -> None:
        self.write = write
        self.tasks = FakeTasks()
        self.state = SimpleNamespace(lab_directory=lambda _: directory)
        self.files = SimpleNamespace(path=lambda text: Path.cwd() / text)

    def require_write(self) -> None:
        if not self.write:
            raise RefusedRequest(403, "this console only reads")


@pytest.fixture
def lab(tmp_path: Path) -> Any:
    model = generate_fabric(FabricParams(design="rail-optimized", segments=1, hosts=2, gpus=2, spines=2), name="x")
    plan = plan_lab(model, k=1000)
    ports = {(port.node, port.name): port for port in plan.ports}

    def port(node: str, interface: str) -> Any:
        if (node, interface) not in ports:
            raise NoSuchNode(f"x has no {node}:{interface}")
        return ports[node, interface]

    return SimpleNamespace(
        name="x",
        plan=plan,
        model=model,
        record=SimpleNamespace(k=1000),
        state_directory=tmp_path,
        port=port,
        node=lambda name: next(node for node in model.nodes if node.name == name),
    )


def request(
    action: str,
    lab: Any,
    targets: list[str],
    values: dict[str, Any] | None = None,
    *,
    live: bool = True,
    write: bool = True,
) -> tuple[PageAction, ActionRequest]:
    source: Any = SimpleNamespace(live=live, name=lab.name, lab=lab)
    console: Any = FakeConsole(lab.state_directory, write=write)
    body = {"targets": targets, "values": values or {}}
    return ACTIONS[action], read_request(ACTIONS[action], console, source, body)


def test_several_impairments_are_one_line_for_each_link(lab: Any) -> None:
    values = {"rate": "50%", "delay": "5us", "loss": "1%", "silent": True, "carrier": "down"}
    action, asked = request("link-set", lab, [NIC, DOWN], values)
    lines = [list(line) for line in action.command(asked)]
    assert lines == [
        ["link", "set", NIC, "--rate", "50%", "--delay", "5us", "--loss", "1%", "--silent", "--both", "-n", "x"],
        ["link", "down", NIC, "-n", "x"],
        ["link", "set", DOWN, "--rate", "50%", "--delay", "5us", "--loss", "1%", "--silent", "--both", "-n", "x"],
        ["link", "down", DOWN, "-n", "x"],
    ]


def test_nothing_chosen_is_nothing_to_do(lab: Any) -> None:
    action, asked = request("link-set", lab, [NIC])
    with pytest.raises(TestbedError, match="nothing to change"):
        action.command(asked)


@pytest.mark.parametrize("name", ["link-set", "link-down", "power-off", "node-recreate", "pfc-storm", "destroy"])
def test_it_asks_before_it_harms(name: str, lab: Any) -> None:
    target = {"link-set": NIC, "link-down": NIC, "pfc-storm": NIC, "destroy": "x"}.get(name, "p1-s1-h1")
    action, asked = request(name, lab, [target], {"loss": "1%"} if name == "link-set" else {})
    with pytest.raises(RefusedRequest) as refused:
        answer_action(action, asked, {})
    assert (refused.value.status, refused.value.code) == (409, "confirm")
    assert cast(FakeConsole, asked.console).tasks.started == []  # type: ignore[comparison-overlap]
    answer_action(action, asked, {"confirmed": True})
    assert len(cast(Any, asked.console).tasks.started) == 1


@pytest.mark.parametrize("name", sorted(set(ACTIONS) - {"deploy", "run"}))
def test_a_console_that_only_reads_refuses_every_action(name: str, lab: Any) -> None:
    """Without the guard the same request begins a task."""
    targets = {"node": ["p1-s1-h1"], "lab": ["x"], "port": [NIC], "link": [NIC]}
    on = ACTIONS[name].on[0] if ACTIONS[name].on else None
    values = {"loss": "1%"} if name == "link-set" else {}
    chosen = targets[on] if on else [NIC] if name == "link-restore" else []
    action, asked = request(name, lab, chosen, values)
    answer_action(action, asked, {"confirmed": True})
    assert cast(Any, asked.console).tasks.started, "it is done where it may be"
    action, asked = request(name, lab, chosen, values, write=False)
    with pytest.raises(RefusedRequest, match="only reads"):
        answer_action(action, asked, {"confirmed": True})
    assert not cast(Any, asked.console).tasks.started
    assert answer_action(action, asked, {"dry": True})["command"], "its command line may be seen"


def test_a_record_cannot_be_changed(lab: Any) -> None:
    action, asked = request("link-down", lab, [NIC], live=False)
    with pytest.raises(RefusedRequest, match="record"):
        action.command(asked)


@pytest.mark.parametrize("target", ["p1-s1-h1:nope", "nobody:rail1"])
def test_what_the_lab_lacks_is_refused(target: str, lab: Any) -> None:
    action, asked = request("link-down", lab, [target])
    with pytest.raises(NoSuchNode):
        action.command(asked)


@pytest.mark.parametrize("target", ["--all", "-n", "a b", "x\n"])
def test_a_target_is_no_option(target: str, lab: Any) -> None:
    with pytest.raises(RefusedRequest):
        request("link-down", lab, [target])


def test_one_undo_brings_back_what_was_there_before(lab: Any, tmp_path: Path) -> None:
    before = {DOWN: WireChange(rate_bps=12_345_678, delay_ns=7_000_000, loss=0.0125, up=False)}
    write_link_state(tmp_path, LinkState(changes=dict(before)))
    action, asked = request("link-set", lab, [NIC], {"loss": "5%"})
    assert action.undo is not None
    undo = action.undo(asked)
    assert isinstance(undo, Undo) and undo.action == "link-restore"
    action, asked = request("link-restore", lab, [NIC], dict(undo.values))
    assert [list(line) for line in action.command(asked)] == [
        ["link", "reset", NIC, "-n", "x"],
        ["link", "set", DOWN, "--rate", "12345678bit/s", "--lab-rate", "--delay", "7us", "--loss", "1.25%", "-n", "x"],
        ["link", "down", DOWN, "-n", "x"],
    ]


@pytest.mark.parametrize(
    "change",
    [
        WireChange(rate_bps=8, delay_ns=123_456_789, jitter_ns=1_000),
        WireChange(rate_bps=399_999_999, loss=1 / 3, loss_every=7, corruption=0.0001),
        WireChange(delay_ns=0, silent=True),
        WireChange(silent=False),
    ],
)
def test_what_is_restored_is_read_as_the_same_change(change: WireChange) -> None:
    ((*words, _, _),) = [line[3:] for line in restoring(NIC, change, 1.0, "x")]
    options: dict[str, Any] = {}
    while words:
        name = words.pop(0).removeprefix("--").replace("-", "_")
        if name in ("lab_rate", "silent", "no_silent"):
            options[name] = True
        else:
            options[name] = words.pop(0)
    if "no_silent" in options:
        options["silent"] = not options.pop("no_silent")
    if "loss_every" in options:
        options["loss_every"] = int(options["loss_every"])
    read = link_change(**options)
    found = (
        None if read.lab_rate is None else read.lab_rate.bps,
        None if read.delay is None else read.delay.ns,
        None if read.jitter is None else read.jitter.ns,
        read.loss_every,
        read.silent,
    )
    assert found == (change.rate_bps, change.delay_ns, change.jitter_ns, change.loss_every, change.silent)
    assert read.loss == pytest.approx(change.loss) and read.corruption == pytest.approx(change.corruption)


@pytest.mark.parametrize(
    "before",
    ["[]", "nonsense", '{"p1-s1-h1:rail1": {"rate_bps": "fast"}}', '{"p1-s1-h1:rail1": {"up": 1, "x": 2}}', "[" * 5000],
)
def test_what_a_page_sends_back_is_looked_at(before: str, lab: Any) -> None:
    action, asked = request("link-restore", lab, [NIC], {"before": before})
    with pytest.raises(TestbedError, match="no earlier state"):
        action.command(asked)


def test_a_port_of_another_lab_cannot_be_restored(lab: Any) -> None:
    action, asked = request("link-restore", lab, [NIC], {"before": json.dumps({"x:y": {"loss": 0.1}})})
    with pytest.raises(NoSuchNode):
        action.command(asked)


def test_settings_are_words_of_their_own(lab: Any) -> None:
    action, asked = request("apply", lab, ["x"], {"set": "fabric.hosts=4 'name=a b'", "recreate": True})
    assert [list(line) for line in action.command(asked)] == [
        ["apply", "-n", "x", "--set", "fabric.hosts=4", "--set", "name=a b", "--allow", "recreate"]
    ]
    assert "made again" in action.harm(asked)
