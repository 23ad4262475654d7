"""The services of the management network that switches use: who may log in to them, and what they report of BGP."""

import json
import os
import signal
import subprocess
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl
from testbed.lab.core.deploy.power import power_off, power_on
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.management.services.aaa import ADMIN, OPERATOR, password_file
from testbed.lab.features.management.services.launcher import missing_programs
from testbed.lab.features.management.services.service import Place
from testbed.lab.features.management.services_apply import (
    missing_services,
    read_services,
    restart_services,
    service_places,
)

WANTED = ("ssh", "bmp", "aaa")
pytestmark = [
    pytest.mark.netns,
    pytest.mark.frr,
    pytest.mark.skipif(
        any(map(missing_programs, WANTED)), reason="a package of a service is missing: `testbed doctor` says which"
    ),
]

TEXT = """name: {name}
scale: {{time: 1000}}
fabric: {{design: rail-optimized, hosts: 1, gpus: 2, segments: 1, spines: 1}}
networks: {{management: {{design: out-of-band, services: [{services}]}}}}
"""
SERVER, SPINE, LEAF, OTHER = "mgmt1", "p1-spine1", "p1-s1-rail1", "p1-s1-rail2"


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> Any:
    text = TEXT.format(name=shared_sandbox.name("s"), services=", ".join(WANTED))
    return shared_sandbox.deploy(load_topology_text(text, file="switches.yml")).lab


@pytest.fixture(scope="module")
def places(lab: Any) -> dict[tuple[str, str], Place]:
    return {(place.service, place.node): place for place in service_places(lab.model, lab.plan, lab.state)}


class Collector:
    """What the monitoring station has in the file of a switch."""

    def __init__(self, place: Place, switch: str) -> None:
        self._path = place.directory / f"{switch}.json"

    def messages(self) -> list[dict[str, Any]]:
        """All whole lines."""
        text = self._path.read_text() if self._path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def has(self, since: int, **wanted: Any) -> bool:
        """Tell whether there is a message with these values behind the first `since`."""
        return any(wanted.items() <= message.items() for message in self.messages()[since:])


def log_in(lab: Any, account: str, secret: str, command: str) -> Any:
    """Log in to a switch with a password, which ssh has from a program, as from somebody at a keyboard."""
    asked = Path(lab.directory).parent / f"{lab.name}-askpass"
    asked.write_text(f"#!/bin/sh\necho '{secret}'\n")
    asked.chmod(0o700)
    try:
        argv = ["ssh", "-F", str(lab.directory / "ssh_config"), "-o", "NumberOfPasswordPrompts=1"]
        return subprocess.run(
            [*argv, f"{account}@{LEAF}", command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env=os.environ | {"SSH_ASKPASS": str(asked), "SSH_ASKPASS_REQUIRE": "force"},
        )
    finally:
        asked.unlink()


def detail(lab: Any, service: str, node: str) -> str:
    return next(item.detail for item in read_services(lab) if (item.service, item.node) == (service, node))


def test_every_switch_reports_from_its_management_port(lab: Any, places: dict[tuple[str, str], Place]) -> None:
    until(lambda: detail(lab, "bmp", SERVER) == "3 of 3 switches report", "all switches report")
    for switch in (SPINE, LEAF, OTHER):
        collector = Collector(places["bmp", SERVER], switch)
        until(lambda c=collector: c.has(0, bmp_msg_type="peer_up"), f"{switch} has a session")
        said = collector.messages()
        address = str(IPv4Address(lab.plan.management.addresses[switch].ip))
        assert {message["bmp_router"] for message in said} == {address}
        assert collector.has(0, bmp_msg_type="init", bmp_init_info_sysname=switch)


def test_a_link_that_goes_down_is_reported_as_a_session_and_as_routes(
    lab: Any, places: dict[tuple[str, str], Place]
) -> None:
    """The spine loses the session, and tells the other leaf that the prefixes behind it are gone."""
    spine, other = (Collector(places["bmp", SERVER], switch) for switch in (SPINE, OTHER))
    loopback = next(str(item.loopback) for item in lab.plan.switches if item.node == LEAF)
    asn = next(item.asn for item in lab.plan.switches if item.node == LEAF)
    route = {"bmp_msg_type": "route_monitor", "ip_prefix": loopback, "is_post": 0}
    until(lambda: other.has(0, **route, log_type="update"), "the prefix was announced")
    before = len(spine.messages()), len(other.messages())
    with LinkControl(lab) as control:
        control.set(f"{LEAF}:uplink1", LinkChange(up=False))
        until(lambda: spine.has(before[0], bmp_msg_type="peer_down", peer_asn=asn), "the session's end is reported")
        until(lambda: other.has(before[1], **route, log_type="withdraw"), "the withdrawal is reported")
        before = len(spine.messages()), len(other.messages())
        control.set(f"{LEAF}:uplink1", LinkChange(up=True))
    until(lambda: spine.has(before[0], bmp_msg_type="peer_up", peer_asn=asn), "the new session is reported")
    until(lambda: other.has(before[1], **route, log_type="update"), "the prefix is announced again")
    assert not other.has(before[1], **route, log_type="withdraw")


def test_a_switch_without_power_does_not_report_until_it_has_some(lab: Any) -> None:
    power_off(lab, OTHER)
    assert detail(lab, "bmp", SERVER) == "2 of 3 switches report"
    power_on(lab, OTHER)
    until(lambda: detail(lab, "bmp", SERVER) == "3 of 3 switches report", "all switches report again")
    until(lambda: missing_services(lab) == [], "all services answer")


def test_the_server_decides_who_logs_in_and_the_role_what_they_may_do(
    lab: Any, places: dict[tuple[str, str], Place]
) -> None:
    known = places["aaa", SERVER].lab
    operator, admin = (password_file(known, account).read_text() for account in (OPERATOR, ADMIN))
    change = "ip link set dev mgmt0 txqueuelen 900"
    looked = log_in(lab, OPERATOR, operator, f"hostname; id -un; ip -br addr show mgmt0; {change}")
    assert looked.stdout.split()[:2] == [LEAF, OPERATOR], looked.stderr
    assert str(lab.plan.management.addresses[LEAF].ip) in looked.stdout
    assert looked.returncode and "Operation not permitted" in looked.stderr
    secret = places["ssh", LEAF].directory / "radius.conf"
    assert "Permission denied" in log_in(lab, OPERATOR, operator, f"cat {secret} {password_file(known, ADMIN)}").stderr
    changed = log_in(lab, ADMIN, admin, f"{change} && ip link show mgmt0")
    assert "qlen 900" in changed.stdout, changed.stderr
    for account, wrong in ((OPERATOR, admin), (ADMIN, operator)):
        refused = log_in(lab, account, wrong, "true")
        assert refused.returncode == 255 and "Permission denied (p" in refused.stderr
    assert "Login OK: [operator]" in places["aaa", SERVER].log.read_text()


def by_key(lab: Any, *options: str) -> Any:
    """Log in at a terminal with the lab's key, or with another one."""
    argv = ["ssh", "-F", str(lab.directory / "ssh_config"), *options, "-tt", LEAF]
    return subprocess.run(argv, input="hostname\nexit\n", capture_output=True, text=True, timeout=20, check=False)


def test_the_key_is_the_way_in_while_the_server_is_down(lab: Any, places: dict[tuple[str, str], Place]) -> None:
    place = places["ssh", LEAF]
    assert detail(lab, "ssh", LEAF).startswith(f"asks {SERVER}")
    came = by_key(lab)
    assert came.returncode == 0 and LEAF in came.stdout and "break-glass" not in came.stdout + place.log.read_text()
    freeradius = next(item.pids["freeradius"] for item in read_services(lab) if item.service == "aaa")
    os.kill(freeradius, signal.SIGKILL)
    until(lambda: len(missing_services(lab)) == 1, "the server is found dead")
    assert detail(lab, "ssh", LEAF).startswith(f"{SERVER} is silent, the lab's key alone")
    refused = log_in(lab, ADMIN, password_file(place.lab, ADMIN).read_text(), "true")
    assert refused.returncode == 255 and "Permission denied" in refused.stderr
    came = by_key(lab)
    assert came.returncode == 0 and LEAF in came.stdout
    assert "break-glass: in by the lab's key" in came.stdout
    assert "break-glass: in by the lab's key" in place.log.read_text()
    restart_services(lab, "aaa")
    assert log_in(lab, ADMIN, password_file(place.lab, ADMIN).read_text(), "true").returncode == 0
    assert detail(lab, "ssh", LEAF).startswith(f"asks {SERVER}")


def test_this_machine_s_log_ins_are_left_alone(lab: Any, places: dict[tuple[str, str], Place]) -> None:
    for name in ("/etc/pam.d/sshd", "/etc/passwd", "/etc/group"):
        text = Path(name).read_text()
        assert "pam_radius_auth" not in text and "of the lab" not in text
    mounted = Path("/proc/self/mountinfo").read_text()
    assert "/etc/pam.d/sshd" not in mounted and " /etc/passwd " not in mounted
    sshd = next(item.pids["sshd"] for item in read_services(lab) if (item.service, item.node) == ("ssh", LEAF))
    assert "pam_radius_auth" in Path(f"/proc/{sshd}/root/etc/pam.d/sshd").read_text()
    assert places["ssh", LEAF].lab.directory.exists()
