"""A storage network whose switches and links are written out, with a server that is in no other network."""

from typing import Any

import pytest
from forwarding import forwarded
from waiting import until

from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl
from testbed.lab.core.deploy.watch.check import CheckStatus, check_lab
from testbed.lab.core.deploy.watch.sessions import missing_sessions
from testbed.run.emulated.workload_runner import WorkloadRunner, WorkloadRunOptions
from testbed.run.schema.model import Transport, TransportKind
from testbed.workload.patterns import generate_point_to_point

pytestmark = [pytest.mark.netns, pytest.mark.frr]

TEXT = """name: {name}
scale: {{time: 1000}}
fabric: {{design: single-switch, hosts: 2, gpus: 1}}
networks:
  storage:
    design: hand-written
    nic: {{rate: 200G}}
    mtu: 9000
    switches: {{stor-a: {{role: leaf}}, stor-b: {{role: leaf}}, stor-top: {{role: spine}}}}
    links:
      - {{endpoints: ["p1-s1-h1:nvme0", "stor-a:eth1"]}}
      - {{endpoints: ["p1-s1-h2:nvme0", "stor-b:eth1"]}}
      - {{endpoints: ["server:nvme0", "stor-b:eth2"]}}
      - {{endpoints: ["stor-a:up1", "stor-top:eth1"], rate: 400G}}
      - {{endpoints: ["stor-b:up1", "stor-top:eth2"], rate: 400G, delay: 1us}}
topology: {{nodes: {{server: {{kind: host}}}}}}
"""
HOST, SERVER = "p1-s1-h1", "server"


def outcomes(lab: Any) -> dict[str, CheckStatus]:
    return {result.name: result.status for result in check_lab(lab).results}


def address(lab: Any, node: str, interface: str) -> str:
    return str(lab.port(node, interface).address.ip)


def ping(lab: Any, node: str, target: str, *options: str) -> Any:
    return lab.run(node, ["ping", "-n", "-c", "3", "-i", "0.01", "-W", "1", *options, target])


def test_packets_cross_the_spine_to_the_server(lab: Any) -> None:
    found = outcomes(lab)
    assert set(found.values()) == {CheckStatus.PASS}
    assert {"rails", "subnets, storage", "networks apart"} <= set(found)
    assert [nic.name for host in lab.plan.hosts if host.node == SERVER for nic in host.nics] == ["nvme0"]
    top = "stor-top", "eth2"
    before = lab.counters("stor-top")[top].tx_packets
    answer = ping(lab, HOST, address(lab, SERVER, "nvme0"), "-I", "nvme0", "-M", "do", "-s", "8000")
    assert not answer.returncode and "ttl=61" in answer.stdout, answer.stdout
    assert lab.counters("stor-top")[top].tx_packets >= before + 3


def test_the_server_has_no_way_into_the_back_end(lab: Any) -> None:
    """Switches of its network have no route there, and a host that is in both networks passes nothing on."""
    wanted, between = address(lab, HOST, lab.model.links[0].a.interface), "p1-s1-h2"
    assert not ping(lab, between, wanted).returncode
    assert "unreachable" in ping(lab, SERVER, wanted).stderr
    to_switch = lab.run(SERVER, ["ip", "route", "get", address(lab, HOST, "nvme0")]).stdout.split()[2]

    def ping_through(gateway: str) -> Any:
        assert not ping(lab, SERVER, gateway).returncode
        route = [f"{wanted}/32", "via", gateway, "dev", "nvme0"]
        assert not lab.run(SERVER, ["ip", "route", "add", *route]).returncode
        try:
            return ping(lab, SERVER, wanted)
        finally:
            lab.run(SERVER, ["ip", "route", "del", *route])

    assert "Destination Net Unreachable" in ping_through(to_switch).stdout
    before = forwarded(lab, between)
    assert ping_through(address(lab, between, "nvme0")).returncode
    assert forwarded(lab, between) == before
    lab.run(between, ["sysctl", "-q", "-w", "net.ipv4.ip_forward=1"])
    try:
        ping_through(address(lab, between, "nvme0"))
    finally:
        lab.run(between, ["sysctl", "-q", "-w", "net.ipv4.ip_forward=0"])
    assert forwarded(lab, between) > before, "what would be seen of a host that forwards"


def test_a_link_that_is_down_is_seen_and_comes_back(lab: Any) -> None:
    """Both ends lose their session and the host its way to the server; the back end goes on."""
    server, backend = address(lab, SERVER, "nvme0"), address(lab, HOST, lab.model.links[0].a.interface)

    def reached() -> bool:
        return not lab.run(HOST, ["ping", "-n", "-c", "1", "-W", "0.3", server]).returncode

    def missing() -> list[str]:
        return missing_sessions(lab.plan.switches, lab.run_directory("stor-top").parent)

    with LinkControl(lab) as control:
        control.set("stor-b:up1", LinkChange(up=False))
        try:
            until(lambda: len(missing()) == 2, "no session over the link")
            down = {port for port, up in lab.link_states().items() if not up}
            assert down == {("stor-b", "up1"), ("stor-top", "eth2")}
            assert not reached()
            assert not ping(lab, "p1-s1-h2", backend).returncode
        finally:
            control.reset("stor-b:up1")
    until(reached, "a way to the server")
    assert not missing()


def test_a_workload_runs_between_hosts_and_server(lab: Any) -> None:
    seen = lab.of_network("storage")
    ranks = [host.nics[0] for host in seen.plan.hosts]
    assert [nic.node for nic in ranks] == [HOST, "p1-s1-h2", SERVER]
    before = lab.counters("stor-top")["stor-top", "eth2"].tx_bytes
    workload = generate_point_to_point(source=0, destination=2, size_bytes=1 << 20, ranks=3)
    with WorkloadRunner(seen, Transport(kind=TransportKind.TCP)) as runner:
        result = runner.run(workload, ranks, WorkloadRunOptions())
    assert result.complete and None not in result.transfers.end_s, result.failure
    assert lab.counters("stor-top")["stor-top", "eth2"].tx_bytes >= before + (1 << 20)
