"""Faults of scenarios on live labs: what happened is an event, and what did not makes the run invalid and is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.base.linux.processes import kill_processes
from testbed.lab.core.deploy.routing import running_daemons, start_routing
from testbed.lab.core.drivers.routing.frr import CRASH_DIRECTORY

pytestmark = [pytest.mark.netns, pytest.mark.frr]

RUN_S = 150.0
INVALID = 2


def run_scenario(sandbox: Any, faults: str, transport: str = "{kind: tcp}") -> tuple[int, dict[str, Any]]:
    """The exit code and the record of a scenario in which h1 sends to h2 for about a second, and h3 does nothing."""
    path: Path = sandbox.work / "faulty.yml"
    path.write_text(
        f"""name: faulty
topology:
  inline: {{name: {sandbox.name()}, scale: {{time: 10000}}, fabric: {{design: single-switch, hosts: 3, gpus: 1}}}}
transport: {transport}
workload: {{kind: point-to-point, bytes: 4MB, ranks: {{hosts: [p1-s1-h1, p1-s1-h2]}}}}
faults: [{faults}]
probes: off
"""
    )
    done = sandbox.cli("run", str(path), "-f", "json", "--no-report", timeout_s=RUN_S)
    found = sorted(sandbox.work.glob("results/*/record.json"))
    assert found, done.stderr
    return done.returncode, json.loads(found[-1].read_text())


def test_what_did_not_happen_is_named_and_makes_the_run_invalid(sandbox: Any) -> None:
    code, record = run_scenario(
        sandbox,
        "{at: 50ms, agent: p1-s1-h3, kill: true},"
        ' {at: 100ms, until: 200ms, link: "p1-s1-h3:rail1", down: true},'
        ' {at: 1h, link: "p1-s1-h1:rail1", down: true}',
    )
    (run,) = record["points"][0]["runs"]
    done = [event["kind"] for event in run["events"] if not event["kind"].startswith("carrier")]
    assert done == ["link-down", "undone-link-down"], "what did not happen is no event"
    (check,) = (check for check in run["checks"] if check["name"] == "faults")
    assert not check["ok"]
    assert "agent-kill of p1-s1-h3 at 50 ms did not happen: p1-s1-h3 has no worker" in check["message"]
    assert "link-down of p1-s1-h1:rail1 at 3600 s never happened: the traffic ended after" in check["message"]
    assert code == INVALID and record["verdict"]["outcome"] == "invalid"
    assert any("p1-s1-h3 has no worker" in reason for reason in record["verdict"]["reasons"])
    assert record["incomplete"] == "", "the run itself went to its end"


@pytest.mark.parametrize(
    "transport",
    ["{kind: tcp}", "{kind: roce}", pytest.param("{kind: roce, connections: dct}", marks=pytest.mark.thorough)],
)
def test_a_worker_that_is_killed_is_an_event_and_ends_the_run(sandbox: Any, transport: str) -> None:
    code, record = run_scenario(sandbox, "{at: 100ms, agent: p1-s1-h2, kill: true}", transport)
    (run,) = record["points"][0]["runs"]
    events = [(event["kind"], event["target"]) for event in run["events"]]
    assert events == [("agent-kill", "p1-s1-h2")], (record["incomplete"], run["checks"])
    assert code == INVALID and "SIGKILL" in record["incomplete"]


@pytest.mark.parametrize(
    "options",
    [
        "",
        pytest.param(", recovery: selective", marks=pytest.mark.thorough),
        pytest.param(", connections: dct", marks=pytest.mark.thorough),
    ],
)
def test_roce_over_a_nic_that_is_down_for_less_than_its_timeouts_loses_nothing(sandbox: Any, options: str) -> None:
    fault = '{at: 200ms, until: 300ms, link: "p1-s1-h1:rail1", down: true}'
    _, record = run_scenario(sandbox, fault, f"{{kind: roce{options}}}")
    assert record["incomplete"] == ""
    (run,) = record["points"][0]["runs"]
    done = [event["kind"] for event in run["events"] if not event["kind"].startswith("carrier")]
    assert done == ["link-down", "undone-link-down"]
    assert None not in run["transfers"]["end_s"], "nothing is lost"
    (channel,) = run["channels"]
    assert channel["received_bytes"] == channel["sent_bytes"] == 4_000_000
    assert channel["retransmits"] > 0
    assert run["counters"]["qp_state_bytes"] > 0
    assert (run["counters"]["connects"] > 0) == ("dct" in options)


@pytest.mark.parametrize("options", ["", pytest.param(", connections: dct", marks=pytest.mark.thorough)])
def test_roce_over_a_nic_that_is_down_for_longer_fails_with_its_reason(sandbox: Any, options: str) -> None:
    fault = '{at: 200ms, until: 100s, link: "p1-s1-h1:rail1", down: true}'
    code, record = run_scenario(sandbox, fault, f"{{kind: roce, retry_count: 1{options}}}")
    assert code == INVALID
    assert "RETRY_EXCEEDED: the peer does not answer" in record["incomplete"]
    (run,) = record["points"][0]["runs"]
    assert run["channels"][0]["counters"]["timeout"] == 1


def test_daemons_that_are_killed_and_started_anew_leave_nothing(sandbox: Any) -> None:
    """The sandbox looks for the crash directories of all that ran when the lab was deployed."""
    lab = sandbox.deploy(sandbox.tiny()).lab
    switch = lab.plan.switches[0].node
    killed = running_daemons(lab, switch)
    assert {one.command for one in killed} >= {"zebra", "bgpd"}
    assert all((CRASH_DIRECTORY / f"{one.command}.{one.pid}").is_dir() for one in killed)
    kill_processes(killed)
    assert running_daemons(lab, switch) == []
    assert start_routing(lab, switch)
    sandbox.destroy()
