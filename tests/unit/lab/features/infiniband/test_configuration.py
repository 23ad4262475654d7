"""The files that ibsim and OpenSM are started from."""

from dataclasses import replace
from pathlib import Path

import pytest

from testbed.base.errors import SpecError
from testbed.lab.core.model import InfinibandFabric, Lab
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology, load_topology_text, topology_document
from testbed.lab.features.infiniband.configuration import (
    manager_settings,
    manager_text,
    network_text,
    partitions_text,
    plan_subnet,
    simulator_limits,
)
from testbed.lab.features.infiniband.fabric import resolve_back_end
from testbed.lab.features.infiniband.schema import MAX_MANAGERS

TOPOLOGIES = Path(__file__).parents[5] / "topologies" / "infiniband"
TEXT = """name: lab
fabric:
  design: rail-optimized
  segments: 2
  hosts: 1
  gpus: 1
  spines: 1
  link_layer: infiniband
  infiniband: {infiniband}
"""


def fabric(infiniband: str = "{}") -> InfinibandFabric:
    lab: Lab = load_topology_text(TEXT.format(infiniband=infiniband), file="lab.yml")
    assert lab.infiniband is not None
    return lab.infiniband


def test_ibsim_reads_every_node_and_both_ends_of_every_link() -> None:
    subnet = plan_subnet(fabric())
    assert network_text(subnet) == (
        'Hca\t1 "H1"\t# "p1-s1-h1:rail1"\n[1]\t"S1"[1]\n\n'
        'Hca\t1 "H2"\t# "p1-s2-h1:rail1"\n[1]\t"S2"[1]\n\n'
        'Switch\t2 "S1"\t# "p1-s1-rail1"\n[1]\t"H1"[1]\n[2]\t"S3"[1]\n\n'
        'Switch\t2 "S2"\t# "p1-s2-rail1"\n[1]\t"H2"[1]\n[2]\t"S3"[2]\n\n'
        'Switch\t2 "S3"\t# "p1-spine1"\n[1]\t"S1"[2]\n[2]\t"S2"[2]\n\n'
    )


def test_ibsim_has_room_for_larger_subnets_than_its_own_limits() -> None:
    lab = load_topology(
        TOPOLOGIES / "superpod.yml",
        overrides={"fabric.segments": 16, "fabric.switch_radix": 128, "fabric.uplink.count": 1},
    )
    assert lab.infiniband is not None
    options = simulator_limits(plan_subnet(lab.infiniband))
    found = dict(zip(options[::2], map(int, options[1::2]), strict=True))
    assert found["-N"] > 4096 + 128, "2,048 nodes are ibsim's own limit"
    assert found["-S"] > 144
    assert found["-L"] > found["-N"] - 1
    assert found["-P"] > 2 * 4096 + 64 * 128


def test_the_log_is_flushed_and_nothing_is_dumped_into_var_log() -> None:
    subnet = plan_subnet(fabric())
    text = manager_text(manager_settings(subnet, Path("/run/lab/sm-h1"), Path("/run/lab/partitions.conf"), 14))
    settings = dict(line.split(" ", 1) for line in text.splitlines())
    assert settings["force_log_flush"] == "TRUE", "commands wait for lines of the log"
    assert settings["dump_files_dir"] == "/run/lab/sm-h1"
    assert "/var/log" not in text
    assert settings["sweep_interval"] == "10", "a trap that was lost is made good by the next sweep"
    assert settings["routing_engine"] == "ftree,updn"
    assert settings["sm_priority"] == "14"
    assert "congestion_control" not in settings, "it would overwrite tables of HCAs in ibsim"


def test_lanes_and_weights_are_told() -> None:
    infiniband = "{vls: 2, sl2vl: {0: 0, 1: 1}, vl_arbitration: {high: {1: 64}, low: {0: 8}, limit: 4}}"
    settings = manager_settings(plan_subnet(fabric(infiniband)), Path("/sm"), Path("/p"), 14)
    assert settings["qos_max_vls"] == "2"
    assert settings["qos_sl2vl"] == "0,1,15,15,15,15,15,15,15,15,15,15,15,15,15,15"
    assert settings["qos_vlarb_high"] == "1:64"
    assert settings["qos_vlarb_low"] == "0:8"
    assert settings["qos_high_limit"] == "4"


def test_tables_of_lanes_are_given_back_as_opensm_has_them_by_itself() -> None:
    subnet = plan_subnet(fabric())
    plain = manager_settings(subnet, Path("/sm"), Path("/p"), 14)
    assert plain["qos"] == "FALSE", "what a file leaves out stays as it was where it is read anew"
    given_back = manager_settings(subnet, Path("/sm"), Path("/p"), 14, lanes=True)
    assert given_back == plain | {"qos": "TRUE"}


def test_without_partitions_all_are_full_members_and_with_them_nobody_is() -> None:
    assert partitions_text(plan_subnet(fabric())) == "Default=0x7fff : ALL=full;\n"
    text = partitions_text(plan_subnet(fabric('{partitions: {red: {nodes: ["p1-s1-*"], sl: 1}, blue: [p1-s2-h1]}}')))
    assert text == (
        "Default=0x7fff : ALL=limited, SELF=full;\n"
        "red=0x0001, sl=1, defmember=full :\n  0x100001=full;\n"
        "blue=0x0002, sl=0, defmember=full :\n  0x100003=full;\n"
    )


def test_managers_are_at_the_first_hca_of_their_hosts() -> None:
    subnet = plan_subnet(fabric("{sm: {nodes: [p1-s2-h1, p1-s1-h1]}}"))
    assert [node.name for node in subnet.managers] == ["p1-s2-h1:rail1", "p1-s1-h1:rail1"]
    assert [node.name for node in plan_subnet(fabric()).managers] == ["p1-s1-h1:rail1"], "the first host has one"


def test_the_first_host_with_a_nic_in_the_back_end_has_the_manager() -> None:
    text = TEXT.replace("  link_layer: infiniband\n  infiniband: {infiniband}\n", "")
    lab = load_topology_text(text, file="lab.yml")
    apart = replace(lab.hosts[0], name="h0")
    found, problems = resolve_back_end(
        topology_document(text, "lab.yml"), "infiniband", None, replace(lab, nodes=(apart, *lab.nodes))
    )
    assert not problems
    assert found.infiniband is not None
    assert [node.name for node in plan_subnet(found.infiniband).managers] == ["p1-s1-h1:rail1"]


def test_more_managers_than_ibsim_has_room_for_are_refused() -> None:
    text = TEXT.replace("hosts: 1", "hosts: 8")
    names = [f"p1-s{segment}-h{host}" for segment in (1, 2) for host in range(1, 9)]
    most = load_topology_text(
        text.format(infiniband=f"{{sm: {{nodes: [{', '.join(names[:MAX_MANAGERS])}]}}}}"), file="lab.yml"
    )
    assert len(most.infiniband.settings.sm_hosts) == MAX_MANAGERS
    with pytest.raises(SpecError) as refused:
        load_topology_text(
            text.format(infiniband=f"{{sm: {{nodes: [{', '.join(names[: MAX_MANAGERS + 1])}]}}}}"), file="lab.yml"
        )
    (problem,) = refused.value.problems
    assert (problem.code, problem.message) == ("out-of-range", "a subnet has room for 8 managers, and not 9")


def test_names_of_partitions_are_letters_that_opensm_reads() -> None:
    with pytest.raises(SpecError) as refused:
        fabric("{partitions: {r\u00f3t: [p1-s1-h1]}}")
    assert [problem.code for problem in refused.value.problems] == ["bad-name"]


def test_hosts_have_ports_of_management_beside_a_subnet_and_its_switches_none() -> None:
    lab = load_topology_text(
        TEXT.format(infiniband="{}") + "networks: {management: {design: out-of-band, services: [dns]}}\n",
        file="lab.yml",
    )
    plan = plan_lab(lab, k=1)
    assert set(plan.management.addresses) == {"mgmt1", "p1-s1-h1", "p1-s2-h1"}
