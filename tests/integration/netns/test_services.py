"""The services of the management network, each asked by a client of its own; what they may do, and how they end."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from base64 import b64encode
from functools import partial
from http.client import HTTPConnection
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from dhcp_client import HOST_NAME, NTP, lease
from filters import in_node
from sandbox import Sandbox
from waiting import until

from testbed.base.errors import DriverError
from testbed.base.linux.processes import processes_in
from testbed.daemons.gnmi.configuration import PASSWORD_FILE
from testbed.lab.core.deploy.lifecycle import DeployOptions, LabExists, deploy_lab
from testbed.lab.core.deploy.power import NoPower, is_on, power_off, power_on
from testbed.lab.core.deploy.records.state import StateBusy
from testbed.lab.core.deploy.watch.check import CheckStatus, check_lab
from testbed.lab.core.deploy.watch.events import EventStream
from testbed.lab.features.management import services
from testbed.lab.features.management.services import aaa, gnmi
from testbed.lab.features.management.services.asking import get_json, resolve
from testbed.lab.features.management.services.launcher import missing_programs
from testbed.lab.features.management.services.redfish import ACCOUNT, password_file, system_uuid
from testbed.lab.features.management.services.registry import REGISTRY
from testbed.lab.features.management.services.service import Place
from testbed.lab.features.management.services.slurm import munge_directory
from testbed.lab.features.management.services_apply import (
    missing_services,
    read_services,
    restart_services,
    service_places,
)

pytestmark = [
    pytest.mark.netns,
    pytest.mark.frr,
    pytest.mark.skipif(
        any(map(missing_programs, REGISTRY)), reason="a package of a service is missing: `testbed doctor` says which"
    ),
]

TEXT = """name: {name}
scale: {{time: 1000}}
fabric: {{design: rail-optimized, hosts: 2, gpus: 1, segments: 1, spines: 1}}
networks:
  management:
    design: out-of-band
    services: {services}
"""
SERVER, HOST, SWITCH = "mgmt1", "p1-s1-h1", "p1-s1-rail1"
LATER = {"lldpd": "_lldpd"}
"""Whom a program becomes by itself."""
LOG_IN_S = 3.0
"""A third of a second where nobody else wants the CPUs."""


def model(sandbox: Any, suffix: str = "a", wanted: str = f"[{', '.join(REGISTRY)}]") -> Any:
    return sandbox.load(TEXT, suffix, services=wanted)


@pytest.fixture(scope="module")
def lab(shared_sandbox: Sandbox) -> Any:
    return shared_sandbox.deploy(model(shared_sandbox)).lab


@pytest.fixture(scope="module")
def places(lab: Any) -> list[Place]:
    return service_places(lab.model, lab.plan, lab.state)


def address(lab: Any, node: str) -> IPv4Address:
    return IPv4Address(lab.plan.management.addresses[node].ip)


def ssh(lab: Any, node: str, *command: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    argv = ["ssh", "-F", str(lab.directory / "ssh_config"), *options, node, *command]
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False)


def test_all_services_answer_when_the_lab_is_up(lab: Any) -> None:
    statuses = read_services(lab)
    assert {status.service for status in statuses} == set(REGISTRY)
    assert {status.state for status in statuses} == {"running"}
    details = {(status.service, status.node): status.detail for status in statuses}
    assert details["time", SERVER] == "stratum 5"
    assert details["time", HOST] == "stratum 6"
    assert details["dns", SERVER] == "5 names"
    assert "services" in {result.name for result in check_lab(lab).results if result.status is CheckStatus.PASS}


def test_a_log_in_is_in_the_node_and_cannot_leave_it(lab: Any) -> None:
    began = time.monotonic()
    log_in = ssh(lab, SWITCH, "sftp", options=("-s",))  # a session without a shell, whose start-up files are the user's
    assert log_in.returncode == 0, log_in.stderr
    assert time.monotonic() - began < LOG_IN_S
    found = ssh(
        lab, SWITCH, "hostname; ip -br addr show mgmt0; getent hosts p1-s1-h1; nsenter --net=/proc/1/ns/net true"
    )
    assert found.stdout.splitlines()[0] == SWITCH
    assert str(address(lab, SWITCH)) in found.stdout
    assert f"{address(lab, HOST)} " in found.stdout
    assert "Permission denied" in found.stderr or "Operation not permitted" in found.stderr
    assert found.returncode


def test_a_log_in_to_a_switch_has_its_frr(lab: Any) -> None:
    found = ssh(lab, SWITCH, "vtysh -c 'show bgp summary'; getent hosts rail1.p1-s1-h1")
    assert "p1-spine1" in found.stdout, found.stdout + found.stderr
    assert str(lab.port("p1-s1-h1", "rail1").address.ip) in found.stdout


def test_who_does_not_have_the_key_does_not_come_in(lab: Any, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")], check=True)
    other = ("-o", f"IdentityFile={tmp_path / 'other'}")
    without = (tmp_path / "config", (lab.directory / "ssh_config").read_text())
    without[0].write_text("\n".join(line for line in without[1].splitlines() if "IdentityFile" not in line))
    argv = ["ssh", "-F", str(without[0]), *other, "-o", "BatchMode=yes", HOST, "true"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 255
    assert "Permission denied (publickey)" in done.stderr
    assert ssh(lab, HOST, "true").returncode == 0


def test_a_node_resolves_the_others(lab: Any) -> None:
    server = address(lab, SERVER)
    for node in (SERVER, HOST, SWITCH):
        assert in_node(lab, HOST, partial(resolve, server, f"{node}.{lab.name}")) == address(lab, node)
    assert in_node(lab, HOST, partial(resolve, server, f"nobody.{lab.name}")) is None


def test_a_port_is_leased_its_own_address(lab: Any) -> None:
    mac = next(port.mac for port in lab.plan.ports if (port.node, port.name) == (HOST, "mgmt0"))
    options = in_node(lab, HOST, partial(lease, "mgmt0", mac))
    assert options[0] == address(lab, HOST).packed
    assert options[NTP] == address(lab, SERVER).packed
    assert options[HOST_NAME] == HOST.encode()
    with pytest.raises(TimeoutError):
        in_node(lab, HOST, partial(lease, "mgmt0", "02:99:99:99:99:99", timeout_s=0.5))


def test_the_collector_has_a_file_of_each_node(lab: Any, places: list[Place]) -> None:
    collected = next(place for place in places if (place.service, place.node) == ("syslog", SERVER)).own / "hosts"

    def lines(node: str, word: str) -> bool:
        path = collected / f"{node}.log"
        return path.exists() and word in path.read_text()

    until(lambda: lines(SWITCH, "bgpd: "), "a message of bgpd is collected")
    until(lambda: lines(HOST, "ssh: Server listening on"), "a message of a host's sshd is collected")
    until(lambda: lines(SERVER, "dns: "), "what the server's services say is collected")
    forged = f"<13>1 - {SWITCH} forged - - - by another host\n".encode()

    def forge() -> None:
        with socket.create_connection((str(address(lab, SERVER)), 514)) as stream:
            stream.sendall(forged)

    in_node(lab, HOST, forge)
    until(lambda: lines(HOST, "forged: by another host"), "a message is filed under who sent it")
    assert not lines(SWITCH, "forged")


def test_prometheus_has_the_counters_of_the_lab(lab: Any) -> None:
    server = address(lab, SERVER)

    def up() -> list[Any]:
        said = in_node(lab, HOST, partial(get_json, server, 9090, "/api/v1/query?query=testbed_lab_up"))
        return [item["metric"]["lab"] for item in said["data"]["result"]] if said else []

    assert until(up, "the exporter is asked") == [lab.name]
    for path in sorted((Path(services.__file__).parent / "dashboards").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                expression = target["expr"].replace("$lab", lab.name).replace("$__rate_interval", "5s")
                expression = expression.replace("$network", ".*")
                query = f"/api/v1/query?query={quote(expression)}"
                said = in_node(lab, HOST, partial(get_json, server, 9090, query))
                assert said is not None and said["status"] == "success", expression
    with pytest.raises(ConnectionRefusedError):  # the exporter is the server's own
        in_node(lab, HOST, partial(socket.create_connection, (str(server), 9464), 1.0))


def test_neighbours_are_those_of_the_plan(lab: Any, places: list[Place]) -> None:
    sockets = {place.node: place.own / "s" for place in places if place.service == "lldp"}
    peers = {(port.node, port.name): port.peer for port in lab.plan.ports if port.network != "management"}

    def heard(node: str) -> dict[tuple[str, str], str]:
        argv = ["lldpcli", "-u", str(sockets[node]), "-f", "json0", "show", "neighbors"]
        found = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)["lldp"][0]
        return {
            (node, item["name"]): f"{item['chassis'][0]['name'][0]['value']}:{item['port'][0]['descr'][0]['value']}"
            for item in found.get("interface", ())
        }

    for node in (SWITCH, HOST):
        wanted = {end: peer for end, peer in peers.items() if end[0] == node}
        until(lambda node=node, wanted=wanted: heard(node) == wanted, f"{node} has heard of its neighbours")


def test_redfish_switches_the_power_of_a_node(lab: Any, places: list[Place]) -> None:
    known = places[0].lab
    account = f"{ACCOUNT}:{password_file(known).read_text()}"
    system = f"/redfish/v1/Systems/{system_uuid(lab.name, HOST)}"

    def ask(method: str, path: str, body: Any = None, login: str = account) -> tuple[int, Any]:
        def run() -> tuple[int, Any]:
            asking = HTTPConnection(str(address(lab, SERVER)), 8000, timeout=10)
            head = {"Authorization": f"Basic {b64encode(login.encode()).decode()}", "Content-Type": "application/json"}
            with contextlib.closing(asking):
                asking.request(method, path, None if body is None else json.dumps(body), head)
                answer = asking.getresponse()
                data = answer.read()
                return answer.status, json.loads(data) if data else None

        return in_node(lab, SERVER, run)

    assert ask("GET", system, login="admin:admin")[0] == 401
    assert ask("GET", system)[1]["Name"] == HOST
    reset = f"{system}/Actions/ComputerSystem.Reset"
    before = {status.service: status.pids for status in read_services(lab) if status.node == HOST}
    assert ask("POST", reset, {"ResetType": "ForceRestart"})[0] == 204
    after = {status.service: status.pids for status in read_services(lab) if status.node == HOST}
    assert before.keys() == after.keys()
    assert not any(before[service] == after[service] for service in before)
    assert missing_services(lab) == []
    with pytest.raises(NoPower):
        power_off(lab, SERVER)


def test_a_node_without_power_is_silent_and_comes_back_whole(lab: Any) -> None:
    assert power_off(lab, SWITCH)
    assert not power_off(lab, SWITCH) and not is_on(lab, SWITCH)
    assert {status.state for status in read_services(lab) if status.node == SWITCH} == {"dead"}
    assert {status.name: status.state for status in lab.status() if status.state != "running"} == {SWITCH: "off"}
    assert not processes_in({lab.identities[SWITCH]})
    with pytest.raises(LabExists, match="is deployed but not whole") as caught:
        deploy_lab(lab.model, lab.state, DeployOptions(k=lab.record.k))
    assert (caught.value.hint or "").startswith(f"testbed power on {SWITCH}; ")
    log_in = ssh(lab, SWITCH, "true")
    assert log_in.returncode == 255
    assert log_in.stderr.startswith(
        (f"{address(lab, SWITCH)} port 22: timed out", f"{address(lab, SWITCH)} port 22: No route")
    )
    with pytest.raises(DriverError, match=f"the management port of {SWITCH} is down"):
        restart_services(lab, "ssh", SWITCH)
    assert power_on(lab, SWITCH)
    assert not power_on(lab, SWITCH)
    until(lambda: {item.status for item in check_lab(lab).results} == {CheckStatus.PASS}, "the lab is whole again")


def test_services_have_the_rights_they_need_and_no_other(lab: Any, places: list[Place]) -> None:
    started = {
        (place.service, place.node, program.name): program.user or LATER.get(program.name, "root")
        for place in places
        for program in REGISTRY[place.service].programs(place)
    }
    for status in read_services(lab):
        for name, pid in status.pids.items():
            said = dict(
                line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
            )
            assert said["NoNewPrivs"].strip() == "1"
            bound = int(said["CapBnd"], 16)
            assert not bound & (1 << 16 | 1 << 25), "modules, the clock"
            if name not in ("console", "exporter", "sflow", "gnmi", "power"):
                assert not bound & 1 << 21, f"{name} of {status.node} has CAP_SYS_ADMIN"
            profile = Path(f"/etc/apparmor.d/usr.sbin.{name}")
            assert not profile.exists() or Path(f"/proc/{pid}/exe").readlink() != Path(f"/usr/sbin/{name}")
            assert Path(f"/proc/{pid}").owner() == started[status.service, status.node, name]


def test_secrets_are_roots_and_nowhere_else(lab: Any, places: list[Place]) -> None:
    keys = places[0].lab.directory / ".ssh"
    secret = [path for path in keys.iterdir() if not path.suffix and "PRIVATE" in path.read_text()]
    assert len(secret) == 6
    certified = sorted(gnmi.credentials(places[0].lab).glob("*.key"))
    assert len(certified) == 3, "the authority's, and one of each switch"
    secret += certified
    assert all(path.stat().st_mode & 0o777 == 0o600 and path.stat().st_uid == 0 for path in secret)
    parts = [path.read_text().splitlines()[2].encode() for path in secret]
    known = places[0].lab
    of_gnmi = gnmi.credentials(known) / PASSWORD_FILE
    for password in (password_file(known), of_gnmi, *(aaa.password_file(known, account) for account in aaa.ACCOUNTS)):
        assert password.stat().st_mode & 0o777 == 0o600 and password.stat().st_uid == 0
        secret.append(password)
        parts.append(password.read_bytes())
    shared = [(known.directory / ".aaa" / f"secret-{node}").read_bytes() for node in known.switches]
    for path in known.directory.rglob("*"):
        if path.is_file() and any(part in path.read_bytes() for part in shared):
            assert path.stat().st_mode & 0o777 == 0o600, path
    key = munge_directory(places[0].lab) / "key"
    assert key.stat().st_mode & 0o777 == 0o600 and key.owner() == "munge"
    secret.append(key)
    parts.append(key.read_bytes()[:32])
    others = [lab.directory, lab.state_directory, places[0].lab.run]
    for root in others:
        for path in (path for path in root.rglob("*") if path.is_file() and path not in secret):
            if os.path.ismount(path):  # a namespace
                continue
            data = path.read_bytes()
            assert not any(part in data for part in parts), path


def test_a_dead_service_is_told_and_started_again(lab: Any) -> None:
    dns = next(status for status in read_services(lab) if status.service == "dns")
    with contextlib.closing(EventStream(lab)) as stream:
        events = iter(stream)
        os.kill(dns.pids["dnsmasq"], signal.SIGKILL)
        ended = next(event for event in events if event.kind == "service-ended")
        assert (ended.node, ended.subject, ended.detail) == (SERVER, "dns", "dnsmasq")
        assert missing_services(lab) == [f"dns of {SERVER} is dead: its log is {dns.log}"]

        def bound() -> socket.socket:
            taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            taken.bind((dns.address, 53))
            return taken

        with in_node(lab, SERVER, bound), pytest.raises(DriverError, match=r"udp/53 of .* is taken"):
            restart_services(lab, "dns")
        assert restart_services(lab, "dns") == [SERVER]
        started = next(event for event in events if event.kind == "service-started")
        assert (started.node, started.subject, started.detail) == (SERVER, "dns", "dnsmasq")
    assert missing_services(lab) == []


def test_two_labs_have_the_same_services_side_by_side(lab: Any, shared_sandbox: Any) -> None:
    other = shared_sandbox.deploy(model(shared_sandbox, "b", "[ssh, dns, time]"), routing=False).lab
    assert missing_services(other) == missing_services(lab) == []
    assert ssh(other, HOST, "hostname").stdout == f"{HOST}\n"
    shared_sandbox.destroy("b")
    assert not other.directory.exists()
    assert missing_services(lab) == []


def test_a_service_that_does_not_come_up_ends_the_deploy(shared_sandbox: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    dns = type(REGISTRY["dns"])
    files = dns.files

    def broken(self: Any, place: Place) -> Any:
        return {name: type(file)(text=f"no-such-option\n{file.text}") for name, file in files(self, place).items()}

    monkeypatch.setattr(dns, "files", broken)
    with pytest.raises(DriverError, match=r"(?s)dns of mgmt1 ended.*bad option at line 1.*its log is"):
        shared_sandbox.deploy(model(shared_sandbox, "c", "[dns, ssh]"), routing=False)
    assert not shared_sandbox.state.exists(shared_sandbox.name("c"))


def test_a_deploy_that_was_killed_leaves_services_that_destroy_ends(shared_sandbox: Sandbox) -> None:
    name = shared_sandbox.name("d")
    path = shared_sandbox.work / "killed.yml"
    path.write_text(TEXT.format(name=name, services="[ssh, dns, syslog]"))
    deploy = shared_sandbox.start("deploy", "-q", "-t", str(path))
    directory = shared_sandbox.state.run_directory(name) / ".svc"
    until(lambda: next(directory.glob("*/ssh/sshd.pid"), None), "the first service is started")
    deploy.kill()
    deploy.wait()

    def destroyed() -> bool:
        with contextlib.suppress(StateBusy):  # a program that was just being started had the lab's lock
            shared_sandbox.destroy("d")
            return True
        return False

    until(destroyed, "the lab can be destroyed")
    assert not [
        pid for pid, _ in shared_sandbox.processes().items() if name in Path(f"/proc/{pid}/cmdline").read_text()
    ]
    assert not directory.exists()
