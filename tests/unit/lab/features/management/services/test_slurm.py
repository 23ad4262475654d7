"""The service slurm: its configuration, what is read of its state, its key, and the ports that its hosts may use."""

import pwd
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from testbed.lab.core.model.management import SLURM_CLIENT_PORTS, SLURM_PMI_PORTS, SLURMD_PORT, ManagementService
from testbed.lab.features.management.services import slurm
from testbed.lab.features.management.services.service import Place, Surroundings
from testbed.lab.features.management.services.slurm import Slurm, states_of_nodes, topology

NODES = ("mgmt1", "leaf1", "h1", "h2")


def surroundings(run: Path = Path("/run/testbed/lab")) -> Surroundings:
    return Surroundings(
        lab="lab",
        server="mgmt1",
        network=IPv4Network("192.168.0.0/24"),
        addresses={node: IPv4Address(f"192.168.0.{number}") for number, node in enumerate(NODES, 1)},
        macs={node: f"02:00:00:00:00:0{number}" for number, node in enumerate(NODES, 1)},
        interfaces=dict.fromkeys(NODES, "mgmt0"),
        data_ports={},
        routing=frozenset({"leaf1"}),
        hosts={"h1": ("leaf1", "leaf2"), "h2": ("leaf1", "leaf2")},
        switches=("leaf1",),
        switchable=frozenset({"leaf1", "h1", "h2"}),
        services={"slurm": ManagementService(name="slurm")},
        namespaces={node: f"lab-{node}" for node in NODES},
        run=run,
    )


def place(node: str) -> Place:
    known = surroundings()
    return Place(service="slurm", node=node, address=known.addresses[node], lab=known)


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ("h1 idle\nh2 idle\n", "2 idle"),
        ("h1 allocated\nh2 idle\nh3 down*\n", "1 allocated, 1 down, 1 idle"),
        ("h1 idle\nh1 idle\n", "1 idle"),  # in two partitions
        ("h1 unknown*\nh2 idle\n", None),
        ("", None),
    ],
)
def test_nodes_are_counted_by_state_once_all_have_been_heard_of(listed: str, words: str | None) -> None:
    assert states_of_nodes(listed) == words


def test_topology_has_hosts_on_the_switch_of_their_first_nic() -> None:
    hosts = {"h1": ("leaf1", "leaf2"), "h2": ("leaf1",), "h3": ("leaf3",), "h4": ()}
    assert topology(hosts).splitlines() == [
        "SwitchName=leaf1 Nodes=h1,h2",
        "SwitchName=leaf3 Nodes=h3",
        "SwitchName=fabric Switches=leaf1,leaf3",
    ]
    assert topology({"h1": ("leaf1",)}) == "SwitchName=leaf1 Nodes=h1\n"
    assert topology({"h1": ()}) == ""


@pytest.mark.process
def test_all_nodes_have_one_configuration_and_addresses_of_management() -> None:
    texts = {Slurm().files(place(node))["slurm.conf"].text for node in ("mgmt1", "h1", "h2")}
    (text,) = texts
    assert "SlurmctldHost=mgmt1(192.168.0.1)\n" in text
    assert "NodeName=h1 NodeAddr=192.168.0.3 CPUs=2 State=UNKNOWN\n" in text
    assert "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny\n" in text
    assert "leaf1" not in text, "a switch runs no tasks"


@pytest.mark.parametrize(("version", "has"), [((22, 5), False), ((23, 11), True), ((24, 11), True)])
def test_cgroups_are_turned_off_where_slurm_knows_how(
    version: tuple[int, int], has: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "version", lambda: version)
    assert ("cgroup.conf" in Slurm().files(place("h1"))) is has


def test_the_key_is_made_once_for_a_lab_and_for_its_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    me = pwd.getpwuid(tmp_path.stat().st_uid)
    monkeypatch.setattr("pwd.getpwnam", lambda _: me)
    monkeypatch.setattr(slurm, "SPOOL", tmp_path / "spool")
    keys = []
    for lab in ("a", "b"):
        known = surroundings(tmp_path / lab)
        Slurm().prepare(known)
        key = slurm.munge_directory(known) / "key"
        assert key.stat().st_mode & 0o777 == 0o600
        keys.append(key.read_bytes())
        Slurm().prepare(known)  # a restart
        assert key.read_bytes() == keys[-1]
    assert len(keys[0]) == slurm.KEY_BYTES and keys[0] != keys[1]


def test_daemons_have_no_rights_but_what_starts_tasks() -> None:
    munged, controller = Slurm().programs(place("mgmt1"))
    assert (munged.user, controller.user) == ("munge", "slurm")
    assert munged.capabilities == controller.capabilities == ()
    (slurmd,) = Slurm().programs(place("h1"))
    assert slurmd.user == ""
    assert {"sys_admin", "net_admin", "sys_ptrace", "sys_chroot", "mknod"}.isdisjoint(slurmd.capabilities)


def test_ports_of_clients_are_apart_from_the_daemons_and_under_one_mask() -> None:
    assert SLURMD_PORT not in SLURM_CLIENT_PORTS
    assert slurm.CONTROLLER_PORT not in SLURM_CLIENT_PORTS
    for ports in (SLURM_CLIENT_PORTS, SLURM_PMI_PORTS):
        size = len(ports)
        assert size & (size - 1) == 0 and ports.start % size == 0
    assert {*SLURM_CLIENT_PORTS} < {*SLURM_PMI_PORTS}, "so that one rule lets both pass"


def test_paths_of_sockets_are_short_enough() -> None:
    """`sockaddr_un` has 108 bytes; names of labs and nodes have 28 and 48 at most (`testbed.base.names`)."""
    known = surroundings(Path("/run/testbed") / ("l" * 28))
    assert len(str(slurm.socket(known))) < 108
    assert len(f"{slurm.SPOOL}/{'n' * 48}_9999999.4294967291") < 108  # slurmstepd's: node, job, step
