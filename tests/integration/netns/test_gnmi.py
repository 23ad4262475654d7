"""gNMI of a real lab, asked by another program's client: interfaces, queues and BGP as the switches have them."""

import json
import re
import sys
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from sandbox import Sandbox
from waiting import until

from testbed.daemons.gnmi.configuration import ACCOUNT, PASSWORD_FILE, PORT
from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl
from testbed.lab.core.deploy.power import power_off, power_on
from testbed.lab.features.management.services.gnmi import AUTHORITY, credentials
from testbed.lab.features.management.services.launcher import missing_programs
from testbed.lab.features.management.services_apply import (
    missing_services,
    read_services,
    restart_services,
    service_places,
)

pytestmark = [
    pytest.mark.netns,
    pytest.mark.frr,
    pytest.mark.timeout(180),
    pytest.mark.skipif(any(missing_programs("gnmi")), reason="pygnmi is missing: pip install 'testbed[gnmi]'"),
]

TEXT = """name: {name}
scale: {{time: 20000}}
qos: {{preset: uec}}
fabric: {{design: rail-optimized, hosts: 2, gpus: 1, segments: 1, spines: 1}}
networks: {{management: {{design: out-of-band, services: [gnmi]}}}}
"""
UNREACHABLE_S = 3
"""As long as a client tries where nobody can answer."""
SERVER, SPINE, LEAF = "mgmt1", "p1-spine1", "p1-s1-rail1"
NEIGHBORS = (
    "/network-instances/network-instance[name=default]/protocols/protocol[identifier=BGP][name=BGP]/bgp/neighbors"
)
CLIENT = """
import json, sys
from pygnmi.client import gNMIclient
wanted = json.loads(sys.argv[1])
client = gNMIclient(
    target=(wanted["address"], wanted["port"]), username=wanted["user"], password=wanted["password"],
    path_cert=wanted["authority"], gnmi_timeout=wanted["timeout_s"],
)
with client as target:
    if wanted["call"] == "capabilities":
        print(json.dumps(target.capabilities()))
    elif wanted["call"] == "set":
        print(json.dumps(target.set(delete=wanted["paths"])))
    elif wanted["call"] == "get":
        print(json.dumps(target.get(path=wanted["paths"], encoding=wanted["encoding"])))
    else:
        for message in target.subscribe2(subscribe=wanted["subscribe"]):
            print(json.dumps(message), flush=True)
"""


@pytest.fixture(scope="module")
def lab(shared_sandbox: Sandbox) -> Any:
    return shared_sandbox.lab(TEXT, "g", k=20_000.0)


def address_of(lab: Any, switch: str) -> IPv4Address:
    return IPv4Address(lab.plan.management.addresses[switch].ip)


def password(lab: Any) -> str:
    (place,) = service_places(lab.model, lab.plan, lab.state)
    return (credentials(place.lab) / PASSWORD_FILE).read_text()


def arguments(lab: Any, switch: str, call: str, **more: Any) -> list[str]:
    wanted = {
        "address": str(address_of(lab, switch)),
        "port": PORT,
        "user": ACCOUNT,
        "password": password(lab),
        "authority": str(lab.directory / AUTHORITY),
        "call": call,
        "timeout_s": 10,
        **more,
    }
    return [sys.executable, "-c", CLIENT, json.dumps(wanted)]


def asked(lab: Any, switch: str, call: str, **more: Any) -> Any:
    done = lab.run(SERVER, arguments(lab, switch, call, **more))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(lab: Any, switch: str, call: str, **more: Any) -> str:
    done = lab.run(SERVER, arguments(lab, switch, call, **more))
    assert done.returncode != 0, done.stdout
    return str(done.stderr)


def values(lab: Any, switch: str, *paths: str, encoding: str = "json_ietf") -> dict[str, Any]:
    answer = asked(lab, switch, "get", paths=paths, encoding=encoding)
    return {update["path"]: update["val"] for one in answer["notification"] for update in one.get("update", ())}


def test_a_target_says_what_it_can(lab: Any) -> None:
    said = asked(lab, LEAF, "capabilities")
    assert {model["name"] for model in said["supported_models"]} == {
        "openconfig-interfaces", "openconfig-qos", "openconfig-network-instance",
    }  # fmt: skip
    assert set(said["supported_encodings"]) == {"json", "json_ietf", "proto"}
    assert said["gnmi_version"] == "0.8.0"


def kernel_octets(lab: Any) -> int:
    (link,) = json.loads(lab.run(LEAF, ["ip", "-s", "-j", "link", "show", "uplink1"]).stdout)
    return int(link["stats64"]["tx"]["bytes"])


def test_interfaces_are_those_of_the_kernel(lab: Any) -> None:
    (found,) = values(lab, LEAF, "/interfaces").values()
    interfaces = {item["name"]: item["state"] for item in found["openconfig-interfaces:interface"]}
    planned = {port.name: port for port in lab.plan.ports if port.node == LEAF and not port.out_of_band}
    assert interfaces.keys() == planned.keys()
    for name, state in interfaces.items():
        assert (state["ifindex"], state["mtu"]) == (planned[name].ifindex, planned[name].mtu_bytes)
        assert state["oper-status"] == "UP"
    path = "/interfaces/interface[name=uplink1]/state/counters/out-octets"
    before = kernel_octets(lab)
    (told,) = values(lab, LEAF, path).values()
    assert before <= int(told) <= kernel_octets(lab)


def test_queues_are_those_of_the_data_path(lab: Any) -> None:
    found = values(lab, LEAF, "/qos/interfaces/interface[interface-id=down1]", encoding="json")
    ((path, document),) = found.items()
    queues = {item["name"]: item["state"] for item in document["output"]["queues"]["queue"]}
    assert queues.keys() == {"bulk", "rdma", "control"}
    assert path.endswith("interface[interface-id=down1]")
    before = queues["bulk"]["transmit-pkts"]
    hosts = ["p1-s1-h1", "p1-s1-h2"]
    first, second = (
        next(port.address.ip for port in lab.plan.ports if port.node == host and port.name == "rail1") for host in hosts
    )
    assert lab.run(hosts[1], ["ping", "-c", "5", "-i", "0.01", "-I", str(second), str(first)]).returncode == 0
    path = "/qos/interfaces/interface[interface-id=down1]/output/queues/queue[name=bulk]/state/transmit-pkts"
    (after,) = values(lab, LEAF, path).values()
    assert int(after) >= before + 5


def test_bgp_is_that_of_bgpd(lab: Any) -> None:
    def established() -> dict[str, Any] | None:
        (found,) = values(lab, LEAF, NEIGHBORS).values()
        states = [item["state"] for item in found["openconfig-network-instance:neighbor"]]
        return states[0] if [item["session-state"] for item in states] == ["ESTABLISHED"] else None

    state = until(established, "the session is established")
    asns = {switch.node: switch.asn for switch in lab.plan.switches}
    assert (state["peer-as"], state["local-as"], state["description"]) == (asns[SPINE], asns[LEAF], "uplink1")


def test_a_stream_tells_that_a_link_goes_down_and_comes_up(lab: Any, tmp_path: Path) -> None:
    """The subscriber gets what there is, then the change and nothing else; the session goes with the link."""
    subscribe = {
        "subscription": [
            {"path": "/interfaces/interface[name=uplink1]/state/oper-status", "mode": "on_change"},
            {"path": f"{NEIGHBORS}/neighbor/state/session-state", "mode": "on_change"},
        ],
        "mode": "stream",
        "encoding": "proto",
    }
    log = tmp_path / "stream"
    with log.open("wb") as output:
        process = lab.spawn(SERVER, arguments(lab, LEAF, "subscribe", subscribe=subscribe), stdout=output)
    try:

        def told() -> list[dict[str, Any]]:
            return [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]

        until(lambda: any("sync_response" in message for message in told()), "it is in step")
        before = len(told())
        with LinkControl(lab) as control:
            control.set(f"{LEAF}:uplink1", LinkChange(up=False))
            until(lambda: "DOWN" in said(told()[before:]), "the link is told to be down")
            control.set(f"{LEAF}:uplink1", LinkChange(up=True))
        until(lambda: "UP" in said(told()[before:]), "the link is told to be up")
        until(lambda: "ESTABLISHED" in said(told()[before:]), "the session is told to be established")
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def said(messages: list[dict[str, Any]]) -> list[Any]:
    updates = [update for message in messages for update in message.get("update", {}).get("update", ())]
    return [update["val"] for update in updates if "val" in update]


def test_samples_come_at_their_interval_and_once_ends_by_itself(lab: Any) -> None:
    path = "/interfaces/interface[name=uplink1]/state/counters"
    once = {"subscription": [{"path": path}], "mode": "once", "encoding": "json"}
    done = lab.run(SERVER, arguments(lab, LEAF, "subscribe", subscribe=once))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert "sync_response" in lines[-1] and len(said(lines)) == 6


def test_nobody_sets_anything_and_nobody_asks_without_the_password(lab: Any) -> None:
    path = "/interfaces/interface[name=uplink1]/config/enabled"
    assert "UNIMPLEMENTED" in refused(lab, LEAF, "set", paths=[path])
    wrong = {"paths": ["/interfaces"], "encoding": "json", "password": "wrong"}
    assert "UNAUTHENTICATED" in refused(lab, LEAF, "get", **wrong)
    elsewhere = {"paths": ["/interfaces"], "encoding": "json", "authority": __file__, "timeout_s": UNREACHABLE_S}
    refused(lab, LEAF, "get", **elsewhere)


def test_a_host_does_not_reach_a_target(lab: Any) -> None:
    done = lab.run("p1-s1-h1", arguments(lab, LEAF, "capabilities", timeout_s=UNREACHABLE_S))
    assert done.returncode != 0


@pytest.mark.thorough
def test_a_switch_that_comes_back_answers_and_the_process_is_started_again(lab: Any) -> None:
    power_off(lab, LEAF)
    try:
        refused(lab, LEAF, "capabilities", timeout_s=UNREACHABLE_S)
        assert asked(lab, SPINE, "capabilities")
    finally:
        power_on(lab, LEAF)
    until(lambda: missing_services(lab) == [], "all services answer")
    assert asked(lab, LEAF, "capabilities")
    restart_services(lab, "gnmi")
    assert asked(lab, LEAF, "capabilities"), "its certificate is of the same authority"
    (status,) = read_services(lab)
    assert re.fullmatch(rf"2 switches at tcp/{PORT}, [1-9]\d* calls", status.detail)
