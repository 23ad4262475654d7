"""What a rank is told by its environment, in the words of each family of libraries."""

from dataclasses import replace
from ipaddress import IPv6Address
from pathlib import Path

from fake_lab import small_lab

from testbed.run.launch.environment import (
    FAMILIES,
    FIRST_PORT,
    LAUNCH_VARIABLE,
    PORTS,
    ProgramRanks,
    environment_of,
    remote_shell,
)
from testbed.run.launch.options import LaunchOptions
from testbed.run.launch.ranks import place_ranks


def ranks() -> ProgramRanks:
    lab, plan = small_lab(rails=2, spines=1)
    places = place_ranks(lab, plan, LaunchOptions(per_gpu=True))
    return ProgramRanks(lab="fake", k=20000.0, launch="fake-0000abcd", places=places)


def test_torch_and_a_program_of_ones_own_find_rank_0() -> None:
    program = ranks()
    first, last = environment_of(program, program.places[0]), environment_of(program, program.places[-1])
    assert (first["RANK"], last["RANK"], last["WORLD_SIZE"]) == ("0", "7", "8")
    assert (last["LOCAL_RANK"], last["LOCAL_WORLD_SIZE"], last["GROUP_RANK"]) == ("1", "2", "3")
    assert first["MASTER_ADDR"] == last["MASTER_ADDR"] == first["LAB_ADDRESS"] == str(program.places[0].address)
    assert last["LAB_PEERS"].split(",")[7] == last["LAB_ADDRESS"] != first["LAB_ADDRESS"]
    assert (last["LAB_HOST"], last["LAB_RAIL"], last["LAB_K"]) == ("p1-s2-h2", "rail2", "20000")
    assert last[LAUNCH_VARIABLE] == "fake-0000abcd"


def test_the_rail_is_named_to_every_family_that_asks_for_an_interface() -> None:
    program = ranks()
    env = environment_of(program, program.places[1])
    for name in ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "FI_TCP_IFACE", "HYDRA_IFACE"):
        assert env[name] == "rail2", name
    assert env["NCCL_SOCKET_IFNAME"] == "=rail2", "and not each that begins so"
    assert env["UCX_NET_DEVICES"] == "rail2,rail1", "its own first: it finds no way from one to the other"
    alone = replace(program, places=program.places[::2])
    assert environment_of(alone, alone.places[1])["UCX_NET_DEVICES"] == "rail1"
    assert env["OMPI_MCA_btl_tcp_if_include"] == env["PRTE_MCA_prte_if_include"] == "rail2"
    assert env["HYDRA_LAUNCHER_EXEC"] == env["PRTE_MCA_plm_ssh_agent"] == remote_shell()
    assert Path(remote_shell()).is_absolute()


def test_ports_are_those_that_the_kernel_does_not_give_out_and_jax_has_its_own() -> None:
    program = ranks()
    assert FIRST_PORT + PORTS <= 32768
    for launch in ("x-00000000", "x-ffffffff", "x-12345679"):
        port = replace(program, launch=launch).port
        assert FIRST_PORT <= port < FIRST_PORT + PORTS - 1
        env = environment_of(replace(program, launch=launch), program.places[2])
        assert env["MASTER_PORT"] == str(port)
        assert env["JAX_COORDINATOR_ADDRESS"].rpartition(":")[2] == str(port + 1)


def test_an_address_of_ipv6_has_brackets_where_a_port_follows() -> None:
    program = ranks()
    places = [replace(place, address=IPv6Address(f"fd00::{place.rank + 1}")) for place in program.places]
    env = environment_of(replace(program, places=places), places[1])
    assert env["JAX_COORDINATOR_ADDRESS"].startswith("[fd00::1]:")
    assert env["MASTER_ADDR"] == "fd00::1"


def test_families_do_not_contradict_each_other() -> None:
    program = ranks()
    names = [name for family in FAMILIES.values() for name in family(program, program.places[0])]
    assert len(names) == len(set(names))
