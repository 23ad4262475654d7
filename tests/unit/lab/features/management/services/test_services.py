"""What services are made of beside what tests/golden/services has: users, capabilities, ports, and where they are."""

import hashlib
import hmac
import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from testbed.base.errors import PlanError, SpecError
from testbed.base.installation.packages import PACKAGES, PROGRAMS, Level
from testbed.daemons.sflow.configuration import MACHINE_NETWORK
from testbed.lab.core.model.management import SERVICES, ManagementService, RunsOn, SflowSettings
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.management.services import aaa, asking, launcher, status_server
from testbed.lab.features.management.services.lldp import neighbours
from testbed.lab.features.management.services.ntp import synchronised
from testbed.lab.features.management.services.registry import REGISTRY
from testbed.lab.features.management.services.service import SOCKET, Place, ServiceProgram, Surroundings
from testbed.lab.features.management.services.sflow import sflow_configuration
from testbed.lab.features.management.services_schema import ServicesSpec

GOLDEN_METRICS = Path(__file__).parents[5] / "golden" / "telemetry" / "metrics.txt"
DASHBOARDS = sorted((Path(launcher.__file__).parent / "dashboards").glob("*.json"))
LABELS = {"lab", "node", "interface", "network", "class"}
NODES = ("mgmt1", "leaf1", "h1")
TEXT = """name: lab
fabric: {{design: rail-optimized, hosts: 2, gpus: 1, segments: 1, spines: 1}}
networks:
  management:
    design: out-of-band
    services: {services}
"""


@pytest.fixture(autouse=True)
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are some, as when the services were prepared."""
    (tmp_path / "password").write_text("secret")
    monkeypatch.setattr(
        "testbed.lab.features.management.services.redfish.password_file", lambda _: tmp_path / "password"
    )
    monkeypatch.setattr("testbed.lab.features.management.services.aaa.accounts_directory", lambda _: tmp_path)
    for name in (*aaa.ACCOUNTS, *(f"secret-{node}" for node in NODES)):
        (tmp_path / name).write_text(f"secret of {name}")


def surroundings(run: Path = Path("/run/testbed/lab"), *names: str) -> Surroundings:
    return Surroundings(
        lab="lab",
        server="mgmt1",
        network=IPv4Network("192.168.0.0/24"),
        addresses={node: IPv4Address(f"192.168.0.{number}") for number, node in enumerate(NODES, 1)},
        macs={node: f"02:00:00:00:00:0{number}" for number, node in enumerate(NODES, 1)},
        interfaces=dict.fromkeys(NODES, "mgmt0"),
        data_ports={"leaf1": ("uplink1", "down1"), "h1": ("rail1",)},
        routing=frozenset({"leaf1"}),
        hosts={"h1": ("leaf1",)},
        switches=("leaf1",),
        switchable=frozenset({"leaf1", "h1"}),
        services={name: ManagementService(name=name) for name in names or SERVICES},
        namespaces={node: f"lab-{node}" for node in NODES},
        run=run,
    )


def place(service: str, node: str, *names: str) -> Place:
    known = surroundings(Path("/run/testbed/lab"), *names)
    return Place(service=service, node=node, address=known.addresses[node], lab=known)


def places() -> list[Place]:
    return [
        place(name, node)
        for name, kind in SERVICES.items()
        for node in NODES
        if kind.runs_on.includes(node, "mgmt1", host=node == "h1")
    ]


def text_of(at: Place) -> str:
    return "\n".join(file.text for file in REGISTRY[at.service].files(at).values())


def test_every_service_is_in_the_model_in_the_registry_and_a_key_of_the_file() -> None:
    assert set(SERVICES) == set(REGISTRY) == set(ServicesSpec.model_fields)
    known = {program.name: program for program in PROGRAMS}
    assert all(set(service.needs) <= set(known) for service in REGISTRY.values())
    assert all(set(kind.needs) < set(SERVICES) for kind in SERVICES.values())


def test_every_package_of_a_service_is_installed_by_the_launcher_and_named_in_the_guide() -> None:
    root = Path(__file__).parents[6]
    installed = {package.name for package in PACKAGES if (package.level or Level.ALL_TESTS) <= Level.TESTS}
    guide = (root / "docs" / "guides" / "services.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*)\|[^|]*\|[^|]*\|$", guide, re.MULTILINE))
    known = {program.name: program for program in PROGRAMS}
    assert set(rows) == set(REGISTRY)
    for name, service in REGISTRY.items():
        for program in (known[need] for need in service.needs):
            assert program.package in installed or program.pip
            assert program.name == "ssh" or f"`{program.package.partition('==')[0]}`" in rows[name]


def test_no_service_has_more_rights_than_it_says() -> None:
    """Only what lets people in, speaks LLDP or enters all nodes is root, and nothing gets a capability later."""
    roots = set()
    for at in places():
        for program in REGISTRY[at.service].programs(at):
            if not program.user:
                roots.add(program.name)
            assert program.arguments[0] not in ("sh", "bash")
            assert program.name in ("power", "console") or "sys_ptrace" not in program.capabilities
            assert {"sys_module", "sys_rawio", "sys_time", "sys_boot"}.isdisjoint(program.capabilities)
    assert roots == {"sshd", "lldpd", "exporter", "sflow", "gnmi", "power", "slurmd", "console"}


def test_a_program_is_started_as_its_user_with_its_capabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "_located", lambda name: f"/usr/sbin/{name}")
    program = ServiceProgram(name="d", arguments=("d", "-n"), user="nobody", capabilities=("net_bind_service",))
    found = launcher.command_line(place("dns", "mgmt1"), program)
    assert found[:3] == ["setpriv", "--no-new-privs", "--bounding-set=-all,+net_bind_service"]
    assert {"--clear-groups", "--inh-caps=-all,+net_bind_service", "--ambient-caps=-all,+net_bind_service"} < set(found)
    assert found[-3:] == ["--", "/usr/sbin/d", "-n"]
    assert any(re.fullmatch(r"--reuid=[1-9]\d*", word) for word in found)
    root = launcher.command_line(place("dns", "mgmt1"), ServiceProgram(name="d", arguments=("d",)))
    assert root == ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", "--", "/usr/sbin/d"]


@pytest.mark.process
def test_whatever_listens_has_the_address_of_its_node_alone() -> None:
    for at in places():
        text = text_of(at) + " ".join(word for item in REGISTRY[at.service].programs(at) for word in item.arguments)
        assert "0.0.0.0" not in text and "[::]" not in text
        assert str(at.address) in text or at.service in ("dhcp", "syslog", "gnmi")
        if at.service == "gnmi":
            assert {str(at.lab.addresses[switch]) for switch in at.lab.switches} == set(re.findall(r"192[.\d]+", text))


def test_paths_of_sockets_are_short_enough() -> None:
    """`sockaddr_un` has 108 bytes; names of labs and nodes have 28 and 48 at most (`testbed.base.names`)."""
    known = surroundings(Path("/run/testbed") / ("l" * 28))
    for service in ("time", "lldp"):
        at = Place(service=service, node="n" * 48, address=IPv4Address("192.168.0.9"), lab=known)
        assert len(str(at.own / SOCKET)) < 108


def test_dhcp_names_only_servers_that_there_are() -> None:
    alone = text_of(place("dhcp", "mgmt1", "dhcp"))
    assert "ntp-server" not in alone
    assert "dhcp-option=option:dns-server\n" in alone


def test_ssh_has_a_key_of_each_node_and_shows_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.lab.features.management.services.ssh._SEPARATION", str(tmp_path / "sshd"))
    known = surroundings(tmp_path)
    ssh = REGISTRY["ssh"]
    ssh.prepare(known)
    secret = {path for path in (known.directory / ".ssh").iterdir() if b"PRIVATE" in path.read_bytes()}
    assert {path.name for path in secret} == {"id", "host-mgmt1", "host-leaf1", "host-h1"}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in secret)
    assert (known.directory / ".ssh").stat().st_mode & 0o777 == 0o700
    before = {path: path.read_bytes() for path in secret}
    ssh.prepare(known)  # a restart
    assert before == {path: path.read_bytes() for path in secret}
    shown = [*ssh.for_people(known).values()]
    for node in NODES:
        at = Place(service="ssh", node=node, address=known.addresses[node], lab=known)
        shown += [file.text for file in ssh.files(at).values() if not file.secret]
    assert "PRIVATE" not in "".join(shown)
    assert len((known.directory / ".ssh" / "known_hosts").read_text().splitlines()) == len(NODES)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("C0A80001,192.168.0.1,6,1795634649.0,0,0,0,0,0,0,0,0,0.1,Normal\n", "stratum 6"),
        ("00000000,,0,0.0,0,0,0,0,0,0,0,0,0.0,Not synchronised\n", None),
        ("", None),
    ],
)
def test_a_client_of_time_is_synchronised_or_says_nothing(said: str, words: str | None) -> None:
    assert synchronised(said) == words


def test_the_password_of_the_bmc_is_in_no_file_and_opens_it() -> None:
    import bcrypt

    files = REGISTRY["redfish"].files(place("redfish", "mgmt1"))
    assert not any("secret" in file.text for file in files.values())
    account, _, hashed = files["htpasswd"].text.strip().partition(":")
    assert account == "admin" and files["htpasswd"].secret
    assert bcrypt.checkpw(b"secret", hashed.encode())
    assert "'name': 'h1'" in files["sushy.conf"].text and "'name': 'mgmt1'" not in files["sushy.conf"].text


def test_neighbours_are_counted() -> None:
    assert neighbours('{"lldp": [{"interface": [{"name": "up1"}, {"name": "up2"}]}]}') == "2 neighbours"
    assert neighbours('{"lldp": [{}]}') == "0 neighbours"
    assert neighbours("garbage") is None


@pytest.mark.parametrize("answer", [b"", b"\0" * 11, b"\xff" * 64, None])
def test_an_answer_that_is_no_dns_is_none(answer: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "exchange", lambda *_: answer)
    assert asking.resolve(IPv4Address("192.168.0.1"), "h1.lab") is None


def test_services_are_planned_where_they_run() -> None:
    lab = load_topology_text(TEXT.format(services="[dns, ssh, lldp]"), file="lab.yml")
    plan = plan_lab(lab, k=1000)
    by_service = {name: [item.node for item in plan.services if item.service == name] for name in SERVICES}
    everybody = [node.name for node in lab.nodes if node.name != "mgmt-sw1"]
    assert sorted(by_service["ssh"]) == sorted(everybody)
    assert by_service["dns"] == ["mgmt1"]
    assert sorted(by_service["lldp"]) == sorted(set(everybody) - {"mgmt1"})
    assert not by_service["time"]
    assert next(item.service for item in plan.services) == "ssh"  # in the order of the table, not of the file


def test_a_container_runs_no_services() -> None:
    """What would be started is this machine's, and would see the container's network alone."""
    nodes = "topology: {nodes: {p1-s1-h1: {runtime: docker, image: alpine}}}\n"
    lab = load_topology_text(TEXT.format(services="[ssh, syslog]") + nodes, file="lab.yml")
    plan = plan_lab(lab, k=1000)
    assert plan.management is not None and "p1-s1-h1" in plan.management.addresses
    assert "p1-s1-h1" not in {item.node for item in plan.services}
    assert "p1-s1-h2" in {item.node for item in plan.services}


def test_a_mapping_says_the_same_as_a_list_and_more() -> None:
    written = [
        load_topology_text(TEXT.format(services=text), file="lab.yml") for text in ("[ssh, dns]", "{dns: , ssh: {}}")
    ]
    assert written[0].networks == written[1].networks
    telemetry = load_topology_text(TEXT.format(services="{telemetry: {interval: 5s}}"), file="lab.yml")
    assert telemetry.networks[0].services[0].interval.ns == 5_000_000_000
    with pytest.raises(SpecError, match=r"unknown-key.*interval"):
        load_topology_text(TEXT.format(services="{ssh: {interval: 5s}}"), file="lab.yml")


def test_sflow_goes_to_the_server_unless_it_is_told_where() -> None:
    load = [
        load_topology_text(TEXT.format(services=text), file="lab.yml").networks[0].services[0].sflow
        for text in (
            "[sflow]",
            "{sflow: {collector: 192.168.0.9, sampling: 10}}",
            "{sflow: {collector: '127.0.0.1:7'}}",
        )
    ]
    assert [(item.collector, item.port, item.sampling, item.polling.ns) for item in load] == [
        (None, 6343, 400, 10_000_000_000),
        (IPv4Address("192.168.0.9"), 6343, 10, 10_000_000_000),
        (IPv4Address("127.0.0.1"), 7, 400, 10_000_000_000),
    ]
    at = place("sflow", "mgmt1")
    assert sflow_configuration(at).collector == at.lab.server_address


@pytest.mark.parametrize(
    "collector", ["10.0.0.1:0", "10.0.0.1:65536", "224.0.0.1", "0.0.0.0", "10.0.0", "fe80::1", "10.0.0.1:", "300.0.0.1"]
)
def test_a_collector_is_somebody_s_address(collector: str) -> None:
    with pytest.raises(SpecError, match=r"sflow\.collector"):
        load_topology_text(TEXT.format(services=f"{{sflow: {{collector: '{collector}'}}}}"), file="lab.yml")


def test_only_a_collector_of_this_machine_needs_its_network() -> None:
    handed_on = []
    for settings in (SflowSettings(), SflowSettings(collector=IPv4Address("127.0.0.1"))):
        services = {"sflow": ManagementService(name="sflow", sflow=settings)}
        at = place("sflow", "mgmt1")
        (program,) = REGISTRY["sflow"].programs(replace(at, lab=replace(at.lab, services=services)))
        handed_on.append(program.machine_network)
    assert handed_on == ["", MACHINE_NETWORK]


@pytest.mark.parametrize(
    ("services", "said", "hint"),
    [
        ("time", "the service time needs the package chrony", "apt-get install chrony"),
        (
            "slurm",
            "the service slurm needs the packages munge, slurmctld, slurmd and slurm-client, which are",
            "apt-get install munge slurmctld slurmd slurm-client",
        ),
        (
            "dns, dhcp, redfish",
            "services dns, dhcp and redfish need the packages dnsmasq-base and",
            "apt-get install dnsmasq-base; pip install sushy-tools==2.2.0",
        ),
    ],
)
def test_all_missing_packages_are_named_with_the_line_that_installs_them(
    monkeypatch: pytest.MonkeyPatch, services: str, said: str, hint: str
) -> None:
    from testbed.lab.features.management.services_apply import require_services

    monkeypatch.setattr(type(PROGRAMS[0]), "locate", lambda *_: None)
    with pytest.raises(PlanError, match=said) as caught:
        require_services(load_topology_text(TEXT.format(services=f"[{services}]"), file="lab.yml"))
    assert (caught.value.code, caught.value.field) == ("no-package", "networks.management.services")
    assert caught.value.hint == hint


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_expression_of_a_dashboard_names_a_metric_that_we_export(path: Path) -> None:
    families = re.findall(r"^# TYPE (testbed_\w+) (\w+)$", GOLDEN_METRICS.read_text(), re.MULTILINE)
    exported = {f"{name}_total" if kind == "counter" else name for name, kind in families}
    dashboard = json.loads(path.read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    expressions += [item["query"] for item in dashboard["templating"]["list"] if item["type"] == "query"]
    named = [set(re.findall(r"\btestbed_\w+", expression)) for expression in expressions]
    assert expressions and all(named)
    assert set().union(*named) <= exported
    labels = re.findall(r"by \(([^)]*)\)|{{(\w+)}}", path.read_text())
    assert {word.strip() for pair in labels for text in pair for word in text.split(",") if word} <= LABELS
    of_ports = [expression for expression in expressions if re.search(r"testbed_(kernel|queue|pause)_", expression)]
    assert len(of_ports) >= 9
    assert all('network=~"$network"' in one for one in of_ports if not one.startswith("label_values"))


@pytest.mark.parametrize(
    ("runs_on", "nodes"),
    [(RunsOn.SERVER, {"mgmt1"}), (RunsOn.MANAGED, {"leaf1", "h1"}), (RunsOn.HOSTS, {"mgmt1", "h1"})],
)
def test_a_service_is_where_it_runs(runs_on: RunsOn, nodes: set[str]) -> None:
    assert {node for node in NODES if runs_on.includes(node, "mgmt1", host=node == "h1")} == nodes


def test_a_switch_asks_for_its_log_ins_and_shows_no_secret() -> None:
    switch, host = (REGISTRY["ssh"].files(place("ssh", node)) for node in ("leaf1", "h1"))
    assert (
        "UsePAM yes\n" in switch["sshd_config"].text
        and "AllowUsers root operator admin\n" in switch["sshd_config"].text
    )
    assert "UsePAM no\n" in host["sshd_config"].text and "radius.conf" not in host
    assert switch["radius.conf"].text == "192.168.0.1:1812 secret of secret-leaf1 3 192.168.0.2\n"
    assert all(file.secret or "secret of" not in file.text for file in switch.values())
    names = [line.split(":")[0] for line in switch["passwd"].text.splitlines()]
    assert len(names) == len(set(names)) and {"root", *aaa.ACCOUNTS} <= set(names)
    assert next(line for line in switch["passwd"].text.splitlines() if line.split(":")[2] == "0").startswith("root:")
    alone, other = (REGISTRY["ssh"].files(place("ssh", node, "ssh"))["sshd_config"].text for node in ("leaf1", "h1"))
    assert alone.replace("192.168.0.2", "192.168.0.3").replace("leaf1", "h1") == other


def test_the_authentication_server_has_no_password_but_their_hashes() -> None:
    files = REGISTRY["aaa"].files(place("aaa", "mgmt1"))
    assert files["users"].secret and files["clients"].secret
    assert "secret of" not in files["users"].text + files["radiusd.conf"].text
    assert [line.split()[1] for line in files["clients"].text.splitlines() if "client" in line] == ["mgmt1", "leaf1"]


@pytest.mark.parametrize(("secret", "answers"), [("right", True), ("wrong", False)])
def test_a_status_server_is_believed_with_the_secret_alone(secret: str, answers: bool) -> None:
    """An answer as RFC 5997 has it: Access-Accept, signed over the request's authenticator."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))

        def answer() -> None:
            request, client = server.recvfrom(4096)
            signed = request[:22] + bytes(16)
            assert request[22:] == hmac.new(b"right", signed, "md5").digest()
            head = bytes((2, request[1], 0, 20))
            server.sendto(head + hashlib.md5(head + request[4:20] + secret.encode()).digest(), client)

        with ThreadPoolExecutor(1) as pool:
            answered = pool.submit(answer)
            assert status_server.server_answers("127.0.0.1", server.getsockname()[1], "right") is answers
            answered.result()


def test_the_reports_of_switches_have_their_names(tmp_path: Path) -> None:
    known = surroundings(tmp_path)
    for _ in range(2):  # a restart
        REGISTRY["bmp"].prepare(known)
    (link,) = (known.directory / "mgmt1" / "bmp").iterdir()
    assert (link.name, str(link.readlink())) == ("leaf1.json", "own/192_168_0_2.json")


def test_a_service_is_nothing_without_those_that_it_needs() -> None:
    for name, kind in SERVICES.items():
        if kind.needs:
            with pytest.raises(SpecError, match="missing-service"):
                load_topology_text(TEXT.format(services=f"{{{name}: }}"), file="lab.yml")
            load_topology_text(TEXT.format(services=f"[{name}, {', '.join(kind.needs)}]"), file="lab.yml")
