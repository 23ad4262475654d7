"""Services of a lab that is changed while it is up: told and started where they are asked, and others left alone."""

import json
import socket
import subprocess
from contextlib import closing, suppress
from functools import partial
from ipaddress import IPv4Address
from typing import Any

import pytest
from dhcp_client import lease
from filters import in_node
from sandbox import Sandbox
from waiting import until

from testbed.base.linux.nftables import NFPROTO_IPV4, NetfilterSocket
from testbed.lab.core.deploy.changing.apply import ApplyOptions, apply_lab
from testbed.lab.core.deploy.changing.differences import changes_of
from testbed.lab.core.deploy.changing.refusal import ChangeUndone
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.check import check_lab
from testbed.lab.core.model.management import SLURMD_PORT
from testbed.lab.core.plan.changes import Effect
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.management.apply import TABLE
from testbed.lab.features.management.client_environment import service_environment
from testbed.lab.features.management.services.asking import get_json, resolve
from testbed.lab.features.management.services.launcher import missing_programs
from testbed.lab.features.management.services_apply import read_services, service_places

WANTED = ("ssh", "dns", "dhcp", "syslog", "telemetry", "sflow", "gnmi", "lldp")
pytestmark = [
    pytest.mark.netns,
    pytest.mark.frr,
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        any(map(missing_programs, WANTED)), reason="a package of a service is missing: `testbed doctor` says which"
    ),
]

TEXT = """name: {name}
scale: {{time: 1000}}
fabric: {{design: rail-optimized, hosts: {hosts}, gpus: 1, segments: 1, spines: 1}}
"""
MANAGED = "networks: {{management: {{design: out-of-band, services: {services}{more}}}}}\n"
SERVER, SWITCH, SPINE, HOST, OTHER, NEW = "mgmt1", "p1-s1-rail1", "p1-spine1", "p1-s1-h1", "p1-s1-h2", "p1-s1-h3"


def model(sandbox: Any, hosts: int, services: str | None = f"[{', '.join(WANTED)}]", more: str = "") -> Any:
    text = TEXT if services is None else TEXT + MANAGED
    values = {"name": sandbox.name(), "hosts": hosts, "services": services, "more": more}
    return load_topology_text(text.format(**values), file="services.yml")


def apply(sandbox: Any, wanted: Any, **options: Any) -> RunningLab:
    """Change the lab, which afterwards has nothing left to change and nothing wrong; return it as it is then."""
    apply_lab(wanted, sandbox.state, ApplyOptions(k=1000.0, **options))
    lab = sandbox.running()
    assert not changes_of(lab, wanted, 1000.0).rows
    assert [result for result in check_lab(lab).results if result.failures] == []
    return lab


def pids(lab: RunningLab) -> dict[tuple[str, str], dict[str, int]]:
    statuses = read_services(lab)
    assert {status.state for status in statuses} <= {"running"}
    return {(status.service, status.node): dict(status.pids) for status in statuses}


def address(lab: RunningLab, node: str) -> IPv4Address:
    return lab.plan.management.addresses[node].ip


def details(lab: RunningLab) -> dict[str, str]:
    return {status.service: status.detail for status in read_services(lab) if status.node == SERVER}


def sessions(lab: RunningLab) -> dict[str, int]:
    """How often the sessions of the spine have come up, by neighbour."""
    said = json.loads(lab.run(SPINE, ["vtysh", "-c", "show bgp neighbors json"]).stdout)
    return {name: item["connectionsEstablished"] for name, item in said.items()}


def test_a_host_more_is_served_and_nobody_is_started_anew(sandbox: Sandbox) -> None:
    lab = sandbox.deploy(model(sandbox, 2), k=1000.0).lab
    before, up = pids(lab), sessions(lab)
    places = {node: address(lab, node) for node in (SERVER, SWITCH, SPINE, HOST)}
    lab = apply(sandbox, model(sandbox, 3))
    after = pids(lab)
    assert {key: after[key] for key in before} == before, "all take what is new while they run"
    assert set(after) - set(before) == {(name, NEW) for name in ("ssh", "syslog", "lldp")}
    assert {node: address(lab, node) for node in places} == places
    assert sessions(lab) == up

    server, new = address(lab, SERVER), address(lab, NEW)
    assert in_node(lab, HOST, partial(resolve, server, f"{NEW}.{lab.name}")) == new
    mac = next(port.mac for port in lab.plan.ports if (port.node, port.name) == (NEW, "mgmt0"))
    assert in_node(lab, NEW, partial(lease, "mgmt0", mac))[0] == new.packed
    argv = ["ssh", "-F", str(lab.directory / "ssh_config"), NEW, "hostname"]
    said = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False)
    assert said.stdout == f"{NEW}\n", said.stderr
    known = service_places(lab.model, lab.plan, lab.state)
    collected = next(place for place in known if (place.service, place.node) == ("syslog", SERVER)).own / "hosts"
    log = collected / f"{NEW}.log"
    until(lambda: log.exists() and "ssh: Server listening on" in log.read_text(), "its log is filed under its name")
    rates = f'testbed_port_rate_bits_per_second{{node="{NEW}"}}'
    until(lambda: lab.name in metrics(lab, rates), "its ports are counted")
    told = json.loads((lab.processes_directory / ".svc" / SERVER / "sflow" / "sflow.json").read_text())
    assert "down3" in {port["name"] for item in told["switches"] if item["name"] == SWITCH for port in item["ports"]}
    neighbours = next(place for place in known if (place.service, place.node) == ("lldp", SWITCH)).own / "s"
    asking = ["lldpcli", "-u", str(neighbours), "-f", "json0", "show", "neighbors"]
    until(lambda: NEW in subprocess.run(asking, capture_output=True, text=True, check=True).stdout, "LLDP hears of it")

    lab = apply(sandbox, model(sandbox, 2))
    assert pids(lab) == before
    assert in_node(lab, HOST, partial(resolve, server, f"{NEW}.{lab.name}")) is None
    assert not (lab.processes_directory / ".svc" / NEW).exists()


def metrics(lab: RunningLab, query: str) -> str:
    path = f"/api/v1/query?query={query}".replace('"', "%22").replace("{", "%7B").replace("}", "%7D")
    return json.dumps(in_node(lab, SERVER, partial(get_json, address(lab, SERVER), 9090, path)))


def test_services_come_and_go_and_take_other_settings(sandbox: Sandbox) -> None:
    lab = sandbox.deploy(model(sandbox, 2, "{ssh: {}, telemetry: {interval: 5s}, sflow: {}}"), k=1000.0).lab
    before = pids(lab)
    lab = apply(sandbox, model(sandbox, 2, "{ssh: {}, telemetry: {interval: 1s}, sflow: {sampling: 7}}"))
    assert pids(lab) == before
    path = "/api/v1/status/config"
    said = in_node(lab, SERVER, partial(get_json, address(lab, SERVER), 9090, path))
    assert "scrape_interval: 1s" in said["data"]["yaml"]
    assert "1 packet in 7" in details(lab)["sflow"]

    wanted = model(sandbox, 2, "{ssh: {}, telemetry: {interval: 1s}, dns: {}}")
    rows = changes_of(lab, wanted, 1000.0).rows
    assert {(row.effect, row.what) for row in rows} == {
        (Effect.MADE, "service dns"),
        (Effect.RESTARTED, "service ssh"),  # a log-in has a resolver from now on
        (Effect.REMOVED, "service sflow"),
    }
    lab = apply(sandbox, wanted)
    after = pids(lab)
    assert ("sflow", SERVER) not in after and after["telemetry", SERVER] == before["telemetry", SERVER]
    assert after["ssh", HOST] != before["ssh", HOST]
    assert in_node(lab, HOST, partial(resolve, address(lab, SERVER), f"{SWITCH}.{lab.name}")) == address(lab, SWITCH)
    assert not (lab.processes_directory / ".svc" / SERVER / "sflow").exists()


def test_a_management_network_comes_and_goes_with_its_guards(sandbox: Sandbox) -> None:
    lab = sandbox.deploy(model(sandbox, 2, None), k=1000.0).lab
    up = sessions(lab)
    lab = apply(sandbox, model(sandbox, 2, "[ssh, dns]"))
    assert len(pids(lab)) == 6, "sshd on five nodes, and dnsmasq"
    assert len(guards(lab)) == 5
    assert sessions(lab) == up
    lab = apply(sandbox, model(sandbox, 2, None))
    assert not read_services(lab) and not guards(lab)
    assert sessions(lab) == up
    assert not (lab.directory / "ssh_config").exists()
    assert not list((lab.processes_directory / ".svc").glob("*"))
    assert "mgmt0" not in lab.run(HOST, ["ip", "-br", "link"]).stdout


def test_all_nodes_move_to_another_prefix(sandbox: Sandbox) -> None:
    lab = sandbox.deploy(model(sandbox, 2, "[ssh, dns, syslog]"), k=1000.0).lab
    before, up = pids(lab), sessions(lab)
    lab = apply(sandbox, model(sandbox, 2, "[ssh, dns, syslog]", ", prefix: 192.168.250.0/24"))
    after = pids(lab)
    assert before.keys() == after.keys() and not any(before[key] == after[key] for key in before)
    assert in_node(lab, HOST, partial(resolve, address(lab, SERVER), f"{SWITCH}.{lab.name}")) == address(lab, SWITCH)
    assert str(address(lab, SWITCH)).startswith("192.168.250.")
    assert "192.168.0." not in lab.run(SWITCH, ["ip", "-br", "addr", "show", "dev", "mgmt0"]).stdout
    assert sessions(lab) == up


@pytest.mark.skipif(bool(missing_programs("slurm")), reason="Slurm is not installed")
def test_hosts_reach_each_other_as_long_as_there_are_jobs(sandbox: Sandbox) -> None:
    """The community of hosts on the management switch is one more, and one less; hosts come into it."""

    def reaches(lab: RunningLab, node: str, port: int) -> bool:
        def connect() -> bool:
            with suppress(OSError), socket.create_connection((str(address(lab, node)), port), 1.0):
                return True
            return False

        return bool(in_node(lab, HOST, connect))

    lab = sandbox.deploy(model(sandbox, 2, "[ssh]"), k=1000.0).lab
    assert not reaches(lab, OTHER, 22)
    lab = apply(sandbox, model(sandbox, 2, "[ssh, slurm]"))
    until(lambda: reaches(lab, OTHER, SLURMD_PORT), "hosts start tasks of each other")
    assert not reaches(lab, OTHER, 22)
    lab = apply(sandbox, model(sandbox, 3, "[ssh, slurm]"))
    until(lambda: reaches(lab, NEW, SLURMD_PORT), "and of one that is new")
    assert not reaches(lab, SWITCH, 22)
    cluster = [f"{name}={value}" for name, value in service_environment(lab, HOST).items()]
    said = lab.run(HOST, ["env", *cluster, "srun", "-N", "3", "hostname"], timeout_s=60)
    assert sorted(said.stdout.split()) == [HOST, OTHER, NEW], said.stderr
    lab = apply(sandbox, model(sandbox, 2, "[ssh]"))
    with in_node(lab, OTHER, partial(socket.create_server, (str(address(lab, OTHER)), SLURMD_PORT))):
        assert not reaches(lab, OTHER, SLURMD_PORT), "nobody forwards between nodes any more"


def test_a_service_that_cannot_start_undoes_all_of_a_change(sandbox: Sandbox) -> None:
    lab = sandbox.deploy(model(sandbox, 2, "[ssh]"), k=1000.0).lab
    before, names = pids(lab), sandbox.namespaces()

    def bound() -> socket.socket:
        taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        taken.bind((str(address(lab, SERVER)), 53))
        return taken

    with in_node(lab, SERVER, bound), pytest.raises(ChangeUndone, match=r"udp/53 of 192\.168\.0\.1 is taken"):
        apply_lab(model(sandbox, 3, "[ssh, dns]"), sandbox.state, ApplyOptions(k=1000.0))
    lab = sandbox.running()
    assert not changes_of(lab, model(sandbox, 2, "[ssh]"), 1000.0).rows
    after = pids(lab)
    assert after.keys() == before.keys()
    assert sandbox.namespaces() == names
    assert check_lab(lab).exit_code == 0
    lab = apply(sandbox, model(sandbox, 3, "[ssh, dns]"))
    assert ("dns", SERVER) in pids(lab) and ("ssh", NEW) in pids(lab)


def test_what_a_killed_command_has_started_is_ended_though_it_was_not_noted(sandbox: Sandbox) -> None:
    """Its pid file is written when a program runs already: a kill in between leaves nothing but the program."""
    lab = sandbox.deploy(model(sandbox, 2, "[ssh, dns]"), k=1000.0).lab
    (lab.processes_directory / ".svc" / SERVER / "dns" / "dnsmasq.pid").unlink()
    lab = apply(sandbox, model(sandbox, 3, "[ssh, dns]"))
    assert ("dns", SERVER) in pids(lab)
    assert in_node(lab, HOST, partial(resolve, address(lab, SERVER), f"{NEW}.{lab.name}")) == address(lab, NEW)


def guards(lab: RunningLab) -> list[str]:
    """The nodes that keep management apart from data."""

    def counters() -> list[Any]:
        with closing(NetfilterSocket()) as item:
            return list(item.counters(TABLE, NFPROTO_IPV4))

    return [node.name for node in lab.model.nodes if in_node(lab, node.name, counters)]
