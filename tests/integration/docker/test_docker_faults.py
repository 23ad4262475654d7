"""What goes wrong with containers: a clear error each time, nothing left behind, and the next deploy works."""

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from sandbox import Sandbox

from testbed.base.errors import CapabilityError, DriverError, LabNotFound, NameInUse, TestbedError
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.runtime import NodesRemain
from testbed.lab.core.drivers.probing.machine import find_frr
from testbed.lab.core.model import Lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.containers.engine import LABEL, ContainerEngine

pytestmark = [pytest.mark.docker, pytest.mark.frr, pytest.mark.timeout(300)]

PAIR = """
name: {name}
topology:
  defaults: {{kind: host, runtime: docker}}
  nodes:
    a: {{{a}}}
    b: {{runtime: netns}}
  links: [{{endpoints: ["a:eth1", "b:eth1"]}}]
"""
CLOS = """
name: {name}
fabric: {{design: rail-optimized, hosts: 4, gpus: 1, segments: 1, spines: 1}}
topology:
  defaults: {{runtime: docker}}
"""


def pair(name: str, a: str = "labels: {}") -> Lab:
    return load_topology_text(PAIR.format(name=name, a=a), file="pair.yml")


@pytest.fixture(autouse=True)
def empty_engine(client: ContainerEngine) -> Iterator[None]:
    """`client` looks for containers at the end of each test."""
    yield


def nothing_left(sandbox: Sandbox) -> None:
    assert sandbox.leftovers() == []
    with pytest.raises(LabNotFound):
        sandbox.running()


REFUSALS = {
    "an image that is not there": ('image: "nobody/nothing:1"', CapabilityError, "has no image nobody/nothing:1"),
    "a command that ends": ("cmd: 'sh -c \"echo so long; exit 4\"'", DriverError, "ended .*status 4|a: its container"),
    "a command that is not there": ("cmd: no-such-command", DriverError, "a: .*no-such-command"),
    "a bind of nothing": ('binds: ["/no/such/place:/data"]', DriverError, "a: .*(/no/such/place|bind source)"),
    "too many CPUs": ("cpu: 1024", DriverError, "a: .*CPU"),
    "a health check that fails": (
        "healthcheck: {test: 'sh -c \"echo not well; exit 1\"', interval: 100ms, retries: 1}",
        DriverError,
        "a: its container is unhealthy: not well",
    ),
    "a command of the file that fails": ("exec: ['false']", TestbedError, "a: exec false ended with status 1"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_what_the_engine_refuses_is_told_and_undone(sandbox: Any, what: str) -> None:
    text, kind, message = REFUSALS[what]
    with pytest.raises(kind, match=message):
        sandbox.deploy(pair(sandbox.name(), text))
    nothing_left(sandbox)
    assert sandbox.deploy(pair(sandbox.name())).changed
    sandbox.destroy()


def test_a_switch_without_frr(sandbox: Sandbox) -> None:
    text = CLOS.format(name=sandbox.name()) + "  kinds: {switch: {image: testbed/host}}\n"
    with pytest.raises(CapabilityError, match="the image testbed/host has no FRR"):
        sandbox.deploy(load_topology_text(text, file="clos.yml"))
    nothing_left(sandbox)


@pytest.mark.may_skip
def test_releases_of_frr_that_lock_up_with_bfd(sandbox: Sandbox) -> None:
    """FRR 8.4 here and 10.3 in the image; where both are the same there is nothing to refuse."""
    if find_frr().version >= (10, 2):
        pytest.skip("this machine's FRR is as new as the image's")
    text = CLOS.format(name=sandbox.name()).replace("spines: 1}", "spines: 1, routing: {bfd: {interval: 300ms}}}")
    text += "  nodes: {p1-spine1: {runtime: netns}}\n"
    with pytest.raises(CapabilityError, match="side by side can lock up with BFD"):
        sandbox.deploy(load_topology_text(text, file="clos.yml"))
    nothing_left(sandbox)


def test_a_healthy_container_is_waited_for(sandbox: Sandbox) -> None:
    check = "healthcheck: {test: test -e /tmp/ready, interval: 100ms, retries: 100}"
    late = f"cmd: 'sh -c \"sleep 1; touch /tmp/ready; exec sleep infinity\"', {check}"
    lab = sandbox.deploy(pair(sandbox.name(), late)).lab
    assert lab.run("a", ["test", "-e", "/tmp/ready"]).returncode == 0
    lab.run("a", ["rm", "/tmp/ready"])
    lab.run("a", ["true"])
    sandbox.destroy()


def test_without_an_engine(sandbox: Any, engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        engine.absent(),
        pytest.raises(CapabilityError, match=f"no Docker engine answers at {engine.url}: No such file"),
    ):
        sandbox.deploy(pair(sandbox.name()))
    nothing_left(sandbox)
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    with pytest.raises(CapabilityError, match="of this machine alone"):
        sandbox.deploy(pair(sandbox.name()))
    nothing_left(sandbox)


def test_an_engine_that_is_away_when_the_lab_goes(sandbox: Any, engine: Any, client: ContainerEngine) -> None:
    lab = sandbox.deploy(pair(sandbox.name())).lab
    with engine.absent():
        assert {status.name: status.state for status in lab.status()} == {"a": "unknown", "b": "running"}
        assert lab.run("a", ["true"]).returncode == 126
        with pytest.raises(NodesRemain, match="cannot be removed: no Docker engine answers"):
            sandbox.destroy()
        assert sandbox.namespaces() == {}
        assert sandbox.state.exists(sandbox.name())
    sandbox.destroy()
    assert client.client.containers.list(all=True) == []
    nothing_left(sandbox)


def test_a_container_of_that_name_that_is_not_ours(sandbox: Any, client: ContainerEngine) -> None:
    name = namespace_name(sandbox.name(), "a")
    foreign = client.client.containers.create("testbed/host", name=name, network_mode="none")
    with pytest.raises(NameInUse, match=f"a container {name} exists and is not ours"):
        sandbox.deploy(pair(sandbox.name()))
    nothing_left(sandbox)
    foreign.reload()
    foreign.remove()


def test_two_labs_side_by_side(sandbox: Any, client: ContainerEngine) -> None:
    first, second = (sandbox.deploy(pair(sandbox.name(suffix))).lab for suffix in "ab")
    sandbox.destroy("a")
    left = [container.name for container in client.client.containers.list(all=True)]
    assert left == [namespace_name(second.name, "a")]
    assert {status.state for status in second.status()} == {"running"}
    assert (
        second.run("a", ["ping", "-c1", "-W2", str(second.port("b", "eth1").address).partition("/")[0]]).returncode == 0
    )
    assert first.name != second.name
    sandbox.destroy("b")


@pytest.mark.parametrize(
    ("event", "number"),
    [
        ("create", 1),
        *(pytest.param("start", number, marks=pytest.mark.thorough) for number in (1, 6)),
        ("start", 3),
        ("exec_start", 2),
    ],
)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_deploy_cut_short(
    sandbox: Any, client: ContainerEngine, event: str, number: int, how: signal.Signals
) -> None:
    """After the first container is made, when some run, when all run, while daemons start: killed, or interrupted."""
    (sandbox.work / "clos.yml").write_text(CLOS.format(name=sandbox.name()))
    events: Any = client.client.events(decode=True, filters={"label": LABEL, "type": "container"})
    process = sandbox.start("deploy", "-t", "clos.yml", "--quiet")
    watchdog = threading.Timer(120, events.close)
    watchdog.start()
    seen = 0
    for item in events:
        seen += item["Action"].partition(":")[0] == event
        if seen == number:
            process.send_signal(how)
            break
    watchdog.cancel()
    events.close()
    assert seen == number, (sandbox.root / "out").read_text()
    status = process.wait(60)
    if how is signal.SIGKILL:
        assert status == -signal.SIGKILL
        assert sandbox.cli("destroy", "-n", sandbox.name()).returncode == 0
    else:
        assert status == 130, (sandbox.root / "out").read_text()
    assert client.client.containers.list(all=True, ignore_removed=True) == []
    nothing_left(sandbox)
